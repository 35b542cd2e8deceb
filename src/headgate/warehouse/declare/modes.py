"""How a table is kept up to date: the cheapest way that is proved right, or the one that the user states.

*append*: rows of new source rows are added. *merge*: they are merged into the groups of an aggregate. *blocks*: changed
stretches of event time are computed again. *keys*: the rows of changed keys are computed again. *whole*: everything is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from headgate.core import DeclarationError
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.declare.keys import TableKeys, time_keys
from headgate.warehouse.declare.locality import block_of
from headgate.warehouse.declare.merging import NO_AGGREGATE, MergePlan
from headgate.warehouse.declare.plan_tree import quoted
from headgate.warehouse.declare.spec import DimensionSpec, NodeSpec, TableSpec, WarehouseSpec

if TYPE_CHECKING:
    from headgate.warehouse.declare.analysis import Analysis

ModeName = Literal["append", "merge", "blocks", "keys", "whole"]
_NO_KEYS = "no column of it is a key by which all its rows are grouped and joined"
_CHEAPEST_FIRST: tuple[ModeName, ...] = ("append", "merge", "blocks", "keys", "whole")


@dataclass(frozen=True, slots=True)
class TableMode:
    """The mode of a table and why it was chosen.

    ``block`` is the event time that can be computed again by itself, in microseconds; None if there is none, so that
    the table can only be rebuilt. ``keys`` and ``merge`` belong to the modes of these names.
    """

    name: ModeName
    reason: str
    block: int | None = None
    keys: TableKeys | None = None
    merge: MergePlan | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def table_modes(spec: WarehouseSpec, analyses: Mapping[str, Analysis]) -> dict[str, TableMode]:
    """The mode of each table, sources before the tables built on them; DeclarationError lists what cannot be."""
    graph, declared = spec.graph(), {node.name: node for node in spec.nodes()}
    growing = {stream.name for stream in spec.streams}
    modes: dict[str, TableMode] = {}
    mistakes: list[str] = []
    for name in (graph.names[i] for i in graph.order):
        table = declared[name]
        if not isinstance(table, TableSpec):
            continue
        try:
            modes[name] = _choose_mode(table, analyses[name], declared, growing)
        except DeclarationError as mistake:
            mistakes.append(str(mistake))
            continue
        if modes[name].name == "append":
            growing.add(name)
    if mistakes:
        raise DeclarationError("\n".join(mistakes))
    return modes


def _choose_mode(
    table: TableSpec, analysis: Analysis, declared: Mapping[str, NodeSpec], growing: Collection[str]
) -> TableMode:
    """The mode of a table; ``growing`` are the streams and tables whose rows are only ever added."""
    stated = "blocks" if table.mode == "recompute" else table.mode
    changing = [name for name in table.sources if not isinstance(declared[name], DimensionSpec)]
    block = block_of(table, declared)
    local = block if analysis.not_local is None else None
    if analysis.has_states:
        return _with_states(table, stated, changing, growing, local)
    possible, why_not = _possible_modes(table, analysis, changing, growing, block)
    if stated == "auto":
        order: tuple[ModeName, ...] = _CHEAPEST_FIRST
        if table.lookback:
            order = ("blocks",)
        elif table.catch_up == "newest" and "blocks" in possible:
            order = ("append", "blocks")  # groups are merged in the order in which their rows came
        elif analysis.keys is not None and _are_finer(analysis.keys, declared, block):
            order = ("append", "merge", "keys")
        chosen = next(possible[name] for name in order if name in possible)
        is_no_surprise = chosen.name in ("append", "merge") or table.lookback or analysis.merge == NO_AGGREGATE
        why = why_not["merge"] if "merge" not in possible else "catch_up is 'newest'"
        return chosen if is_no_surprise else replace(chosen, reason=f"{chosen.reason}; not merge: {why}")
    # The user may state what cannot be proved, and answers for it.
    said = "it is stated" if stated in possible else f"it is stated, not proved: {why_not.get(stated)}"
    if stated == "append" and _grows(changing, growing):
        return TableMode("append", said, local)
    if stated == "blocks":
        return TableMode("blocks", said, block)
    if stated == "keys" and table.key:
        return TableMode("keys", said, keys=_stated_keys(table, declared, analysis))
    if stated not in possible:
        raise DeclarationError(
            f"{table.place}: table {table.name!r} cannot be kept in mode {stated}: {why_not[stated]}; leave the mode "
            "out, or use mode whole"
        )
    return possible[stated]


def _possible_modes(
    table: TableSpec, analysis: Analysis, changing: Sequence[str], growing: Collection[str], block: int
) -> tuple[dict[str, TableMode], dict[str, str]]:
    """The modes that are proved right, by name; and why others are not."""
    local = block if analysis.not_local is None else None
    possible: dict[str, TableMode] = {}
    why_not = {"blocks": analysis.not_local or "", "keys": _NO_KEYS}
    if not _grows(changing, growing):
        why_not["append"] = why_not["merge"] = _why_not_growing(changing)
    else:
        why_not["append"] = analysis.not_linear or ""
        why_not["merge"] = analysis.merge if isinstance(analysis.merge, str) else ""
        if analysis.not_linear is None:
            possible["append"] = TableMode("append", f"each row comes from one row of {changing[0]!r}", local)
        if isinstance(analysis.merge, MergePlan):
            reason = f"new rows of {changing[0]!r} are merged into its groups"
            possible["merge"] = TableMode("merge", reason, local, merge=analysis.merge)
    if analysis.not_local is None and table.time is not None:
        reason = "no row depends on other partitions of time"
        if table.lookback:
            before = readable(table.lookback)
            reason = f"lookback is stated: rows depend on their partition of time and on {before} before it"
        possible["blocks"] = TableMode("blocks", reason, block)
    if analysis.keys is not None:
        reason = f"only rows with the same {_listed(analysis.keys.columns)} as changed rows change"
        possible["keys"] = TableMode("keys", reason, keys=analysis.keys)
    whole = "it is stated" if table.mode == "whole" else _why_whole(table, analysis)
    possible["whole"] = TableMode("whole", whole)
    return possible, why_not


def _why_whole(table: TableSpec, analysis: Analysis) -> str:
    by_time = "" if table.time is None or analysis.not_local is None else f"{analysis.not_local}; "
    return f"{by_time}{_NO_KEYS}"


def _are_finer(keys: TableKeys, declared: Mapping[str, NodeSpec], block: int) -> bool:
    """Whether less is read for changed keys than for changed blocks: keys and the sources' partitions are shorter."""
    for source in keys.origins:
        node = declared[source]
        if isinstance(node, DimensionSpec):
            continue
        if node.time is None or round(node.partition * 1_000_000) >= block:
            return False
        if any(key is None or length >= block for key, length in time_keys(keys, source, node.time)):
            return False
    return True


