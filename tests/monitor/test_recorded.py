"""Recorded runs on the page, and what would have happened under other settings."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headgate.cli import main
from headgate.core import Update
from headgate.core.errors import ParameterError
from headgate.core.trace import Change, Trace, TraceHeader, TraceTable
from headgate.monitor.reading import UnreadableRunError
from headgate.monitor.recorded import RecordedRun
from headgate.monitor.replaying import answer as replayed
from headgate.monitor.server import application
from headgate.monitor.shown import RecordedRuns, ShownRun
from headgate.monitor.watch import RunWatch
from headgate.monitor.what_if import BusyError, Question, ReplayError, WhatIf, what_if_from
from headgate.warehouse.run.lock import WarehouseLock, holder
from headgate.warehouse.run.trace import TraceWriter, runs_folder
from tests.monitor.pretended import PretendedRun
from tests.sim.recording import BUSY, START, recorded


def written(folder: Path, trace: Trace) -> Path:
    writer = TraceWriter(folder, trace.header)
    for update in trace.updates:
        writer.note(update)
    for change in trace.changes:
        writer.change(change.at, change.what)
    writer.close(trace.finish)
    return writer.path


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, made = recorded(BUSY, "fifo")
    changes = (Change(START + 5, {"paused": "meters"}), Change(START + 6, {"priority": ["air", 3]}))
    folder = runs_folder(tmp_path_factory.mktemp("city"))
    return written(folder, Trace(made.header, made.updates, changes, made.end))


def asked(run: ShownRun, method: str, path: str, body: object = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=application(run, "127.0.0.1"), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4300") as client:
            return await client.request(method, path, headers={"x-headgate": "1"}, json=body)

    return asyncio.run(ask())


def test_a_recorded_run_is_shown_as_it_was_at_its_end(trace: Path) -> None:
    overview = RecordedRun(trace).overview()
    air = overview["tables"]["air"]
    assert overview["live"] is False
    assert overview["at"] == START + 60
    assert overview["tables"]["meters"]["state"] == "paused"
    assert air["priority"] == 3.0 and air["updates"] > 0 and air["complete"] < START + 60
    assert len(overview["staleness"]) > 50 and len(overview["changes"]) == 2
    assert len(RecordedRun(trace).table("alerts")["curve"]) > 50


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute in which one table loads data that is ten years old, and whose priorities change after half of it."""
    names = ("old", "quick", "slow")
    tables = tuple(TraceTable(name, kind="stream", period=1.0) for name in names)
    header = TraceHeader("city", START, 3, "fifo", "anywhere", "max", None, tables, 1.0)
    made = []
    for second in range(1, 60):
        for track, (name, age) in enumerate(zip(names, (3e8, 2.0, 20.0), strict=True)):
            at = START + second
            update = Update(name, track=track, released=at, began=at, gained=1.0, rows=1, arrived=(at, at, 1))
            update.freshness = int((at - age) * 1e6)
            update.commits(0.1)
            made.append(update)
    changes = (Change(START + 30, {"priority": ["slow", 0]}),)
    folder = runs_folder(tmp_path_factory.mktemp("mixed"))
    return written(folder, Trace(header, tuple(made), changes, START + 60))


def test_the_curve_of_a_recorded_run_leaves_out_data_of_the_past_and_follows_priorities(mixed: Path) -> None:
    curve = RecordedRun(mixed).overview()["staleness"]
    early = [value for at, value in curve if START + 2 < at < START + 29]
    late = [value for at, value in curve if at > START + 31]
    assert all(11 <= value <= 12.2 for value in early), "the mean of both tables"
    assert all(2 <= value <= 3.2 for value in late), "the slow one counts no more"


@pytest.mark.slow
def test_the_curves_of_a_what_if_leave_out_data_of_the_past(mixed: Path) -> None:
    answer = WhatIf().ask(mixed, Question())
    for name in ("measured", "before", "after"):
        assert all(value is None or value < 100 for _, value in answer[name]), name


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        pytest.param("", "new", id="nothing happened"),
        pytest.param("f", "retrying", id="failed once"),
        pytest.param("fffff", "held", id="failed five times"),
        pytest.param("ffffc", "fresh", id="failed and was committed"),
        pytest.param("ffffcff", "retrying", id="failed twice after a commit"),
    ],
)
def test_a_recorded_table_ends_in_the_state_that_its_updates_left(tmp_path: Path, ends: str, state: str) -> None:
    header = TraceHeader("w", START, 1, "fifo", "anywhere", "max", None, (TraceTable("t", kind="stream"),))
    updates = []
    for number, end in enumerate(ends):
        at = START + number
        update = Update("t", began=at, released=at, freshness=round(at * 1e6), arrived=(at, at, 1), rows=1)
        update.commits(0.1) if end == "c" else update.fails(ValueError("bad"), 0.1)
        updates.append(update)
    path = written(runs_folder(tmp_path), Trace(header, tuple(updates), (), START + 9))
    assert RecordedRun(path).overview()["tables"]["t"]["state"] == state


def test_the_api_lists_runs_shows_one_by_name_and_refuses_changes(trace: Path) -> None:
    run = RecordedRun(trace)
    assert [each["name"] for each in asked(run, "GET", "/api/runs").json()["runs"]] == [trace.name]
    assert asked(run, "GET", f"/api/overview?run={trace.name}").json()["run"] == trace.name
    assert "The run is over" in asked(run, "GET", "/api/tables/air/why").json()["text"]
    missing = asked(run, "GET", "/api/overview?run=../../etc/passwd")
    assert missing.status_code == 404 and "no recorded run" in missing.json()["error"]
    refused = asked(run, "POST", "/api/commands/pause", {"name": "air"})
    assert refused.status_code == 409 and "is over" in refused.json()["error"]


