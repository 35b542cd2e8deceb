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

from headgate.core.errors import DeclarationError, ScenarioError
from headgate.sim.operators.scenario_file import operator_scenario
from headgate.sim.operators.spec import OperatorScenario
from headgate.sim.strict import build, convert, counted
from headgate.sim.tables.scenario import Table, TableScenario

#: keys as written in a file, where the dataclass field cannot have that name
RENAMED = {"class": "importance_class"}

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
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"cannot read the scenario {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"cannot read the scenario {path}: it is not UTF-8 text") from None
    return parse_scenario(text, str(path))


def parse_scenario(text: str, where: str = "scenario") -> ScenarioFile:
    """The scenario in a text; ``where`` is what to call it in messages."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{where} is not valid TOML: {error}") from None
    grain = data.get("grain")
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


def _texts(data: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    texts = convert(data.get(key, []), tuple[str, ...], f"{where}.{key}")
    assert isinstance(texts, tuple)
    return texts


def _table_scenario(data: dict[str, Any], where: str) -> TableScenario:
    entries = data.pop("table", [])
    if not isinstance(entries, list) or not entries:
        raise ScenarioError(f"{where}: a scenario of tables needs at least one [[table]]")
    tables = tuple(
        table
        for number, entry in enumerate(entries, 1)
        for table in _tables(entry, entries, f"{where}: table {number}")
    )
    given: dict[str, object] = {"tables": tables}
    if data.get("spread") == "exact":
        given["spread"] = data.pop("spread") and None
    return build(TableScenario, data, where, given=given, elsewhere=(*_ABOUT, "table"))


def _tables(entry: dict[str, Any], entries: list[dict[str, Any]], where: str) -> Iterator[Table]:
    counts = {other.get("name"): other.get("count", 1) for other in entries if isinstance(other, dict)}
    for suffix, values in counted(entry, where):
        sources = values.get("sources", [])
        if suffix and isinstance(sources, list):
            # a counted table is built on its own copy of a source that is counted alike, else on the one there is
            values["sources"] = [f"{s}{suffix}" if counts.get(s, 1) == entry["count"] else s for s in sources]
        yield build(Table, values, where, RENAMED)
