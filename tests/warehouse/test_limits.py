"""How much one update takes in: within a budget of time, and what is reported is what was taken in. No Spark here."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pytest

from headgate.core import CostModel, ParameterError, Update
from headgate.warehouse import Files, Generator, Warehouse
from headgate.warehouse.schedule.kept_costs import KnownPace, costs_file, read_costs, write_costs
from headgate.warehouse.schedule.limits import FIRST_SIZES
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

# --- tables with a backlog --------------------------------------------------------------------------------------


class BehindNode(Node):
    """A table with ``waiting`` seconds of data, of which an update takes in as much as it is allowed."""

    def __init__(self, table: str, store: TableStore, waiting: float) -> None:
        self.table = table
        self.store = store
        self.waiting = waiting

    def plan(self) -> Update | None:
        return Update(self.table, gained=self.waiting) if self.waiting > 1e-9 else None

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        update.gained = min(self.waiting, most_seconds)
        return True

    def run(self, update: Update, *others: Any) -> None:
        raise NotImplementedError

    def end(self, update: Update) -> None:
        self.waiting -= update.gained if update.committed else 0.0


class Run:
    """Tables ``one``, ``two``, ... on a scheduler and one track; updates take ``alpha + beta n`` and time stands still.

    What was updated is in ``updates``.
    """

    def __init__(
        self,
        folder: Path,
        waiting: dict[str, float],
        *,
        alpha: float = 0.3,
        beta: float = 0.01,
        group: str | None = None,
        costs: dict[str, tuple[str, CostModel]] | None = None,
        make: type[BehindNode] = BehindNode,
        priorities: Mapping[str, float] = MappingProxyType({}),
        declared: str = "default",
        **options: Any,
    ) -> None:
        wh = Warehouse("w", folder, together=declared)
        wh.stream("readings", Generator(start="2999-01-01T00:00:00Z"), time="ts", period="10 s")
        for name in waiting:
            wh.sql(name, "select ts from readings", time="ts", group=group, priority=priorities.get(name, 1.0))
        spec = wh.spec()
        self.nodes = {name: make(name, TableStore(folder / name), amount) for name, amount in waiting.items()}
        stream = StreamNode(spec.streams[0], TableStore(folder / "readings"), TableStore(folder / "rejected"))
        opened = OpenWarehouse(spec, spec.graph(), {"readings": stream, **self.nodes})
        self.scheduler = Scheduler(opened, RunOptions(tracks=1, **options), 100.0, costs=costs or {})
        self.alpha, self.beta = alpha, beta
        self.now = 100.0
        self.updates: list[Update] = []

    def next(self, seconds: Callable[[Update], float] | None = None) -> list[Update]:
        """Run the updates that the scheduler begins now; ``seconds`` is how long one takes, if not as usual."""
        begun = [update for updates in self.scheduler.decide(self.now) for update in updates]
        for update in begun:
            took = self.alpha + self.beta * update.gained if seconds is None else seconds(update)
            self.now += took
            update.commits(took)
            self.scheduler.ended(update, self.now)
            self.updates.append(update)
        return begun

    def left(self, table: str) -> int:
        return next(row.updates_left for row in self.scheduler.statistics(self.now) if row.name == table)


def test_a_long_backlog_is_taken_in_by_updates_that_each_stay_within_the_budget(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 3000.0})
    while run.next():
        pass
    assert sum(update.gained for update in run.updates) == pytest.approx(3000.0)
    assert max(update.seconds for update in run.updates) <= 1.0 + 1e-6
    assert 43 <= len(run.updates) <= 55, "70 seconds of data fit into a second: no crumbs"


def test_progress_is_shown_as_the_number_of_updates_that_are_left(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 3000.0})
    while run.nodes["one"].waiting > 700.0:
        run.next()
    assert run.left("one") == pytest.approx(run.nodes["one"].waiting / 70.0, abs=1.0)
    (begun,) = run.next()
    assert begun.left == pytest.approx(run.nodes["one"].waiting / 70.0, abs=1.0)
    while run.next():
        pass
    assert (run.updates[-1].left, run.left("one")) == (0, 0)


def test_the_costs_that_are_learned_are_those_of_what_was_taken_in(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 3000.0}, alpha=0.2, beta=0.02)
    while run.next():
        pass
    _, cost = run.scheduler.costs()["one"]
    assert (cost.alpha, cost.beta) == (pytest.approx(0.2, rel=1e-6), pytest.approx(0.02, rel=1e-6))


@pytest.mark.parametrize(
    ("options", "first"),
    [
        pytest.param({"budget": math.inf}, 3000.0, id="no budget"),
        pytest.param({"chop": 4.0}, 40.0, id="so many periods of data, stated"),
        pytest.param({"chop": 4.0, "budget": 0.001}, 40.0, id="what is stated counts, not the budget"),
        pytest.param({}, 60.0, id="nothing is known: a minute"),
    ],
)
def test_the_first_update_takes_in_what_was_stated_or_little(
    tmp_path: Path, options: dict[str, float], first: float
) -> None:
    (update,) = Run(tmp_path, {"one": 3000.0}, **options).next()
    assert update.gained == first


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan])
def test_a_budget_is_above_zero(budget: float) -> None:
    with pytest.raises(ParameterError, match="above 0"):
        RunOptions(budget=budget)


def test_a_changed_budget_holds_from_the_next_update_on(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 30_000.0})
    for _ in range(10):
        run.next()
    run.scheduler.set_budget(2.0, run.now)
    for _ in range(5):
        run.next()
    assert run.updates[-1].seconds == pytest.approx(2.0)


def test_tables_of_a_group_share_a_budget_and_take_in_the_same_data(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 3000.0, "two": 3000.0}, alpha=0.1, group="all")
    for _ in range(12):
        assert len({update.gained for update in run.next()}) == 1
    assert sum(update.seconds for update in run.updates[-2:]) == pytest.approx(1.0, rel=0.05)


def test_a_table_that_keeps_up_is_not_cut_because_its_updates_take_a_little_longer_than_the_budget(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, {"one": 10.0}, alpha=1.5)
    for _ in range(40):
        (update,) = run.next()
        assert update.left == 0
        run.nodes["one"].waiting += 10.0
        run.scheduler.resume("one", run.now)


def test_a_table_that_gets_more_than_fits_into_its_budget_does_not_fall_behind_for_ever(tmp_path: Path) -> None:
    """Another table keeps the track for 100 s in between, which brings 100 s of data, and 70 s fit into a second."""
    run, waiting = Run(tmp_path, {"one": 500.0}), []
    for _ in range(40):
        run.next()
        run.now += 100.0
        run.nodes["one"].waiting += 100.0
        run.scheduler.resume("one", run.now)
        waiting.append(run.nodes["one"].waiting)
    assert max(waiting[-10:]) <= 150.0, "it has caught up"
    assert max(update.seconds for update in run.updates) <= 2.0, "twice the budget"


def test_at_a_cold_start_the_order_follows_priorities_whatever_compiling_takes(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 5.0, "two": 5.0, "three": 5.0}, priorities={"one": 1.0, "two": 50.0, "three": 9.0})
    while run.next(seconds=lambda update: 12.0):
        pass
    assert [update.table for update in run.updates] == ["two", "three", "one"]


def test_the_first_update_of_a_process_compiles_and_tells_nothing_about_costs(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 3000.0})
    run.next(seconds=lambda update: 30.0)
    assert run.scheduler.costs()["one"][1].numbers() is None
    while run.next():
        pass
    _, cost = run.scheduler.costs()["one"]
    assert (cost.alpha, cost.beta) == (pytest.approx(0.3, rel=1e-6), pytest.approx(0.01, rel=1e-6))


def test_a_run_that_knows_costs_from_before_uses_the_budget_from_its_first_update_on(tmp_path: Path) -> None:
    before = Run(tmp_path / "before", {"one": 3000.0})
    while before.next():
        pass
    write_costs(tmp_path, before.scheduler.costs())
    (update,) = Run(tmp_path / "after", {"one": 3000.0}, costs=read_costs(tmp_path)).next()
    assert update.seconds == pytest.approx(1.0, rel=0.05)


def test_a_failed_update_leaves_everything_waiting(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 3000.0})
    (updates,) = run.scheduler.decide(run.now)
    updates[0].fails(ValueError("no"), 1.0)
    run.scheduler.ended(updates[0], run.now)
    run.scheduler.resume("one", run.now)
    (again,) = run.next()
    assert again.gained == 60.0, "it is not taken for data that arrives too fast"


# --- costs kept in a file ---------------------------------------------------------------------------------------


def known(*seen: tuple[float, float], unit: str = "") -> tuple[str, CostModel]:
    model = CostModel()
    for n, time in seen:
        model.observe(n, time)
    return unit, model


def test_costs_are_read_as_they_were_written(tmp_path: Path) -> None:
    costs = {"one": known((1.0, 0.5), (9.0, 2.5)), "two (backfill)": known((4e6, 1.0), unit="bytes"), "new": known()}
    write_costs(tmp_path, costs)
    found = read_costs(tmp_path)
    assert {name: (unit, model.numbers()) for name, (unit, model) in found.items()} == {
        name: (costs[name][0], costs[name][1].numbers()) for name in ("one", "two (backfill)")
    }
    assert os.listdir(tmp_path) == [costs_file(tmp_path).name]


def test_what_was_kept_is_not_replaced_by_nothing(tmp_path: Path) -> None:
    write_costs(tmp_path, {"one": known((1.0, 0.5))})
    write_costs(tmp_path, {"one": known()})
    assert read_costs(tmp_path).keys() == {"one"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1, 2",
        "[]",
        json.dumps({"version": 99, "nodes": {"one": ["", [1, 1, 1, 1, 1, 1]]}}),
        json.dumps({"version": 1, "nodes": {"one": ["", [1, 1, 1]]}}),
        json.dumps({"version": 1, "nodes": {"one": ["", [1, 1, -1, 1, 1, 1]]}}),
        json.dumps({"version": 1, "nodes": {"one": 7}}),
    ],
    ids=["empty", "cut off", "a list", "a later version", "too few numbers", "impossible numbers", "another shape"],
)
def test_a_file_that_cannot_be_used_counts_as_none(tmp_path: Path, content: str) -> None:
    costs_file(tmp_path).write_text(content, "utf-8")
    assert read_costs(tmp_path) == {}


def test_without_a_file_nothing_is_known_and_one_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    assert read_costs(tmp_path / "nowhere") == {}
    write_costs(tmp_path / "nowhere", {"one": known((1.0, 0.5))})
    assert not (tmp_path / "nowhere").exists()


# --- streams ----------------------------------------------------------------------------------------------------


def stream_of(folder: Path, sizes: list[int], catch_up: Literal["oldest", "newest"] = "oldest") -> StreamNode:
    """A stream of files that all arrived in the same second."""
    landing = folder / "landing"
    landing.mkdir()
    for number, size in enumerate(sizes):
        file = landing / f"{number:04}.json"
        file.write_bytes(b"x" * size)
        os.utime(file, (1000.0, 1000.0))
    wh = Warehouse("w", folder / "w")
    wh.stream("s", Files(landing, schema="ts timestamp", settle=0), time="ts", period="10 s", catch_up=catch_up)
    return StreamNode(wh.spec().streams[0], TableStore(folder / "s"), TableStore(folder / "s__rejected"))


def begun(node: StreamNode, most: float) -> Update:
    update = node.plan()
    assert update is not None
    update.most = most
    assert node.begin(update)
    return update


def test_a_stream_says_how_much_is_waiting_and_then_how_much_it_loads(tmp_path: Path) -> None:
    node = stream_of(tmp_path, [100] * 10)
    planned = node.plan()
    assert planned is not None
    assert (planned.size, planned.unit) == (1000.0, "bytes")
    assert planned.gained >= 10.0, "at least a period"
    update = begun(node, most=350.0)
    assert (update.size, update.amount, update.gained) == (300.0, 300.0, pytest.approx(0.3 * planned.gained))
    assert sorted(update.plan.range.files) == ["0000.json", "0001.json", "0002.json"]


def test_the_newest_files_bring_all_of_the_freshness(tmp_path: Path) -> None:
    update = begun(stream_of(tmp_path, [100] * 10, catch_up="newest"), most=350.0)
    assert update.size == 300.0
    assert update.gained >= 10.0, "not 3"
    assert sorted(update.plan.range.files) == ["0007.json", "0008.json", "0009.json"]


def test_a_single_file_is_loaded_however_large_it_is(tmp_path: Path) -> None:
    assert begun(stream_of(tmp_path, [5000, 10]), most=100.0).size == 5000.0


def test_what_a_cut_update_leaves_still_makes_the_stream_fresher(tmp_path: Path) -> None:
    """Else a backlog of files that were copied at once would rank last after its first part."""
    node = stream_of(tmp_path, [100] * 10)
    update = begun(node, most=350.0)
    update.commits(1.0)
    node.end(update)
    rest = node.plan()
    assert rest is not None
    assert rest.gained >= 10.0


class Ticking:
    """A stream to which a chunk comes every 0.4 s, by a clock that is set; 1000 wait when it is declared."""

    def __init__(self, folder: Path, *, comes: bool = True) -> None:
        self.now = 400.0
        wh = Warehouse("w", folder / "w")
        source = Generator(every="400 ms", start=0.0, clock=lambda: self.now if comes else 400.0)
        wh.stream("s", source, time="ts")
        wh.sql("hot", "select ts from s", time="ts")
        self.spec = wh.spec()
        self.node = StreamNode(self.spec.streams[0], TableStore(folder / "s"), TableStore(folder / "s__rejected"))

    def scheduler(self, folder: Path, paces: Mapping[str, KnownPace]) -> Scheduler:
        nodes = {"s": self.node, "hot": BehindNode("hot", TableStore(folder / "hot"), 0.0)}
        costs = {name: known((1.0, 0.5), unit="bytes") for name in paces}
        opened = OpenWarehouse(self.spec, self.spec.graph(), nodes)
        return Scheduler(opened, RunOptions(tracks=1), self.now, costs=costs, paces=paces)

    def load(self, chunks: int) -> None:
        planned = self.node.plan()
        assert planned is not None and planned.arrived is not None
        update = begun(self.node, most=chunks * planned.size / planned.arrived[2])
        assert update.plan.range.chunks == chunks
        self.now += 1.2
        update.commits(1.2)
        self.node.end(update)
        self.node._known = self.node.source.advance(self.node.offset, update.plan.range)


def test_no_period_is_learned_from_the_files_of_a_backlog(tmp_path: Path) -> None:
    stream = Ticking(tmp_path, comes=False)
    for _ in range(3):
        stream.load(10)
    stream.node.plan()
    assert stream.node.period is None


@pytest.mark.parametrize("at_once", [1, 3, 10], ids=["falls behind", "stays behind", "catches up"])
def test_a_stream_that_is_behind_learns_its_period_from_what_comes_while_it_loads(tmp_path: Path, at_once: int) -> None:
    stream = Ticking(tmp_path)
    for _ in range(3):
        stream.load(at_once)
    assert stream.node.period == pytest.approx(0.4)


def test_a_stream_that_waits_for_a_track_learns_its_period_and_the_guard_goes_by_it(tmp_path: Path) -> None:
    stream = Ticking(tmp_path)
    scheduler = stream.scheduler(tmp_path, {})
    for _ in range(4):
        scheduler.poll(stream.now)
        stream.now += 1.0
    assert stream.node.period == pytest.approx(0.4, rel=0.3)
    assert "the guard puts it in front in 17 s" in str(scheduler.explain("s", stream.now - 1.0))


def test_a_restarted_stream_goes_by_the_period_that_is_kept_until_it_has_learned_one(tmp_path: Path) -> None:
    stream = Ticking(tmp_path)
    scheduler = stream.scheduler(tmp_path, {"s": KnownPace(1e3, 6.0)})
    scheduler.poll(stream.now)
    assert [row.name for row in scheduler.statistics(stream.now)] == ["s", "hot"]
    assert [scheduler._nodes.period(index) for index in (0, 1)] == [6.0, 6.0]
    assert "the guard puts it in front in 120 s" in str(scheduler.explain("s", stream.now))
    for _ in range(30):
        stream.now += 1.2
        scheduler.poll(stream.now)
    assert scheduler.paces()["s"].period == pytest.approx(0.4, abs=0.01)


def test_a_period_that_is_declared_holds_whatever_an_earlier_run_has_learned(tmp_path: Path) -> None:
    node = stream_of(tmp_path, [100])
    node.expect_period(3.0)
    assert node.period == 10.0


def test_a_backlog_of_a_stream_is_loaded_in_parts_even_if_nothing_is_known_about_its_cost(tmp_path: Path) -> None:
    wh = Warehouse("w", tmp_path / "w")
    node = stream_of(tmp_path, [FIRST_SIZES["bytes"] // 4] * 40)
    wh.stream("s", node.source, time="ts")
    spec = wh.spec()
    scheduler = Scheduler(OpenWarehouse(spec, spec.graph(), {"s": node}), RunOptions(), 2000.0)
    scheduler.poll(2000.0)
    ((update,),) = scheduler.decide(2000.0)
    assert (update.size, update.left) == (FIRST_SIZES["bytes"], 9)


class BlockNode(BehindNode):
    """A table that is computed in blocks of a minute: with a limit, an update ends where a block ends."""

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        update.gained = self.waiting if most_seconds == math.inf else min(self.waiting, 7.0)
        return True


def test_what_fits_into_the_budget_is_not_cut_where_a_block_ends(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 20.0}, make=BlockNode)
    (update,) = run.next()
    assert (update.gained, update.left) == (20.0, 0)
