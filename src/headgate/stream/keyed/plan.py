"""What a query has to know of a keyed operator before it runs, found by making one state and asking it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import State, StateFactory
from headgate.stream.spec import EventTime


class KeyedState(State, Protocol):
    """The state of one bucket of a keyed operator. Its class is called with the schema of the rows that come, then with
    what describes the operator."""

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of every batch it gives out."""

    @property
    def event_time(self) -> EventTime | None:
        """The column by which it goes; None if it does not go by time."""


@dataclass(frozen=True)
class Plan:
    """A keyed operator, ready to be run."""

    factory: StateFactory
    schema: pa.Schema
    time: EventTime | None


def plan(state: Callable[..., KeyedState], schema: pa.Schema, *args: Any, **options: Any) -> Plan:
    """Plan ``state(schema, *args, **options)``; what cannot be done as written fails here.

    ``plan(TumblingAggregate, schema, ["user"], "time", 60, [Aggregate("count")])``
    """
    first = state(schema, *args, **options)
    return Plan(partial(state, schema, *args, **options), first.output_schema, first.event_time)
