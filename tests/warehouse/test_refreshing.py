"""``headgate refresh``: a table and its sources go before all others once, however fast data arrives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.core import Update
from headgate.warehouse import Generator, Warehouse
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.sources.protocol import Pending
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.warehouse.test_scheduler import PretendedNode

BEGAN = 100.0


class FlowingNode(PretendedNode):
    """Has something pending again as soon as an update is committed: data arrives all the time."""

    arrived: tuple[float, float, int] | None = None

    def plan(self) -> Update | None:
        update = super().plan()
        return update if update is None else replace(update, arrived=self.arrived)

    def end(self, update: Update) -> None:
        self.running = False


class Run:
    """One track. ``wanted`` is built on ``readings`` and ``others``; ``important`` goes before it by its priority."""

    def __init__(self, folder: Path) -> None:
        wh = Warehouse("w", folder)
        for name in ("readings", "others", "events"):
            wh.stream(name, Generator(), time="ts")
        wh.sql("wanted", "select r.ts from readings r join others o on r.ts = o.ts", time="ts", priority=1)
        wh.sql("important", "select ts from events", time="ts", priority=1000)
        self.spec = wh.spec()
        self.nodes = {name: FlowingNode(name, TableStore(folder / name), 5.0) for name in self.spec.names()}
        self.nodes["events"].pending = 0.0
        for name in ("wanted", "important"):
            self.nodes[name].sources = next(node.sources for node in self.spec.nodes() if node.name == name)
        self.scheduler = Scheduler(self.opened(), RunOptions(tracks=1), BEGAN)
        self.now = BEGAN
        self.scheduler.poll(self.now)

    def opened(self) -> OpenWarehouse:
        return OpenWarehouse(self.spec, self.spec.graph(), self.nodes)

    def refresh(self) -> None:
        self.scheduler.refresh_now("wanted", self.now)

    def begin(self) -> Update:
        self.scheduler.poll(self.now)
        ((update,),) = self.scheduler.decide(self.now)
        return update

    def end(self, update: Update, error: str | None = None) -> None:
        self.now += 0.01
        if error is None:
            update.commits(0.01)
        else:
            update.fails(OSError(error), 0.01, transient=True)
        self.scheduler.ended(update, self.now)

    def updated(self, count: int) -> list[str]:
        """The next tables that are updated, one after the other."""
        made = []
        for _ in range(count):
            update = self.begin()
            made.append(update.table)
            self.end(update)
        return made

    def told(self) -> list[str]:
        return [f"{notice.table}: {notice.text}" for notice in self.scheduler.notices]

    def explained(self, table: str) -> str:
        return str(self.scheduler.explain(table, self.now))


def test_without_a_refresh_the_important_table_goes_first(tmp_path: Path) -> None:
    assert Run(tmp_path).updated(3) == ["important"] * 3


def test_a_refresh_is_over_after_one_chain_of_updates_while_data_keeps_arriving(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.refresh()
    made = run.updated(6)
    assert sorted(made[:2]) == ["others", "readings"], "the sources first, each once"
    assert made[2:] == ["wanted", "important", "important", "important"]
    assert run.told() == []


def test_an_update_that_ran_already_does_not_count(tmp_path: Path) -> None:
    run = Run(tmp_path)
    others = ("important", "others", "wanted")
    for name in others:
        run.scheduler.pause(name, run.now)
    before = run.begin()
    assert before.table == "readings"
    for name in others:
        run.scheduler.resume(name, run.now)
    run.refresh()
    run.end(before)
    made = run.updated(4)
    assert (sorted(made[:2]), made[2:]) == (["others", "readings"], ["wanted", "important"])


def test_what_has_arrived_after_the_refresh_does_not_count(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for name in ("readings", "others"):
        run.nodes[name].arrived = (BEGAN + 1.0, BEGAN + 2.0, 1)
    run.refresh()
    assert run.updated(2) == ["wanted", "important"]


def test_a_backlog_is_taken_in_by_as_many_updates_as_it_needs(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.nodes["others"].pending = 0.0
    run.refresh()
    first = run.begin()
    assert first.table == "readings"
    first.left = 2
    run.end(first)
    second = run.begin()
    second.left = 7  # data keeps arriving, and comes in addition
    run.end(second)
    assert run.updated(3) == ["readings", "wanted", "important"]


@pytest.mark.parametrize("obstacle", ["paused", "failed", "missing"])
def test_a_source_that_cannot_be_updated_is_told_and_keeps_nobody_waiting(tmp_path: Path, obstacle: str) -> None:
    run = Run(tmp_path)
    if obstacle == "paused":
        run.scheduler.pause("readings", run.now)
    elif obstacle == "missing":
        run.nodes["readings"].pending = 0.0
        run.nodes["readings"].last_poll = Pending(note="there is no such folder", missing=True)
    run.nodes["others"].pending = 0.0
    run.refresh()
    if obstacle == "failed":
        update = run.begin()
        assert update.table == "readings"
        run.end(update, "no answer")
    assert run.updated(3) == ["wanted", "important", "important"]
    (told,) = [line for line in run.told() if "refresh" in line]
    assert told.startswith("wanted: its refresh goes on without readings: ")
    said = {"paused": "until it is resumed", "failed": "no answer", "missing": "there is no such folder"}
    assert said[obstacle] in told


def test_the_refresh_of_a_table_that_fails_or_is_paused_ends_with_a_notice(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for name in ("readings", "others"):
        run.nodes[name].pending = 0.0
    run.refresh()
    update = run.begin()
    assert update.table == "wanted"
    run.end(update, "no memory")
    assert run.updated(2) == ["important", "important"]
    (told,) = run.told()
    assert told.startswith("wanted: its refresh is over, it was not updated: failed once")
    run.now += 1.5
    assert run.updated(1) == ["important"], "the next try is not urgent"


def test_a_source_that_is_looked_at_in_the_background_is_waited_for_without_urgency(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.nodes["others"].pending = run.nodes["readings"].pending = 0.0
    run.nodes["readings"].last_poll = Pending(looked_at=BEGAN - 1.0)
    run.refresh()
    assert run.updated(2) == ["important", "important"]
    assert "waits for readings" in run.explained("wanted")
    run.now += 2.0
    run.nodes["readings"].pending, run.nodes["readings"].last_poll = 5.0, Pending(looked_at=run.now)
    run.scheduler.resume("readings", run.now)  # it is planned again, as when a source is polled
    assert run.updated(3) == ["readings", "wanted", "important"]


def test_two_refreshes_share_their_sources_and_a_second_one_begins_anew(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.refresh()
    run.scheduler.refresh_now("readings", run.now)
    made = run.updated(4)
    assert (sorted(made[:2]), made[2:]) == (["others", "readings"], ["wanted", "important"])
    run.refresh()
    assert sorted(run.updated(2)) == ["others", "readings"]
    run.refresh()
    made = run.updated(4)
    assert (sorted(made[:2]), made[2:]) == (["others", "readings"], ["wanted", "important"])


def test_a_refresh_goes_on_when_the_warehouse_is_opened_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.refresh()
    first = run.updated(1)
    run.scheduler = Scheduler(run.opened(), RunOptions(tracks=1), run.now, before=run.scheduler)
    made = [*first, *run.updated(3)]
    assert (sorted(made[:2]), made[2:]) == (["others", "readings"], ["wanted", "important"])


def test_an_explanation_says_that_a_refresh_is_in_force(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert "refresh" not in run.explained("wanted")
    run.refresh()
    assert "a refresh is in force, asked for 0 s ago; it waits for " in run.explained("wanted")
    for name in ("readings", "others"):
        told = run.explained(name)
        assert "it goes before all others: a refresh of wanted is in force, asked for 0 s ago" in told
    run.updated(2)
    told = run.explained("wanted")
    assert "it goes before all others: a refresh is in force, asked for 20 ms ago" in told
    assert "refresh" not in run.explained("readings")
    run.updated(1)
    assert "refresh" not in run.explained("wanted")
