"""The harness of the benchmarks, driven through its command with a tiny benchmark that is not shipped."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import benchmarks
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row, style, table
from benchmarks.harness.catalogue import discover
from benchmarks.harness.command import main
from benchmarks.harness.kept import Kept

SCRIPTS = discover()
README = Path(benchmarks.__file__).parent / "README.md"


def lateness(policy: str, utilisation: float, seed: int) -> Row:
    slope = {"edf": 1.0, "random": 3.0}[policy]
    noise = np.random.default_rng(seed).random() / 100
    return {"policy": policy, "utilisation": utilisation, "lateness": slope * utilisation + noise}


def run(context: Context) -> Results:
    print("a script that prints")
    loads = (0.5, 1.0) if context.smoke else (0.5, 1.0, 1.5)
    rows = context.points(
        lateness,
        [
            {"policy": policy, "utilisation": load, "seed": seed}
            for policy in ("random", "edf")
            for load in loads
            for seed in context.seeds
        ],
    )
    worst = {policy: max(row["lateness"] for row in rows if row["policy"] == policy) for policy in ("edf", "random")}
    return Results(
        rows,
        [
            Claim(
                "edf is the less late",
                "below random",
                worst["edf"],
                worst["edf"] < worst["random"],
            ),
            Claim(
                "random is the less late",
                "never said",
                f"{worst['random']:.1f}",
                np.float64(worst["random"]) < worst["edf"],
            ),
            Claim("random diverges", "above 1.4", "not reached", None if context.smoke else True),
        ],
    )


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    style.draw_lines(figure.subplots(), rows, x="utilisation", y="lateness", label="policy")


def crash(context: Context) -> Results:
    context.points(lateness, [{"policy": "lifo", "utilisation": 1.0, "seed": 1}])
    raise AssertionError("the point above has no such policy")


def of_part(context: Context) -> Results:
    return Results([{"part": context.part, "times": context.times, "seconds": context.seconds}], [])


def benchmark(**changes: Any) -> Benchmark:
    declared: dict[str, Any] = {
        "name": "late_fig1",
        "figure": "Nobody fig. 1",
        "claim": "edf is less late than random",
        "takes": "1 s",
        "run": run,
        "draw": draw,
    }
    return Benchmark(**declared | changes)


CATALOGUE = {
    "crash_fig2": lambda: benchmark(name="crash_fig2", run=crash),
    "late_fig1": lambda: benchmark(pivot=Pivot("utilisation", "policy", "lateness")),
    "late_parts": lambda: benchmark(name="late_parts", run=of_part, draw=lambda f, r: None, parts=("upper", "lower")),
}


def run_command(*arguments: str, out: Path) -> int:
    return main([*arguments, "--out", str(out)], CATALOGUE)


def test_smoke_json_prints_one_object_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("late_fig1", "--smoke", "--json", "--seed", "7", out=tmp_path) == 0
    printed = capsys.readouterr()
    whole = json.loads(printed.out)
    assert {"benchmark", "seed", "machine", "rows", "claims"} <= set(whole)
    assert (whole["benchmark"], whole["seed"], whole["reps"]) == ("late_fig1", 7, 1)
    assert {"cores", "python", "platform", "numpy", "commit", "headgate"} == set(whole["machine"])
    assert len(whole["rows"]) == 2 * 2
    assert [set(claim) for claim in whole["claims"]] == [{"claim", "paper", "measured", "holds"}] * 3
    assert [claim["holds"] for claim in whole["claims"]] == [True, False, None]
    assert "a script that prints" in printed.err
    assert "4 of 4 points" in printed.err


def test_a_run_leaves_a_table_a_picture_and_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command("late_fig1", "--smoke", "--json", out=tmp_path / "new" / "folder")
    whole = json.loads(capsys.readouterr().out)
    folder = tmp_path / "new" / "folder"
    assert {path.name for path in folder.iterdir()} == {"rows.csv", "result.json", "figure.png", "points.jsonl"}
    with (folder / "rows.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{key: str(cell) for key, cell in row.items()} for row in whole["rows"]]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "result.json").read_text()) == {k: v for k, v in whole.items() if k != "rows"}


def test_the_report_shows_paper_measurement_and_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("late_fig1", "--smoke", out=tmp_path) == 0
    report = capsys.readouterr().out
    assert "Nobody fig. 1" in report
    assert re.search(r"utilisation\W+random\W+edf", report), "the table is not pivoted"
    assert re.findall(r"holds: +(.+)", report) == ["yes", "no", "not checked"]
    assert re.findall(r"paper says: (.+)", report) == ["below random", "never said", "above 1.4"]
    assert "a script that prints" not in report


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["late_fig1"], 0, id="a claim that fails is a result"),
        pytest.param(["late_fig1", "--strict"], 1, id="strict: a claim that fails is an error"),
        pytest.param(["crash_fig2"], 1, id="a crash is an error"),
    ],
)
def test_exit_code(arguments: list[str], code: int, tmp_path: Path) -> None:
    assert run_command(*arguments, "--smoke", out=tmp_path) == code


def test_strict_ignores_claims_that_were_not_checked(tmp_path: Path) -> None:
    unchecked = benchmark(run=lambda context: Results(run(context).rows, [Claim("c", "p", "m", None)]))
    assert main(["late_fig1", "--smoke", "--strict", "--out", str(tmp_path)], {"late_fig1": lambda: unchecked}) == 0


def test_all_goes_on_after_a_crash_and_names_the_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("all", "--smoke", "--json", out=tmp_path) == 1
    printed = capsys.readouterr()
    assert [json.loads(line)["benchmark"] for line in printed.out.splitlines()] == ["late_fig1", "late_parts"]
    assert (tmp_path / "late_fig1" / "rows.csv").exists()
    assert "crash_fig2 crashed" in printed.err
    assert "at the point policy='lifo'" in printed.err


@pytest.mark.slow
def test_smoke_runs_can_go_on_at_once_in_processes_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    assert main(["all", "--smoke", "--json", "--together", "2", *out], {"edgewise_fig11": benchmark}) == 0
    assert json.loads(capsys.readouterr().out)["benchmark"] == "edgewise_fig11"
    assert (tmp_path / "edgewise_fig11" / "rows.csv").exists()
    # The processes know the scripts of this folder only, and say so.
    assert main(["all", "--smoke", "--together", "2", *out], {"late_fig1": benchmark}) == 1
    assert "unknown benchmark 'late_fig1'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "row"),
    [
        pytest.param([], {"part": None, "times": None, "seconds": None}, id="all of it"),
        pytest.param(
            ["upper", "--times", "3", "--seconds", "9"], {"part": "upper", "times": 3, "seconds": 9}, id="a part"
        ),
    ],
)
def test_a_script_is_told_the_part_and_how_often_and_long(
    arguments: list[str], row: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("late_parts", *arguments, "--smoke", "--json", out=tmp_path) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [row]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["late_fig"], "unknown benchmark 'late_fig'; did you mean late_fig1", id="close name"),
        pytest.param(["zzz"], "unknown benchmark 'zzz'; --list", id="no close name"),
        pytest.param(["--smoke"], "name a benchmark", id="no name"),
        pytest.param(["late_fig1", "--jobs", "0"], "--jobs: expected a whole number from 1 up, got '0'", id="no jobs"),
        pytest.param(["late_fig1", "--seed", "-1"], "--seed", id="negative seed"),
        pytest.param(["late_fig1", "left"], "late_fig1 has no part 'left'; it has none", id="no parts"),
        pytest.param(["late_parts", "left"], "late_parts has no part 'left'; it has upper, lower", id="unknown part"),
        pytest.param(["all", "upper"], "all has no part 'upper'", id="a part of all"),
        pytest.param(["all", "--together", "2"], "--together is for smoke runs", id="timed at once"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments, CATALOGUE)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_list_shows_name_figure_claim_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"], {"late_fig1": benchmark}) == 0
    listed = capsys.readouterr().out
    for text in ("late_fig1", "Nobody fig. 1", "edf is less late than random", "1 s"):
        assert text in listed


@pytest.mark.slow
def test_python_dash_m_works_and_needs_no_matplotlib_before_drawing() -> None:
    # A process of its own: here matplotlib is loaded already. None makes importing it an error.
    block = "import runpy, sys; sys.modules['matplotlib'] = None"
    command = [
        sys.executable,
        "-c",
        f"{block}; runpy.run_module('benchmarks', run_name='__main__')",
        "--list",
    ]
    listed = subprocess.run(command, cwd=README.parents[1], capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    assert all(name in listed.stdout for name in SCRIPTS)


def numbers(context: Context, count: int) -> list[Row]:
    return context.points(dict, [{"number": number} for number in range(count)])


@pytest.mark.slow
def test_processes_give_the_rows_of_a_single_process_in_the_same_order() -> None:
    alone, together = (Context(smoke=True, seed=1, jobs=jobs, reps=1) for jobs in (1, 2))
    assert numbers(together, 5) == numbers(alone, 5) == [{"number": number} for number in range(5)]


def test_a_run_that_was_broken_off_goes_on_with_the_points_that_it_has_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "points.jsonl"
    before = Context(smoke=True, seed=1, jobs=1, reps=1, kept=Kept(path, go_on=False))
    assert numbers(before, 2) == [{"number": 0}, {"number": 1}]
    # What was measured before is not measured again: here its rows say where they come from.
    torn = path.read_text().replace('{"number": 1}', '{"number": "kept"}') + '{"point": "broken o'
    path.write_text(torn)
    kept = Kept(path, go_on=True)
    assert len(kept) == 2
    after = Context(smoke=True, seed=1, jobs=1, reps=1, kept=kept)
    assert numbers(after, 3) == [{"number": 0}, {"number": "kept"}, {"number": 2}]
    assert len(Kept(path, go_on=True)) == 3
    assert len(Kept(path, go_on=False)) == 0 and not path.exists()


def test_when_time_is_up_the_rows_are_of_the_points_that_were_measured() -> None:
    context = Context(smoke=True, seed=1, jobs=1, reps=1)
    assert context.points(dict, [{"number": number} for number in range(9)], within=0.0) == [{"number": 0}]


def test_seeds_differ_between_repetitions_and_repeat_between_runs() -> None:
    seeds = Context(smoke=True, seed=3, jobs=1, reps=4).seeds
    assert len(set(seeds)) == 4
    assert seeds[:2] == Context(smoke=True, seed=3, jobs=1, reps=2).seeds
    assert set(seeds).isdisjoint(Context(smoke=True, seed=4, jobs=1, reps=4).seeds)


def test_a_smoke_run_refuses_what_other_processes_could_not_receive() -> None:
    context = Context(smoke=True, seed=1, jobs=1, reps=1)
    with pytest.raises(TypeError, match="use a top-level function"):
        context.points(lambda number: {"number": number}, [{"number": 1}])
    assert context.points(lambda number: {"number": number}, [{"number": 1}], timed=True) == [{"number": 1}]


@pytest.mark.parametrize(
    ("cell", "stored"),
    [
        pytest.param(np.int64(3), 3, id="numpy int"),
        pytest.param(np.bool_(True), True, id="numpy bool"),
        pytest.param(None, None, id="nothing"),
    ],
)
def test_cells_become_plain_values(cell: object, stored: object) -> None:
    (row,) = Context(smoke=True, seed=1, jobs=1, reps=1).points(dict, [{"cell": cell}])
    assert row == {"cell": stored}
    assert type(row["cell"]) is type(stored)


def test_a_cell_that_is_a_list_is_refused() -> None:
    with pytest.raises(TypeError, match=r"column 'cell': expected .* got \[1, 2\]"):
        Context(smoke=True, seed=1, jobs=1, reps=1).points(dict, [{"cell": [1, 2]}])


def test_not_a_number_becomes_null_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endless = benchmark(
        run=lambda context: Results([{"policy": "edf", "lateness": float("inf")}], []), draw=lambda f, r: None
    )
    assert main(["late_fig1", "--json", "--out", str(tmp_path)], {"late_fig1": lambda: endless}) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"policy": "edf", "lateness": None}]
    assert (tmp_path / "rows.csv").read_text().splitlines() == ["policy,lateness", "edf,inf"]


def test_average_joins_repetitions_and_unites_columns() -> None:
    rows: list[Row] = [{"k": 1, "y": 2.0}, {"k": 2}, {"k": 1, "y": 4.0, "note": "late"}]
    assert table.columns(rows) == ["k", "y", "note"]
    assert table.average(rows, ["k"], "y") == [{"k": 1, "mean": 3.0, "low": 2.0, "high": 4.0, "count": 2}]


def test_the_mean_of_equal_values_stays_between_them() -> None:
    (summary,) = table.average([{"y": 0.1}] * 3, [], "y")
    assert summary["low"] <= summary["mean"] <= summary["high"]


def test_a_label_looks_the_same_in_every_figure() -> None:
    few, many = style.looks(["random", "edf"]), style.looks([*style.BASELINES, *style.LABELS])
    assert list(few) == ["edf", "random"]
    assert all(many[label] == look for label, look in few.items())
    assert len(set(many.values())) == len(many), "two labels look alike"


def test_labels_without_a_fixed_look_take_colours_that_are_free() -> None:
    looks = style.looks(["2 tracks", "edf", "4 tracks"])
    assert list(looks) == ["edf", "2 tracks", "4 tracks"]
    assert len({look.colour for look in looks.values()}) == 3


def test_discovery_finds_public_modules_and_imports_them_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_benchmarks"
    (package / "harness").mkdir(parents=True)
    for name in ("__init__", "_shared", "broken_fig3", "harness/__init__"):
        (package / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    found = discover("some_benchmarks")
    assert list(found) == ["broken_fig3"]
    with pytest.raises(TypeError, match=r"some_benchmarks.broken_fig3: expected BENCHMARK = "):
        found["broken_fig3"]()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_declares_its_benchmark_and_explains_itself(name: str) -> None:
    declared = SCRIPTS[name]()
    assert declared.figure and declared.claim and declared.takes
    assert sys.modules[f"benchmarks.{name}"].__doc__


def test_the_readme_table_and_the_scripts_name_each_other() -> None:
    lines = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    named = {name for line in lines for name in re.findall(r"python -m benchmarks (\w+)", line)}
    assert named - {"all"} == set(SCRIPTS)
