"""Scenario files: TOML in, a checked scenario out.

A file says ``grain = "tables"`` or ``grain = "operators"`` and then what that grain's scenario dataclass takes, under
the same names. ``[[table]]`` and ``[[query]]`` entries may carry ``count``, which stands for that many, numbered
from 1. Every mistake names the file and the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.core import DeclarationError, ParameterError, ScenarioError, consumption_from
from headgate.sim.kernel import (
    ArrivalPattern,
    BatchArrivals,
    BurstyArrivals,
    ConstantArrivals,
    PoissonArrivals,
    RecordedArrivals,
)
from headgate.sim.operators.scenario import (
    DispatchModel,
    LoopModel,
    OperatorModel,
    OperatorScenario,
    QueryModel,
    RoundsModel,
    ThreadsModel,
)
from headgate.sim.strict import build, convert, counted
from headgate.sim.tables.scenario import Table, TableScenario

#: keys as written in a file, where the dataclass field cannot have that name
RENAMED = {"class": "importance_class"}

PATTERNS: Mapping[str, type[Any]] = {
    "constant": ConstantArrivals,
    "batches": BatchArrivals,
    "poisson": PoissonArrivals,
    "bursty": BurstyArrivals,
    "replay": RecordedArrivals,
}
LOOPS: Mapping[str, type[Any]] = {"dispatch": DispatchModel, "rounds": RoundsModel, "threads": ThreadsModel}

#: limits for a scenario that somebody sent: its size, and the dots in a key
MOST_BYTES = 16 << 20
MOST_DOTS = 100

_ABOUT = ("grain", "policies", "placements", "about")


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """A scenario and what to compare in it unless the command line says otherwise."""

    scenario: TableScenario | OperatorScenario
    policies: tuple[str, ...]
    placements: tuple[str, ...]
    about: str


def read_scenario(path: Path) -> ScenarioFile:
    """The scenario in a file; a ScenarioError names what is wrong and where."""
    try:
        if path.exists() and not path.is_file():
            raise ScenarioError(f"cannot read the scenario {path}: it is not a file")
        if path.stat().st_size > MOST_BYTES:
            raise ScenarioError(f"cannot read the scenario {path}: it has more than {MOST_BYTES >> 20} MB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"cannot read the scenario {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"cannot read the scenario {path}: it is not UTF-8 text") from None
    return parse_scenario(text, str(path))


def parse_scenario(text: str, where: str = "scenario") -> ScenarioFile:
    """The scenario in a text; ``where`` is what to call it in messages."""
    if deep := next((n for n, line in enumerate(text.splitlines(), 1) if _dots(line) > MOST_DOTS), 0):
        raise ScenarioError(f"{where}: the key in line {deep} has more than {MOST_DOTS} dots")
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{where} is not valid TOML: {error}") from None
    grain = data.get("grain")
    if not isinstance(grain, str | None):
        raise ScenarioError(f"{where}: grain takes one of 'tables', 'operators'; got {grain!r}")
    readers: dict[object, Callable[[dict[str, Any], str], TableScenario | OperatorScenario]]
    readers = {"tables": _table_scenario, "operators": operator_scenario}
    if grain not in readers:
        got = f"got {grain!r}" if "grain" in data else "it is missing"
        raise ScenarioError(f"{where}: grain takes one of 'tables', 'operators'; {got}")
    rest = {key: value for key, value in data.items() if key not in _ABOUT}
    try:
        scenario = readers[grain](rest, where)
    except ScenarioError:
        raise
    except DeclarationError as error:
        raise ScenarioError(f"{where}: {error}") from None
    return ScenarioFile(
        scenario=scenario,
        policies=_texts(data, "policies", where),
        placements=_texts(data, "placements", where),
        about=str(convert(data.get("about", ""), str, f"{where}.about")),
    )


def _dots(line: str) -> int:
    """How many dots the key of a line has: reading a key takes the square of that."""
    return line.partition("=")[0].count(".")


def _texts(data: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    texts = convert(data.get(key, []), tuple[str, ...], f"{where}.{key}")
    assert isinstance(texts, tuple)
    return texts


# --- tables -----------------------------------------------------------------------------------------------------


def _table_scenario(data: dict[str, Any], where: str) -> TableScenario:
    entries = data.pop("table", [])
    if not isinstance(entries, list) or not entries:
        raise ScenarioError(f"{where}: a scenario of tables needs at least one [[table]]")
    counts = {
        other.get("name"): other.get("count", 1)
        for other in entries
        if isinstance(other, dict) and isinstance(other.get("name"), str)
    }
    tables = tuple(
        table for number, entry in enumerate(entries, 1) for table in _tables(entry, counts, f"{where}: table {number}")
    )
    ready: dict[str, object] = {"tables": tables}
    if data.get("spread") == "exact":
        ready["spread"] = data.pop("spread") and None
    return build(TableScenario, data, where, ready=ready, elsewhere=(*_ABOUT, "table"))


def _tables(entry: dict[str, Any], counts: Mapping[object, object], where: str) -> Iterator[Table]:
    for suffix, values in counted(entry, where):
        sources = values.get("sources", [])
        if suffix and isinstance(sources, list) and all(isinstance(source, str) for source in sources):
            # a counted table is built on its own copy of a source that is counted alike, else on the one there is
            values["sources"] = [f"{s}{suffix}" if counts.get(s, 1) == entry["count"] else s for s in sources]
        if "arrivals" in values and "period" in values:
            raise ScenarioError(
                f"{where}: data comes by a period or at the arrivals that are listed: remove one of them"
            )
        yield build(Table, values, where, RENAMED)


# --- operators --------------------------------------------------------------------------------------------------


def operator_scenario(data: Mapping[str, Any], where: str) -> OperatorScenario:
    """A scenario from the keys of a file; every mistake is named by its path."""
    values = dict(data)
    entries = values.pop("query", [])
    if not isinstance(entries, list) or not entries:
        raise ScenarioError(f"{where}: a scenario of operators needs at least one [[query]]")
    queries = tuple(
        _query(copy, f"{where}: query {number} ({copy['name']})")
        for number, entry in enumerate(entries, 1)
        for _, copy in counted(entry, f"{where}: query {number}")
    )
    loop = loop_from(values.pop("loop", {"kind": "dispatch"}), f"{where}: loop")
    ready = {"queries": queries, "loop": loop, "changes": ()}
    return build(
        OperatorScenario, values, where, ready=ready, elsewhere=("grain", "policies", "placements", "query", "loop")
    )


def loop_from(data: object, where: str) -> LoopModel:
    """A loop from its ``kind`` and its parameters."""
    chosen, rest = _chosen(data, "kind", LOOPS, where)
    ready = {}
    if chosen is DispatchModel and "consumption" in rest:
        try:
            ready["consumption"] = consumption_from(str(rest.pop("consumption")))
        except ParameterError as error:
            raise ScenarioError(f"{where}: {error}") from None
    loop: LoopModel = build(chosen, rest, where, ready=ready)
    return loop


def _arrivals(data: object, where: str) -> ArrivalPattern:
    chosen, rest = _chosen(data, "pattern", PATTERNS, where)
    arrivals: ArrivalPattern = build(chosen, rest, where)
    return arrivals


def _chosen(data: object, key: str, known: Mapping[str, type[Any]], where: str) -> tuple[type[Any], dict[str, Any]]:
    """The class that ``key`` names, and the other keys."""
    if not isinstance(data, Mapping):
        raise ScenarioError(f"{where} takes a table of keys with {key!r}; got {data!r}")
    rest = dict(data)
    name = rest.pop(key, None)
    if not isinstance(name, str) or name not in known:
        raise ScenarioError(f"{where}.{key} takes one of {', '.join(map(repr, known))}; got {name!r}")
    return known[name], rest


def _query(values: dict[str, Any], where: str) -> QueryModel:
    operators = convert(values.pop("operator", []), list[dict[str, Any]], f"{where}: operator")
    if not isinstance(operators, list) or not operators:
        raise ScenarioError(f"{where}: a query needs at least one [[query.operator]]")
    arrivals = _arrivals(values.pop("arrivals"), f"{where}: arrivals") if "arrivals" in values else None
    # Operators that name no inputs at all are a chain, the common case.
    if not any("inputs" in operator for operator in operators):
        names = [operator.get("name", "") for operator in operators]
        operators = [
            {**operator, "inputs": [names[number - 1]]} if number else operator
            for number, operator in enumerate(operators)
        ]
    built = tuple(_operator(operator, arrivals, where) for operator in operators)
    return build(
        QueryModel,
        values,
        where,
        {"class": "importance_class"},
        ready={"operators": built},
        elsewhere=("arrivals", "operator"),
    )


def _operator(values: dict[str, Any], of_query: ArrivalPattern | None, where: str) -> OperatorModel:
    keys = dict(values)
    where = f"{where}: operator {keys.get('name', 'without a name')!r}"
    arrivals = None if keys.get("inputs") else of_query
    if "arrivals" in keys:
        arrivals = _arrivals(keys.pop("arrivals"), f"{where}: arrivals")
    return build(OperatorModel, keys, where, ready={"arrivals": arrivals}, elsewhere=("arrivals",))
