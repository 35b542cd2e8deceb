"""Reading a large range of a topic on the executors, so that no record of it passes through the driver.

A range is cut into *pieces*: some offsets of one partition. A task reads its pieces with librdkafka, as the driver does
with smaller ranges, and gives the same rows: those that Arrow may parse are parsed in the task, the others by Spark.
A task that fails is run again and reads the same offsets; what it gave before is dropped by Spark.

The rows are read once and kept on the disks of the executors until they are written. They are used twice, for good and
for bad rows, and a second read might see something else: a schema that has come to the registry, a record that was
compacted away. If an executor is lost with its disk, the load fails and is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.warehouse.sources.errors import PackageMissing, ServerUnreachable, SourceError
from headgate.warehouse.sources.kafka.avro import AvroValues
from headgate.warehouse.sources.kafka.columns import TAKEN, RecordColumns
from headgate.warehouse.sources.kafka.formats import JsonValues, ValueFormat
from headgate.warehouse.sources.kafka.offsets import Run
from headgate.warehouse.sources.kafka.options import KafkaClients, log
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, Column
from headgate.warehouse.sources.sql import ADDED, ddl

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from headgate.warehouse.sources.kafka.quick import QuickJson

#: the most offsets and bytes of a piece, and how many pieces one range has for each core
PIECE_OFFSETS, PIECE_BYTES, PIECES_PER_CORE = 250_000, 32 << 20, 8
#: fewer cores are slower than the driver: rows pass from Python to Spark, to disks and to Parquet. Loading 2,000,000
#: records took 47 s of processor time so, 24 microseconds a record, where the driver takes 2 to 3
LEAST_CORES = 8
#: cores beyond this number are not counted: a range must not become so large that much is lost with a failed load
MOST_CORES = 16
#: what a message says of our errors in a task
_SAID = re.compile(r"\bheadgate\.\S*\.(ServerUnreachable|SourceError|PackageMissing): (.*)")


def pieces_of(runs: Iterable[Run], record_bytes: int) -> tuple[Run, ...]:
    """The same offsets in pieces of about the same size, the first of each partition before the second of any."""
    step = max(1, min(PIECE_OFFSETS, PIECE_BYTES // max(1, record_bytes)))
    found: list[tuple[int, Run]] = []
    for run in runs:
        count = -(-(run.end - run.first) // step)
        bounds = [run.first + (run.end - run.first) * number // count for number in range(count + 1)]
        found += [(n, Run(run.partition, bounds[n], bounds[n + 1])) for n in range(count)]
    return tuple(piece for _, piece in sorted(found))


def most_bytes(cores: int, record_bytes: int) -> int:
    """The size of the largest range for so many cores."""
    return cores * PIECES_PER_CORE * min(PIECE_OFFSETS * record_bytes, PIECE_BYTES)


@dataclass(frozen=True)
class PieceReader:
    """Reads pieces of a topic inside a task: numbers of pieces in, decoded records and rows out."""

    clients: KafkaClients
    topic: str
    columns: RecordColumns
    format: ValueFormat
    quick: QuickJson | None
    pieces: tuple[Run, ...]

    @property
    def taken(self) -> dict[str, str]:
        """{quoted name of a column of the stream: the column that has what Arrow has made of it}."""
        if self.quick is None:
            return {}
        names = [column.quoted for column in (*self.quick.columns, *self.columns.columns)]
        return {name: f"{PRIVATE_PREFIX}taken_{number}" for number, name in enumerate([*names, *ADDED])}

    @property
    def schema(self) -> str:
        """The columns of what comes out, in Spark's notation."""
        decoded = self.format.decoded_columns(self.columns)
        if self.quick is None:
            return decoded
        types = [column.type for column in (*self.quick.columns, *self.columns.columns)]
        kinds = [*types, *("string" for _ in ADDED)]
        taken = [Column(name, kind) for name, kind in zip(self.taken.values(), kinds, strict=True)]
        return f"{decoded}, {ddl([*taken, Column(TAKEN, 'boolean')])}"

    def read(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.warehouse.sources.kafka.records import RecordReader

        reader = RecordReader(self.clients, self.topic, self.columns.read)
        try:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for packet in reader.read([self.pieces[number]]):
                        yield from self._made_of(packet)
        finally:
            reader.close()

    def _made_of(self, packet: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.quick is None:
            yield self.format.decoded(packet)
            return
        found = self.quick.take_apart(packet)
        for rows in found.rows:
            yield self._batch(packet.schema, rows, is_taken=True)
        for rest in found.rest:
            yield self._batch(packet.schema, rest, is_taken=False)

    def _batch(self, records: pa.Schema, found: pa.Table | pa.RecordBatch, *, is_taken: bool) -> pa.RecordBatch:
        """Rows, or records, with nulls in the columns of the others."""
        import pyarrow as pa

        assert self.quick is not None
        count = found.num_rows

        def columns(schema: pa.Schema, is_there: bool) -> list[pa.Array]:
            if not is_there:
                return [pa.nulls(count, kind) for kind in schema.types]
            return [_whole(found.column(name)) for name in schema.names]

        arrays = [*columns(records, not is_taken), *columns(self.quick.schema, is_taken)]
        names = [*records.names, *self.taken.values()]
        return pa.record_batch([*arrays, pa.repeat(pa.scalar(is_taken), count)], [*names, TAKEN])

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows of the pieces, kept on the disks of the executors; no record passes through the driver."""
        from pyspark import StorageLevel

        count = len(self.pieces)
        numbers = spark.range(0, count, 1, count)
        read = numbers.mapInArrow(self.read, self.schema)
        if self.quick is None:
            rows = self.format.rows(read, self.columns, self.topic)
        else:
            assert isinstance(self.format, JsonValues)
            rows = self.format.rows(read, self.columns, self.topic, taken=self.taken)
        try:
            return rows.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        except Exception as error:
            said = _SAID.findall(str(error))
            if not said:
                raise
        kind, text = said[-1]
        raise _ERRORS.get(kind, SourceError)(text)


def forget(rows: DataFrame) -> None:
    """Remove rows from the disks of executors; Spark itself does it only when the driver collects its garbage."""
    with suppress(Exception):  # of a Spark that is gone, and so are its disks
        rows._jdf.queryExecution().analyzed().rdd().unpersist(False)


_ERRORS: dict[str, type[SourceError]] = {
    "ServerUnreachable": ServerUnreachable,
    "PackageMissing": PackageMissing,
}


class Executors:
    """What is known of the executors of a Spark: how many cores can read a topic."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = tuple(packages)
        #: the application that was asked
        self._asked = ""
        #: how many cores can read; 0 if that is not known, or none of them can
        self.cores = 0
        #: why none of them can
        self.problem = ""

    @classmethod
    def for_format(cls, format: ValueFormat) -> Executors:
        return cls(("confluent_kafka", *(["fastavro"] if isinstance(format, AvroValues) else [])))

    def find_out(self, spark: SparkSession) -> None:
        """Ask them, once for each Spark, with a job that takes a moment. How many there are may change."""
        context = spark.sparkContext
        cores = min(MOST_CORES, context.defaultParallelism)
        if cores < LEAST_CORES:
            self.cores = 0
            return
        if self._asked != context.applicationId:
            self._asked, self.problem = str(context.applicationId), ""
            count = 2 * cores
            missing = _MissingPackages(self._packages)
            asked = spark.range(0, count, 1, count).mapInArrow(missing.found, "host string, missing string")
            rows = asked.collect()
            if rows:
                self.give_up(f"{rows[0].missing} on {rows[0].host}; pip install 'headgate[kafka]' there")
        self.cores = 0 if self.problem else cores

    def give_up(self, problem: str) -> None:
        """They cannot read, for a reason: leave it to the driver from now on."""
        self.cores, self.problem = 0, problem
        log.warning("executors cannot read Kafka: %s", problem)


@dataclass(frozen=True)
class _MissingPackages:
    """Says, inside a task, which packages cannot be imported there; nothing if all can."""

    packages: tuple[str, ...]

    def found(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import socket
        from importlib import import_module

        import pyarrow as pa

        for _ in numbers:
            for name in self.packages:
                try:
                    import_module(name)
                except ImportError as error:
                    row: dict[str, Any] = {"host": [socket.gethostname()], "missing": [str(error)]}
                    yield pa.RecordBatch.from_pydict(row)
                    break


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
