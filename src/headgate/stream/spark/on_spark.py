"""Putting a query into a table: Spark reads and partitions, an engine in each Python worker runs the operators.

    @wh.table(time="window_end", mode="append")
    def sessions(clicks):
        return on_spark(clicks, by_session, keys=["user"], time="ts")

    def by_session(rows):
        return rows.key_by("user").session("ts", timedelta(hours=1)).aggregate(n="count")

A query without states runs on whatever partitions Spark has made. One with states gets the rows of each bucket of keys
in one task, in the order of event time and then of arrival, and goes on from the states that the table's last commit
names.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.errors import QueryDeclarationError
from headgate.stream.query import Query
from headgate.stream.sources import from_batches
from headgate.stream.spark.hosting import Build, Done, LiveStates, Task, run_task
from headgate.stream.spark.update import HostedQuery, StoredStates, Update, current_update
from headgate.stream.spec import Kind, OperatorSpec, QuerySpec

if TYPE_CHECKING:
    from pyspark import Accumulator, AccumulatorParam
    from pyspark.sql import DataFrame

BUCKET = "headgate_bucket"
ARRIVED_IN, ARRIVED_FILE, ARRIVED_ROW = "headgate_update", "headgate_file", "headgate_row"
DEFAULT_BUCKETS = 8


def on_spark(
    frame: DataFrame,
    build: Build,
    *,
    keys: Sequence[str] = (),
    time: str | None = None,
    buckets: int | None = None,
    name: str = "query",
    packet_rows: int | None = None,
) -> DataFrame:
    """The rows that a query makes of a data frame. ``build`` takes a stream with the frame's columns and gives the
    stream that comes out.

    ``keys`` are the columns by which rows find their states; every ``key_by`` in the query must contain them. ``time``
    is the event time by which rows are ordered. A query whose states see everything (``fold``, ``top_k``) takes one
    bucket.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    _sent_along(build)
    given = to_arrow_schema(frame.schema, timezone="UTC")
    spec, made = _declared(build, given, name)
    schema = from_arrow_schema(made, prefer_timestamp_ntz=True)
    stateful = [operator for operator in spec.operators if operator.kind in (Kind.PARTITIONED, Kind.STATEFUL)]
    host = _Host(name, build, given, made, packet_rows)
    update = current_update()
    if update is not None:
        update.hosts = True
    if not stateful:
        return frame.mapInArrow(host.alone, schema)
    count = _checked_buckets(stateful, keys, buckets, name)
    ordered = _in_order(frame, keys, time, count)
    if update is None:
        return ordered.mapInArrow(host.alone, schema)
    update.must_keep_states()
    told: Accumulator[list[Done]] = frame.sparkSession.sparkContext.accumulator([], _listed())
    fingerprint = {operator.name: _described(operator) for operator in stateful}
    previous = _going_on(update, name, fingerprint, count)
    update.add(name, HostedQuery(fingerprint, count, told))
    return ordered.mapInArrow(partial(host.with_states, previous, str(update.folder), update.number, told), schema)


def _sent_along(build: Build) -> None:
    """Have the function's module sent to the workers with it, unless they have it installed: a pipeline file is a
    module that only the driver has loaded."""
    from pyspark import cloudpickle

    module = sys.modules.get(getattr(build, "__module__", ""))
    if module is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "headgate":
        return
    installed = {sysconfig.get_paths()[kind] for kind in ("purelib", "platlib", "stdlib")}
    if not any(str(getattr(module, "__file__", "")).startswith(folder) for folder in installed):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _declared(build: Build, given: pa.Schema, name: str) -> tuple[QuerySpec, pa.Schema]:
    from headgate.stream.sinks import Collect

    query = Query(name)
    stream = build(query.source(from_batches([], given)))
    stream.to(Collect())
    spec = query.spec()
    for operator in spec.operators:
        if operator.kind is Kind.UNION or (operator.kind is Kind.SOURCE and operator.name != "source"):
            raise QueryDeclarationError(
                f"query {name!r} on Spark has one source, the data frame; {operator.name!r} is another: "
                "join the frames with Spark before, or declare a table for each"
            )
    return spec, stream.schema


def _checked_buckets(stateful: Sequence[OperatorSpec], keys: Sequence[str], buckets: int | None, name: str) -> int:
    for operator in stateful:
        if operator.kind is Kind.STATEFUL:
            if buckets not in (None, 1):
                raise QueryDeclarationError(
                    f"operator {operator.name!r} of query {name!r} has one state that sees everything: "
                    f"it takes one bucket; got buckets={buckets}"
                )
            return 1
        assert operator.partitioning is not None
        if buckets != 1 and (not keys or not set(keys) <= set(operator.partitioning.columns)):
            raise QueryDeclarationError(
                f"operator {operator.name!r} of query {name!r} has states by "
                f"{', '.join(operator.partitioning.columns)}, but Spark was to partition by "
                f"{', '.join(keys) or 'nothing'}: rows of one key would meet different states. "
                "Say keys=[...] with columns that every key_by has, split the query in two, or say buckets=1"
            )
    return buckets or DEFAULT_BUCKETS


