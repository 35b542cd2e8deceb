"""Traces that were damaged, or made to do harm: nothing is imported, and whatever they say, an error names the line."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from headgate.core.errors import HeadgateError
from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import Change, NotLoaded, Redeclared, RunNotice, Trace, TraceError, arrivals, trace_from
from headgate.core.trace.lines import (
    change_line,
    end_line,
    header_line,
    not_loaded_line,
    notice_line,
    redeclared_line,
    update_line,
)
from headgate.core.update import OperatorFigures
from headgate.sim import Table, TableScenario, compare_replay, replay_of
from headgate.warehouse.report.figures import figures_of
from headgate.warehouse.report.report import FORMATS
from headgate.warehouse.run.trace import MOST_READ, read_trace
from tests.sim.recording import START, recorded

SCENARIO = TableScenario(
    (
        Table("readings", period=5.0, setup_time=0.5),
        Table("weather", period=7.0, setup_time=0.2),
        Table("alerts", sources=("readings", "weather"), priority=100.0),
        Table("archive", sources=("readings",), setup_time=2.0),
    ),
    tracks=1,
    spread=None,
    horizon=60.0,
    events=10**9,
)
OPERATOR = OperatorFigures("query", "cheap", "stateless", 10, 4, 1, 0.5, 8, 0.25, 2.0)


def good_lines() -> list[str]:
    """A trace with a line of every kind."""
    _, trace = recorded(SCENARIO, "max-benefit")
    first, *others = trace.updates
    return [
        header_line(replace(trace.header, budget=1.0)),
        update_line(replace(first, operators=(OPERATOR,), repairs=3.0)),
        *map(update_line, others),
        update_line(replace(first, layer="maintenance", freshness=None, arrived=None)),
        update_line(replace(first, error="it broke", began=START + 50)),
        change_line(Change(START + 10, {"policy": "fifo"})),
        change_line(Change(START + 20, {"tracks": 2})),
        change_line(Change(START + 30, {"priority": ["alerts", 7.0]})),
        notice_line(RunNotice(START + 31, "readings", "waiting for the directory /landing")),
        redeclared_line(Redeclared(START + 40, trace.header.tables)),
        not_loaded_line(NotLoaded(START + 59, {"readings": (START + 57, START + 58, 2)})),
        end_line(START + 60),
    ]


GOOD = good_lines()


def use(path: Path) -> Trace:
    """Do with a trace all that can be done with one, under the policies that it names."""
    trace = read_trace(path)
    figures = figures_of(trace)
    for write in FORMATS.values():
        write(figures)
    replay = replay_of(trace)
    policies = [policy_from(text, imports=False) for text in replay.policies]
    placement = placement_from(replay.placement, imports=False)
    assert list(compare_replay(replay, [(policy, placement) for policy in policies]))
    return trace


def written(folder: Path, *lines: str) -> Path:
    path = folder / "run.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def changed(line: str, **values: object) -> str:
    return json.dumps(json.loads(line) | values) + "\n"


def test_the_good_trace_that_is_damaged_below_is_good(tmp_path: Path) -> None:
    assert len(use(written(tmp_path, *GOOD)).updates) == len(GOOD) - 8


# --- what a trace may make happen ---------------------------------------------------------------------------------

OWN = """
from dataclasses import dataclass
from pathlib import Path
from headgate.core.policies import ReleaseOrder
from headgate.core.placements import Anywhere

Path("imported").touch()

@dataclass(frozen=True)
class Mine(ReleaseOrder):
    name = "mine"

@dataclass(frozen=True)
class Here(Anywhere):
    name = "here"