def test_what_if_gives_both_curves_and_the_differences(trace: Path) -> None:
    answer = asked(RecordedRun(trace), "POST", "/api/what-if", {"tracks": 3, "without": ["meters"]}).json()
    assert answer["left_out"] == ["meters"]
    assert {each["name"] for each in answer["tables"]} == {"air", "alerts"}
    assert all(each["difference"] < 0 for each in answer["tables"])
    assert len(answer["before"]) == len(answer["after"]) == len(answer["measured"])
    assert answer["after"][-1][1] < answer["before"][-1][1]


def test_the_command_line_gives_the_same_for_policy_and_tracks(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", str(trace), "--policy", "max-benefit", "--workers", "3", "--json"]
    monkeypatch.setattr(sys, "argv", ["headgate", *words])
    with pytest.raises(SystemExit):
        main()
    *_, last = json.loads(capsys.readouterr().out)["results"]
    answer = replayed(trace, Question(policy="max-benefit", tracks=3))
    assert {each["name"]: each["after"] for each in answer["tables"]} == pytest.approx(
        {each["name"]: each["staleness"] for each in last["tables"]}
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"speed": 2}, "takes policy, placement"),
        ({"tracks": 0}, "'tracks' takes"),
        ({"tracks": True}, "'tracks' takes"),
        ({"policy": 1}, "'policy' takes"),
        ({"priorities": {"air": -1}}, "'priorities' takes"),
        ({"without": "air"}, "'without' takes"),
    ],
)
def test_a_wrong_question_is_refused_with_what_is_expected(body: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        what_if_from(body)


def test_what_if_is_not_asked_of_the_autopilot(trace: Path) -> None:
    with pytest.raises(ParameterError, match=r"'auto' cannot be replayed.* such as max-benefit"):
        replayed(trace, Question(policy="auto"))


def test_an_unknown_table_or_policy_is_said_by_the_other_process(trace: Path) -> None:
    for body in ({"without": ["none"]}, {"policy": "os:system"}):
        answer = asked(RecordedRun(trace), "POST", "/api/what-if", body)
        assert answer.status_code == 400 and answer.json()["error"]


def test_one_question_at_a_time_and_none_for_too_long(trace: Path) -> None:
    asks = WhatIf(patience=0.0)
    with pytest.raises(ReplayError, match="was given up"):
        asks.ask(trace, Question())
    with asks._busy, pytest.raises(BusyError, match="another what-if"):
        asks.ask(trace, Question())


@pytest.mark.slow
def test_another_process_reads_a_recorded_run_the_last_few_are_kept_and_the_same_is_shown(trace: Path) -> None:
    runs = RecordedRuns(trace.parent)
    run = runs.of(trace.name)
    assert run.overview() == RecordedRun(trace).overview()
    assert run.table("air") == RecordedRun(trace).table("air")
    assert runs.of(trace.name) is run
    with runs._reading:  # while another one is being read
        assert runs.of(trace.name) is run


@pytest.mark.slow
def test_a_damaged_trace_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "20270101T000000.000000Z.jsonl"
    path.write_text('{"trace": 99}\n')
    with pytest.raises(UnreadableRunError, match="line 1: this is a trace of version 99"):
        RecordedRuns(tmp_path).of(path.name)


@pytest.mark.slow
def test_a_process_of_its_own_ends_when_its_parent_is_gone() -> None:
    code = "import json, sys, io; sys.stdin = io.StringIO(json.dumps({'parent': 1 << 30}))\n"
    code += "from headgate.apart import request_apart; request_apart(); import time; time.sleep(600)"
    assert subprocess.run([sys.executable, "-c", code], timeout=600, check=False).returncode == 1


@pytest.mark.slow
def test_a_process_of_its_own_has_only_so_much_memory_and_time() -> None:
    code = "import json, os, sys, io, resource; sys.stdin = io.StringIO(json.dumps({'parent': os.getppid()}))\n"
    code += "from headgate.apart import MOST_BYTES, request_apart; request_apart()\n"
    code += "assert 0 < resource.getrlimit(resource.RLIMIT_CPU)[0] <= 60\nbytearray(MOST_BYTES)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=600, check=False)
    assert b"MemoryError" in ended.stderr


def test_ui_says_where_the_page_of_a_running_warehouse_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["headgate", "ui", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "no run" in capsys.readouterr().err
    with WarehouseLock(tmp_path) as lock:
        lock.announce_page("http://127.0.0.1:4300/")
        found = holder(tmp_path)
        assert found is not None and found.page == "http://127.0.0.1:4300/"
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == "http://127.0.0.1:4300/\n"


def test_the_page_of_a_running_warehouse_shows_earlier_runs_too(trace: Path) -> None:
    watch = RunWatch()
    PretendedRun(watch, tables=3)
    watch.trace = trace.parent / "20270101T000000.000000Z.jsonl"
    try:
        assert [each["live"] for each in asked(watch, "GET", "/api/runs").json()["runs"]] == [False]
        assert asked(watch, "GET", f"/api/overview?run={trace.name}").json()["live"] is False
        assert asked(watch, "GET", "/api/overview").json()["live"] is True
    finally:
        watch.stop()
