"""``headgate simulate TRACE`` as a user meets it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.core.trace.lines import end_line, header_line, update_line
from headgate.sim import ReplayRow, Table, TableScenario
from tests.sim.recording import START, recorded

SCENARIO = TableScenario(
    (
        Table("readings", period=5.0, setup_time=0.5),
        Table("alerts", sources=("readings",), priority=100.0),
        Table("archive", sources=("readings",), setup_time=2.0),
    ),
    tracks=1,
    spread=None,
    horizon=120.0,
    events=10**9,
)

Answer = tuple[int, str, str]
Headgate = Callable[..., Answer]


@pytest.fixture
def headgate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Headgate:
    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["headgate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return code if isinstance(code, int) else 0, *capsys.readouterr()

    return run


def write(path: Path, policy: str = "max-benefit") -> Path:
    _, trace = recorded(SCENARIO, "max-benefit")
    header = header_line(trace.header).replace('"policy":"max-benefit"', f'"policy":"{policy}"')
    path.write_text("".join([header, *map(update_line, trace.updates), end_line(START + 120)]))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "run.jsonl")


def test_the_measured_run_comes_first_then_its_own_policy_and_others(headgate: Headgate, trace: Path) -> None:
    code, out, err = headgate("simulate", str(trace), "--json")
    assert (code, err) == (0, "")
    results = json.loads(out)["results"]
    assert [(row["run"], row["policy"]) for row in results] == [
        ("measured", "max-benefit"),
        ("simulated", "max-benefit"),
        ("simulated", "fifo"),
    ]
    assert results[0]["weighted_staleness"] == pytest.approx(results[1]["weighted_staleness"], rel=0.01)
    assert [table["name"] for table in results[0]["tables"]] == ["readings", "alerts", "archive"]


def test_a_person_gets_a_line_per_run_and_a_line_per_table(headgate: Headgate, trace: Path) -> None:
    code, out, _ = headgate("simulate", str(trace))
    assert code == 0
    first_words = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert [word for word in first_words if word in ("measured", "max-benefit", "fifo")] == [
        "measured",
        "max-benefit",
        "fifo",
    ]
    assert [word for word in first_words if word in ("alerts", "archive", "readings")] == [
        "alerts",
        "archive",
        "readings",
    ]


def test_names_are_not_wrapped_if_the_output_is_no_terminal(headgate: Headgate, trace: Path) -> None:
    policies = ["max-benefit", "priced-benefit", "target-lag:goal=count", "edf-p"]
    code, out, _ = headgate("simulate", str(trace), *(word for policy in policies for word in ("--policy", policy)))
    assert code == 0
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert ["table", "priority", "measured", *policies] in lines, "all columns are named in one line"
    assert [line[0] for line in lines if line[0] in ("measured", *policies)] == ["measured", *policies]


def test_what_to_compare_on_how_many_tracks_and_from_when_can_be_said(headgate: Headgate, trace: Path) -> None:
    options = ("--policy", "edf", "--placement", "anywhere", "--placement", "proportional", "--workers", "3")
    code, out, _ = headgate("simulate", str(trace), "--json", "--skip", "1 min", *options)
    assert code == 0
    measured, *simulated = json.loads(out)["results"]
    assert (measured["tracks"], measured["seconds"]) == (1, pytest.approx(60.0))
    assert [(row["policy"], row["placement"], row["tracks"]) for row in simulated] == [
        ("edf", "anywhere", 3),
        ("edf", "proportional", 3),
    ]


BAD_REQUESTS = {
    "a loop": (("--loop", "rounds"), ("--loop", "run.jsonl")),
    "a number of events": (("--events", "5"), ("--events", "run.jsonl")),
    "a story": (("--story",), ("--story", "run.jsonl")),
    "more skipped than there is": (("--skip", "1 hour"), ("120 s", "3600 s")),
    "a length that is none": (("--skip", "soon"), ("--skip", "'soon'")),
    "an unknown policy": (("--policy", "max-benifit"), ("max-benifit", "max-benefit")),
}


@pytest.mark.parametrize(("options", "named"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_bad_request_is_refused_in_one_line(
    headgate: Headgate, trace: Path, options: tuple[str, ...], named: tuple[str, ...]
) -> None:
    is_refused(headgate("simulate", str(trace), *options), named)


def test_a_policy_of_ones_own_that_the_run_had_must_be_named_or_left_out(headgate: Headgate, tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", policy="mine")
    is_refused(headgate("simulate", str(path)), ("'mine'", "--policy"))
    assert headgate("simulate", str(path), "--policy", "fifo")[0] == 0


def test_a_scenario_takes_no_skip(headgate: Headgate, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text('grain = "tables"\n[[table]]\nname = "a"\nperiod = 1\n')
    is_refused(headgate("simulate", str(path), "--skip", "3 s"), ("--skip", "scenario.toml"))


def test_a_file_that_is_no_trace_is_refused(headgate: Headgate, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"rows": 3}\n')
    is_refused(headgate("simulate", str(path)), ("other.jsonl", "not a trace"))


def test_every_field_of_an_answer_is_in_the_document() -> None:
    from tests.test_docs import rows

    assert list(rows("traces.md", "trace: ReplayRow")) == [field.name for field in fields(ReplayRow)]


def is_refused(answer: Answer, named: tuple[str, ...]) -> None:
    code, out, err = answer
    assert (code, out) == (2, ""), err
    assert len(err.strip().splitlines()) == 1, err
    for word in named:
        assert word in err
