"""One pass over a frame's rows for the queries of one or several tables: one Spark job, one engine in each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.spark.arrival import NO_COMMITS, Arrival
from headgate.stream.spark.buckets import InTurn
from headgate.stream.spark.guest import Done, Guest, Terms
from headgate.stream.spark.hosting import Made, Task, run_task
from headgate.stream.spark.live_states import LiveStates
from headgate.stream.spark.ordering import BUCKET, in_order
from headgate.stream.spark.promptly import acknowledged

if TYPE_CHECKING:
    from pyspark import Accumulator, AccumulatorParam
    from pyspark.sql import DataFrame

#: in rows for several tables: the number of the guest that made the row, and a column of structs for each
GUEST, ROW = "headgate_guest", "headgate_row_{}"


@dataclass(frozen=True)
class Request:
    """A query that is to be put on Spark, with the frame it reads."""

    frame: DataFrame
    given: pa.Schema
    guest: Guest
    terms: Terms
    keys: tuple[str, ...]
    time: str | None
    buckets: int
    arrival: Arrival = NO_COMMITS
    #: one task for all buckets, in place of one for each
    together: bool = False

    def goes_with(self, other: Request) -> bool:
        """Whether both can be served by one pass: the same rows, in the same order, on the same terms."""
        mine = (self.guest.stateful, self.keys, self.time, self.buckets, self.together, self.terms)
        others = (other.guest.stateful, other.keys, other.time, other.buckets, other.together, other.terms)
        if mine != others or not self.given.equals(other.given):
            return False
        return self.frame is other.frame or self.frame.sameSemantics(other.frame)


def rows_of(request: Request, told: Accumulator[list[Done]] | None) -> DataFrame:
    """The rows that one query makes."""
    host = _host([request], told)
    return _ordered(request).mapInArrow(host.alone, spark_schema(request.guest.made))


def rows_of_all(requests: Sequence[Request], told: Accumulator[list[Done]]) -> DataFrame:
    """The rows that several queries make, computed once and kept by Spark; ``rows_for`` picks those of one."""
    first = requests[0]
    host = _host(requests, told)
    return _ordered(first).mapInArrow(host.together, spark_schema(host.tagged)).persist()


def rows_for(number: int, together: DataFrame) -> DataFrame:
    """Of the rows that several queries made, those of one."""
    from pyspark.sql import functions as F

    return together.where(F.col(GUEST) == number).select(f"{ROW.format(number)}.*")


def spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def teller(frame: DataFrame) -> Accumulator[list[Done]]:
    """What the tasks of a pass tell goes here."""
    return frame.sparkSession.sparkContext.accumulator([], _listed())


def _ordered(request: Request) -> DataFrame:
    if not request.guest.stateful:
        return request.frame
    return in_order(
        request.frame, request.keys, request.time, request.buckets, request.arrival, together=request.together
    )


def _host(requests: Sequence[Request], told: Accumulator[list[Done]] | None) -> _Host:
    first = requests[0]
    guests = tuple(request.guest for request in requests)
    in_turn = first.buckets if first.guest.stateful and first.together and first.buckets > 1 else 0
    return _Host(first.given, guests, first.terms, told, in_turn)


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
    """A pass as it is sent to the workers. ``in_turn`` is how many buckets come to one task, one after the other; 0 if
    each has a task of its own."""

    given: pa.Schema
    guests: tuple[Guest, ...]
    terms: Terms
    told: Any
    in_turn: int = 0

    @property
    def tagged(self) -> pa.Schema:
        """The columns of rows for several tables: one struct is there, the others are null."""
        structs = [pa.field(ROW.format(n), pa.struct(list(guest.made))) for n, guest in enumerate(self.guests)]
        return pa.schema([pa.field(GUEST, pa.int32()), *structs])

    def alone(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the only guest."""
        made = self.guests[0].made
        for _, batch in self._run(batches):
            yield batch.cast(made)

    def together(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of all guests, with the number of the guest."""
        schema = self.tagged
        for number, batch in self._run(batches):
            rows = batch.num_rows
            columns = [pa.nulls(rows, field.type) for field in schema]
            columns[0] = pa.repeat(pa.scalar(number, pa.int32()), rows)
            struct = batch.cast(self.guests[number].made).to_struct_array()
            columns[number + 1] = struct.cast(schema.field(number + 1).type)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Made]:
        batches = acknowledged(batches)
        if not self.in_turn:
            yield from self._run_bucket(_partition(), batches)
            return
        rows = InTurn(batches, BUCKET)
        for bucket in range(self.in_turn):
            yield from self._run_bucket(bucket, rows.of(bucket))

    def _run_bucket(self, bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Made]:
        first = next(batches, None)
        if first is None and not any(_waits_for_time(guest, bucket) for guest in self.guests):
            return  # a bucket without rows keeps the states that it has
        own = self._own_columns(batches if first is None else _chained(first, batches))
        task = Task(bucket, self.given, tuple(_only(guest, bucket) for guest in self.guests), self.terms)
        yield from run_task(task, own, _live, self._tell)

    def _own_columns(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(self.given.names).cast(self.given)

    def _tell(self, done: Done) -> None:
        if self.told is not None:
            self.told.add([done])
        elif done.error is not None:
            raise GuestFailed(f"{done.error.message}\n\n{done.error.traceback}")


class GuestFailed(Exception):  # noqa: N818 - what Spark shows of a query that nobody else watches
    """A query failed outside of any update; the text has the traceback of the user's code."""


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _waits_for_time(guest: Guest, bucket: int) -> bool:
    """Whether windows of a bucket may have to be closed although it has no rows."""
    return guest.ends_at is not None and bucket in guest.previous


def _only(guest: Guest, bucket: int) -> Guest:
    """The guest with what concerns one bucket."""
    previous: Mapping[int, Any] = {bucket: guest.previous[bucket]} if bucket in guest.previous else {}
    return replace(guest, previous=previous)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
