"""A query as plain frozen data: its operators, and who feeds whom. ``Query`` makes it, engines run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.stream.kernel import Function, StateFactory
from headgate.stream.packet import Ints
from headgate.stream.partition import Partitioning

if TYPE_CHECKING:
    from headgate.stream.sinks.sink import Sink
    from headgate.stream.sources.source import Source

#: as many buckets as the engine finds best; states that are kept from run to run need a fixed number
AUTOMATIC_BUCKETS = 0


class Kind(Enum):
    """The kind of an operator. It decides how many workers may run it at once."""

    SOURCE = "source"
    STATELESS = "stateless"
    PARTITIONED = "partitioned"
    STATEFUL = "stateful"
    #: takes packets of one serial number from several branches and puts their rows together
    MERGE = "merge"
    #: takes packets of several sources and puts their rows in the order of event time, under new serial numbers
    UNION = "union"
    SINK = "sink"


#: the bounds of 64-bit integers, and so of times
EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class EventTime:
    """The column of event time of an operator.

    ``crosses(before, after)`` says whether a bucket must get a packet in which it has no rows, because windows may
    close. It is given the latest time before the packet (None if it is the first) and the latest in it.

    The operator can take rows of times from ``earliest`` to ``latest``. It has to reject others, and rows without a
    time; they do not move the stream's time.
    """

    column: str
    crosses: Callable[[int | None, int], bool] = lambda before, after: True
    earliest: int = EARLIEST
    latest: int = LATEST

    def of_rows(self, batch: pa.RecordBatch, before: int | None) -> tuple[Ints, int | None]:
        """The stream's time at each row: the largest up to there that the operator can take, ``earliest`` if there is
        none. ``before`` is that before the batch. Also the time after the batch."""
        values = batch.column(self.column)
        if not pa.types.is_integer(values.type):
            values = values.view(pa.int64())
        if values.null_count:
            values = pc.fill_null(values, self.earliest)
        times: Ints = values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        if not len(times):
            return times, before
        if times.min() < self.earliest or times.max() > self.latest:
            times = np.where((times < self.earliest) | (times > self.latest), self.earliest, times)
        times = np.maximum.accumulate(times)
        if before is not None and times[0] < before:
            times = np.maximum(times, before)
        return times, int(times[-1])


@dataclass(frozen=True)
class OperatorSpec:
    """One operator. Which fields matter depends on its kind."""

    name: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    function: Function | None = None
    state: StateFactory | None = None
    partitioning: Partitioning | None = None
    buckets: int = 1
    time: EventTime | None = None
    source: Source | None = None
    sink: Sink | None = None
    #: of a union: the column of event time
    by: str | None = None
    #: estimates for policies until they are measured: seconds per row, and rows out per row in
    cost: float | None = None
    selectivity: float | None = None


@dataclass(frozen=True)
class QuerySpec:
    """Connected operators in topological order, with what policies may rank the query by."""

    name: str
    operators: tuple[OperatorSpec, ...]
    priority: float = 1.0
    importance_class: int = 0
    patience: float = float("inf")
    packet_rows: int | None = None
    #: the sink of rejected rows; without it the last of them are remembered
    rejected: Sink | None = None
    by_name: Mapping[str, OperatorSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {operator.name: operator for operator in self.operators})

    def readers(self, name: str) -> tuple[OperatorSpec, ...]:
        """The operators that an operator feeds."""
        return tuple(operator for operator in self.operators if name in operator.inputs)

    @property
    def sinks(self) -> tuple[OperatorSpec, ...]:
        return tuple(operator for operator in self.operators if operator.kind is Kind.SINK)

    @property
    def sources(self) -> tuple[OperatorSpec, ...]:
        return tuple(operator for operator in self.operators if operator.kind is Kind.SOURCE)
