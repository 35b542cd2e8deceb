"""Whether the tables in a line of a trace can be those of a run: a replay has to make a graph of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from headgate.core.trace.records import TraceTable
from headgate.core.trace.values import shown


def refuse_impossible(tables: Sequence[TraceTable]) -> None:
    """Raise ValueError if no warehouse has such tables."""
    named: dict[str, TraceTable] = {}
    for table in tables:
        if table.name in named:
            raise ValueError(f"every table has a name of its own; got two that are called {shown(table.name)}")
        named[table.name] = table
    for table in tables:
        unknown = next((source for source in table.sources if source not in named), None)
        if unknown is not None:
            raise _wrong_sources(table, f"tables of the same line; got {shown(unknown)}, which is none of them")
        if len(set(table.sources)) < len(table.sources):
            raise _wrong_sources(table, f"different tables; got {shown(list(table.sources))}")
    _refuse_cycle({table.name: table.sources for table in tables})
    for table in tables:
        if table.kind == "table" and not table.sources:
            raise _wrong_sources(table, "the tables that it is computed from; got none")
        if table.kind != "table" and table.sources:
            raise _wrong_sources(table, f"none, because it is a {table.kind}; got {shown(list(table.sources))}")


def _wrong_sources(table: TraceTable, expected: str) -> ValueError:
    return ValueError(f"table {shown(table.name)}: its sources are {expected}")


def _refuse_cycle(sources: dict[str, tuple[str, ...]]) -> None:
    try:
        TopologicalSorter(sources).prepare()
    except CycleError as error:
        circle: Iterable[str] = error.args[1]
        raise ValueError(f"a table is not computed from itself; got {shown(' -> '.join(circle), 200)}") from None
