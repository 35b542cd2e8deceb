"""Recorded runs on the page, and what would have happened under other settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from headgate.cli import main
from headgate.core.errors import ParameterError
from headgate.core.trace import Change, Trace
from headgate.monitor.recorded import RecordedRun
from headgate.monitor.server import application
from headgate.monitor.shown import ShownRun
from headgate.monitor.watch import RunWatch
from headgate.monitor.what_if import BusyError, Question, ReplayError, WhatIf, what_if_from
from headgate.sim import Table, TableScenario
from headgate.warehouse.run.lock import WarehouseLock, holder
from headgate.warehouse.run.trace import TraceWriter, runs_folder
from tests.monitor.pretended import PretendedRun
from tests.sim.recording import START, recorded

#: more than one track can do
BUSY = TableScenario(
    tables=(
        Table("air", period=1.0, priority=10.0, setup_time=0.4, time_per_unit=0.1),
        Table("meters", period=1.0, priority=1.0, setup_time=0.6, time_per_unit=0.1),
        Table("alerts", sources=("air",), priority=20.0, setup_time=0.3, time_per_unit=0.0),
    ),
    tracks=1,
    horizon=60.0,
    events=1000,
)


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
