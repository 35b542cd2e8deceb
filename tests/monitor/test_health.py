"""``/healthz``: false when the run has ended, or the scheduler or a track is stuck; and then the rest still answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from headgate.core.trace import TraceHeader
from headgate.monitor import api, feed
from headgate.monitor.server import MonitorServer
from headgate.monitor.stuck import STUCK_SECONDS
from headgate.monitor.watch import RunWatch
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.run.trace import traced_tables
from headgate.warehouse.schedule.glance import Glance, RunningUpdate
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.monitor.pretended import PretendedRun

NO_SPARK: Any = None


def asked(server: MonitorServer, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    content = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, content, {"x-headgate": "1"})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told


class GlancedRun(PretendedRun):
    """Says of itself what a test wants."""

    def __init__(self, watch: RunWatch, **different: Any) -> None:
        self._different = different
        super().__init__(watch, tables=3)

    def glance(self) -> Glance:
        return replace(super().glance(), **self._different)


def stuck(began: float, limit: float) -> tuple[RunningUpdate, ...]:
    return (RunningUpdate("table002", "table002", "live", 1, began, limit),)


@pytest.mark.parametrize(
    ("different", "said"),
    [
        pytest.param({}, "", id="all is well"),
        pytest.param({"now": 1000.0, "running": stuck(800.0, 300.0)}, "", id="a long update within its limit"),
        pytest.param({"now": 1000.0, "running": stuck(800.0, 175.0)}, "", id="being cancelled"),
        pytest.param({"now": 1000.0, "running": stuck(800.0, float("inf"))}, "", id="no limit"),
        pytest.param(
            {"now": 1000.0, "running": stuck(800.0, 100.0)},
            "track 1 is stuck: its update of table002 has run for 200 s, and should have been cancelled after 100 s",
            id="a stuck track",
        ),
    ],
)
def test_a_track_is_stuck_when_its_update_outlives_its_cancellation(different: dict[str, Any], said: str) -> None:
    watch = RunWatch(every=None)
    GlancedRun(watch, **different)
    watch.look()
    assert watch.trouble() == said
    watch.stop()


def test_the_scheduler_is_stuck_when_it_is_silent_for_too_long() -> None:
    now = 0.0
    watch = RunWatch(every=None, clock=lambda: now)
    run = PretendedRun(watch, tables=3)
    watch.look()
    for now, healthy in ((STUCK_SECONDS, True), (STUCK_SECONDS + 1, False)):  # noqa: B007 - the clock reads it
        assert (watch.trouble() == "") == healthy
    watch.look()
    assert watch.trouble() == ""
    run.stop_soon()
    assert watch.trouble() == "the run has ended"
    watch.stop()


def test_what_is_wrong_with_the_run_is_told_to_those_who_look() -> None:
    now = 0.0
    watch = RunWatch(every=None, clock=lambda: now)
    run = GlancedRun(watch, left=("table002",))
    busy = replace(run.glance(), running=())
    tables = tuple(replace(row, state="updating") if row.name == "table002" else row for row in busy.tables)
    run._different |= {"tables": tables}
    watch.look()
    overview = watch.overview()
    assert overview["tables"]["table002"]["state"] == "stuck"
    assert (overview["trouble"], overview["left"], overview["silent"]) == ("", ["table002"], 0.0)
    now = STUCK_SECONDS + 1
    assert "has not answered for 31 s" in watch.overview()["trouble"]
    watch.stop()


def test_viewers_hear_of_trouble_although_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SILENCE", 0.01)

    async def heard() -> str:
        async with feed.Feed(lambda: {"trouble": "stuck"}).messages() as messages:
            return await anext(messages)

    assert asyncio.run(heard()) == 'event: trouble\ndata: {"trouble":"stuck"}\n\n'


def test_a_look_whose_result_cannot_be_recorded_is_no_answer_and_is_said_once() -> None:
    now, looks = 0.0, SimpleQueue[float]()
    watch = RunWatch(every=0.001, clock=lambda: now)
    rows = GlancedRun(RunWatch(every=None)).glance().tables

    class Broken(PretendedRun):
        def glance(self) -> Glance:
            looks.put(now)
            return replace(super().glance(), tables=(*rows, 1))  # type: ignore[arg-type]

    Broken(watch, tables=3)
    for _ in range(3):
        looks.get(timeout=300)
    now = STUCK_SECONDS + 1
    for _ in range(3):
        looks.get(timeout=300)
    assert "has not answered" in watch.trouble()
    watch.stop()
    said = [each["text"] for each in watch.overview()["notices"]]
    assert len(said) == 1 and "the page is not up to date" in said[0]


def test_a_table_whose_cancelled_update_does_not_end_is_named_and_nothing_is_wrong() -> None:
    watch = RunWatch(every=None)
    GlancedRun(watch, left=("table002",))
    watch.look()
    with MonitorServer(watch, port=0) as server:
        assert asked(server, "/healthz") == (200, {"healthy": True, "left": ["table002"]})
        watch.stop()
        assert asked(server, "/healthz") == (503, {"error": "the run has ended"})


# --- a real scheduler that is stuck ------------------------------------------------------------------------------


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def small(tmp_path: Path) -> OpenWarehouse:
    """A warehouse of one stream that nothing comes to."""
    wh = Warehouse("small", path=tmp_path / "warehouse")
    wh.stream("a", Files(tmp_path / "landing", schema="ts timestamp"), time="ts")
    spec = wh.spec()
    node = StreamNode(spec.streams[0], TableStore(tmp_path / "t", "ts"), TableStore(tmp_path / "r"))
    return OpenWarehouse(spec, spec.graph(), {"a": node})


@pytest.mark.slow
def test_that_somebody_has_stopped_a_run_is_recorded_as_a_change(tmp_path: Path) -> None:
    changes: list[object] = []
    options = RunOptions(tracks=1)
    runtime = Runtime(small(tmp_path), NO_SPARK, options, on_change=lambda at, what: changes.append(dict(what)))
    runtime.start()
    runtime.stop_soon(7.0)
    runtime.stop()
    assert changes == [{"stop": 7.0}]


@pytest.mark.slow
def test_a_pipeline_file_that_is_refused_is_told_to_those_who_watch_until_it_is_mended(tmp_path: Path) -> None:
    runtime = Runtime(small(tmp_path), NO_SPARK, RunOptions(tracks=1))
    runtime.start()
    told = []
    for why in ("city.py has changed, but cannot be used", ""):
        runtime.refuse_file(why)
        told.append(runtime.glance().file_problem)
    runtime.stop()
    assert told == ["city.py has changed, but cannot be used", ""]


@pytest.mark.slow
def test_all_tables_of_a_run_that_has_failed_are_stopped_with_the_reason(tmp_path: Path) -> None:
    runtime = Runtime(small(tmp_path), NO_SPARK, RunOptions(tracks=1))
    runtime.start()
    runtime.fail(ValueError("no more disk"))
    runtime._thread.join(300)
    with pytest.raises(ValueError, match="no more disk"):
        runtime.stop()
    assert [(row.state, row.error) for row in runtime.glance().tables] == [
        ("stopped", "the run has failed: ValueError: no more disk")
    ]


@pytest.mark.slow
def test_a_scheduler_that_never_returns_is_found_out_and_the_page_still_answers(
    tmp_path: Path, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PATIENCE", 0.05)
    opened = small(tmp_path)
    spec = opened.spec
    runtime = Runtime(opened, NO_SPARK, RunOptions(tracks=1))
    now = 0.0
    watch = RunWatch(every=0.01, clock=lambda: now)
    watch.begin(TraceHeader("small", 0.0, 1, "fifo", "none", "max", None, traced_tables(spec, {}), 1.0))
    runtime.start()
    watch.start(runtime)
    watch.look()
    reached = threading.Event()

    def never_returns() -> OpenWarehouse:
        reached.set()
        release.wait()
        return opened

    with MonitorServer(watch, port=0) as server:
        assert asked(server, "/healthz")[0] == 200
        runtime.replace_warehouse(never_returns)
        assert reached.wait(300)
        # The watch waits as well: an answer that it had got before would count from now on.
        end = time.monotonic() + 300
        while not runtime._inbox.qsize():
            assert time.monotonic() < end, "nobody visits the scheduler"
            time.sleep(0.005)
        now = STUCK_SECONDS + 1
        status, told = asked(server, "/healthz")
        assert status == 503 and "the scheduler has not answered for 31 s" in told["error"]
        for _ in range(api.MOST_WAITING + 2):  # each leaves a thread that waits for the scheduler
            status, told = asked(server, "/api/commands/pause", {"name": "a"})
            assert status == 503 and "has not answered" in told["error"]
        assert asked(server, "/api/tables/a/why")[0] == 503
        # those of the watch itself beside them
        assert runtime._inbox.qsize() <= api.MOST_WAITING + 2, "nobody asks once more what cannot be answered"
        assert asked(server, "/api/overview")[0] == 200
        assert asked(server, "/api/tables/a")[0] == 200
        release.set()
        watch.stop()
    runtime.stop()
