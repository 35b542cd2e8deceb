"""The page in a real browser, used as a person would: every test fails if the browser's console has an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.core import Update
from headgate.core.trace import Change, RunNotice, Trace
from headgate.monitor import api
from headgate.monitor.record import Json
from headgate.monitor.recorded import RecordedRun
from headgate.monitor.server import MonitorServer
from headgate.monitor.watch import RunWatch
from headgate.warehouse.run.trace import newest_trace, runs_folder
from headgate.warehouse.schedule.glance import RunningUpdate
from headgate.warehouse.updates.repairs import Repairs
from tests.monitor.pretended import NASTY, PassingClock, PretendedRun
from tests.monitor.screenshots import SIZES, take
from tests.monitor.test_recorded import written
from tests.services.chromium import opened_browser, why_not
from tests.services.ports import free_ports
from tests.sim.recording import BUSY, START, recorded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.services, pytest.mark.slow]

#: milliseconds that a condition is waited for: long, for machines that are slow
PATIENCE = 300_000
#: the same for what waits for updates on Spark
SPARK_PATIENCE = 600_000
#: what a browser says of a server that has ended, depending on how far a request had come
ENDS = (
    "ERR_CONNECTION_",
    "ERR_CONTENT_LENGTH_MISMATCH",
    "ERR_EMPTY_RESPONSE",
    "ERR_INCOMPLETE_CHUNKED",
    "ERR_RESPONSE_HEADERS_TRUNCATED",
    "ERR_SOCKET_NOT_CONNECTED",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if reason := why_not():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with opened_browser() as running:
        yield running


Opens = Callable[..., "Page"]


@pytest.fixture
def opens(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opens]:
    """Opens addresses in pages. At the end, no console had an error and nothing was fetched from elsewhere."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    # An answer that comes late must not become an error.
    monkeypatch.setattr(api, "PATIENCE", PATIENCE / 1000)
    contexts, problems = [], []

    def opened(address: str, size: str = "1440", scheme: str = "light", expected: str = "") -> Page:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
        here = re.match(r"\w+://[^/]+/", address)
        assert here is not None
        page.on("request", lambda request: request.url.startswith(here[0]) or problems.append(request.url))

        def said(message: object) -> None:
            text = getattr(message, "text", "")
            # Every server here ends while its page is open.
            is_end = any(end in text for end in ENDS)
            is_known = is_end or (expected and expected in text)
            if getattr(message, "type", "") in ("error", "warning") and not is_known:
                problems.append(text)

        page.on("console", said)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


@contextmanager
def shown(
    seconds: int = 30, updates: int = 2, watched: Callable[[], RunWatch] = RunWatch, **how: object
) -> Iterator[tuple[PretendedRun, RunWatch, str]]:
    """A pretended run that has been going on for so many seconds, with so many updates in each, and its page."""
    watch, clock = watched(), PassingClock(seconds)
    run = PretendedRun(watch, clock=clock, **how)  # type: ignore[arg-type]
    for _ in range(seconds):
        run.step(updates)
        clock.pass_by(1.0)
        watch.look()
    try:
        with MonitorServer(watch, port=0) as server:
            yield run, watch, server.address
    finally:
        watch.stop()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, made = recorded(BUSY, "fifo")
    changes = (Change(START + 5, {"priority": ["air", 3]}), Change(START + 30, {"policy": "max-benefit"}))
    folder = runs_folder(tmp_path_factory.mktemp("city"))
    return written(folder, Trace(made.header, made.updates, changes, made.end))


# --- the overview -------------------------------------------------------------------------------------------------


