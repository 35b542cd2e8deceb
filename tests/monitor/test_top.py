"""`headgate top`: the numbers of a run in a terminal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from headgate.core.errors import HeadgateError
from headgate.core.trace import RunBound
from headgate.monitor.bounding import FIRST, WINDOW, RunBounds
from headgate.monitor.record import Json
from headgate.monitor.remote import PageRun, SocketRun, UnreachableError
from headgate.monitor.server import MonitorServer
from headgate.monitor.top import TopApp
from headgate.monitor.top_rows import attention, cells, count, headline, length, ordered, sparkline
from headgate.monitor.watch import RunWatch
from headgate.warehouse.run.control_client import NotRunningError
from headgate.warehouse.run.trace import local_runs
from headgate.warehouse.schedule.glance import Glance, RunningUpdate
from headgate.warehouse.schedule.ledger import NodeStatistics
from tests.monitor.pretended import NASTY, PretendedRun
from tests.warehouse.control_helpers import Recorder, serving

TABLES: dict[str, Json] = {
    "air": {"priority": 1.0, "state": "fresh", "complete": 95.0, "rows": 10, "class": 0, "target": None},
    "alerts": {"priority": 20.0, "state": "held", "complete": 40.0, "waiting_since": 50.0, "target": 10.0, "class": 1},
    "meters": {"priority": 5.0, "state": "running", "track": 1, "complete": None, "rejected": 3, "class": 0},
}


@pytest.mark.parametrize(
    ("column", "reverse", "wanted", "names"),
    [
        (1, False, "", ["alerts", "meters", "air"]),
        (1, True, "", ["air", "meters", "alerts"]),
        (3, False, "", ["alerts", "air", "meters"]),
        (0, False, "A", ["air", "alerts"]),
        (0, False, "held", ["alerts"]),
    ],
)
def test_rows_are_sorted_by_a_column_and_filtered_by_name_and_state(
    column: int, reverse: bool, wanted: str, names: list[str]
) -> None:
    assert ordered(TABLES, 100.0, column, reverse, wanted) == names


def test_what_needs_a_person_is_said_worst_first() -> None:
    assert attention({"tables": TABLES}, 100.0) == [
        "1 held until you resume: alerts",
        "1 later than the target: alerts",
        "1 with rejected rows: meters",
    ]


def test_targets_that_cannot_be_met_need_a_person() -> None:
    tables = {
        name: table | {"target_note": "it takes longer" if name == "air" else ""} for name, table in TABLES.items()
    }
    assert attention({"tables": tables}, 100.0)[1] == "1 with a target that cannot be met: air"


SILENT: Json = {"kind": "stream", "updates": 10, "last_update": 100.0}


@pytest.mark.parametrize(
    ("overview", "line"),
    [
        ({"disk": {"free": 4e9, "total": 100e9}}, "the disk is filling: 4.0 of 100 GB are free"),
        ({"disk": {"free": 40e9, "total": 100e9}}, None),
        ({"file_problem": "city.py has changed,\nbut \x1b[31m"}, "city.py has changed, but \\u001b[31m"),
        ({"tables": {"air": {"state": "stuck"}}}, "1 cancelled, but its update does not end: air"),
        ({"trouble": "track 0 is stuck:\n\x1b[31m"}, "track 0 is stuck: \\u001b[31m"),
        ({"trouble": "the run has ended"}, None),
        ({"trouble": "the scheduler has not answered for 40 s"}, None),  # the view counts that itself
        ({"tables": {"air": {"state": "stopped"}}}, "1 stopped, as the run has failed: air"),
        ({"tables": {"air": SILENT}, "started": 0.0, "disk": None}, "1 silent for longer than usual: air"),
        ({"tables": {"air": SILENT | {"period": 60.0}}, "started": 0.0, "disk": None}, None),
        ({"tables": {"air": SILENT | {"waiting_since": 299.0}}, "started": 0.0, "disk": None}, None),
        # Over the socket, `started` is when somebody began to look.
        ({"tables": {"air": SILENT}, "started": 99.0}, None),
        ({"tables": {"air": SILENT | {"period": 1.0}}, "started": 99.0}, "1 silent for longer than usual: air"),
    ],
)
def test_what_is_stuck_a_full_disk_silent_sources_and_a_refused_file_need_a_person(
    overview: Json, line: str | None
) -> None:
    assert attention({"tables": {}, **overview}, 300.0) == ([] if line is None else [line])


def test_the_line_on_top_says_how_many_tables_have_no_staleness_yet() -> None:
    empty: Json = {"complete": None, "rows": 0, "kind": "table"}
    tables = {
        "a": empty,
        "b": {**empty, "kind": "dimension"},
        "c": {**empty, "rows": 5},
        "d": {**empty, "complete": 1.0},
    }
    assert "staleness 2.0 s without 1 empty" in headline({"tables": tables, "staleness": [(0.0, 2.0)]}, 0.0, "live")
    assert "staleness 2.0 s  " in headline({"tables": {"d": tables["d"]}, "staleness": [(0.0, 2.0)]}, 0.0, "live")


def test_a_row_has_short_texts_and_no_orders_for_the_terminal() -> None:
    row = cells(NASTY, TABLES["alerts"] | {"state": "held\x1b[2J"}, 100.0, [1.0, 5.0, 10.0])
    assert row[3:8] == ("60 s", "▂▅█", "50 s", "10 s", "held\\u001b[2J")
    assert "\x1b" not in "".join(row) and "\u202e" not in "".join(row)


def test_numbers_are_short() -> None:
    assert [length(each) for each in (None, 0, 12.3, 120, 7200, 1e6)] == ["-", "0.0 s", "12 s", "2 min", "2 h", "12 d"]
    assert [count(each) for each in (0, 999, 1_234, 56_789, 10**7)] == ["0", "999", "1.2k", "57k", "10M"]
    assert sparkline([None, 0.0, 2.0], target=4.0) == " ▁▅"


class ScriptedRun:
    """Gives the overviews that it is told to; a text instead of one means that the run cannot be reached.

    With None it is reached, and says nothing.
    """

    name = "scripted"

    def __init__(self) -> None:
        self.next: Json | str | None = {"warehouse": "city", "at": 100.0, "tables": TABLES, "live": True}
        self.done: list[tuple[str, str]] = []

    def overviews(self, ended: threading.Event) -> Iterator[Json]:
        while not ended.is_set():
            given = self.next  # once: a test changes it meanwhile
            if isinstance(given, str):
                raise UnreachableError(given)
            if given is not None:
                yield given
            ended.wait(0.02)

    def explain(self, table: str) -> str:
        return f"{table} waits \x1b[31m for its turn"

    def do(self, command: str, table: str) -> None:
        self.done.append((command, table))


def driven(
    run: ScriptedRun, script: Callable[[TopApp, Pilot[None]], object], clock: Callable[[], float] = lambda: 100.0
) -> None:
    async def drive() -> None:
        app = TopApp(run, clock=clock)
        async with app.run_test(size=(120, 30)) as pilot:
            await script(app, pilot)  # type: ignore[misc]

    asyncio.run(drive())


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end, "it has not come to that"
        await pilot.pause(0.02)


def names_in(app: TopApp) -> list[str]:
    rows = app.query_one("#rows", DataTable)
    return [str(rows.get_cell(str(place), "0")) for place in range(rows.row_count)]


def text_in(app: TopApp, which: str) -> str:
    return str(app.query_one(which, Static).content)


def test_keys_sort_filter_pause_resume_refresh_and_explain() -> None:
    run = ScriptedRun()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: names_in(app) == ["alerts", "meters", "air"])
        assert "live" in text_in(app, "#head") and "alerts" in text_in(app, "#attention")
        await pilot.press("S")
        await until(pilot, lambda: names_in(app) == ["air", "meters", "alerts"])
        # The cursor is on alerts, where it was before: what is held is resumed.
        await pilot.press("p", "up", "up", "p", "r")
        await until(pilot, lambda: len(run.done) == 3)
        assert sorted(run.done) == [("pause", "air"), ("refresh", "air"), ("resume", "alerts")]
        await pilot.press("e")
        await until(pilot, lambda: "air waits" in text_in(app, "#explained"))
        assert "\x1b" not in text_in(app, "#explained")
        await pilot.press("escape", "slash", "m", "e", "t", "enter")
        await until(pilot, lambda: names_in(app) == ["meters"])
        await pilot.press("escape")
        await until(pilot, lambda: len(names_in(app)) == 3)
        assert app.query_one("#wanted", Input).display is False

    driven(run, script)


@pytest.mark.slow
def test_a_run_that_says_nothing_is_stuck_until_it_does() -> None:
    run, now = ScriptedRun(), [100.0]

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        def later() -> str:
            now[0] += 10.0
            return text_in(app, "#head")

        await until(pilot, lambda: "live" in text_in(app, "#head"))
        before, run.next = run.next, None
        await until(pilot, lambda: "stuck" in later())
        assert "the scheduler has not answered for" in text_in(app, "#attention")
        run.next = before
        await until(pilot, lambda: "live" in text_in(app, "#head"))

    driven(run, script, lambda: now[0])


def test_a_run_that_is_lost_is_said_and_comes_back() -> None:
    run = ScriptedRun()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "live" in text_in(app, "#head"))
        before, run.next = run.next, f"nobody is there {NASTY}"
        await until(pilot, lambda: "not connected" in text_in(app, "#head"))
        assert text_in(app, "#attention").startswith("nobody is there")
        assert "\x1b" not in text_in(app, "#attention")
        assert len(names_in(app)) == 3
        run.next = before
        await until(pilot, lambda: "live" in text_in(app, "#head"))

    driven(run, script)


def test_the_control_socket_gives_overviews(tmp_path: Path) -> None:
    recorder, ended = Recorder(), threading.Event()
    run = SocketRun(tmp_path, seconds=0.0)
    with pytest.raises(NotRunningError):
        next(run.overviews(ended))
    with serving(tmp_path, recorder):
        overview = next(run.overviews(ended))
        run.do("pause", "air")
        assert "meters" in run.explain("air")
    assert list(overview["tables"]) == ["air", "alerts", "meters"]
    assert overview["tables"]["alerts"]["place"] == 1
    assert overview["settings"] == {
        **{"policy": "max-benefit", "placement": "proportional", "tracks": 2, "budget": 1.0},
        **{"inheritance": "sum", "together": "auto"},
    }
    assert overview["file_problem"] == "no!"
    assert recorder.told == [("pause", "air")]


class StuckRecorder(Recorder):
    """An update of meters was cancelled and does not end; that of air is long over its limit."""

    def statistics(self) -> tuple[NodeStatistics, ...]:
        return tuple(replace(row, state="updating") for row in super().statistics())

    def glance(self) -> Glance:
        running = (RunningUpdate("air", "air", "live", 1, 10.0, 20.0),)
        return replace(super().glance(), running=running, left=("meters",), file_problem="")


def test_a_stuck_update_and_a_stuck_track_come_over_the_control_socket(tmp_path: Path) -> None:
    with serving(tmp_path, StuckRecorder()):
        overview = next(SocketRun(tmp_path, seconds=0.0).overviews(threading.Event()))
    assert overview["tables"]["meters"]["state"] == "stuck"
    assert attention(overview, 100.0) == [
        "track 1 is stuck: its update of air has run for 90 s, and should have been cancelled after 20 s",
        "1 cancelled, but its update does not end: meters",
    ]


class TroubledWatch(RunWatch):
    """Watches a run with a track that becomes stuck."""

    stuck = ""

    def trouble(self) -> str:
        return self.stuck


def test_a_stuck_track_comes_by_the_page() -> None:
    watch, ended = TroubledWatch(), threading.Event()
    PretendedRun(watch)
    with MonitorServer(watch, port=0) as server:
        overviews = PageRun(server.address).overviews(ended)
        assert not any("stuck" in line for line in attention(next(overviews), 100.0))
        watch.stuck = "track 0 is stuck"
        end = time.monotonic() + 60
        while attention(next(overviews), 100.0)[:1] != ["track 0 is stuck"]:
            assert time.monotonic() < end
        ended.set()
        overviews.close()  # type: ignore[attr-defined]
        watch.stop()


def test_the_bound_comes_to_the_view_of_a_directory_without_keeping_it_waiting(tmp_path: Path) -> None:
    trace = local_runs(tmp_path) / "20261116T110657.129679Z.jsonl"
    trace.parent.mkdir()
    trace.touch()
    asked, answer, ended = list[Path](), threading.Event(), threading.Event()

    def ask(trace: Path, seconds: float | None) -> RunBound:
        asked.append(trace)
        assert answer.wait(60.0)
        return RunBound(1.06, 1.0, 0.0, 600.0, 2, False, 3, 0)

    run = SocketRun(tmp_path, 0.0, lambda: RunBounds(WINDOW, iter((0.0, *[FIRST] * 1_000_000)).__next__, ask))
    with serving(tmp_path, Recorder()):
        overviews = run.overviews(ended)
        assert [next(overviews)["bound"] for _ in range(3)] == [None] * 3, "it is being computed"
        answer.set()
        end = time.monotonic() + 60
        while (bound := next(overviews)["bound"]) is None:
            assert time.monotonic() < end
    assert asked == [trace]
    assert "1.06 times the bound" in headline({"tables": {}, "bound": bound}, 100.0, "live")


def test_a_page_gives_overviews_and_takes_commands() -> None:
    watch, ended = RunWatch(), threading.Event()
    pretended = PretendedRun(watch)
    with MonitorServer(watch, port=0) as server:
        run = PageRun(server.address)
        overviews = run.overviews(ended)
        first = next(overviews)
        at = first["at"]
        later = next(overviews)
        assert later["at"] > at and len(later["tables"]) == 12
        run.do("pause", "table005")
        assert (("paused", "table005"),) in pretended.asked
        assert run.explain("table005")
        with pytest.raises(HeadgateError, match="there is no table"):
            run.explain("none such")
        ended.set()
        overviews.close()  # type: ignore[attr-defined]
        pretended.stop_soon()
        watch.stop()
    with pytest.raises(UnreachableError, match="does not answer"):
        next(PageRun(server.address).overviews(threading.Event()))
