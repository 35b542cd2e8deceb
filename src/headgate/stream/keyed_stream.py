"""Operators on a stream whose rows have keys: aggregates, windows, and everything else with a state per key.

    >>> from headgate.stream import Query, from_batches
    >>> rows = pa.table({"ts": [0, 10], "item": ["pen", "ink"], "price": [1.0, 4.0]})
    >>> clicks = Query("clicks").source(from_batches(rows))
    >>> hourly = clicks.key_by("item").tumbling("ts", 3600).aggregate(n="count", spent=("sum", "price"))
    >>> hourly.schema.names
    ['item', 'window_start', 'window_end', 'n', 'spent']

Each of these is an operator with a state for every bucket of keys, so as many workers may run it as there are buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.errors import QueryDeclarationError
from headgate.stream.kernel import Output, StateFactory
from headgate.stream.keyed import (
    Aggregate,
    Dedupe,
    Fold,
    InOrder,
    IntervalJoin,
    RunningAggregate,
    SessionAggregate,
    SlidingAggregate,
    TopK,
    TumblingAggregate,
    plan,
)
from headgate.stream.partition import Partitioning
from headgate.stream.query import Stream
from headgate.stream.spec import EventTime

#: the column that tells which side of a join a row is of
SIDE = "headgate_side"
SIDES = ("left", "right")
#: an aggregate, or in short its function and column: "count", ("sum", "price")
AggregateLike = Aggregate | str | tuple[str, str]
Span = int | timedelta


class KeyedStream:
    """A stream and the key of its rows."""

    def __init__(self, stream: Stream, columns: Sequence[str], partitioning: Partitioning, buckets: int) -> None:
        self.stream = stream
        self.columns = tuple(columns)
        self._partitioning = partitioning
        self._buckets = buckets

    # --- aggregates -----------------------------------------------------------------------------------------

    def running(self, *, name: str = "running", **aggregates: AggregateLike) -> Stream:
        """One row out for each row in: the key, and the aggregates of all rows of the key so far."""
        return self._keyed(name, RunningAggregate, self.columns, _aggregates(aggregates))

    def tumbling(self, time: str, size: Span, *, offset: Span = 0) -> Windows:
        """Windows of equal length, one after the other."""
        span = self._span
        return Windows(
            self, "tumbling", lambda a: (TumblingAggregate, self.columns, time, span(time, size), a, span(time, offset))
        )

    def sliding(self, time: str, size: Span, step: Span) -> Windows:
        """Windows of length ``size`` that begin every ``step``."""
        span = self._span
        return Windows(
            self, "sliding", lambda a: (SlidingAggregate, self.columns, time, span(time, size), span(time, step), a)
        )

    def session(self, time: str, gap: Span) -> Windows:
        """Windows of rows that follow each other without a pause longer than ``gap``."""
        return Windows(self, "session", lambda a: (SessionAggregate, self.columns, time, self._span(time, gap), a))

    # --- other states ---------------------------------------------------------------------------------------

    def dedupe(self, *, within: Span | None = None, time: str | None = None, name: str = "dedupe") -> Stream:
        """The first row of each key; with ``within``, again after that span of ``time``."""
        horizon = None if within is None else self._span(time or "", within)
        return self._keyed(name, Dedupe, self.columns, horizon, time)

    def in_order(self, time: str, *, name: str = "in_order") -> Stream:
        """The rows of each key whose time is not before the latest that their key has seen; others are rejected."""
        return self._keyed(name, InOrder, self.columns, time)

    def top_k(self, by: str, k: int, *, descending: bool = True, name: str = "top_k") -> Stream:
        """The best rows of each key: each that comes among the best ``k``, with its rank; at the end the final ones."""
        return self._keyed(name, TopK, self.columns, by, k, descending)

    def fold(
        self,
        function: Callable[[Any, Mapping[str, Any]], tuple[Any, Iterable[Mapping[str, Any]]]],
        initial: Any,
        schema: pa.Schema,
        *,
        finish: Callable[[Any, Mapping[str, Any]], Iterable[Mapping[str, Any]]] | None = None,
        name: str | None = None,
    ) -> Stream:
        """``function(state, row)`` gives the key's new state and any number of rows out. States are JSON values.

        ``finish(state, key)`` gives rows for each key at the end of a finite run; ``key`` is a dict of the key columns.
        """
        operator = name or str(getattr(function, "__name__", "fold"))
        return self._keyed(operator, Fold, self.columns, function, initial, schema, finish)

    def interval_join(
        self,
        other: KeyedStream,
        time: str,
        *,
        before: Span,
        after: Span,
        prefixes: tuple[str, str] = ("left_", "right_"),
        name: str = "join",
    ) -> Stream:
        """Pairs of a row here and a row there with the same key and
        ``left.time - before <= right.time <= left.time + after``. Both streams call key and time by the same names.

        Branches of one source come in the order of that source; streams of different sources in the order of ``time``.
        """
        if self.columns != other.columns:
            raise QueryDeclarationError(
                f"both sides of a join need the same key: {', '.join(self.columns)} and {', '.join(other.columns)}"
            )
        names = [
            {column: prefix + column for column in each.stream.schema.names if column not in self.columns}
            for prefix, each in zip(prefixes, (self, other), strict=True)
        ]
        both = KeyedStream(
            _both_sides((self, other), names, time, name), self.columns, self._partitioning, self._buckets
        )
        spans = (self._span(time, before), self._span(time, after))
        columns = [list(each.values()) for each in names]
        return both._keyed(name, IntervalJoin, self.columns, time, *columns, *spans, SIDE, SIDES, ("", ""))

    def state(self, factory: StateFactory, *, time: EventTime | None = None, name: str = "state") -> Stream:
        """A state of your own for each bucket: see ``headgate.stream.State``."""
        return self.stream.partitioned(factory, by=self._partitioning, buckets=self._buckets, time=time, name=name)

    # --- helpers --------------------------------------------------------------------------------------------

    def _keyed(self, name: str, kind: type[Any], *arguments: Any) -> Stream:
        operator = plan(kind, self.stream.schema, *arguments)
        return self.stream.partitioned(
            operator.factory, by=self._partitioning, buckets=self._buckets, time=operator.time, name=name
        )

    def _span(self, time: str, span: Span) -> int:
        """A span in units of the time column."""
        if isinstance(span, int):
            return span
        self.stream._require([time])
        kind = self.stream.schema.field(time).type
        if not pa.types.is_timestamp(kind):
            raise QueryDeclarationError(
                f"column {time!r} is of type {kind}: give spans of time as whole numbers in its unit; got {span!r}"
            )
        microseconds = span // timedelta(microseconds=1)
        if kind.unit == "ns":
            return microseconds * 1000
        units, rest = divmod(microseconds, {"s": 10**6, "ms": 10**3, "us": 1}[kind.unit])
        if rest:
            raise QueryDeclarationError(f"column {time!r} is of type {kind}: {span} is no whole number of its unit")
        return units


class Windows:
    """Windows; ``aggregate`` says what to compute in them."""

    def __init__(
        self, keyed_stream: KeyedStream, name: str, state: Callable[[tuple[Aggregate, ...]], tuple[Any, ...]]
    ) -> None:
        self._keyed_stream, self._name, self._state = keyed_stream, name, state

    def aggregate(self, *, name: str | None = None, **aggregates: AggregateLike) -> Stream:
        """One row for each key and window when it is complete: the key, the window, and the aggregates."""
        kind, *arguments = self._state(_aggregates(aggregates))
        return self._keyed_stream._keyed(name or self._name, kind, *arguments)


def _aggregates(named: Mapping[str, AggregateLike]) -> tuple[Aggregate, ...]:
    aggregates = []
    for name, like in named.items():
        if isinstance(like, str):
            aggregates.append(Aggregate(like, None, name))
        elif isinstance(like, tuple):
            aggregates.append(Aggregate(like[0], like[1], name))
        else:
            aggregates.append(Aggregate(like.function, like.column, name))
    if not aggregates:
        raise QueryDeclarationError('say what to aggregate: n="count", total=("sum", "price")')
    return tuple(aggregates)


def _both_sides(
    sides: tuple[KeyedStream, KeyedStream], names: Sequence[Mapping[str, str]], time: str, name: str
) -> Stream:
    """Both sides of a join as one stream: the key, the time, the columns of both sides under their new names, and the
    side. A row has only the columns of its side."""
    left, right = sides
    fields = []
    for side in sides:
        side.stream._require([time])
    for column in dict.fromkeys((*left.columns, time)):
        fields.append(left.stream.schema.field(column))
    for side, new_names in zip(sides, names, strict=True):
        fields += [pa.field(new, side.stream.schema.field(column).type) for column, new in new_names.items()]
    schema = pa.schema([*fields, pa.field(SIDE, pa.string())])
    streams = [
        side.stream.stateless(_widening(label, new_names, schema), name=f"{name}-{label}", schema=schema)
        for side, label, new_names in zip(sides, SIDES, names, strict=True)
    ]
    if left.stream._space == right.stream._space:
        return streams[0].merge(streams[1], name=f"{name}-merge")
    return streams[0].union(streams[1], by=time, name=f"{name}-union")


def _widening(label: str, new_names: Mapping[str, str], schema: pa.Schema) -> Callable[[pa.RecordBatch], Output]:
    """A kernel that gives the rows of one side the columns of both."""
    old_name = {new: column for column, new in new_names.items()}

    def kernel(batch: pa.RecordBatch) -> Output:
        columns = []
        for field in schema:
            if field.name == SIDE:
                columns.append(pa.repeat(pa.scalar(label, pa.string()), batch.num_rows))
            elif field.name in old_name:
                columns.append(batch.column(old_name[field.name]))
            elif field.name in batch.schema.names:
                columns.append(batch.column(field.name))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        return Output(pa.RecordBatch.from_arrays(columns, schema=schema))

    return kernel
