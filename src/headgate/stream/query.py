"""Writing a query: a graph of operators, built from its sources to its sinks.

    >>> from headgate.stream import Collect, from_batches, run
    >>> rows = pa.table({"ts": [0, 10, 20, 3600], "item": ["pen", "ink", "pen", "pen"], "sale": [1, -1, 2, 3]})
    >>> found = Collect()
    >>> query = Query("hot items")
    >>> clicks = query.source(from_batches(rows)).filter(pc.field("sale") >= 0)
    >>> _ = clicks.key_by("item").tumbling("ts", 3600).aggregate(n="count").to(found)
    >>> _ = run(query)
    >>> found.rows()[0]
    {'item': 'pen', 'window_start': 0, 'window_end': 3600, 'n': 2}

Nothing runs until an engine gets the query. Columns are known while the query is written, so mistakes are found there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import UnknownNameError
from headgate.stream.errors import QueryDeclarationError
from headgate.stream.functions import (
    OVER,
    Condition,
    Over,
    check_output,
    columns_text,
    flat_mapper,
    infer_schema,
    mapper,
    projector,
    selector,
)
from headgate.stream.kernel import Function, Output, Part, State, StateFactory
from headgate.stream.packet import empty_batch
from headgate.stream.partition import ByHash, ByRange, Partitioning
from headgate.stream.sinks.sink import Sink
from headgate.stream.sources.source import Source
from headgate.stream.spec import AUTOMATIC_BUCKETS, EventTime, Kind, OperatorSpec, QuerySpec

if TYPE_CHECKING:
    from headgate.stream.keyed_stream import KeyedStream

_MOST_BUCKETS = 1 << 16


class Query:
    """A query. Nothing runs until an engine gets it.

    - ``priority``, ``importance_class``, ``patience`` (seconds): what policies may rank by.
    - ``packet_rows``: rows of a packet, if the engine should not find the best number itself.
    - ``rejected``: a sink for rejected rows: operator, packet, row, reason, and the row as text.
    """

    def __init__(
        self,
        name: str,
        *,
        priority: float = 1.0,
        importance_class: int = 0,
        patience: float = math.inf,
        packet_rows: int | None = None,
        rejected: Sink | None = None,
    ) -> None:
        if not name or "/" in name:
            raise QueryDeclarationError(f"a query needs a name without slashes; got {name!r}")
        self.name = name
        self._options = {
            "priority": priority,
            "importance_class": importance_class,
            "patience": patience,
            "packet_rows": packet_rows,
            "rejected": rejected,
        }
        self._operators: dict[str, OperatorSpec] = {}

    def source(self, source: Source, name: str = "source") -> Stream:
        """Add a source of rows."""
        spec = OperatorSpec(self._free_name(name), Kind.SOURCE, source=source)
        # Serial numbers of different sources cannot be compared: each source is a number space of its own.
        return self._add(spec, source.schema, spec.name)

    def spec(self) -> QuerySpec:
        """The query as data, checked."""
        inputs = {name for operator in self._operators.values() for name in operator.inputs}
        unread = [o.name for o in self._operators.values() if o.kind is not Kind.SINK and o.name not in inputs]
        if unread:
            raise QueryDeclarationError(
                f"query {self.name!r}: nobody reads the output of {', '.join(map(repr, unread))}; "
                "end each stream with .to(sink)"
            )
        if not self._operators:
            raise QueryDeclarationError(f"query {self.name!r} has no operators; begin with query.source(...)")
        return QuerySpec(self.name, tuple(self._operators.values()), **self._options)  # type: ignore[arg-type]

    def _free_name(self, base: str) -> str:
        name, number = base, 1
        while name in self._operators:
            number += 1
            name = f"{base}-{number}"
        return name

    def _add(self, spec: OperatorSpec, schema: pa.Schema, space: str) -> Stream:
        self._operators[spec.name] = spec
        return Stream(self, spec.name, schema, space)


class Stream:
    """The output of an operator, which further operators can read. Several may read the same stream."""

    def __init__(self, query: Query, name: str, schema: pa.Schema, space: str) -> None:
        self.query = query
        self.name = name
        self.schema = schema
        self._space = space

    # --- without state --------------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[..., Any],
        *,
        over: Over = "batch",
        schema: pa.Schema | None = None,
        name: str | None = None,
    ) -> Stream:
        """One row out for each row in. ``function`` takes a record batch, a polars frame (``over="frame"``) or a row
        as a dict (``over="row"``, which needs ``schema``), and gives the same kind."""
        self._check_over(over)
        return self.stateless(mapper(function, over, schema), name=name or _name_of(function, "map"), schema=schema)

    def filter(self, condition: Condition, *, over: Over = "batch", name: str | None = None) -> Stream:
        """The rows for which ``condition`` holds: an Arrow expression, or a function that gives truth values."""
        self._check_over(over)
        kernel = selector(condition, over)
        return self.stateless(kernel, name=name or _name_of(condition, "filter"), schema=self.schema)

    def project(self, *columns: str, name: str | None = None, **computed: pc.Expression) -> Stream:
        """Only these columns, and others computed by Arrow expressions: ``project("item", day=pc.field("ts") /
        86400)``."""
        self._require(columns)
        return self.stateless(projector(columns, computed), name=name or "project")

    def flat_map(
        self,
        function: Callable[..., Any],
        *,
        over: Over = "batch",
        schema: pa.Schema | None = None,
        name: str | None = None,
    ) -> Stream:
        """Any number of rows for each row. Over batches and frames ``function`` gives a pair: the rows, and for each of
        them the number of the row that it comes from."""
        self._check_over(over)
        kernel = flat_mapper(function, over, schema)
        return self.stateless(kernel, name=name or _name_of(function, "flat_map"), schema=schema)

    def split(self, *conditions: Condition, over: Over = "batch", name: str = "split") -> tuple[Stream, ...]:
        """A stream for each condition and one for the rest: a row goes to the first whose condition holds."""
        kernels = [selector(condition, over) for condition in conditions]
        return tuple(
            self.stateless(_first_of(kernels, number), name=f"{name}-{number + 1}", schema=self.schema)
            for number in range(len(conditions) + 1)
        )

    def stateless(self, kernel: Function, *, name: str = "stateless", schema: pa.Schema | None = None) -> Stream:
        """A kernel of your own: a function from a record batch to an ``Output``."""
        free = self.query._free_name(name)
        columns = schema or infer_schema(kernel, self.schema, f"operator {free!r} of query {self.query.name!r}")
        spec = OperatorSpec(free, Kind.STATELESS, (self.name,), function=check_output(kernel, columns))
        return self.query._add(spec, columns, self._space)

    # --- with state -----------------------------------------------------------------------------------------

    def key_by(
        self, *columns: str, buckets: int = AUTOMATIC_BUCKETS, ranges: Sequence[float] | None = None
    ) -> KeyedStream:
        """Group rows by key, for operators with a state for each key.

        Keys are assigned to ``buckets`` by a hash, or by the bounds in ``ranges`` if there is one column of numbers. If
        the number is left out, the engine takes one that suits its workers.
        """
        from headgate.stream.keyed_stream import KeyedStream

        if not columns:
            raise QueryDeclarationError("key_by needs at least one column")
        self._require(columns)
        if ranges is None:
            return KeyedStream(self, columns, ByHash(columns), buckets)
        if len(columns) != 1:
            raise QueryDeclarationError(f"ranges are for a single column; got {', '.join(columns)}")
        return KeyedStream(self, columns, ByRange(columns[0], tuple(ranges)), len(ranges) + 1)

    def partitioned(
        self,
        state: StateFactory,
        *,
        by: Sequence[str] | Partitioning,
        buckets: int = AUTOMATIC_BUCKETS,
        time: EventTime | None = None,
        name: str = "partitioned",
    ) -> Stream:
        """A state of your own for each bucket of keys: see ``headgate.stream.State``."""
        partitioning = ByHash(tuple(by)) if isinstance(by, Sequence) else by
        self._require(partitioning.columns)
        if not AUTOMATIC_BUCKETS <= buckets <= _MOST_BUCKETS:
            raise QueryDeclarationError(f"buckets must be between 1 and {_MOST_BUCKETS}, or left out; got {buckets}")
        # What cannot be a key is refused here and not at the first packet.
        partitioning.buckets(empty_batch(self.schema), buckets or _MOST_BUCKETS)
        self._check_time(time)
        free = self.query._free_name(name)
        spec = OperatorSpec(
            free, Kind.PARTITIONED, (self.name,), state=state, partitioning=partitioning, buckets=buckets, time=time
        )
        return self.query._add(spec, self._state_schema(state, free, time), self._space)

    def stateful(self, state: StateFactory, *, time: EventTime | None = None, name: str = "stateful") -> Stream:
        """A state of your own that sees every row: one worker at a time."""
        self._check_time(time)
        free = self.query._free_name(name)
        spec = OperatorSpec(free, Kind.STATEFUL, (self.name,), state=state, time=time)
        return self.query._add(spec, self._state_schema(state, free, time), self._space)

    def top_k(self, by: str, k: int, *, descending: bool = True, name: str = "top_k") -> Stream:
        """The best rows of all: each that comes among the best ``k``, with its rank; at the end the final ones."""
        from headgate.stream.keyed import TopK, plan

        return self.stateful(plan(TopK, self.schema, (), by, k, descending).factory, name=name)

    def fold(
        self,
        function: Callable[[Any, Mapping[str, Any]], tuple[Any, Iterable[Mapping[str, Any]]]],
        initial: Any,
        schema: pa.Schema,
        *,
        finish: Callable[[Any, Mapping[str, Any]], Iterable[Mapping[str, Any]]] | None = None,
        name: str | None = None,
    ) -> Stream:
        """``function(state, row)`` gives the new state, a JSON value, and any number of rows out.

        ``finish(state, {})`` gives rows at the end of a finite run.
        """
        from headgate.stream.keyed import Fold, plan

        factory = plan(Fold, self.schema, (), function, initial, schema, finish).factory
        return self.stateful(factory, name=name or _name_of(function, "fold"))

    def _state_schema(self, state: StateFactory, name: str, time: EventTime | None) -> pa.Schema:
        fresh: State = state()

        def kernel(batch: pa.RecordBatch) -> Any:
            times = None if time is None else batch.column(time.column).cast(pa.int64()).to_numpy()
            return fresh.process(Part.whole(batch, times))

        return infer_schema(kernel, self.schema, f"operator {name!r} of query {self.query.name!r}")

    # --- several streams, and the end -----------------------------------------------------------------------

    def merge(self, *others: Stream, name: str = "merge") -> Stream:
        """Merge branches of one source: rows in the order of the source's rows they come from, then of branches."""
        streams = (self, *others)
        self._same_columns(streams, "merge")
        if {stream._space for stream in streams} != {self._space}:
            raise QueryDeclarationError(
                "merge is for branches of one source; streams of different sources have no common order: "
                "use union(..., by=COLUMN) with a column of event time"
            )
        spec = OperatorSpec(self.query._free_name(name), Kind.MERGE, tuple(stream.name for stream in streams))
        return self.query._add(spec, self.schema, self._space)

    def union(self, *others: Stream, by: str, name: str = "union") -> Stream:
        """Make one stream of several, also of different sources, in the order of the event time in column ``by``."""
        streams = (self, *others)
        self._same_columns(streams, "union")
        self._check_time(EventTime(by))
        free = self.query._free_name(name)
        spec = OperatorSpec(free, Kind.UNION, tuple(stream.name for stream in streams), by=by)
        return self.query._add(spec, self.schema, free)

    def to(self, sink: Sink, name: str = "sink") -> Query:
        """Send rows to a sink; the query, for the next call or for an engine."""
        spec = OperatorSpec(self.query._free_name(name), Kind.SINK, (self.name,), sink=sink)
        self.query._operators[spec.name] = spec
        return self.query

    # --- checks ---------------------------------------------------------------------------------------------

    def _require(self, columns: Sequence[str]) -> None:
        for column in columns:
            if column not in self.schema.names:
                raise UnknownNameError(
                    "column", column, self.schema.names, hint=f"These are the columns that {self.name!r} gives."
                )

    def _check_time(self, time: EventTime | None) -> None:
        if time is None:
            return
        self._require([time.column])
        kind, types = self.schema.field(time.column).type, pa.types
        is_integer = types.is_integer(kind) and kind != pa.uint64()
        if not (is_integer or (types.is_temporal(kind) and not types.is_interval(kind) and kind.bit_width == 64)):
            raise QueryDeclarationError(
                f"column {time.column!r} of type {kind} cannot be the event time: it must be of signed integers or "
                "timestamps; cast it"
            )

    def _same_columns(self, streams: Sequence[Stream], what: str) -> None:
        for stream in streams:
            if stream.query is not self.query:
                raise QueryDeclarationError(
                    f"{what} takes streams of one query; {stream.name!r} belongs to {stream.query.name!r}"
                )
            if not stream.schema.equals(self.schema):
                raise QueryDeclarationError(
                    f"{what} takes streams with the same columns: {self.name!r} has {columns_text(self.schema)}, "
                    f"{stream.name!r} has {columns_text(stream.schema)}"
                )

    @staticmethod
    def _check_over(over: str) -> None:
        if over not in OVER:
            raise UnknownNameError("kind of function", over, OVER)

    def __repr__(self) -> str:
        return f"<Stream {self.query.name}/{self.name}: {columns_text(self.schema)}>"


def _first_of(kernels: Sequence[Function], number: int) -> Function:
    """Rows for which none of the first ``number`` conditions holds, and the next one does, if there is one."""

    def kernel(batch: pa.RecordBatch) -> Output:
        rows = np.arange(batch.num_rows, dtype=np.int64)
        for earlier in kernels[:number]:
            matches = earlier(batch).parents
            rows = rows[:0] if matches is None else np.setdiff1d(rows, matches, assume_unique=True)
        if number < len(kernels):
            matches = kernels[number](batch).parents
            rows = rows if matches is None else np.intersect1d(rows, matches, assume_unique=True)
        return Output(batch.take(pa.array(rows)), rows)

    return kernel


def _name_of(function: object, default: str) -> str:
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() and name != "<lambda>" else default
