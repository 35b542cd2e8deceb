"""Keyed operators: what a query computes key by key. Each kernel class is the state of one bucket of keys.

A kernel takes first the schema of the rows that come in, then what describes the operator. ``plan`` finds out what a
query needs to know before it runs one. The sequence of rows that goes out is the same for any packets and buckets.

States that hold one row for every key they have seen know which rows have changed (``kernel.IncrementalState``).
Windows and joins do not: open windows and rows that may still find a partner come and go with time, so that after a
while nearly all of them are new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import State, StateFactory
from headgate.stream.keyed.aggregate import FUNCTIONS, Aggregate
from headgate.stream.keyed.filters import Dedupe, InOrder
from headgate.stream.keyed.index import KeyIndex
from headgate.stream.keyed.join import IntervalJoin
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.running import Fold, RunningAggregate
from headgate.stream.keyed.sessions import SessionAggregate
from headgate.stream.keyed.top import TopK
from headgate.stream.keyed.windows import SlidingAggregate, TumblingAggregate
from headgate.stream.spec import EventTime

__all__ = [
    "FUNCTIONS",
    "Aggregate",
    "Dedupe",
    "Fold",
    "InOrder",
    "IntervalJoin",
    "KeyIndex",
    "KeyedState",
    "Plan",
    "RowKeys",
    "RunningAggregate",
    "SessionAggregate",
    "SlidingAggregate",
    "TopK",
    "TumblingAggregate",
    "plan",
]


class KeyedState(State, Protocol):
    """The state of one bucket of a keyed operator."""

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of every batch that it gives out."""

    @property
    def event_time(self) -> EventTime | None:
        """The column of event time; None if it does not depend on time."""


@dataclass(frozen=True)
class Plan:
    """A keyed operator, ready to run."""

    factory: StateFactory
    schema: pa.Schema
    time: EventTime | None


def plan(state: Callable[..., KeyedState], schema: pa.Schema, *args: Any, **options: Any) -> Plan:
    """Plan ``state(schema, *args, **options)``; what cannot be done as written fails here.

    ``plan(TumblingAggregate, schema, ["user"], "time", 60, [Aggregate("count")])``
    """
    first = state(schema, *args, **options)
    return Plan(partial(state, schema, *args, **options), first.output_schema, first.event_time)
