"""``headgate bound`` as a user meets it."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from headgate.core.trace import Change
from headgate.core.trace.lines import change_line
from headgate.sim.run_bound import settled
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.run.trace import read_trace
from tests.cli.test_replay import Headgate, headgate, write  # noqa: F401
from tests.sim.recording import START

SCENARIO = """
grain = "tables"
name = "two"
tracks = 1
horizon = 200
[[table]]
name = "a"
period = 10
setup_time = 4
[[table]]
name = "b"
period = 10
setup_time = 4
priority = 5
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    return path


def test_policies_stand_beside_the_bound_of_a_scenario(headgate: Headgate, scenario: Path) -> None:  # noqa: F811
    code, out, err = headgate(
        "bound", str(scenario), "--policy", "fifo", "--policy", "max-benefit", "--certain", "--json"
    )
    assert (code, err) == (0, "")
    rows = json.loads(out)["results"]
    assert [row["policy"] for row in rows] == ["fifo", "max-benefit"]
    for row in rows:
        assert row["times"] == pytest.approx(row["weighted_staleness"] / row["bound"]["weighted_staleness"])
        assert row["times"] >= 1
        assert (row["bound"]["seconds"], row["bound"]["tracks"], row["bound"]["on_average"]) == (200, 1, False)


def test_what_the_bound_holds_for_is_said(headgate: Headgate, scenario: Path) -> None:  # noqa: F811
    whole = " ".join(headgate("bound", str(scenario))[1].split())
    assert "two on 1 track, for 3.33 min" in whole
    assert "any policy that loads all that waits, and for the mean over all runs" in whole
    cut = " ".join(headgate("bound", str(scenario), "--portions", "--certain")[1].split())
    assert "for any policy, and for every run" in cut


def test_what_holds_for_some_rows_only_is_said_of_these(headgate: Headgate, scenario: Path) -> None:  # noqa: F811
    policies = ("--policy", "max-benefit", "--policy", "priced-benefit", "--policy", "auto:tracks=3")
    said = " ".join(headgate("bound", str(scenario), *policies)[1].split())
    assert "beside priced-benefit, auto:tracks=3 holds for any policy, the others for any policy that loads all" in said
    assert "two, for 3.33 min tracks weighted lower bound times the bound price max-benefit 1 " in said
    assert re.search(r"auto:tracks=3 3 \d", said)
    same = " ".join(headgate("bound", str(scenario), *policies[:2])[1].split())
    assert "two on 1 track, for 3.33 min weighted" in same


def test_a_recorded_run_stands_beside_its_bound(headgate: Headgate, tmp_path: Path) -> None:  # noqa: F811
    runs = tmp_path / "w" / "runs"
    runs.mkdir(parents=True)
    trace = write(tmp_path / "run.jsonl")
    shutil.copy(trace, runs / "20261115T100000.000000Z.jsonl")
    for what in (trace, tmp_path / "w"):
        code, out, err = headgate("bound", str(what), "--json")
        assert (code, err) == (0, "")
        measured, simulated = json.loads(out)["results"]
        assert (measured["policy"], simulated["policy"]) == ("measured", "max-benefit")
        assert simulated["times"] >= 1
        assert measured["times"] >= 1
        assert measured["bound"]["weighted_staleness"] == pytest.approx(simulated["bound"]["weighted_staleness"])


def test_a_run_that_had_more_tracks_for_a_while_says_of_each_row_on_how_many(
    headgate: Headgate,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "run.jsonl")
    changes = [change_line(Change(START + at, {"tracks": count})) for at, count in ((100.0, 2), (110.0, 1))]
    *lines, end = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, *changes, end]))
    said = " ".join(headgate("bound", str(path))[1].split())
    assert " on 1 track" not in said
    assert re.search(r"2 min tracks weighted .* measured 2 \d.* max-benefit 1 \d", said), said