def _in_order(frame: DataFrame, keys: Sequence[str], time: str | None, buckets: int) -> DataFrame:
    """Each bucket in a partition of its own, by event time and then by arrival."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    bucket = F.pmod(F.hash(*keys), F.lit(buckets)) if keys and buckets > 1 else F.lit(0)
    try:
        # A file lies in a folder named after the update that wrote it, so paths tell the order of commits.
        path = F.col("_metadata.file_path")
        number = F.regexp_extract(path, r"/u(\d+)-[^/]*/[^/]*$", 1)
        arrived = [
            F.lpad(number, 20, "0").alias(ARRIVED_IN),
            path.alias(ARRIVED_FILE),
            F.col("_metadata.row_index").alias(ARRIVED_ROW),
        ]
        marked = frame.select("*", bucket.alias(BUCKET), *arrived)
    except AnalysisException:
        # Not rows of files any more, as after an aggregation: their order is Spark's.
        nowhere = [F.lit("").alias(ARRIVED_IN), F.lit("").alias(ARRIVED_FILE), F.lit(0).alias(ARRIVED_ROW)]
        marked = frame.select("*", bucket.alias(BUCKET), *nowhere)
    order = [*([time] if time else []), ARRIVED_IN, ARRIVED_FILE, ARRIVED_ROW]
    return marked.repartitionById(buckets, BUCKET).sortWithinPartitions(*order)


def _described(operator: OperatorSpec) -> str:
    """How a stateful operator is written, as far as its states depend on it."""
    factory = operator.state
    parts = [operator.kind.value]
    if operator.partitioning is not None:
        parts.append(",".join(operator.partitioning.columns))
    if isinstance(factory, partial):
        arguments = [_argument(each) for each in factory.args]
        arguments += [f"{key}={_argument(value)}" for key, value in factory.keywords.items()]
        parts += [factory.func.__qualname__, *arguments]
    else:
        parts.append(getattr(factory, "__qualname__", type(factory).__qualname__))
    return " ".join(parts)


def _argument(value: object) -> str:
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return str(value)


def _going_on(update: Update, name: str, fingerprint: Mapping[str, str], buckets: int) -> dict[int, str]:
    """The file of each bucket to go on from; a query that was changed so that its states do not fit is refused."""
    stored: StoredStates | None = update.stored.get(name)
    if stored is None:
        return {}
    if stored.buckets != buckets:
        changed = f"it has {buckets} buckets, and its states are in {stored.buckets}"
    else:
        differing = [
            f"{operator!r} was <{then}> and is <{fingerprint.get(operator, 'gone')}>"
            for operator, then in stored.fingerprint.items()
            if fingerprint.get(operator) != then
        ]
        changed = "; ".join(differing)
    if changed:
        raise QueryDeclarationError(
            f"query {name!r} has changed so that its states do not fit any more: {changed}. "
            "Undo the change, or rebuild the table with headgate backfill"
        )
    return {bucket: str(update.folder / file) for bucket, file in stored.files.items()}


def _listed() -> AccumulatorParam[list[Done]]:
    """An accumulator's way to add: lists one behind the other."""
    from pyspark import AccumulatorParam

    class Listed(AccumulatorParam[list[Done]]):
        def zero(self, value: list[Done]) -> list[Done]:
            return []

        def addInPlace(self, value1: list[Done], value2: list[Done]) -> list[Done]:  # noqa: N802 - Spark's name
            value1 += value2
            return value1

    return Listed()


#: what this process still holds of the tasks that it has run; the only thing that outlives a task
_live = LiveStates()


@dataclass(frozen=True)
class _Host:
    """A query as it is sent to the workers."""

    name: str
    build: Build
    given: pa.Schema
    made: pa.Schema
    packet_rows: int | None

    def alone(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Without states from before and for later: all there is, to the end."""
        task = Task(self.name, self.build, self.given, 0, packet_rows=self.packet_rows)
        return self._fitting(run_task(task, self._own_columns(batches), LiveStates(), _nobody))

    def with_states(
        self, previous: Mapping[int, str], folder: str, update: int, told: Any, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        bucket = context.partitionId()
        first = next(batches, None)
        if first is None:
            return iter(())  # a bucket without rows keeps the states that it has
        task = Task(
            self.name,
            self.build,
            self.given,
            bucket,
            previous.get(bucket),
            folder,
            update,
            self.packet_rows,
        )
        rows = self._own_columns(_chained(first, batches))
        return self._fitting(run_task(task, rows, _live, lambda done: told.add([done])))

    def _own_columns(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(self.given.names).cast(self.given)

    def _fitting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.cast(self.made)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _nobody(_: Done) -> None:
    """Nobody asks what a query without states did."""
