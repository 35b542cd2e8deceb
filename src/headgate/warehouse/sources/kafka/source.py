"""A source of records from a Kafka topic.

Which records have been loaded is kept in the commits of the stream's table, by partition, and nowhere else: the offsets
that Kafka itself keeps for groups of consumers are not used. So every record is loaded exactly once, also if the
process or a broker dies in between.

A chunk is a block of some offsets of a partition. How large records are is not known before they are read: the size of
those that were read last is taken for that of the next. An update takes no more than fits into the driver's memory,
unless the executors read: see ``on_executors``.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Literal

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.sources.errors import PackageMissing, ServerUnreachable, SourceChanged, SourceError
from headgate.warehouse.sources.kafka.avro import AvroValues, SchemaRegistry
from headgate.warehouse.sources.kafka.columns import RecordColumns
from headgate.warehouse.sources.kafka.formats import JsonValues, RawValues, ValueFormat
from headgate.warehouse.sources.kafka.next_records import next_records, partitions_left
from headgate.warehouse.sources.kafka.offsets import KafkaOffset, KafkaRange, Run, chunks_in
from headgate.warehouse.sources.kafka.on_executors import Executors, PieceReader, forget, most_bytes, pieces_of
from headgate.warehouse.sources.kafka.options import Isolation, KafkaClients, shown_servers
from headgate.warehouse.sources.kafka.topics import TopicLook, WatchedTopic
from headgate.warehouse.sources.protocol import Limit, Notice, Offset, Pending, Range, expect_kind
from headgate.warehouse.sources.schema import parse_schema
from headgate.warehouse.sources.sql import ddl

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from headgate.warehouse.sources.kafka.quick import QuickJson
    from headgate.warehouse.sources.kafka.records import RecordReader

#: what the size of a record is taken for before one was read, in bytes, and how many are read to learn it
_FIRST_RECORD_BYTES, _SAMPLE = 1_000, 1_000
#: the weight of the last read in the size of a record
_LEARNING = 0.3
#: the most offsets and bytes of a range; a read that finds records so much larger than before is broken off
MOST_OFFSETS, MOST_BYTES, BROKEN_OFF = 1_000_000, 128 << 20, 4
#: how many missing runs a message names
_NAMED = 10

_FORMATS = ("json", "avro", "raw")


class Kafka:
    """The records of a topic.

    - ``servers``: some brokers of the cluster, as in ``"kafka-1:9092,kafka-2:9092"``.
    - ``format``: what is in values: ``json`` (one object), ``avro`` with the number of its schema in a registry before
      it, or ``raw`` (one column of the type string or binary).
    - ``schema``: the columns of a value as Spark writes them. Not needed for ``raw``: ``value string``.
    - ``registry``: the address of the schema registry for ``avro``, as in ``"http://user:password@registry:8081"``.
    - ``record``: columns from other parts of a record, by name: ``{"sent": "timestamp", "customer": "key"}``. The parts
      are key, key_bytes, timestamp, timestamp_type, partition, offset, headers and tombstone. A list of parts has
      columns of the same names. Without ``tombstone`` records without a value go to the table of rejected rows.
    - ``start``: where to begin when nothing has been loaded yet: ``earliest``, ``latest``, or a moment as in
      ``"2026-11-15T10:00:00Z"``. Partitions that are added later are loaded from their beginning.
    - ``missing``: what to do if records were removed from the topic before they were loaded, by its retention or with
      the topic itself: ``stop``, and say which, or ``skip`` them.
    - ``isolation``: ``read_committed``, or ``read_uncommitted`` to load records of transactions that are aborted later.
    - ``options``: settings of librdkafka, such as ``security.protocol`` and ``sasl.password``. They are never printed.
    - ``parsing``: options for Spark's parser of JSON, such as ``{"timestampFormat": "dd.MM.yyyy HH:mm"}``.
    - ``records_per_chunk``: the largest step, in records of a partition, by which the size of an update changes.
    """

    @noting_a_mistake()
    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        format: str = "json",
        schema: str = "",
        registry: str = "",
        record: Mapping[str, str] | Iterable[str] = (),
        start: str | float = "earliest",
        missing: Literal["stop", "skip"] = "stop",
        isolation: Isolation = "read_committed",
        options: Mapping[str, Any] | None = None,
        parsing: Mapping[str, str] | None = None,
        records_per_chunk: int = 1_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        where = f"Kafka({shown_servers(servers)}, {topic!r})"
        if not isinstance(topic, str) or not topic:
            raise DeclarationError(f"{where} needs the name of a topic")
        if format not in _FORMATS:
            raise DeclarationError(f"{where}: format takes one of {', '.join(_FORMATS)}; got {format!r}")
        if missing not in ("stop", "skip"):
            raise DeclarationError(f"{where}: missing takes 'stop' or 'skip'; got {missing!r}")
        if not isinstance(records_per_chunk, int) or records_per_chunk < 1:
            raise DeclarationError(f"{where}: records_per_chunk is a whole number above 0; got {records_per_chunk!r}")
        clients = KafkaClients(servers, {} if options is None else options, isolation)
        clients.check(where)
        schema = schema or ("value string" if format == "raw" else "")
        values = parse_schema(schema, where)
        self._columns = RecordColumns.of(record, where)
        self._schema = ddl((*values, *self._columns.columns))
        parse_schema(self._schema, where)  # no name twice
        self._format: ValueFormat
        if format == "raw":
            self._format = RawValues.of(values, where)
        elif format == "avro":
            known = SchemaRegistry(registry)
            known.check(where)
            self._format = AvroValues(known, JsonValues(values, dict(parsing or {})))
        else:
            self._format = JsonValues(values, dict(parsing or {}))
        self._clients = clients
        self._name = topic
        self._missing = missing
        self._per_chunk = records_per_chunk
        self._topic = WatchedTopic(clients, topic, _begin(start, where), clock)
        self._declared = (clients.key, topic, self._format, self._columns, start, missing, records_per_chunk)
        self._record_bytes: float | None = None
        self._reader_here: RecordReader | None = None
        self._executors = Executors.for_format(self._format)
        #: rows that lie on the disks of executors
        self._kept: DataFrame | None = None
        #: how many offsets were waiting when the last range was planned
        self._backlog = 0
        #: what users were told of what is skipped
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"Kafka({self._clients.servers!r}, {self._name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kafka) and self._declared == other._declared

    def __hash__(self) -> int:
        return hash((self._clients.servers, self._name))

    @property
    def schema(self) -> str:
        return self._schema

    def resolve(self, base: Path) -> Kafka:
        self._topic.look()  # the first answer is there when it is needed
        return self

    def refresh(self) -> None:
        """Ask the brokers where the topic ends now, and wait for the answer."""
        self._topic.look_now()

    def start(self) -> KafkaOffset:
        return KafkaOffset()

    def fixed_start(self, offset: Offset) -> Offset | None:
        look = self._topic.look()
        if self._topic.start != "latest" or look.problem or not look.start:
            return None
        return KafkaOffset(look.id, dict(sorted(look.start.items())))

    def latest(self, offset: Offset) -> Pending:
        found = self._waiting(expect_kind(offset, KafkaOffset, self))
        if found.problem:
            return Pending(note=found.problem, missing=found.stopped, looked_at=-math.inf)
        if not found.runs:
            note = _shortened(expect_kind(offset, KafkaOffset, self), found.look)
            return Pending(note=note, notices=self._notices(found), looked_at=found.look.looked_at)
        record_bytes = self._bytes_of_a_record()
        behind = _behind(found.runs)
        arrivals = found.look.arrivals
        return Pending(
            chunks=sum(chunks_in(run, self._chunk_records(record_bytes)) for run in found.runs),
            bytes=sum(run.end - run.first for run in found.runs) * record_bytes,
            oldest=min(arrivals[run.partition].at(run.first) for run in found.runs),
            newest=max(arrivals[run.partition].at(run.end - 1) for run in found.runs),
            note=_said_behind(behind),
            notices=self._notices(found),
            looked_at=found.look.looked_at,
            behind={f"partition {partition}": count for partition, count in sorted(behind.items())},
            # Who waits for all that has arrived by now must not miss it.
            earliest=min(arrivals[run.partition].since(run.first) for run in found.runs),
        )

    def next_range(self, offset: Offset, limit: Limit) -> KafkaRange | None:
        found = self._waiting(expect_kind(offset, KafkaOffset, self))
        if found.problem or not found.runs:
            return None
        record_bytes = self._bytes_of_a_record()
        per_chunk = self._chunk_records(record_bytes)
        self._backlog = sum(run.end - run.first for run in found.runs)
        most = self._at_once(limit, record_bytes)
        chosen = next_records(found.runs, found.look.arrivals, most, per_chunk, record_bytes, untouched=found.begin)
        return KafkaRange(
            topic=found.look.id,
            runs=chosen.runs,
            oldest=chosen.oldest,
            newest=chosen.newest,
            begin=found.begin,
            skipped=found.missing,
            per_chunk=per_chunk,
            record_bytes=record_bytes,
            left=() if limit.first == "newest" else partitions_left(found.runs, chosen.runs),
        )

    def parts_left(self, loaded: Range) -> list[str]:
        return [f"{self._name}/{partition}" for partition in expect_kind(loaded, KafkaRange, self).left]

    def advance(self, offset: Offset, loaded: Range) -> KafkaOffset:
        return expect_kind(offset, KafkaOffset, self).after(expect_kind(loaded, KafkaRange, self))

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        import pyarrow as pa

        loaded = expect_kind(wanted, KafkaRange, self)
        if self.is_spread(loaded):
            return self._read_on_executors(spark, loaded)
        self._look_at_executors(spark, loaded)
        read = list(self._packets(loaded)) or [pa.RecordBatch.from_pylist([], self._reader.schema)]
        return self._parsed_by_spark(spark, read)

    def read_arrow(self, spark: SparkSession, wanted: Range) -> pa.Table | None:
        import pyarrow as pa

        loaded, quick = expect_kind(wanted, KafkaRange, self), self._quick
        if quick is None or self.is_spread(loaded):
            return None
        self._look_at_executors(spark, loaded)
        with ThreadPoolExecutor(1, "headgate-kafka-json") as parser:  # while the next packets are read
            taken = [parser.submit(quick.take_apart, packet) for packet in self._packets(loaded)]
            found = [each.result() for each in taken]
        rows = [table for each in found for table in each.rows] or [quick.schema.empty_table()]
        rest = [packet for each in found for packet in each.rest]
        if rest:
            rows.append(self._parsed_by_spark(spark, rest).toArrow().cast(quick.schema))
        return pa.concat_tables(rows)

    def is_spread(self, wanted: Range) -> bool:
        """Whether executors read a range, so that its rows should not come to the driver."""
        loaded = expect_kind(wanted, KafkaRange, self)
        return self._executors.cores > 0 and _is_large(loaded.offsets, loaded.record_bytes)

    def _look_at_executors(self, spark: SparkSession, loaded: KafkaRange) -> None:
        """Find out whether executors can read, if more is waiting than the driver should read at once."""
        if _is_large(self._backlog, loaded.record_bytes):
            self._executors.find_out(spark)

    def _read_on_executors(self, spark: SparkSession, loaded: KafkaRange) -> DataFrame:
        pieces = pieces_of(loaded.runs, loaded.record_bytes)
        reader = PieceReader(self._clients, self._name, self._columns, self._format, self._quick, pieces)
        try:
            rows = reader.frame(spark)
        except PackageMissing as error:
            self._executors.give_up(str(error))
            raise
        except PicklingError:
            self._executors.give_up("a value of options cannot be sent to them")
            raise SourceError(f"a value of the options of {self!r} cannot be sent to executors") from None
        self._kept = rows
        self._executors.find_out(spark)
        return rows

    def release(self) -> None:
        """Remove the rows that executors keep on their disks."""
        kept, self._kept = self._kept, None
        if kept is not None:
            forget(kept)

    def _parsed_by_spark(self, spark: SparkSession, packets: list[pa.RecordBatch]) -> DataFrame:
        import pyarrow as pa

        table = pa.Table.from_batches([self._format.decoded(packet) for packet in packets])
        rows = spark.createDataFrame(table, self._format.decoded_columns(self._columns))
        return self._format.rows(rows, self._columns, self._name)

    @property
    def _quick(self) -> QuickJson | None:
        from headgate.warehouse.sources.kafka.quick import QuickJson

        if not isinstance(self._format, JsonValues):
            return None
        return QuickJson.of(self._format.columns, self._format.options, self._columns, self._name)

    def verify(self, loaded: Range) -> None:
        """Raise if the topic was deleted and created again, so that what was read may be of another topic."""
        topic = expect_kind(loaded, KafkaRange, self).topic
        look = self._topic.look_now()
        if look.problem:
            raise ServerUnreachable(look.problem)
        if look.id != topic:
            raise SourceChanged(f"the topic {self._name!r}", "was deleted and created again", "It is looked at again")

    def _packets(self, loaded: KafkaRange) -> Iterator[pa.RecordBatch]:
        """The records of a range; learns their size."""
        records, size = 0, 0
        try:
            for packet in self._reader.read(loaded.runs):
                records, size = records + packet.num_rows, size + packet.nbytes
                if size > BROKEN_OFF * MOST_BYTES and records > 1:
                    raise SourceError(
                        f"the records of {self!r} are larger than those before: {size:,} bytes in {records:,} of them, "
                        f"too much for one update. Fewer are read the next time"
                    )
                yield packet
        finally:
            if records:
                before, now = self._record_bytes, max(1.0, size / records)
                grown = before is None or now > before
                self._record_bytes = now if before is None or grown else before + _LEARNING * (now - before)

    @property
    def _reader(self) -> RecordReader:
        from headgate.warehouse.sources.kafka.records import RecordReader

        if self._reader_here is None:
            self._reader_here = RecordReader(self._clients, self._name, self._columns.read)
        return self._reader_here

    def _bytes_of_a_record(self) -> int:
        return math.ceil(self._record_bytes or _FIRST_RECORD_BYTES)

    def _chunk_records(self, record_bytes: int) -> int:
        """The records of a chunk: fewer where so many would be more than the driver should hold."""
        return max(1, min(self._per_chunk, MOST_BYTES // record_bytes))

    def _at_once(self, limit: Limit, record_bytes: int) -> Limit:
        """A limit that leaves no more than the driver can hold, or the executors can read in a while."""
        if self._record_bytes is None:
            most = _SAMPLE * record_bytes
        elif cores := self._executors.cores:
            most = most_bytes(cores, record_bytes)
        else:
            most = min(MOST_OFFSETS * record_bytes, MOST_BYTES)
        return replace(limit, bytes=most if limit.bytes is None else min(limit.bytes, most))

    def _waiting(self, offset: KafkaOffset) -> _Waiting:
        """What is not loaded yet, by the last look at the topic."""
        look = self._topic.look()
        if look.problem:
            return _Waiting(look, problem=look.problem, stopped=look.answered)
        if offset.position and offset.topic != look.id:
            if self._missing == "stop":
                return _Waiting(look, problem=self._recreated(offset), stopped=True)
            skipped = f"was deleted and created again; what of it was not loaded is skipped ({_loaded(offset)})"
            offset = KafkaOffset(look.id)
            begin = dict(look.begins)
        else:
            skipped = ""
            first = look.begins if offset.position else {**look.begins, **look.start}
            begin = {partition: at for partition, at in first.items() if partition not in offset.position}
        runs: list[Run] = []
        missing: list[Run] = []
        for partition, first_there in look.begins.items():
            end = look.ends.get(partition, first_there)
            missing += offset.waiting(partition, begin.get(partition, 0), first_there)
            runs += offset.waiting(partition, max(first_there, begin.get(partition, 0)), end)
        if missing and self._missing == "stop":
            return _Waiting(look, problem=self._removed(missing), stopped=True)
        if missing:
            skipped = f"was cleaned up before all of it was loaded; skipped: {_named(missing)}"
        return _Waiting(look, tuple(runs), begin, tuple(missing), skipped)

    def _recreated(self, offset: KafkaOffset) -> str:
        return (
            f"the topic {self._name!r} was deleted and created again; what came to the one before and was not loaded "
            f"is missing ({_loaded(offset)}). To load the new one from its beginning, declare missing='skip'"
        )

    def _removed(self, missing: list[Run]) -> str:
        return (
            f"records of the topic {self._name!r} were removed before they were loaded: {_named(missing)}. "
            "To go on without them, declare missing='skip'; then let the topic keep its records for longer"
        )

    def _notices(self, found: _Waiting) -> tuple[Notice, ...]:
        """What is skipped, and that executors cannot read, the first time that it is found."""
        problems = [found.skipped]
        if self._executors.problem:
            problem = self._executors.problem
            problems.append(f"executors cannot read it, so the driver reads it in small parts: {problem}")
        new = [problem for problem in problems if problem and problem not in self._told]
        self._told.update(new)
        return tuple(Notice(f"the topic {self._name!r}", problem) for problem in new)


def _is_large(offsets: int, record_bytes: int) -> bool:
    """Whether these are more records than the driver should read at once."""
    return offsets > MOST_OFFSETS or offsets * record_bytes > MOST_BYTES


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What a topic has that is not loaded.

    ``begin`` are the offsets at which partitions begin that have not been loaded from. ``missing`` was removed before
    it was loaded, and ``skipped`` says so. ``problem`` says why nothing can be loaded; if it is ``stopped``, a user has
    to know.
    """

    look: TopicLook
    runs: tuple[Run, ...] = ()
    begin: Mapping[int, int] = field(default_factory=dict)
    missing: tuple[Run, ...] = ()
    skipped: str = ""
    problem: str = ""
    stopped: bool = False