"""

Answer = tuple[int, str, str]


@pytest.fixture
def headgate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Answer]:
    """The command, run in a folder that has a module of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lying_here.py").write_text(OWN)

    def run(*arguments: str) -> Answer:
        sys.modules.pop("lying_here", None)
        monkeypatch.setattr(sys, "argv", ["headgate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return code if isinstance(code, int) else 0, *capsys.readouterr()

    return run


NAMED = {
    "as the policy": {"policy": "lying_here.Mine"},
    "inside another policy": {"policy": "multi-class:3=lying_here.Mine"},
    "deeper inside": {"policy": "multi-class:3=(multi-class:2=(lying_here.Mine))"},
    "as the placement": {"placement": "lying_here.Here"},
}


@pytest.mark.parametrize("named", NAMED.values(), ids=NAMED)
def test_a_trace_imports_no_module_that_it_names(
    headgate: Callable[..., Answer], tmp_path: Path, named: dict[str, str]
) -> None:
    path = written(tmp_path, changed(GOOD[0], **named), *GOOD[1:-7], GOOD[-1])
    code, out, err = headgate("simulate", str(path))
    assert (code, out) == (2, "")
    assert "lying_here" in err
    assert "name it yourself: --p" in err
    assert not (tmp_path / "imported").exists()


def test_a_trace_imports_no_module_that_it_was_changed_to(headgate: Callable[..., Answer], tmp_path: Path) -> None:
    path = written(tmp_path, *GOOD[:-1], change_line(Change(START + 1, {"policy": "lying_here.Mine"})), GOOD[-1])
    use_policy = headgate("simulate", str(path))
    assert use_policy[0] == 2 or "lying_here" not in use_policy[1]
    assert not (tmp_path / "imported").exists()


def test_a_scenario_imports_no_module_that_it_names(headgate: Callable[..., Answer], tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        'grain = "tables"\nevents = 9\npolicies = ["lying_here.Mine"]\n[[table]]\nname = "a"\nperiod = 1\n'
    )
    code, _, err = headgate("simulate", str(scenario))
    assert (code, (tmp_path / "imported").exists()) == (2, False)
    assert "--policy lying_here.Mine" in err
    assert headgate("simulate", str(scenario), "--policy", "lying_here.Mine")[0] == 0


def test_a_file_that_lies_there_takes_the_place_of_no_installed_module(headgate: Callable[..., Answer]) -> None:
    before = list(sys.path)
    headgate("policies")
    assert sys.path == [*before, ""]


def test_the_user_may_name_the_module(headgate: Callable[..., Answer], tmp_path: Path) -> None:
    path = written(
        tmp_path, changed(GOOD[0], policy="lying_here.Mine", placement="lying_here.Here"), *GOOD[1:-7], GOOD[-1]
    )
    code, out, _ = headgate("simulate", str(path), "--policy", "lying_here.Mine", "--placement", "lying_here.Here")
    assert (code, (tmp_path / "imported").exists()) == (0, True)
    assert "mine" in out


# --- what a trace may say -------------------------------------------------------------------------------------------

TRILLION = 10**12
DEEP = "[" * 100_000
UPDATE = GOOD[2]

#: {what is wrong: (the line that says so, put in the place of line 3, and what the error names)}
WRONG_LINES: dict[str, tuple[str, str]] = {
    "a trillion files": (changed(UPDATE, arrived=[START, START, TRILLION]), "from 0 to 1000000000"),
    "a trillion tracks": (change_line(Change(START, {"tracks": TRILLION})), "from 1 to 1000"),
    "the trillionth track": (changed(UPDATE, track=TRILLION), "'track'"),
    "a track below the first": (changed(UPDATE, track=-2), "'track'"),
    "deep lists": (DEEP + "\n", "nested too deeply"),
    "a deep change": ('{"change": {"a": ' + "[" * 50 + "]" * 50 + f'}}, "at": {START}}}\n', "nested too deeply"),
    "deep objects": ('{"a":' * 100_000 + "\n", "nested too deeply"),
    "an endless number": ('{"end": 1' + "0" * 5000 + "}\n", "one JSON object"),
    "an immense number": ('{"end": 1e400}\n', "'end'"),
    "no number": ('{"end": NaN}\n', "'end'"),
    "a time beyond all": ('{"end": 1e300}\n', "'end'"),
    "a text as a time": ('{"end": "12"}\n', "'end'"),
    "a negative duration": (changed(UPDATE, seconds=-1.0), "'seconds'"),
    "truth as a number": (changed(UPDATE, rows=True), "'rows'"),
    "a list as a name": (changed(UPDATE, update=["readings"]), "'update'"),
    "an endless name": (changed(UPDATE, update="x" * 100_000), "'update'"),
    "an unknown layer": (changed(UPDATE, layer=["live"]), "live, backfill, maintenance"),
    "operators that are none": (changed(UPDATE, operators=[7]), "operators"),
    "a change that is none": ('{"change": "fifo", "at": 1794736800.0}\n', "'change'"),
    "a priority that is none": (change_line(Change(START, {"priority": ["alerts", "high"]})), "'priority'"),
    "a priority below 0": (change_line(Change(START, {"priority": ["alerts", -1]})), "'priority'"),
    "a way to inherit that is none": (change_line(Change(START, {"inheritance": "a"})), "'inheritance' is wrong"),
    "a budget of nothing": (change_line(Change(START, {"budget": 0})), "'budget'"),
    "tables that were saved with a source that is none": (
        changed(GOOD[-3], tables=[json.loads(GOOD[0])["tables"][0] | {"kind": "table", "sources": ["nope"]}]),
        "table 'readings': its sources are tables of the same line; got 'nope'",
    ),
    "a policy that is none": (change_line(Change(START, {"policy": 7})), "'policy'"),
    "half a line": (UPDATE[:40] + "\n", "one JSON object"),
    "garbage": ("\0\x1b[31m\ufffd\n", "one JSON object"),
    "a list": ("[1, 2]\n", "one JSON object"),
}


@pytest.mark.parametrize(("line", "said"), WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_wrong_line_is_refused_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(TraceError, match=r"run\.jsonl line 3: ") as refused:
        read_trace(written(tmp_path, *GOOD[:2], line, *GOOD[3:]))
    assert said in str(refused.value)
    assert len(str(refused.value)) < 1000


def table(**values: object) -> dict[str, Any]:
    first: dict[str, Any] = json.loads(GOOD[0])["tables"][0]
    return first | values


WRONG_HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "a trillion tracks": ({"tracks": TRILLION}, "'tracks'"),
    "no track": ({"tracks": 0}, "'tracks'"),
    "begun before all time": ({"started": -1e30}, "'started'"),
    "tables that are none": ({"tables": 7}, "'tables'"),
    "too many tables": ({"tables": [table(name=f"t{n}") for n in range(10_001)]}, "10,000"),
    "a table that is none": ({"tables": ["readings"]}, "'tables'"),
    "sources that are none": ({"tables": [table(sources="readings")]}, "'sources'"),
    "an infinite class": ({"tables": [table(**{"class": 2**70})]}, "'class'"),
    "a kind that is none": ({"tables": [table(kind={})]}, "stream, dimension, table"),
    "a class beyond all": ({"tables": [table(**{"class": 2**60})]}, "table 'readings': the key 'class'"),
    "a priority below 0": ({"tables": [table(priority=-1)]}, "table 'readings': the key 'priority'"),
    "a target that nothing meets": ({"tables": [table(target_lag=0)]}, "table 'readings': the key 'target_lag'"),
    "no patience at all": ({"tables": [table(patience=0)]}, "table 'readings': the key 'patience'"),
    "a period below 0": ({"tables": [table(period=-1)]}, "table 'readings': the key 'period'"),
    "a table without a kind": ({"tables": [{"name": "readings"}]}, "table 'readings': the key 'sources' is missing"),
    "two tables of one name": ({"tables": [table(), table()]}, "two that are called 'readings'"),
    "a source that is no table": (
        {"tables": [table(), table(name="t", kind="table", sources=["readings", "nope"])]},
        "table 't': its sources are tables of the same line; got 'nope'",
    ),
    "a source that is named twice": (
        {"tables": [table(), table(name="t", kind="table", sources=["readings"] * 2)]},
        "table 't': its sources are different tables; got ['readings', 'readings']",
    ),
    "a circle of tables": (
        {"tables": [table(sources=["t"]), table(name="t", kind="table", sources=["readings"])]},
        "not computed from itself; got 'readings -> t -> readings'",
    ),
    "a circle of very many tables": (
        {"tables": [table(name=f"t{n}", kind="table", sources=[f"t{n - 1 if n else 9_999}"]) for n in range(10_000)]},
        "not computed from itself",
    ),
    "a stream that is computed": (
        {"tables": [table(), table(name="t", sources=["readings"])]},
        "table 't': its sources are none, because it is a stream; got ['readings']",
    ),
    "a table that is computed from nothing": (
        {"tables": [table(kind="table")]},
        "table 'readings': its sources are the tables that it is computed from; got none",
    ),
    "a chop below 0": ({"chop": -1}, "'chop'"),
    "a budget of nothing": ({"budget": 0}, "'budget'"),
    "a way to inherit that is none": ({"inheritance": "a"}, "'inheritance' is wrong"),
}


@pytest.mark.parametrize(("values", "said"), WRONG_HEADERS.values(), ids=WRONG_HEADERS)
def test_a_wrong_header_is_refused(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(TraceError, match=r"run\.jsonl line 1: ") as refused:
        read_trace(written(tmp_path, changed(GOOD[0], **values), *GOOD[1:]))
    assert said in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_single_line_of_garbage_is_not_called_empty(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"run\.jsonl line 1: .*one JSON object"):
        read_trace(written(tmp_path, GOOD[0][:50]))


def test_a_file_larger_than_a_trace_can_be_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("wb") as file:
        file.truncate(MOST_READ + 1)  # it takes up no room on the disk
    with pytest.raises(TraceError, match="larger than"):
        read_trace(path)


TOO_LONG: dict[str, list[str]] = {
    "a stream that came all the time": [
        changed(UPDATE, update="weather", began=at, arrived=[at, at, 1], freshness=int(at * 10**6))
        for at in (START + 1, START + 1.00001, START + 1.00002)
    ],
}


@pytest.mark.parametrize("lines", TOO_LONG.values(), ids=TOO_LONG)
def test_a_trace_that_would_be_replayed_for_ever_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(HeadgateError, match="at most"):
        use(written(tmp_path, GOOD[0], *lines, end_line(START + 1e9)))


def test_more_arrivals_than_a_machine_can_hold_are_refused() -> None:
    """In a file that is not larger than a trace can be."""
    line = changed(UPDATE, arrived=[START, START, 10**9])
    with pytest.raises(TraceError, match=r"line 100002: at most 10,000,000 arrivals"):
        trace_from(itertools.chain([GOOD[0]], itertools.repeat(line)))


def test_a_load_of_a_billion_files_is_used_as_one_of_a_hundred(tmp_path: Path) -> None:
    trace = use(written(tmp_path, *GOOD[:2], changed(UPDATE, arrived=[START, START + 1, 10**9]), *GOOD[3:]))
    assert len(arrivals(trace, trace.header.tables[0])) < 200


def test_a_budget_that_cuts_updates_into_dust_is_refused(tmp_path: Path) -> None:
    never_updated = table(name="late", kind="table", sources=["readings"], freshness=0)
    long_ago = changed(GOOD[0], chop=1.0, tables=[table(freshness=0, period=1e-6), never_updated])
    arrived = changed(
        UPDATE, update="readings", arrived=[START, START + 1e-9, 3], freshness=int(START) * 10**6, seconds=1e-9
    )
    with pytest.raises(HeadgateError, match="at most"):
        use(written(tmp_path, long_ago, arrived, end_line(START + 1e6)))


# --- random damage --------------------------------------------------------------------------------------------------

HOSTILE = [
    *(None, True, -1, 0, 1, 2**31, 2**63, TRILLION, -1e18, 1e-300, 1e15, 1e308, START, START * 1e6, 0.5),
    *(
        "",
        "\x1b[2J",
        "max-benefit",
        "os.path",
        "readings",
        "live",
        "x" * 5000,
        [],
        {},
        [[]],
        [START, START, 50],
        ["readings"],
    ),
]
FACTORS = [0, 1e-9, 0.5, 1, 1, 1, 2, 1000, -1]
SHIFTS = [0, 0, 1, -1, 3600, -1e6, 1e9, 1e-9]


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside a JSON value."""
    match value:
        case dict():
            inner = [(value, key) for key in value]
        case list():
            inner = [(value, place) for place in range(len(value))]
        case _:
            return []
    return [*inner, *(found for container, key in inner for found in places(container[key]))]


def with_another_value(chance: random.Random, lines: list[str]) -> None:
    number = chance.randrange(len(lines))
    entry = json.loads(lines[number])
    container, key = chance.choice(places(entry))
    if isinstance(container, dict) and chance.random() < 0.1:
        del container[key]
    elif type(container[key]) in (int, float) and chance.random() < 0.7:
        # Near enough to pass for what it was.
        container[key] = type(container[key])(container[key] * chance.choice(FACTORS) + chance.choice(SHIFTS))
    else:
        container[key] = chance.choice(HOSTILE)
    lines[number] = json.dumps(entry) + "\n"


def with_lines_moved(chance: random.Random, lines: list[str]) -> None:
    number, other = chance.randrange(1, len(lines)), chance.randrange(1, len(lines))
    chance.choice(
        [
            lambda: lines.insert(number, lines[other]),
            lambda: lines.pop(number),
            lambda: lines.insert(number, lines.pop(other)),
        ]
    )()


def with_bytes_changed(chance: random.Random, lines: list[str]) -> None:
    number = chance.randrange(len(lines))
    line = lines[number]
    begin = chance.randrange(len(line))
    end = min(len(line), begin + chance.choice([0, 1, 1, 3, 40]))
    put = "".join(chance.choice('0123456789eE.-"{}[],:\\\n\0x') for _ in range(chance.choice([0, 1, 1, 2, 8])))
    lines[number] = line[:begin] + put + line[end:]


DAMAGES = [with_another_value, with_lines_moved, with_bytes_changed]


@pytest.mark.parametrize("seed", range(12))
def test_a_trace_damaged_at_random_is_used_or_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(40):
        lines = list(GOOD)
        # The bytes last: what stands on a line after that may be no JSON.
        for damage in sorted(chance.choices(DAMAGES, [6, 1, 2], k=chance.choice([1, 1, 2, 4])), key=DAMAGES.index):
            damage(chance, lines)
        try:
            use(written(tmp_path, *lines))
        except HeadgateError as error:
            refused += 1
            assert len(str(error)) < 3000
    assert refused  # otherwise nothing was damaged