def test_tables_are_named_of_which_nobody_knows_what_waited(headgate: Headgate, tmp_path: Path) -> None:  # noqa: F811
    untold, told = tmp_path / "untold.jsonl", tmp_path / "told.jsonl"
    lines = [
        line for line in write(tmp_path / "run.jsonl").read_text().splitlines() if '"update":"readings"' not in line
    ]
    untold.write_text("\n".join([*lines, ""]))
    told.write_text("\n".join([*lines[:-1], '{"not_loaded":{},"at":1794736919.0}', lines[-1], ""]))
    for command in ("bound", "simulate"):
        said = " ".join(headgate(command, str(untold))[1].split())
        assert "Of readings, alerts, archive it is not recorded whether data came that was never loaded." in said
        assert "is not recorded whether" not in headgate(command, str(told))[1]
    whole = json.loads(headgate("bound", str(untold), "--json")[1])
    assert len(whole["notes"]) == 1
    (measured, *_) = json.loads(headgate("simulate", str(untold), "--json", "--bound")[1])["results"]
    assert measured["lower_bound"] is None, "it would be one of other tables"


def test_the_start_of_a_recorded_run_does_not_count_unless_asked_for(headgate: Headgate, tmp_path: Path) -> None:  # noqa: F811
    path = write(tmp_path / "run.jsonl")
    settles = json.loads(headgate("bound", str(path), "--json")[1])
    assert settles["skipped"] == 0, "all tables had rows from the beginning"
    began_empty = re.sub(r'"freshness":\d+', '"freshness":null', path.read_text().splitlines()[0])
    path.write_text("\n".join([began_empty, *path.read_text().splitlines()[1:], ""]))
    start = settled(read_trace(path))
    assert 0 < start < 60
    by_default = json.loads(headgate("bound", str(path), "--json")[1])
    assert by_default["skipped"] == start
    assert by_default["results"][0]["bound"]["seconds"] == pytest.approx(120 - start)
    everything = json.loads(headgate("bound", str(path), "--skip", "0 s", "--json")[1])
    assert (everything["skipped"], everything["results"][0]["bound"]["seconds"]) == (0, pytest.approx(120))
    said = " ".join(headgate("bound", str(path))[1].split())
    assert f"without its first {readable(start)}" in said
    assert "--skip '0 s' counts it" in said
    assert "counts it" not in headgate("bound", str(path), "--skip", "5 s")[1]


def test_simulate_says_that_its_bound_counts_the_start_of_a_recorded_run(headgate: Headgate, tmp_path: Path) -> None:  # noqa: F811
    path = write(tmp_path / "run.jsonl")
    assert "counts the start" not in headgate("simulate", str(path), "--bound")[1], "it began with rows"
    began_empty = re.sub(r'"freshness":\d+', '"freshness":null', path.read_text().splitlines()[0])
    path.write_text("\n".join([began_empty, *path.read_text().splitlines()[1:], ""]))
    start = settled(read_trace(path))
    without = f"--skip '{math.ceil(start)} s'"
    note = (
        f"The bound counts the start of the run, until most tables had rows after {readable(start)}; headgate bound "
        f"leaves it out, and so does {without} here."
    )
    assert note in " ".join(headgate("simulate", str(path), "--bound")[1].split())
    assert note in json.loads(headgate("simulate", str(path), "--bound", "--json")[1])["notes"]
    assert "counts the start" not in headgate("simulate", str(path))[1], "there is no bound"
    assert "counts the start" not in headgate("simulate", str(path), "--bound", "--skip", f"{math.ceil(start)} s")[1]


def test_the_autopilot_is_simulated_as_it_acts_and_not_replayed(
    headgate: Headgate,  # noqa: F811
    scenario: Path,
    tmp_path: Path,
) -> None:
    code, out, _ = headgate("bound", str(scenario), "--policy", "auto:tracks=3", "--json")
    assert code == 0
    (row,) = json.loads(out)["results"]
    assert row["bound"]["tracks"] == 3, "it may use so many"
    code, out, err = headgate("bound", str(write(tmp_path / "run.jsonl")), "--policy", "auto")
    assert (code, out) == (2, "")
    assert "cannot be replayed" in err