def _shortened(offset: KafkaOffset, look: TopicLook) -> str:
    """A note about partitions that end before what was loaded of them, as after brokers have lost data."""
    short = [
        (partition, look.ends[partition], at) for partition, at in offset.position.items() if partition in look.ends
    ]
    texts = [
        f"partition {partition} ends at offset {end:,}, {at:,} were loaded" for partition, end, at in short if end < at
    ]
    return f"waiting for new records: {'; '.join(texts[:_NAMED])}" if texts and offset.topic == look.id else ""


def _behind(runs: Iterable[Run]) -> Counter[int]:
    """How many records of each partition are not loaded; gaps count as if they had records."""
    left = Counter[int]()
    for run in runs:
        left[run.partition] += run.end - run.first
    return left


def _said_behind(left: Counter[int]) -> str:
    """That in a text, the most first."""
    texts = [f"{count:,} in partition {partition}" for partition, count in left.most_common(_NAMED)]
    more = f" and {len(left) - _NAMED} more partitions" if len(left) > _NAMED else ""
    return f"records that are not loaded: {', '.join(texts)}{more}"


def _loaded(offset: KafkaOffset) -> str:
    """What has been loaded of a topic, for messages."""
    parts = [f"partition {partition} before offset {end:,}" for partition, end in offset.position.items()]
    more = f" and {len(parts) - _NAMED} more partitions" if len(parts) > _NAMED else ""
    return f"loaded: {', '.join(parts[:_NAMED])}{more}"


def _named(runs: Iterable[Run]) -> str:
    texts = [str(run) for run in runs]
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more


def _begin(start: str | float, where: str) -> str | float:
    """Where to begin, with a moment in seconds since the epoch."""
    if start in ("earliest", "latest"):
        return start
    if not isinstance(start, str):
        return float(start)
    try:
        moment = datetime.fromisoformat(start)
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{where}: start takes 'earliest', 'latest', or a moment such as '2026-11-15T10:00:00Z'; got {start!r}"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