def test_a_staleness_counts_on_and_falls_when_its_table_is_updated(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown() as (run, watch, address):
        page = opens(address)
        cell = page.get_by_role("row", name="table005").locator(".staleness")
        before = cell.inner_text()
        expect(cell).not_to_have_text(before)
        updates = page.locator("#top .figure b")
        weighted = updates.inner_text()
        run.step(200)
        watch.look()
        expect(updates).not_to_have_text(weighted)


def test_headings_sort_the_filter_filters_and_classes_are_grouped(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown() as (_, _, address):
        page = opens(address)
        names = page.locator(".space .row .name")
        page.locator(".heading .name button").click()
        expect(names.first).to_have_text("stream000")
        page.locator(".heading .name button").click()
        expect(names.first).to_have_text("table011")
        assert page.get_by_role("columnheader", name="table").get_attribute("aria-sort") == "descending"
        page.locator(".heading .priority button").click()
        assert page.get_by_role("columnheader", name="priority").get_attribute("aria-sort") == "descending"
        page.get_by_label("group by class").check()
        expect(page.locator(".row.group").first).to_contain_text("class 1")
        page.get_by_label("group by class").uncheck()
        page.get_by_label("Filter tables").fill("table00")
        expect(page.get_by_role("status").filter(has_text="of 12 tables")).to_be_visible()
        page.get_by_label("Filter tables").fill("nothing of this name")
        expect(page.get_by_text("No table fits the filter")).to_be_visible()


def test_of_five_thousand_tables_only_the_rows_in_sight_are_there(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=1, tables=5_000) as (_, _, address):
        page = opens(address)
        expect(page.get_by_text("5000 tables")).to_be_visible()
        rows = page.locator(".space .row")
        assert rows.count() < 80
        page.locator(".heading .name button").click()
        page.locator(".window").evaluate("window => { window.scrollTop = window.scrollHeight }")
        expect(page.get_by_text("table999", exact=True)).to_be_visible()
        assert rows.count() < 80


def test_what_needs_a_person_is_said_above_everything(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown() as (run, watch, address):
        run.held["table007"] = "it divides by zero"
        run.empty.add("table008")
        watch.look()
        page = opens(address)
        expect(page.get_by_text("without 1 table with no rows yet")).to_be_visible()
        banner = page.locator("#banner")
        expect(banner).to_contain_text("1 held until you resume: table007")
        expect(banner).to_contain_text("later than their target")
        run.file_problem = f"city.py has changed, but cannot be used, so nothing changes: {NASTY}"
        watch.look()
        expect(banner).to_contain_text("city.py has changed, but cannot be used, so nothing changes: <img src=x")
        expect(banner).to_contain_text("The run goes on as the file was before")
        run.file_problem = ""
        watch.look()
        expect(banner).not_to_contain_text("city.py")


def test_the_last_notices_are_listed_newest_first_and_folded_when_there_are_many(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2) as (_, watch, address):
        page = opens(address, size="390")
        expect(page.locator(".space .row").first).to_be_visible()
        notices = page.get_by_role("region", name="Notices")
        expect(notices).to_be_hidden()
        watch.noticed(RunNotice(1_000.0, None, f"Spark cannot be started again: {NASTY}"))
        expect(notices.get_by_role("listitem")).to_have_text(re.compile("Spark cannot be started again: <img src=x"))
        for number in range(1, 6):
            watch.noticed(RunNotice(1_000.0 + number, "table005", f"notice {number}"))
        expect(notices.get_by_role("listitem").first).to_contain_text("table005: notice 5")
        expect(notices.get_by_role("listitem")).to_have_count(3)
        notices.get_by_text("3 earlier").click()
        expect(notices.get_by_role("listitem")).to_have_count(6)
        expect(notices.get_by_role("listitem").last).to_contain_text("Spark cannot be started again")
        watch.noticed(RunNotice(1_010.0, None, "the autopilot: " + "a long reason " * 60))
        expect(notices.get_by_role("listitem")).to_have_count(7)  # what was unfolded stays so
        long = notices.get_by_role("listitem").first
        long.locator("summary").click()
        expect(long).to_contain_text("a long reason " * 59)
        looked_at(page, "notices-390")
        notices.get_by_role("link", name="table005").first.click()
        expect(page.get_by_role("heading", name="table005")).to_be_visible()


def test_a_person_with_a_keyboard_only_can_open_a_table(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown() as (_, _, address):
        page = opens(address)
        expect(page.locator(".space .row").first).to_be_visible()
        page.locator(".window").focus()
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.querySelector('.name').textContent")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=name)).to_be_visible()


# --- tables, changes ----------------------------------------------------------------------------------------------


def test_a_table_tells_what_is_in_it_what_it_costs_and_why(opens: Opens, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with shown(updates=10, directory=tmp_path) as (_, _, address):
        page = opens(address)
        page.get_by_role("row", name="table005").click()
        expect(page.get_by_role("heading", name="table005")).to_be_visible()
        expect(page.get_by_text("as the scheduler fits it")).to_be_visible()
        why = page.locator(".why")
        expect(why).to_contain_text("these ran instead: stream000 (2 ×)")
        expect(why).to_contain_text("To meet its target")
        expect(why.get_by_role("table").first).to_contain_text("value by max-benefit")
        inside = page.locator("section", has_text="What is in it")
        expect(inside).to_contain_text("16 rows in")
        expect(inside.get_by_role("region", name="Rows", exact=True)).to_contain_text(NASTY[:20])
        expect(inside.get_by_role("region", name="Rejected rows")).to_contain_text("no event time")
        inside.get_by_text("Partitions").click()
        expect(inside.get_by_role("region", name="Partitions")).to_contain_text(re.compile(r"\d k?B"))
        inside.get_by_text("Versions").click()
        expect(inside.get_by_role("region", name="Versions")).to_contain_text("load")
        inside.get_by_text("Columns").click()
        expect(inside.get_by_role("region", name="Columns")).to_contain_text("event time")
        inside.get_by_text("SQL").click()
        expect(inside.locator("pre")).to_contain_text("select minute")


def test_the_history_of_a_table_has_an_update_that_was_followed_by_others(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2, updates=0) as (_, watch, address):
        page = opens(address + "#/table/table005")
        history = page.get_by_role("region", name="Updates")
        expect(history).to_contain_text("No update of this table")
        for name in ("table005", "table006"):  # so fast that the page is told of both at once
            update = Update(name, track=0, released=1.0, began=2.0)
            update.commits(0.5)
            watch.updated(update)
        expect(history).to_contain_text("committed")


def test_a_table_says_when_more_data_is_expected_and_how_far_its_backfill_is(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2, updates=0, tables=40) as (run, watch, address):
        run.set_priority("table025", 0.0)  # so that it is last, and not in the queue
        run.expected["table025"] = time.time() + 7_200
        for left in (7_200.0, 1_800.0):
            run.repairs["table025"] = Repairs(0, 1, left)
            watch.look()
        page = opens(address + "#/table/table025")
        expect(page.locator(".why")).to_contain_text("More data is expected in about 2.0 h")
        expect(page.locator(".facts")).to_contain_text("75 % done, 30 min of event time are left")
        run.expected["table025"] = 1.0
        watch.look()
        page.get_by_role("button", name="ask again").click()
        expect(page.locator(".why")).to_contain_text("More data is expected at any moment")


def test_a_ranking_has_the_row_of_the_table_itself_with_its_place(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2, tables=40) as (_, _, address):
        page = opens(address + "#/table/table025")
        own = page.get_by_role("region", name="Ranking").first.get_by_role("row", name="table025")
        expect(own).to_contain_text("40.")
        expect(own).to_contain_text("61")


def test_pause_resume_priority_and_policy_ask_first_and_are_marked(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown() as (run, _, address):
        page = opens(address + "#/table/table005")
        page.get_by_role("button", name="pause").click()
        page.get_by_role("button", name="Cancel").click()
        assert not run.asked
        confirmed(page, "pause", "Pause")
        expect(page.locator(".facts")).to_contain_text("paused")
        confirmed(page, "resume", "Resume")
        expect(page.get_by_role("button", name="pause")).to_be_visible()
        page.get_by_role("button", name="priority").click()
        priority = page.get_by_role("dialog").get_by_role("spinbutton")
        for refused in ("-3", ""):
            priority.fill(refused)
            page.get_by_role("dialog").get_by_role("button", name="Change").click()
            assert priority.evaluate("input => !input.validity.valid")
        priority.fill("7.5")
        page.get_by_role("dialog").get_by_role("button", name="Change").click()
        page.get_by_role("link", name="Overview").click()
        page.get_by_role("button", name="policy max-benefit").click()
        page.get_by_role("dialog").get_by_label("Policy").select_option("fifo")
        page.get_by_role("dialog").get_by_role("button", name="Change").click()
        expect(page.get_by_role("button", name="policy fifo")).to_be_visible()
        expect(page.get_by_role("list", name="Changes")).to_contain_text("policy fifo")
        assert [each[0][0] for each in run.asked] == ["paused", "resumed", "priority", "policy"]


def test_names_cells_and_errors_with_markup_are_shown_as_they_are(opens: Opens, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with shown(directory=tmp_path, nasty=NASTY) as (run, watch, address):
        run.held[NASTY] = f"it says {NASTY}"
        watch.look()
        page = opens(address)
        page.get_by_role("link", name=NASTY[:20]).first.click()
        expect(page.get_by_role("heading", name=NASTY[:20])).to_be_visible()
        expect(page.locator(".facts")).to_contain_text(f"it says {NASTY[:20]}")
        for view in ("Tracks", "Graph", "Operators", "What if"):
            page.get_by_role("link", name=view).click()
            expect(page.get_by_role("heading", name=view).first).to_be_visible()
        assert page.locator("img").count() == 0


# --- tracks, graph, operators -------------------------------------------------------------------------------------


def test_the_timeline_zooms_and_tells_of_the_update_under_the_pointer(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown() as (_, _, address):
        page = opens(address + "#/tracks")
        expect(page.get_by_text("the last 2.0 min")).to_be_visible()
        page.get_by_role("button", name="Zoom in").click()
        expect(page.get_by_text("the last 60 s")).to_be_visible()
        timeline = page.locator("canvas.timeline")
        box = timeline.bounding_box()
        assert box is not None
        tip = page.locator(".tip")
        for part in range(50, 100, 2):
            page.mouse.move(box["x"] + box["width"] * part / 100, box["y"] + 20)
            if tip.is_visible():
                break
        expect(tip).to_contain_text(re.compile("took|has been running"))
        timeline.focus()
        page.keyboard.press("ArrowLeft")
        expect(page.get_by_text("up to")).to_be_visible()
        page.get_by_role("button", name="follow").click()
        expect(page.get_by_text("the last 60 s")).to_be_visible()


def test_time_whose_updates_are_not_kept_any_more_is_not_called_idle(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=110, updates=40) as (_, _, address):  # 2,000 are kept: those of the last 50 s
        page = opens(address + "#/tracks")
        busy = re.compile(r"Idle: track 0 0(\.\d)? %, track 1 0(\.\d)? %")
        for _ in range(3):  # the last 16 min: nothing that is not kept is out of sight soon
            page.get_by_role("button", name="Zoom out").click()
        expect(page.locator("canvas.timeline")).to_have_attribute("aria-label", busy)
        expect(page.get_by_text("not kept any more")).to_be_visible()
        for _ in range(5):
            page.get_by_role("button", name="Zoom in").click()
        expect(page.get_by_text("not kept any more")).to_be_hidden()


def test_an_update_that_waits_on_its_track_is_next_and_has_not_run_since_1970(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2, updates=0) as (run, watch, address):
        run.handed = (RunningUpdate("table005", "table005", "live", 1, 0.0),)
        watch.look()
        page = opens(address + "#/tracks")
        expect(page.get_by_role("listitem").first).to_have_text("table005 next on track 1")
        expect(page.locator("canvas.timeline")).to_have_attribute("aria-label", re.compile("track 1 100 %"))


def test_the_graph_of_two_hundred_tables_finds_one_and_its_path(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=3, tables=200) as (_, _, address):
        page = opens(address + "#/graph")
        page.get_by_label("Find a table").fill("table150")
        expect(page.get_by_text("table150 is built on")).to_be_visible()
        box = page.locator(".graph a", has_text="table150")
        expect(box).to_be_in_viewport()
        assert 0 < page.locator(".graph a:not(.far)").count() < 200
        box.click()
        expect(page.get_by_role("heading", name="table150")).to_be_visible()


def test_of_five_thousand_tables_the_graph_shows_those_that_are_asked_for(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=1, updates=20, tables=5_000) as (_, _, address):
        page = opens(f"{address}#/graph")
        picture = page.get_by_role("region", name="Graph of tables")
        expect(picture).to_contain_text("5,000 tables are too many for one picture")
        page.get_by_label("Find a table").fill("table4999")
        expect(page.get_by_text("table4999 is built on")).to_be_visible()
        expect(picture.locator("a.node.self")).to_contain_text("table4999")
        assert 2 < picture.locator("a.node").count() <= 300
        page.get_by_label("Find a table").fill("table49")
        expect(page.get_by_text("of 100 that fit")).to_be_visible()
        expect(picture.locator("a.node").first).to_be_visible()
        assert 2 < picture.locator("a.node").count() <= 300
        page.get_by_label("Find a table").fill("nothing")
        expect(page.get_by_text("No table fits.")).to_be_visible()


def test_an_axis_has_one_unit(opens: Opens) -> None:
    with shown(seconds=1) as (_, _, address):
        page = opens(address)
        told = page.evaluate(
            """async () => {
            const { durations, counts, APART } = await import('/static/format.js')
            const axes = [[0, 50, 100, 150], [0, 30, 60, 90, 120], [0, 900, 1800], [0, 3600, 7200], [0, 2e-4], [0]]
            const ascends = APART.every((each, place) => !place || each > APART[place - 1])
            return [axes.map(durations), counts([0, 5e6, 1e7], 'bytes'), ascends]
        }"""
        )
    assert told == [
        [
            ["0 s", "50 s", "100 s", "150 s"],
            ["0.0 min", "0.5 min", "1.0 min", "1.5 min", "2.0 min"],
            ["0 min", "15 min", "30 min"],
            ["0 h", "1 h", "2 h"],
            ["0 µs", "200 µs"],
            ["0 s"],
        ],
        ["0 M bytes", "5 M bytes", "10 M bytes"],
        True,
    ]


def test_the_graph_has_tables_whose_names_every_object_of_the_page_has(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=3, nasty="toString") as (_, _, address):
        page = opens(address + "#/graph")
        expect(page.locator(".graph a", has_text="toString")).to_be_visible()


def test_operators_are_a_graph_and_a_table_with_units(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown() as (_, _, address):
        page = opens(address + "#/operators")
        expect(page.get_by_role("heading", name="Operators of by_sensor")).to_be_visible()
        table = page.get_by_role("table")
        for heading in ("queue", "utilisation", "T_Q", "T_S", "T_C", "selectivity", "cost"):
            expect(table.get_by_role("columnheader", name=heading)).to_be_visible()
        expect(table.get_by_role("row", name="valid")).to_contain_text("62 %")
        expect(page.locator(".graph .edge")).to_have_count(2)


# --- recorded runs, what if ---------------------------------------------------------------------------------------


def test_a_recorded_run_is_shown_read_only_and_replayed_under_another_policy(opens: Opens, trace: Path) -> None:
    from playwright.sync_api import expect

    with MonitorServer(RecordedRun(trace), port=0) as server:
        page = opens(server.address)
        expect(page.locator("#banner")).to_contain_text("A recorded run")
        expect(page.get_by_role("columnheader", name="2nd half")).to_be_visible()
        expect(page.get_by_role("button", name="stop")).to_be_hidden()
        page.get_by_text(re.compile(r"[1-9]\.\d\d times the bound, over the whole run")).click()
        expect(page.get_by_text("with the same data and update times on 1 track.")).to_be_visible()
        page.get_by_role("row", name="meters").click()
        expect(page.get_by_role("heading", name="meters")).to_be_visible()
        expect(page.get_by_role("button", name="pause")).to_be_hidden()
        expect(page.get_by_text("Its files are not beside the recorded run")).to_be_visible()
        page.get_by_role("link", name="What if").click()
        page.get_by_label("Policy").select_option("edf")
        page.get_by_label("Tracks").fill("2")
        page.get_by_role("button", name="another priority").click()
        page.get_by_label("Table", exact=True).select_option("meters")
        page.get_by_label("Priority").fill("30")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_text("edf, anywhere, 2 tracks")).to_be_visible()
        table = page.get_by_role("region", name="Mean staleness of each table")
        expect(table.get_by_role("row", name="alerts")).to_contain_text("−")
        page.get_by_label("Without the table").select_option("meters")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_text("Left out: meters")).to_be_visible()


def test_an_earlier_run_is_chosen_beside_one_that_goes_on(opens: Opens, trace: Path) -> None:
    from playwright.sync_api import expect

    with shown() as (_, watch, address):
        watch.trace = trace.parent / "20270101T000000.000000Z.jsonl"
        page = opens(address)
        expect(page.locator(".dot")).to_have_text("live")
        page.get_by_label("Run", exact=True).select_option(index=1)
        expect(page.locator(".dot")).to_have_text("recorded")
        expect(page.get_by_role("row", name="meters")).to_be_visible()
        page.get_by_label("Run", exact=True).select_option(index=0)
        expect(page.locator(".dot")).to_have_text("live")


def test_a_page_of_a_run_that_is_not_there_says_so(opens: Opens, trace: Path) -> None:
    from playwright.sync_api import expect

    with MonitorServer(RecordedRun(trace), port=0) as server:
        page = opens(f"{server.address}?run=none", expected="404")
        expect(page.get_by_role("alert")).to_contain_text("there is no recorded run 'none'")
        page.get_by_role("link", name="Show the newest run").click()
        expect(page.get_by_role("row", name="meters")).to_be_visible()


# --- a run that does not go on ------------------------------------------------------------------------------------


def test_a_scheduler_that_does_not_answer_is_stuck_until_it_answers_again(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2) as (run, _, address):
        page = opens(address)
        expect(page.locator(".dot")).to_have_text("live")
        run.answers.clear()
        try:
            expect(page.locator(".dot")).to_have_text("stuck")
            expect(page.locator("#banner")).to_contain_text("The scheduler has not answered since")
        finally:
            run.answers.set()
        expect(page.locator(".dot")).to_have_text("live")
        expect(page.locator("#banner")).not_to_contain_text("has not answered")


class TroubledWatch(RunWatch):
    """Watches a run with a track that is stuck, and with an update that was cancelled and does not end."""

    def trouble(self) -> str:
        return "track 0 is stuck: its update of table004 has run for 99 s"

    def left(self) -> list[str]:
        return ["table005"]

    def overview(self) -> Json:
        return {**super().overview(), "trouble": self.trouble(), "left": self.left()}


def test_a_track_that_is_stuck_and_an_update_that_does_not_end_are_said(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2, watched=TroubledWatch) as (_, _, address):
        page = opens(address)
        expect(page.locator("#banner")).to_contain_text("Track 0 is stuck: its update of table004 has run for 99 s.")
        expect(page.locator("#banner")).to_contain_text("the update does not end; all others go on: table005")
        expect(page.locator(".dot")).to_have_text("stuck")


def test_a_run_that_has_failed_says_why(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2) as (run, watch, address):
        run.failed = "the run has failed: OSError: the disk is gone"
        watch.look()
        banner = opens(address).locator("#banner")
        expect(banner).to_contain_text("The run has failed: OSError: the disk is gone. No table is updated")
        expect(banner).not_to_contain_text("held until you resume")


class FailingWatch(RunWatch):
    """Watches a run; how it stands cannot be told for as long as ``fails`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = threading.Event()
        self.fails.set()
        #: set when it was asked for twice
        self.tried_again = threading.Event()
        self._asked = 0

    def overview(self) -> Json:
        if not self.fails.is_set():
            return super().overview()
        self._asked += 1
        if self._asked > 1:
            self.tried_again.set()
        raise RuntimeError("it fails for now")


def test_a_page_whose_numbers_cannot_be_loaded_says_so_and_tries_again(opens: Opens) -> None:
    from playwright.sync_api import expect

    with shown(seconds=2, watched=FailingWatch) as (run, watch, address):
        assert isinstance(watch, FailingWatch)
        page = opens(address, expected="500")
        expect(page.get_by_role("alert")).to_contain_text("The run cannot be shown")
        for _ in range(3):  # events go on meanwhile
            run.step()
            watch.look()
        assert watch.tried_again.wait(PATIENCE / 1000)
        expect(page.get_by_role("alert")).to_contain_text("tries again by itself")
        expect(page.locator(".dot")).to_have_text("failed")
        watch.fails.clear()
        expect(page.get_by_role("row", name="table005")).to_be_visible()
        expect(page.locator(".dot")).to_have_text("live")


def test_the_tables_of_the_last_run_are_not_mixed_with_those_of_the_next(opens: Opens) -> None:
    from playwright.sync_api import expect

    (port,) = free_ports(1)
    watches = RunWatch(), FailingWatch()
    runs = [PretendedRun(watch, tables=tables) for watch, tables in zip(watches, (12, 6), strict=True)]
    try:
        with MonitorServer(watches[0], port=port) as server:
            page = opens(server.address, expected="500")
            expect(page.get_by_role("row", name="table005")).to_be_visible()
        expect(page.locator(".dot")).to_have_text("not connected")
        runs[1].set_priority("table005", 4321.0)
        watches[1].look()
        with MonitorServer(watches[1], port=port):
            assert watches[1].tried_again.wait(PATIENCE / 1000)
            expect(page.locator("#banner")).to_contain_text("cannot be loaded: The answer could not be made")
            expect(page.locator(".dot")).to_have_text("not connected")
            expect(page.get_by_role("row", name="table005").locator(".priority")).not_to_have_text(re.compile("4.?321"))
            watches[1].fails.clear()
            expect(page.locator(".dot")).to_have_text("live")
            expect(page.get_by_text("6 tables")).to_be_visible()
            expect(page.get_by_role("row", name="table005").locator(".priority")).to_have_text(re.compile("4.?321"))
            expect(page.locator("#banner")).not_to_contain_text("cannot be loaded")
    finally:
        for watch in watches:
            watch.stop()


def test_a_run_with_another_token_is_said_to_need_it_and_goes_on_when_it_was_given(opens: Opens) -> None:
    from playwright.sync_api import expect

    (port,) = free_ports(1)
    watches, tokens = (RunWatch(), RunWatch()), ("the-token-of-the-first-run", "the-token-of-the-second-run")
    for watch in watches:
        PretendedRun(watch)
    try:
        with MonitorServer(watches[0], port=port, token=tokens[0]) as server:
            page = opens(f"{server.address}login?token={tokens[0]}", expected="401")
            expect(page.locator(".dot")).to_have_text("live")
        with MonitorServer(watches[1], port=port, token=tokens[1]) as server:
            expect(page.locator(".dot")).to_have_text("token needed")
            banner = page.locator("#banner")
            expect(banner).to_contain_text("It needs a new token")
            expect(banner).to_contain_text("open the address that headgate run has printed on its terminal")
            expect(banner).not_to_contain_text("start it again")
            page.context.new_page().goto(f"{server.address}login?token={tokens[1]}")
            expect(page.locator(".dot")).to_have_text("live")
            expect(banner).not_to_contain_text("token")
    finally:
        for watch in watches:
            watch.stop()


# --- a run that dies ----------------------------------------------------------------------------------------------


@contextmanager
def process(port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "tests.monitor.pretended_page", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def test_a_killed_run_is_said_to_be_gone_and_the_page_goes_on_with_the_next(opens: Opens) -> None:
    from playwright.sync_api import expect

    (port,) = free_ports(1)  # it must still be free when the next run takes it
    with process(port) as (running, address):
        page = opens(address)
        expect(page.locator(".dot")).to_have_text("live")
        running.kill()
        expect(page.locator(".dot")).to_have_text("not connected")
        expect(page.locator("#banner")).to_contain_text("start it again")
        page.get_by_role("row", name="table005").click()
        expect(page.get_by_role("button", name="pause")).to_be_disabled()
    with process(port):
        expect(page.locator(".dot")).to_have_text("live")
        expect(page.get_by_role("button", name="pause")).to_be_enabled()
        expect(page.locator("#banner")).not_to_contain_text("start it again")


@contextmanager
def running_demo(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "headgate.cli", "demo", "--for", "1 h", "--folder", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        try:
            assert demo.stdout is not None
            said, found = "", None
            while found is None:
                line = demo.stdout.readline()
                said += line
                assert line, f"the demo has ended: {said}"
                found = re.search(r"http://\S+", line)
            # It says something of every update, and waits when nobody reads that.
            reader = threading.Thread(target=list, args=(demo.stdout,), daemon=True)
            reader.start()
            yield demo, found[0]
        finally:
            demo.kill()
        reader.join()


def confirmed(page: Page, button: str, label: str) -> None:
    """Click a button, and the one of the dialog that it opens."""
    page.get_by_role("button", name=button).click()
    page.get_by_role("dialog").get_by_role("button", name=label).click()


@pytest.mark.long
@pytest.mark.spark
def test_the_demo_is_watched_changed_replayed_and_stopped(opens: Opens, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with running_demo(tmp_path) as (demo, address):
        page = opens(address)
        page.set_default_timeout(SPARK_PATIENCE)
        expect.set_options(timeout=SPARK_PATIENCE)
        row = page.locator(".space .row", has=page.get_by_text("air", exact=True))
        before = row.locator(".staleness").inner_text()
        expect(row.locator(".staleness")).not_to_have_text(before)
        row.click()
        expect(page.get_by_text("as the scheduler fits it")).to_be_visible()
        page.get_by_role("button", name="read again").click()
        inside = page.locator("section", has_text="What is in it")
        expect(inside.get_by_role("region", name="Rows", exact=True)).to_be_visible()
        expect(inside.get_by_role("region", name="Rejected rows")).to_be_visible()
        inside.locator("summary").last.click()
        expect(inside.locator("pre.code")).to_contain_text("loaded from Generator")
        page.get_by_role("button", name="ask again").click()
        expect(page.locator(".why pre")).to_contain_text("air")
        confirmed(page, "pause", "Pause")
        expect(page.locator(".facts")).to_contain_text("paused")
        confirmed(page, "resume", "Resume")
        expect(page.get_by_role("button", name="pause")).to_be_visible()
        page.get_by_role("button", name="policy max-benefit").click()
        page.get_by_role("dialog").get_by_label("Policy").select_option("fifo")
        page.get_by_role("dialog").get_by_role("button", name="Change").click()
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_role("list", name="Changes")).to_contain_text("policy fifo")
        page.get_by_role("link", name="What if").click()
        page.get_by_label("Policy").select_option("edf")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_role("region", name="Mean staleness of each table")).to_contain_text("dashboard")
        confirmed(page, "stop", "Stop")
        expect(page.locator(".dot")).to_have_text("ended")
        assert demo.wait() == 0
    trace = newest_trace(tmp_path / "city.warehouse")
    assert trace is not None
    with MonitorServer(RecordedRun(trace), port=0) as server:
        page = opens(f"{server.address}#/table/air")
        expect(page.get_by_text("as it is now")).to_be_visible()
        expect(page.get_by_role("region", name="Updates")).to_contain_text("committed")


# --- how it looks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_view_fits_the_screen(opens: Opens, tmp_path: Path, trace: Path, size: str, scheme: str) -> None:
    from playwright.sync_api import expect

    views = {
        "overview": "Staleness, weighted",
        "tracks": "Queue",
        "graph": "Graph",
        "operators": "Operators of",
        "table": "table010",
    }
    with shown(seconds=90, tables=24, directory=tmp_path) as (run, watch, address):
        run.held["table007"] = "it divides by zero"
        run.set_priority("table010", 12.0)
        watch.look()
        for name, heading in views.items():
            page = opens(f"{address}#/{'table/table010' if name == 'table' else name}", size, scheme)
            expect(page.get_by_role("heading", name=heading).first).to_be_visible()
            if name == "table":
                expect(page.get_by_text("16 rows in")).to_be_visible()
                expect(page.get_by_text("as the scheduler fits it")).to_be_visible()
            looked_at(page, f"{name}-{size}-{scheme}")
    with MonitorServer(RecordedRun(trace), port=0) as server:
        page = opens(f"{server.address}#/what-if", size, scheme)
        page.get_by_label("Policy").select_option("max-benefit")
        assert "auto" not in page.get_by_label("Policy").locator("option").all_inner_texts()
        page.get_by_role("button", name="another priority").click()
        page.get_by_label("Table", exact=True).select_option("meters")
        page.get_by_label("Priority").fill("30")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_text("what if, simulated").first).to_be_visible()
        looked_at(page, f"what-if-{size}-{scheme}")


def looked_at(page: Page, name: str) -> None:
    take(page, name)
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1], f"{name} is wider than the screen"