def test_what_cannot_be_replayed_is_refused_before_anything_is_run(
    headgate: Headgate,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "failing.py").write_text(
        "from headgate.core.policies import MaxBenefit\n"
        "class Failing(MaxBenefit):\n"
        "    name = 'failing'\n"
        "    def priorities(self, view):\n        raise ValueError('it was run')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    trace = str(write(tmp_path / "run.jsonl"))
    assert "it was run" in headgate("bound", trace, "--policy", "failing.Failing")[2]
    code, out, err = headgate("bound", trace, "--policy", "failing.Failing", "--policy", "auto")
    assert (code, out) == (2, "")
    assert "cannot be replayed" in err


def test_simulate_prints_the_bound_if_asked(headgate: Headgate, scenario: Path, tmp_path: Path) -> None:  # noqa: F811
    assert "times the bound" not in headgate("simulate", str(scenario), "--policy", "fifo")[1]
    assert "times the bound" in headgate("simulate", str(scenario), "--policy", "fifo", "--bound")[1]
    code, out, _ = headgate("simulate", str(write(tmp_path / "run.jsonl")), "--bound")
    assert code == 0
    said = " ".join(out.split())
    assert "what no policy can beat in the simulator; beside the measured run, what no policy could have beaten" in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param(("--skip", "3 s"), "--skip", id="skip is for traces"),
        pytest.param(("--policy", "best"), "'best'", id="a policy that does not exist"),
    ],
)
def test_wrong_usage_is_refused(headgate: Headgate, scenario: Path, arguments: tuple[str, ...], named: str) -> None:  # noqa: F811
    code, out, err = headgate("bound", str(scenario), *arguments)
    assert (code, out) == (2, "")
    assert named in err


def test_operators_and_empty_directories_have_no_bound(headgate: Headgate, tmp_path: Path) -> None:  # noqa: F811
    code, _, err = headgate("bound", str(tmp_path))
    assert (code, "no trace of a run" in err) == (2, True)
    path = tmp_path / "o.toml"
    path.write_text(
        'grain = "operators"\nhorizon = 1\n[[query]]\nname = "q"\narrivals = { pattern = "constant", rate = 1 }\n'
        'operator = [{ name = "o", cost = 0.1 }]\n'
    )
    code, _, err = headgate("bound", str(path))
    assert (code, "tables only" in err) == (2, True)


#: scenarios whose runs end at 0 s
AT_ONCE = {
    "one event": 'events = 1\n[[table]]\nname = "a"\nperiod = 10\noffset = 0\n',
    "one arrival": 'events = 1000\n[[table]]\nname = "a"\narrivals = [0]\n',
}


@pytest.mark.parametrize("text", AT_ONCE.values(), ids=AT_ONCE)
def test_a_run_of_no_length_has_no_bound_and_is_compared_all_the_same(
    headgate: Headgate,  # noqa: F811
    tmp_path: Path,
    text: str,
) -> None:
    path = tmp_path / "short.toml"
    path.write_text(f'grain = "tables"\ntracks = 1\n{text}')
    code, out, err = headgate("bound", str(path))
    assert (code, out) == (2, "")
    assert "short.toml: the run ends at 0 s: state more events or a horizon" in " ".join(err.split())
    code, out, err = headgate("simulate", str(path), "--bound")
    assert (code, err) == (0, "")
    assert re.search(r"lower bound( +-){3} *$", out, re.MULTILINE)
    assert re.search(r"times the bound( +-){3} *$", out, re.MULTILINE)
    code, out, err = headgate("simulate", str(path), "--story")
    assert (code, err, "The run ends at 0 s, so no table became stale." in out) == (0, "", True)
    code, out, _ = headgate("simulate", str(path), "--bound", "--json")
    assert (code, {row["lower_bound"] for row in json.loads(out)["results"]}) == (0, {None})