def _grows(changing: Sequence[str], growing: Collection[str]) -> bool:
    """Whether a table has one source that is not a dimension, whose rows are only ever added."""
    return len(changing) == 1 and changing[0] in growing


def _with_states(
    table: TableSpec, stated: str, changing: Collection[str], growing: Collection[str], local: int | None
) -> TableMode:
    """A table with stream queries that keep states."""
    possible = len(table.sources) == 1 and all(name in growing for name in changing)
    if not possible or stated not in ("auto", "append"):
        raise DeclarationError(
            f"{table.place}: table {table.name!r} holds a stream query with states, which goes on from row to row: "
            "it needs one source, which must be a stream or itself be appended to, and mode append"
        )
    return TableMode("append", "its stream queries go on from row to row", local)


def _why_not_growing(changing: Sequence[str]) -> str:
    if len(changing) != 1:
        return "it needs one source that is not a dimension"
    return f"rows of its source {changing[0]!r} change after they were added"


def _stated_keys(table: TableSpec, declared: Mapping[str, NodeSpec], analysis: Analysis) -> TableKeys:
    columns = {name: set(analysis.source_columns[name]) for name in table.sources}
    key = tuple(map(quoted, table.key))
    origins = {name: (key,) for name, has in columns.items() if set(table.key) <= has}
    missing = [n for n in table.sources if n not in origins and not isinstance(declared[n], DimensionSpec)]
    if missing:
        raise DeclarationError(
            f"{table.place}: table {table.name!r} states the key {', '.join(table.key)}, but its source "
            f"{missing[0]!r} has no such columns; it has: {', '.join(sorted(columns[missing[0]]))}"
        )
    types = {each.name: each.dataType.simpleString() for each in analysis.schema}
    for name in table.key:
        if any(kind in types[name] for kind in ("array<", "map<", "variant")):
            raise DeclarationError(
                f"{table.place}: table {table.name!r} states the key {name!r} of type {types[name]}, by which rows "
                "cannot be found; state other columns as the key, or mode='whole'"
            )
    return TableKeys(tuple(table.key), origins)


def _listed(names: Collection[str]) -> str:
    return " and ".join(map(repr, names))
