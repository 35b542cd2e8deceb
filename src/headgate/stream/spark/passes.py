"""One pass over a frame's rows for the queries of one or several tables: one Spark job, one engine in each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import UserCodeError
from headgate.stream.spark.hosted_frame import HostedFrame, Request
from headgate.stream.spark.hosted_query import EngineOptions, HostedQuery, TaskReport
from headgate.stream.spark.ordering import BUCKET, in_order
from headgate.stream.spark.states import LiveStates
from headgate.stream.spark.task import BucketRows, QueryRows, Task, run_task
from headgate.stream.spark.tcp_quickack import acknowledged

if TYPE_CHECKING:
    from pyspark import Accumulator, AccumulatorParam
    from pyspark.sql import DataFrame

#: columns of rows for several tables: the number of the row's query, and a struct for each query
QUERY, ROW = "headgate_query", "headgate_row_{}"


class HostedQueryError(UserCodeError):
    """A query failed outside of any table; the text has the traceback of the user's code."""


def plain_rows(request: Request) -> DataFrame:
    """The rows of a query outside of any table."""
    frame = request.frame
    return rows_of(replace(request, frame=frame.plain()) if isinstance(frame, HostedFrame) else request, None)


def rows_of(request: Request, reports: Accumulator[list[TaskReport]] | None) -> DataFrame:
    """The rows of one query; its tasks report to ``reports``."""
    one_pass = _pass([request], reports)
    return _ordered(request).mapInArrow(one_pass.of_one, spark_schema(request.query.output))


def rows_of_all(requests: Sequence[Request], reports: Accumulator[list[TaskReport]]) -> DataFrame:
    """The rows of several queries, computed once and kept by Spark; ``rows_for`` selects those of one."""
    one_pass = _pass(requests, reports)
    return _ordered(requests[0]).mapInArrow(one_pass.of_all, spark_schema(one_pass.tagged)).persist()


def rows_for(number: int, all_rows: DataFrame) -> DataFrame:
    """The rows of one query, from those of ``rows_of_all``."""
    from pyspark.sql import functions as F

    return all_rows.where(F.col(QUERY) == number).select(f"{ROW.format(number)}.*")


def that_go_together(requests: Iterable[Request]) -> list[list[Request]]:
    """The requests in groups; one pass can compute a group."""
    sets: list[list[Request]] = []
    for request in requests:
        for known in sets:
            if _go_together(known[0], request):
                known.append(request)
                break
        else:
            sets.append([request])
    return sets


def _go_together(one: Request, other: Request) -> bool:
    """Whether one pass can compute both: the same rows, in the same order, with the same options."""
    same = all(
        getattr(one, name) == getattr(other, name) for name in ("keys", "time", "buckets", "together", "options")
    )
    if not same or one.query.stateful != other.query.stateful or not one.input.equals(other.input):
        return False
    return one.frame is other.frame or bool(one.frame.sameSemantics(other.frame))  # type: ignore[arg-type] # resolved


def spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def new_reports(frame: DataFrame) -> Accumulator[list[TaskReport]]:
    """Where the tasks of a pass report to."""
    return frame.sparkSession.sparkContext.accumulator([], _concatenation())


def _concatenation() -> AccumulatorParam[list[TaskReport]]:
    """How the accumulator adds: it concatenates lists."""
    from pyspark import AccumulatorParam

    class Concatenation(AccumulatorParam[list[TaskReport]]):
        def zero(self, value: list[TaskReport]) -> list[TaskReport]:
            return []

        def addInPlace(  # noqa: N802 - Spark's name
            self, value1: list[TaskReport], value2: list[TaskReport]
        ) -> list[TaskReport]:
            value1 += value2
            return value1

    return Concatenation()


def _ordered(request: Request) -> DataFrame:
    frame: DataFrame = request.frame  # type: ignore[assignment] # resolved by the caller
    if not request.query.stateful:
        return frame
    return in_order(frame, request.keys, request.time, request.buckets, request.arrival, together=request.together)


def _pass(requests: Sequence[Request], reports: Accumulator[list[TaskReport]] | None) -> _Pass:
    first = requests[0]
    queries = tuple(request.query for request in requests)
    in_turn = first.buckets if first.query.stateful and first.together and first.buckets > 1 else 0
    return _Pass(first.input, queries, first.options, reports, in_turn)


#: the states that this worker process keeps between tasks
_live = LiveStates()


@dataclass(frozen=True)
class _Pass:
    """A pass, as it is sent to the workers.

    ``in_turn`` is how many buckets one task runs, one after the other; 0 if each bucket has its own task.
    """

    input: pa.Schema
    queries: tuple[HostedQuery, ...]
    options: EngineOptions
    reports: Any
    in_turn: int = 0

    @property
    def tagged(self) -> pa.Schema:
        """The columns of rows for several tables: in each row one struct is set, the others are null."""
        structs = [pa.field(ROW.format(n), pa.struct(list(query.output))) for n, query in enumerate(self.queries)]
        return pa.schema([pa.field(QUERY, pa.int32()), *structs])

    def of_one(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the only query."""
        output = self.queries[0].output
        for _, batch in self._run(batches):
            yield batch.cast(output)

    def of_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of all queries, with the number of the query."""
        schema = self.tagged
        for number, batch in self._run(batches):
            rows = batch.num_rows
            columns = [pa.nulls(rows, field.type) for field in schema]
            columns[0] = pa.repeat(pa.scalar(number, pa.int32()), rows)
            struct = batch.cast(self.queries[number].output).to_struct_array()
            columns[number + 1] = struct.cast(schema.field(number + 1).type)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[QueryRows]:
        batches = acknowledged(batches)
        if not self.in_turn:
            yield from self._run_bucket(_partition(), batches)
            return
        rows = BucketRows(batches, BUCKET)
        for bucket in range(self.in_turn):
            yield from self._run_bucket(bucket, rows.of(bucket))

    def _run_bucket(self, bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[QueryRows]:
        first = next(batches, None)
        if first is None and not any(_waits_for_time(query, bucket) for query in self.queries):
            return  # a bucket without rows keeps its states
        rows = self._input_columns(batches if first is None else _chained(first, batches))
        task = Task(bucket, self.input, tuple(_only(query, bucket) for query in self.queries), self.options)
        yield from run_task(task, rows, _live, self._report)

    def _input_columns(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(self.input.names).cast(self.input)

    def _report(self, report: TaskReport) -> None:
        if self.reports is not None:
            self.reports.add([report])
        elif report.failure is not None:
            raise HostedQueryError(f"{report.failure.message}\n\n{report.failure.traceback}")


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _waits_for_time(query: HostedQuery, bucket: int) -> bool:
    """Whether windows of a bucket may have to be closed even if it has no new rows."""
    return query.ends_at is not None and bucket in query.previous


def _only(query: HostedQuery, bucket: int) -> HostedQuery:
    """The query with the states of one bucket."""
    previous: Mapping[int, Any] = {bucket: query.previous[bucket]} if bucket in query.previous else {}
    return replace(query, previous=previous)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
