"""`headgate top`: the numbers of a run in a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from headgate.core.errors import HeadgateError
from headgate.monitor.record import Json
from headgate.monitor.remote import PageRun, SocketRun, UnreachableError
from headgate.monitor.server import MonitorServer
from headgate.monitor.top import TopApp
from headgate.monitor.top_rows import attention, cells, count, length, ordered, sparkline
from headgate.monitor.watch import RunWatch
from headgate.warehouse.run.control_client import NotRunningError
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
    assert attention(TABLES, 100.0) == [
        "1 held until you resume: alerts",
        "1 later than the target: alerts",
        "1 with rejected rows: meters",
    ]


def test_a_row_has_short_texts_and_no_orders_for_the_terminal() -> None:
    row = cells(NASTY, TABLES["alerts"] | {"state": "held\x1b[2J"}, 100.0, [1.0, 5.0, 10.0])
    assert row[3:8] == ("60 s", "▂▅█", "50 s", "10 s", "held\\u001b[2J")
    assert "\x1b" not in "".join(row) and "\u202e" not in "".join(row)


def test_numbers_are_short() -> None:
    assert [length(each) for each in (None, 0, 12.3, 120, 7200, 1e6)] == ["-", "0.0 s", "12 s", "2 min", "2 h", "12 d"]
    assert [count(each) for each in (0, 999, 1_234, 56_789, 10**7)] == ["0", "999", "1.2k", "57k", "10M"]
    assert sparkline([None, 0.0, 2.0], target=4.0) == " ▁▅"


class ScriptedRun:
    """Gives the overviews that it is told to; a text instead of one means that the run cannot be reached."""

    name = "scripted"

    def __init__(self) -> None:
        self.next: Json | str = {"warehouse": "city", "at": 100.0, "tables": TABLES, "live": True}
        self.done: list[tuple[str, str]] = []

    def overviews(self, ended: threading.Event) -> Iterator[Json]:
        while not ended.is_set():
            if isinstance(self.next, str):
                raise UnreachableError(self.next)
            yield self.next
            ended.wait(0.02)

    def explain(self, table: str) -> str:
        return f"{table} waits \x1b[31m for its turn"

    def do(self, command: str, table: str) -> None:
        self.done.append((command, table))


def driven(run: ScriptedRun, script: Callable[[TopApp, Pilot[None]], object]) -> None:
    async def drive() -> None:
        app = TopApp(run, clock=lambda: 100.0)
        async with app.run_test(size=(120, 30)) as pilot:
            await script(app, pilot)  # type: ignore[misc]

    asyncio.run(drive())


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
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


def test_a_run_that_is_lost_is_said_and_comes_back() -> None:
    run = ScriptedRun()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "live" in text_in(app, "#head"))
        before, run.next = run.next, f"nobody is there {NASTY}"
        await until(pilot, lambda: "not connected: nobody is there" in text_in(app, "#head"))
        assert "\x1b" not in text_in(app, "#head")
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
    assert overview["settings"]["tracks"] == 2
    assert recorder.told == [("pause", "air")]


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


@pytest.mark.slow
def test_in_a_real_terminal_it_starts_shows_a_table_and_quits(tmp_path: Path) -> None:
    with serving(tmp_path, Recorder()):
        process, terminal = pty.fork()
        if process == 0:
            os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
            os.execv(sys.executable, [sys.executable, "-m", "headgate.cli", "top", str(tmp_path)])
        screen, asked, end = b"", False, time.monotonic() + 60
        status: int | None = None
        while status is None and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                with suppress(OSError):  # it has closed the terminal
                    screen += os.read(terminal, 65536)
            if not asked and re.search(b"alerts", screen):
                os.write(terminal, b"q")
                asked = True
            ended, code = os.waitpid(process, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if ended else None
        if status is None:
            os.kill(process, 9)
            os.waitpid(process, 0)
        os.close(terminal)
    assert asked, screen[-2000:]
    assert status == 0
