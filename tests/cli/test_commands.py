"""The command line as a user meets it: what is printed where, and with which exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.cli import main
from headgate.core.registry import PLACEMENTS, POLICIES

EXAMPLES = Path(__file__).parents[2] / "examples" / "warehouse"

TABLES = """
grain = "tables"
tracks = 2
events = 400
[[table]]
name = "readings"
period = 10
[[table]]
name = "alerts"
sources = ["readings"]
priority = 100
"""

OPERATORS = """
grain = "operators"
workers = 2
horizon = 0.5
[[query]]
name = "q"
arrivals = { pattern = "constant", rate = 200 }
operator = [ { name = "parse", cost = 0.001 }, { name = "sink", cost = 0.001 } ]
"""


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Headgate = Callable[..., Done]


@pytest.fixture
def headgate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Headgate:
    """The command, run in this process: starting an interpreter takes longer than what is tested."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["headgate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.toml"
    path.write_text(TABLES)
    return path


def test_simulate_compares_every_policy_with_every_placement(headgate: Headgate, scenario: Path) -> None:
    done = headgate(
        *("simulate", str(scenario), "--json", "--policy", "max-benefit", "--policy", "fifo"),
        *("--placement", "anywhere", "--placement", "proportional:k=2", "--events", "300"),
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [(row["policy"], row["placement"]) for row in answer["results"]] == [
        ("max-benefit", "anywhere"),
        ("max-benefit", "proportional:k=2.0"),
        ("fifo", "anywhere"),
        ("fifo", "proportional:k=2.0"),
    ]
    assert {row["events"] for row in answer["results"]} == {300}
    first = answer["results"][0]
    measures = ("relative_lateness", "weighted_staleness", "latency", "queue_mean", "queue_max", "events_per_second")
    assert all(first[measure] is not None for measure in measures)
    assert set(first["latency"]) == {"count", "mean", "p50", "p95", "p99", "max"}
    assert len(first["worker_utilisation"]) == 2
    assert [node["name"] for node in first["nodes"]] == ["readings", "alerts"]


def test_simulate_compares_loops_of_operators(headgate: Headgate, tmp_path: Path) -> None:
    path = tmp_path / "operators.toml"
    path.write_text(OPERATORS)
    loops = ("--loop", "dispatch:consumption=at-most-5", "--loop", "rounds:period=0.05", "--loop", "threads")
    done = headgate("simulate", str(path), "--json", "--policy", "fcfs", *loops)
    assert done.returncode == 0, done.stderr
    assert [row["loop"] for row in json.loads(done.stdout)["results"]] == ["dispatch", "rounds", "threads"]


def test_the_same_seed_prints_the_same_numbers_and_another_seed_others(headgate: Headgate, scenario: Path) -> None:
    def numbers(seed: str) -> list[dict[str, object]]:
        results = json.loads(headgate("simulate", str(scenario), "--json", "--seed", seed).stdout)["results"]
        return [{key: value for key, value in row.items() if key != "events_per_second"} for row in results]

    assert numbers("1") == numbers("1")
    assert numbers("1") != numbers("2")


def test_policies_lists_every_policy_and_placement_with_its_paper(headgate: Headgate) -> None:
    done = headgate("policies", "--json")
    answer = json.loads(done.stdout)
    assert [entry["name"] for entry in answer["policies"]] == list(POLICIES)
    assert [entry["name"] for entry in answer["placements"]] == list(PLACEMENTS)
    assert all(entry["summary"] and entry["paper"] for entry in answer["policies"] + answer["placements"])
    text = headgate("policies").stdout
    assert all(name in text for name in (*POLICIES, *PLACEMENTS))


def test_policies_lists_parameters_that_are_policies_and_those_of_classes(headgate: Headgate) -> None:
    entries = {
        entry["name"]: entry["parameters"] for entry in json.loads(headgate("policies", "--json").stdout)["policies"]
    }
    assert entries["auto"] == {"now": "max-benefit", "window": 300.0, "gain": 0.03, "placements": True, "tracks": 0}
    assert entries["multi-class"] == {"CLASS": None, "default": "hr"}
    assert entries["cqc"] == {"CLASS": None}
    text = headgate("policies").stdout
    assert "(CLASS=POLICY, default=hr)" in text and "(CLASS=NUMBER)" in text and "(now=max-benefit, window=" in text


CYCLE = TABLES.replace('name = "readings"\nperiod = 10', 'name = "readings"\nsources = ["alerts"]')

BAD_SCENARIOS = {
    "a cyclic graph": (CYCLE, ("cycle", "readings", "alerts")),
    "two nodes of one name": (TABLES.replace('name = "alerts"', 'name = "readings"'), ("two nodes", "'readings'")),
    "a source that does not exist": (TABLES.replace('["readings"]', '["reedings"]'), ("'reedings'", "readings")),
    "a negative cost": (TABLES + "setup_time = -1\n", ("'alerts'", "setup_time", "-1")),
    "an unknown key": (TABLES + "prioriti = 3\n", ("'prioriti'", "did you mean 'priority'")),
    "an unknown key at the top": ("trucks = 3\n" + TABLES, ("'trucks'", "did you mean 'tracks'")),
    "a text where a number belongs": (TABLES + 'delay = "soon"\n', ("delay", "a number", "'soon'")),
    "no grain": (TABLES.replace('grain = "tables"', ""), ("grain", "'tables'", "'operators'")),
    "no tracks at all": (TABLES.replace("tracks = 2", "tracks = 0"), ("tracks", "at least 1")),
    "a trillion tables": (TABLES + "count = 1000000000000\n", ("count", "from 1 to 100000", "1000000000000")),
    "not TOML": ("grain =", ("not valid TOML",)),
    "a negative operator cost": (OPERATORS.replace("0.001 }, ", "-0.001 }, "), ("'parse'", "cost", "-0.001")),
    "an unknown arrival pattern": (OPERATORS.replace('"constant"', '"steady"'), ("pattern", "'poisson'", "'steady'")),
}


@pytest.mark.parametrize(("text", "named"), BAD_SCENARIOS.values(), ids=BAD_SCENARIOS)
def test_a_bad_scenario_is_refused_in_one_line_that_names_the_thing(
    headgate: Headgate, tmp_path: Path, text: str, named: tuple[str, ...]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    _is_refused(headgate("simulate", str(path)), (*named, "bad.toml"))


BAD_REQUESTS = {
    "an unknown policy": (("--policy", "max-benifit"), ("max-benifit", "max-benefit")),
    "an unknown placement": (("--placement", "everywhere"), ("everywhere", "anywhere")),
    "a parameter the policy does not take": (("--policy", "qst:size=3"), ("qst", "size", "capacity")),
    "a value the placement does not take": (("--placement", "proportional:k=-1"), ("proportional", "k", "-1")),
    "a loop for tables": (("--loop", "rounds"), ("--loop",)),
}


@pytest.mark.parametrize(("options", "named"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_bad_request_is_refused_in_one_line_that_names_the_thing(
    headgate: Headgate, scenario: Path, options: tuple[str, ...], named: tuple[str, ...]
) -> None:
    _is_refused(headgate("simulate", str(scenario), *options), named)


@pytest.mark.parametrize("options", [("--inheritance", "sum"), ("--story",), ("--bound",)], ids=lambda it: it[0])
def test_what_is_for_tables_is_refused_for_operators(
    headgate: Headgate, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = tmp_path / "operators.toml"
    path.write_text(OPERATORS)
    _is_refused(headgate("simulate", str(path), *options), (options[0], "operators.toml", "leave it out"))


def test_a_policy_whose_feature_the_engine_lacks_is_refused(
    headgate: Headgate, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wishful.py").write_text(
        "from dataclasses import dataclass\n"
        "from headgate.core import Policy\n"
        "@dataclass(frozen=True)\n"
        "class Wishful(Policy):\n"
        "    name = 'wishful'\n    summary = 'by luck'\n    paper = 'none'\n    needs = ('luck',)\n"
        "    def priorities(self, view):\n        return view['luck']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    _is_refused(headgate("simulate", str(scenario), "--policy", "wishful.Wishful"), ("wishful", "'luck'", "provides"))


@pytest.mark.slow
def test_the_installed_command_runs_by_itself_and_keeps_progress_off_standard_output(scenario: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headgate", "simulate", str(scenario), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert json.loads(done.stdout)["scenario"] == "tables"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_pipelines_among_the_examples_have_no_mistakes(headgate: Headgate, example: Path) -> None:
    done = headgate("check", "--no-spark", str(example))
    assert (done.returncode, done.stderr) == (0, "")
    assert "no errors" in done.stdout


def test_a_pipeline_file_that_fails_is_told_with_one_traceback(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "city.py").write_text("1 / 0")
    done = headgate("check", str(tmp_path / "city.py"))
    assert (done.returncode, done.stderr.count("ZeroDivisionError")) == (1, 1), done.stderr


def test_a_scenario_that_does_not_exist_is_refused(headgate: Headgate, tmp_path: Path) -> None:
    _is_refused(headgate("simulate", str(tmp_path / "nowhere.toml")), ("nowhere.toml",))


@pytest.mark.parametrize("command", ["simulate", "bound"])
@pytest.mark.parametrize("ending", ["", ".toml", ".jsonl"], ids=["a folder", "a scenario", "a trace"])
def test_a_name_that_is_too_long_for_a_file_is_refused(headgate: Headgate, command: str, ending: str) -> None:
    _is_refused(headgate(command, "x" * 256 + ending), ("cannot read the", "xxx", ": File name too long"))


@pytest.mark.parametrize("command", ["simulate", "bound"])
def test_an_empty_name_is_refused(headgate: Headgate, command: str) -> None:
    _is_refused(headgate(command, ""), ("the name is empty",))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("simulate", "SCENARIO"), id="a comparison"),
        pytest.param(("simulate", "SCENARIO", "--json"), id="numbers"),
        pytest.param(("bound", "SCENARIO"), id="a bound"),
        pytest.param(("policies",), id="a list"),
        pytest.param(("--version",), id="the version"),
        pytest.param(("--help",), id="help"),
    ],
)
def test_what_finds_no_room_for_what_it_prints_says_so(
    arguments: tuple[str, ...], scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [str(scenario) if word == "SCENARIO" else word for word in arguments]
    monkeypatch.setattr(sys, "argv", ["headgate", *named])
    with Path("/dev/full").open("w") as full, pytest.raises(SystemExit) as ended:
        monkeypatch.setattr(sys, "stdout", full)
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "headgate: cannot write: No space left on device\n"


def test_who_prints_to_somebody_that_has_left_just_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "argv", ["headgate", "--version"])
    with open(writer, "w") as pipe, pytest.raises(SystemExit) as ended:
        monkeypatch.setattr(sys, "stdout", pipe)
        main()
    assert (ended.value.code, capsys.readouterr().err) == (1, "")


def _is_refused(done: Done, named: tuple[str, ...]) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in named:
        assert word in done.stderr
