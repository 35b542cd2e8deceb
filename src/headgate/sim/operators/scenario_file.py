"""Operator scenarios from TOML: queries, arrival patterns and loops by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.core.consumption import consumption_from
from headgate.core.errors import ParameterError, ScenarioError
from headgate.sim.operators.arrivals import Arrivals, Batches, Bursty, Constant, Poisson, Replay
from headgate.sim.operators.loops import DispatchLoop, Loop, RoundsLoop, ThreadsLoop
from headgate.sim.operators.spec import Operator, OperatorScenario, Query
from headgate.sim.strict import build, convert, counted

PATTERNS: Mapping[str, type[Any]] = {
    "constant": Constant,
    "batches": Batches,
    "poisson": Poisson,
    "bursty": Bursty,
    "replay": Replay,
}
LOOPS: Mapping[str, type[Any]] = {"dispatch": DispatchLoop, "rounds": RoundsLoop, "threads": ThreadsLoop}


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
    given = {"queries": queries, "loop": loop, "changes": ()}
    return build(
        OperatorScenario, values, where, given=given, elsewhere=("grain", "policies", "placements", "query", "loop")
    )


def loop_from(data: object, where: str) -> Loop:
    """A loop from its ``kind`` and its parameters."""
    chosen, rest = _chosen(data, "kind", LOOPS, where)
    given = {}
    if chosen is DispatchLoop and "consumption" in rest:
        try:
            given["consumption"] = consumption_from(str(rest.pop("consumption")))
        except ParameterError as error:
            raise ScenarioError(f"{where}: {error}") from None
    loop: Loop = build(chosen, rest, where, given=given)
    return loop


def _arrivals(data: object, where: str) -> Arrivals:
    chosen, rest = _chosen(data, "pattern", PATTERNS, where)
    arrivals: Arrivals = build(chosen, rest, where)
    return arrivals


def _chosen(data: object, key: str, known: Mapping[str, type[Any]], where: str) -> tuple[type[Any], dict[str, Any]]:
    """The class that ``key`` names, and the other keys."""
    if not isinstance(data, Mapping):
        raise ScenarioError(f"{where} takes a table of keys with {key!r}; got {data!r}")
    rest = dict(data)
    name = rest.pop(key, None)
    if name not in known:
        raise ScenarioError(f"{where}.{key} takes one of {', '.join(map(repr, known))}; got {name!r}")
    return known[name], rest


def _query(values: dict[str, Any], where: str) -> Query:
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
        Query,
        values,
        where,
        {"class": "importance_class"},
        given={"operators": built},
        elsewhere=("arrivals", "operator"),
    )


def _operator(values: dict[str, Any], of_query: Arrivals | None, where: str) -> Operator:
    own = dict(values)
    where = f"{where}: operator {own.get('name', 'without a name')!r}"
    arrivals = None if own.get("inputs") else of_query
    if "arrivals" in own:
        arrivals = _arrivals(own.pop("arrivals"), f"{where}: arrivals")
    return build(Operator, own, where, given={"arrivals": arrivals}, elsewhere=("arrivals",))
