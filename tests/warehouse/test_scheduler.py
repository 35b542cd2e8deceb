"""The scheduler of a warehouse on nodes that only pretend to work: no Spark, no thread, no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.core import FeatureView, Lane, Lanes, Placement, Update, Workers
from headgate.warehouse import Generator, Warehouse
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


class PretendedNode(Node):
    """Has something pending until an update is committed; ``failing`` is raised by ``begin``."""

    def __init__(self, table: str, store: TableStore, pending: float) -> None:
        self.table = table
        self.store = store
        self.pending = pending
        self.failing: Exception | None = None
        self.running = False

    def plan(self) -> Update | None:
        return None if self.running or not self.pending else Update(self.table, gained=self.pending)

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        if self.failing is not None:
            raise self.failing
        self.running = self.plan() is not None
        return self.running

    def run(self, update: Update, *others: Any) -> None:
        raise NotImplementedError

    def end(self, update: Update) -> None:
        self.running = False
        if update.committed:
            self.pending = 0.0


def scheduler_of(folder: Path, group: str | None, tracks: int = 2) -> tuple[Scheduler, dict[str, PretendedNode]]:
    """One stream with nothing pending, and two tables on it that both could be updated."""
    wh = Warehouse("w", folder)
    wh.stream("readings", Generator(), time="ts")
    for name, priority in (("hot", 10.0), ("cold", 1.0)):
        wh.sql(name, "select ts from readings", time="ts", group=group, priority=priority)
    spec = wh.spec()
    pending = {"readings": 0.0, "hot": 5.0, "cold": 5.0}
    nodes = {name: PretendedNode(name, TableStore(folder / name), pending[name]) for name in spec.names()}
    return Scheduler(OpenWarehouse(spec, spec.graph(), nodes), RunOptions(tracks=tracks), 100.0), nodes


def names(lists: list[list[Update]]) -> list[list[str]]:
    return [[update.name for update in updates] for updates in lists]


def commit(scheduler: Scheduler, update: Update, now: float) -> None:
    update.commits(1.0)
    scheduler.ended(update, now)


def test_tables_without_a_group_are_updated_on_different_tracks_the_higher_priority_first(tmp_path: Path) -> None:
    scheduler, _ = scheduler_of(tmp_path, group=None)
    started = scheduler.decide(100.0)
    assert names(started) == [["hot"], ["cold"]]
    assert {update.status for updates in started for update in updates} == {"running"}
    assert len({updates[0].track for updates in started}) == 2
    assert scheduler.decide(101.0) == []


def test_tables_of_a_group_begin_together_on_one_track_and_only_once(tmp_path: Path) -> None:
    scheduler, _ = scheduler_of(tmp_path, group="all")
    started = scheduler.decide(100.0)
    assert names(started) == [["hot", "cold"]], "although both tracks were free and both tables ready"
    for update in started[0]:
        assert not scheduler.is_idle
        commit(scheduler, update, 101.0)
    assert scheduler.is_idle
    assert scheduler.decide(102.0) == []


def test_the_update_that_was_planned_is_the_one_that_runs_and_ends(tmp_path: Path) -> None:
    scheduler, nodes = scheduler_of(tmp_path, group=None, tracks=1)
    planned = dict(scheduler._planned)
    (first,) = scheduler.decide(104.0)[0]
    assert any(first is update for update in planned.values())
    assert (first.table, first.released, first.gained, first.track) == ("hot", 100.0, 5.0, 0)
    commit(scheduler, first, 105.0)
    statistics = {row.name: row for row in scheduler.statistics(105.0)}
    assert (statistics["hot"].updates, statistics["hot"].longest_wait) == (1, 4.0)
    assert nodes["hot"].plan() is None
    assert names(scheduler.decide(105.0)) == [["cold"]]


class Reader(PretendedNode):
    """Notes which changes of its source it has read; ``unreadable`` is raised instead."""

    unreadable: BaseException | None = None
    read: int = 0

    def source_changed(self, source: str) -> None:
        if self.unreadable is not None:
            raise self.unreadable
        self.read += 1


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "failed, perhaps after its commit"])
@pytest.mark.parametrize("error", [OSError("no such disk"), SystemExit(1)], ids=["an error", "an exit"])
def test_changes_that_could_not_be_read_are_read_when_the_table_is_planned_again(
    tmp_path: Path, committed: bool, error: BaseException
) -> None:
    wh = Warehouse("w", tmp_path)
    wh.stream("readings", Generator(), time="ts")
    wh.sql("hot", "select ts from readings", time="ts")
    spec = wh.spec()
    stream = PretendedNode("readings", TableStore(tmp_path / "readings"), 5.0)
    hot = Reader("hot", TableStore(tmp_path / "hot"), 0.0)
    scheduler = Scheduler(
        OpenWarehouse(spec, spec.graph(), {"readings": stream, "hot": hot}), RunOptions(tracks=1), 100.0
    )
    scheduler.poll(100.0)
    hot.unreadable = error
    (update,) = scheduler.decide(100.0)[0]
    if committed:
        commit(scheduler, update, 101.0)
    else:
        update.fails(OSError("no answer"), 1.0, transient=True)
        scheduler.ended(update, 101.0)
    assert hot.read == 0
    assert {row.name: row.note for row in scheduler.statistics(101.0)}["hot"] in ("no such disk", "1")
    hot.unreadable = None
    scheduler.poll(1000.0)
    assert hot.read == 1
    assert {row.name: row.note for row in scheduler.statistics(1000.0)}["hot"] == ""


@pytest.mark.parametrize("group", [None, "all"])
def test_an_update_that_cannot_begin_is_reported_and_retried_later_and_the_others_run(
    tmp_path: Path, group: str | None
) -> None:
    scheduler, nodes = scheduler_of(tmp_path, group)
    nodes["hot"].failing = ValueError("no such file")
    started = scheduler.decide(100.0)
    assert names(started) == [["hot"], ["cold"]]
    assert [(updates[0].status, updates[0].error) for updates in started] == [
        ("failed", "no such file"),
        ("running", None),
    ]
    nodes["hot"].failing = None
    scheduler.poll(100.5)
    assert scheduler.decide(100.5) == [], "it waits for a second"
    scheduler.poll(101.0)
    assert names(scheduler.decide(101.0)) == [["hot"]]


def test_one_that_cannot_begin_along_with_its_group_is_reported_when_it_begins_alone(tmp_path: Path) -> None:
    scheduler, nodes = scheduler_of(tmp_path, group="all", tracks=1)
    nodes["cold"].failing = ValueError("no such file")
    (started,) = scheduler.decide(100.0)
    assert names([started]) == [["hot"]]
    commit(scheduler, started[0], 101.0)
    (failed,) = scheduler.decide(101.0)
    assert [(update.name, update.status) for update in failed] == [("cold", "failed")]


@dataclass(frozen=True)
class Shown(Placement):
    """Notes of each table in which lane it is shown to have placed it before, and its set-up time."""

    tables: list[dict[str, tuple[int, float]]] = field(default_factory=list, compare=False)
    name = "shown"
    needs = ("setup_time",)

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        assert isinstance(view.memory, Lanes) and view.rows is not None
        names = [view.graph.names[row] for row in view.rows]
        before = view.memory.of[view.rows].tolist() if len(view.memory.of) else [None] * len(names)
        self.tables.append(dict(zip(names, zip(before, view["setup_time"].tolist(), strict=True), strict=True)))
        return Lanes((Lane((0,)), Lane((1,))), view["setup_time"].astype(int) % 2)


def opened_again(
    folder: Path, tables: tuple[str, ...], placement: Placement, before: Scheduler | None = None
) -> Scheduler:
    wh = Warehouse("w", folder)
    wh.stream("readings", Generator(), time="ts")
    for name in tables:
        wh.sql(name, "select ts from readings", time="ts")
    spec = wh.spec()
    nodes = {name: PretendedNode(name, TableStore(folder / name), 0.0) for name in spec.names()}
    options = RunOptions(tracks=2, placement=placement)
    return Scheduler(OpenWarehouse(spec, spec.graph(), nodes), options, 100.0, before)


def test_tables_are_placed_by_what_was_known_and_placed_before_the_file_was_saved(tmp_path: Path) -> None:
    placement = Shown()
    scheduler = opened_again(tmp_path, ("hot", "cold"), placement)
    for name, seconds in (("readings", 2.0), ("hot", 4.0), ("cold", 7.0)):
        scheduler._ledger.of(name).cost.observe(1.0, seconds)
    scheduler = opened_again(tmp_path, ("hot", "cold"), placement, scheduler)
    opened_again(tmp_path, ("new", "hot", "cold"), placement, scheduler)
    *_, last = placement.tables
    assert last == {"readings": (0, 2.0), "hot": (0, 4.0), "cold": (1, 7.0), "new": (-1, 0.0)}
