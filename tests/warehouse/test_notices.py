"""What goes wrong beside an update is said to the user, and one table's trouble is its own. No Spark, no clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.core import (
    CostModel,
    FeatureView,
    Floats,
    Inheritance,
    ParameterError,
    Placement,
    Policy,
    Update,
    Workers,
)
from headgate.core.graph import Ints
from headgate.core.placement import Lane, Lanes
from headgate.core.placements import Anywhere
from headgate.core.trace import NotLoaded, RunNotice
from headgate.errors import RunFailedError
from headgate.warehouse import Files, Generator, NodeStatistics, Notice, Pending, Warehouse
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.run.scheduler_thread import SparkLostError
from headgate.warehouse.schedule.ending import PLACE_AGAIN_AFTER
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.load import DimensionNode, StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.warehouse.test_scheduler import PretendedNode, commit, names

NOW = 100.0
NO_SPARK: Any = None
PATIENCE = 600.0


class PolledNode(PretendedNode):
    """Says ``last_poll`` of its source; ``unplannable`` is raised by ``plan``."""

    unplannable: BaseException | None = None

    def plan(self) -> Update | None:
        if self.unplannable is not None:
            raise self.unplannable
        return super().plan()


def declared(folder: Path, *tables: str, priority: float = 1.0) -> WarehouseSpec:
    wh = Warehouse("w", folder)
    wh.stream("readings", Generator(), time="ts")
    for name in tables:
        wh.sql(name, "select ts from readings", time="ts", priority=priority)
    return wh.spec()


def opened(spec: WarehouseSpec, folder: Path, pending: float = 5.0) -> OpenWarehouse:
    nodes = {name: PolledNode(name, TableStore(folder / name), pending) for name in spec.names()}
    nodes["readings"].pending = 0.0
    return OpenWarehouse(spec, spec.graph(), nodes)


def row_of(scheduler: Scheduler, name: str, now: float = NOW) -> NodeStatistics:
    return next(row for row in scheduler.statistics(now) if row.name == name)


# --- sources --------------------------------------------------------------------------------------------------------


def loading(folder: Path) -> tuple[Scheduler, Path]:
    """A stream and a dimension from directories that are not there, and a table that could be updated."""
    wh = Warehouse("w", folder / "warehouse")
    landing = folder / "landing"
    wh.stream("orders", Files(landing / "ordres", schema="ts timestamp", settle=0), time="ts")
    wh.dimension("shops", Files(landing / "shops", schema="id int", settle=0))
    wh.sql("daily", "select ts from orders", time="ts")
    spec = wh.spec()
    stores = {name: TableStore(folder / name) for name in (*spec.names(), "rejected")}
    nodes: dict[str, Node] = {
        "orders": StreamNode(spec.streams[0], stores["orders"], stores["rejected"]),
        "shops": DimensionNode(spec.dimensions[0], stores["shops"], stores["rejected"]),
        "daily": PolledNode("daily", stores["daily"], 5.0),
    }
    return Scheduler(OpenWarehouse(spec, spec.graph(), nodes), RunOptions(), NOW), landing


def test_a_source_whose_directory_is_missing_waits_and_says_for_what_and_other_tables_are_updated(
    tmp_path: Path,
) -> None:
    (tmp_path / "landing" / "orders").mkdir(parents=True)
    scheduler, landing = loading(tmp_path)
    scheduler.poll(NOW)
    orders, shops = row_of(scheduler, "orders"), row_of(scheduler, "shops")
    assert (orders.state, shops.state) == ("waiting", "waiting")
    assert f"directory {landing / 'ordres'}, which does not exist; did you mean {landing / 'orders'}?" in orders.note
    assert f"directory {landing / 'shops'}" in shops.note
    assert orders.note in str(scheduler.explain("orders", NOW))
    assert names(scheduler.decide(NOW)) == [["daily"]]


def test_what_has_come_to_a_stream_and_is_not_loaded_is_known(tmp_path: Path) -> None:
    scheduler, landing = loading(tmp_path)
    (landing / "ordres").mkdir(parents=True)
    scheduler.poll(NOW)
    assert scheduler.not_loaded(NOW) == NotLoaded(NOW, {})
    for number in range(3):
        (landing / "ordres" / f"{number}.json").write_text("{}")
    scheduler.poll(NOW + 1)
    first, last, chunks = scheduler.not_loaded(NOW + 1).streams["orders"]
    assert (first < last, chunks) == (True, 3)


def test_what_waits_for_a_stream_that_is_held_is_not_known(tmp_path: Path) -> None:
    scheduler, _ = loading(tmp_path)
    scheduler._ledger.of("orders").retries.hold()
    assert scheduler.not_loaded(NOW) == NotLoaded(NOW, {}, ("orders",))


def test_a_user_is_told_once_of_a_missing_directory_and_the_table_is_new_when_it_is_there(tmp_path: Path) -> None:
    scheduler, landing = loading(tmp_path)
    for second in range(3):
        scheduler.poll(NOW + second)
    assert [notice.table for notice in scheduler.notices] == ["orders", "shops"]
    for name in ("ordres", "shops"):
        (landing / name).mkdir(parents=True)
    scheduler.poll(NOW + 4)
    assert [(row.state, row.note) for row in scheduler.statistics(NOW + 4)][:2] == [("new", ""), ("new", "")]


def test_what_a_source_notices_about_a_file_is_passed_on(tmp_path: Path) -> None:
    warehouse = opened(declared(tmp_path, "hot"), tmp_path)
    changed = Notice("a", "changed")
    warehouse.nodes["readings"].last_poll = Pending(note="1 file is not complete yet", notices=(changed,))
    scheduler = Scheduler(warehouse, RunOptions(), NOW)
    assert [str(notice) for notice in scheduler.notices] == ["readings: a changed"]
    assert (row_of(scheduler, "readings").state, row_of(scheduler, "readings").note) == (
        "new",
        "1 file is not complete yet",
    )


@dataclass(frozen=True)
class MostBehind(Policy):
    """The stream with the most records in one partition first."""

    needs = ("part_records",)

    def priorities(self, view: FeatureView) -> Floats:
        return view["part_records"]


def test_a_policy_can_go_by_how_far_the_partitions_of_a_source_are_behind(tmp_path: Path) -> None:
    wh = Warehouse("w", tmp_path)
    for name in ("a", "b", "c"):
        wh.stream(name, Generator(), time="ts")
    spec = wh.spec()
    nodes = {name: PolledNode(name, TableStore(tmp_path / name), 5.0) for name in spec.names()}
    nodes["b"].last_poll = Pending(behind={"partition 0": 400, "partition 1": 0})
    nodes["c"].last_poll = Pending(behind={"partition 0": 300, "partition 1": 300})
    options = RunOptions(policy=MostBehind(), tracks=1)
    scheduler = Scheduler(OpenWarehouse(spec, spec.graph(), nodes), options, NOW)
    assert names(scheduler.decide(NOW)) == [["b"]]
    assert [entry.name for entry in scheduler.glance(NOW).queue] == ["c", "a"]


@pytest.mark.parametrize("table", ["readings", "hot"])
@pytest.mark.parametrize("error", [OSError("the disk is away"), SystemExit("the disk is away")], ids=type)
def test_a_poll_that_raises_is_repeated_and_the_table_says_why_it_waits(
    tmp_path: Path, table: str, error: BaseException
) -> None:
    warehouse = opened(declared(tmp_path, "hot"), tmp_path, pending=0.0)
    node: Any = warehouse.nodes[table]
    node.unplannable = error
    scheduler = Scheduler(warehouse, RunOptions(), NOW)
    scheduler.poll(NOW)
    assert (row_of(scheduler, table).state, row_of(scheduler, table).note) == ("waiting", "the disk is away")
    assert scheduler.poll(NOW + 0.5) <= NOW + 1.5, "it is tried again soon"
    node.unplannable, node.pending = None, 5.0
    scheduler.poll(NOW + 2)
    assert names(scheduler.decide(NOW + 2)) == [[table]]
    assert (row_of(scheduler, table).note, len(scheduler.notices)) == ("", 1)


# --- policies -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mine(Policy):
    """A policy of a user's own with a mistake in it."""

    name = "mine"
    needs = ("priority",)

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view)) / {}["weight"]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Exits(Mine):
    """Would end the process."""

    name = "exits"

    def priorities(self, view: FeatureView) -> Floats:
        raise SystemExit(3)


@dataclass(frozen=True)
class Ends(Mine):
    """Would end the thread."""

    name = "ends"

    def priorities(self, view: FeatureView) -> Floats:
        raise BaseException("enough")


@dataclass(frozen=True)
class Moody(Mine):
    """Says who it is, and what sources inherit, until it has failed."""

    failed: list[bool] = field(default_factory=list)

    name = "moody"

    def priorities(self, view: FeatureView) -> Floats:
        self.failed.append(True)
        raise KeyError("weight")

    def __str__(self) -> str:
        if self.failed:
            raise ValueError("no text any more")
        return "moody"

    @property
    def inheritance(self) -> Inheritance:
        if self.failed:
            raise ValueError("no inheritance any more")
        return "sum"


@dataclass(frozen=True)
class Negative(Mine):
    """Takes less than nothing."""

    name = "negative"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))

    def portion(self, view: FeatureView) -> Floats:
        return np.full(len(view), -1.0)


@dataclass(frozen=True)
class TooShort(Mine):
    """One number for all."""

    name = "too-short"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(1)


@dataclass(frozen=True)
class Joining(Mine):
    """Fails when it is asked who may share a job."""

    name = "joining"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        raise KeyError("weight")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        pytest.param(Mine(), "policy 'mine' failed while ranking: KeyError: 'weight'", id="raises"),
        pytest.param(Exits(), "policy 'exits' failed while ranking: SystemExit: 3", id="exits"),
        pytest.param(Ends(), "policy 'ends' failed while ranking: BaseException: enough", id="ends"),
        pytest.param(Moody(), "policy 'moody' failed while ranking: KeyError: 'weight'", id="cannot say who it is"),
        pytest.param(Negative(), "policy 'negative': the portion of 'hot' must be", id="a portion below 0"),
        pytest.param(TooShort(), "policy 'too-short' must return an array with one number", id="wrong shape"),
    ],
)
def test_a_policy_that_fails_is_named_and_the_tables_are_updated_by_the_default_one(
    tmp_path: Path, policy: Policy, said: str
) -> None:
    scheduler = Scheduler(opened(declared(tmp_path, "hot"), tmp_path), RunOptions(policy=policy), NOW)
    assert names(scheduler.decide(NOW)) == [["hot"]]
    (notice,) = scheduler.notices
    assert notice.table is None
    assert said in notice.text
    assert "goes on with policy 'max-benefit'" in notice.text
    assert scheduler.changes == [{"policy": "max-benefit", "instead of": policy.name}]


def test_so_is_one_that_fails_when_it_is_asked_who_may_share_a_job(tmp_path: Path) -> None:
    cost = CostModel()
    for amount in (1.0, 2.0, 4.0):
        cost.observe(amount, 0.4)
    scheduler = Scheduler(
        opened(declared(tmp_path, "hot", "cold"), tmp_path),
        RunOptions(policy=Joining(), together="auto", tracks=1),
        NOW,
        costs={name: ("", cost) for name in ("hot", "cold")},
    )
    (together,) = names(scheduler.decide(NOW))
    assert sorted(together) == ["cold", "hot"]
    (notice,) = scheduler.notices
    assert "policy 'joining' failed" in notice.text
    assert [row.state for row in scheduler.statistics(NOW)].count("failed") == 0


def test_what_sources_inherit_is_asked_of_a_policy_once(tmp_path: Path) -> None:
    policy = Moody()
    scheduler = Scheduler(opened(declared(tmp_path, "hot"), tmp_path), RunOptions(policy=policy), NOW)
    policy.failed.append(True)
    scheduler.set_priority("hot", 3.0)
    assert {row.name: row.priority for row in scheduler.statistics(NOW)}["hot"] == 3.0


def test_the_traceback_of_a_policy_is_the_users_own(tmp_path: Path) -> None:
    scheduler = Scheduler(opened(declared(tmp_path, "hot"), tmp_path), RunOptions(policy=Mine()), NOW)
    scheduler.decide(NOW)
    heading, first, *_, last = scheduler.notices[0].details.splitlines()
    assert heading == "Traceback (most recent call last):"
    assert __file__ in first, "nothing of ours comes before it"
    assert last == "KeyError: 'weight'"


# --- placements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Later(Placement):
    """Places well at first."""

    answer: Any
    placed: list[bool] = field(default_factory=list)

    name = "later"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        if not self.placed:
            self.placed.append(True)
            return Anywhere().lanes(view, workers)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(ValueError("no map"), "placement 'later' failed: ValueError: no map", id="raises"),
        pytest.param(SystemExit(3), "placement 'later' failed: SystemExit: 3", id="exits"),
        pytest.param(BaseException("no"), "placement 'later' failed: BaseException: no", id="ends"),
        pytest.param(None, "placement 'later' must return Lanes; got NoneType", id="forgets to return"),
        pytest.param(
            Lanes((Lane((7,)),), np.zeros(3, dtype=np.intp)),
            "placement 'later' must give every lane a home, and name workers as integers between 0 and 1",
            id="a track that is not there",
        ),
    ],
)
def test_tables_stay_where_they_are_if_a_placement_fails_later(tmp_path: Path, answer: Any, said: str) -> None:
    options = RunOptions(placement=Later(answer), tracks=2)
    warehouse = opened(declared(tmp_path, "hot", "cold"), tmp_path)
    scheduler = Scheduler(warehouse, options, NOW)
    for _ in range(PLACE_AGAIN_AFTER // 2):
        for (update,) in scheduler.decide(NOW):
            commit(scheduler, update, NOW)
            for node in warehouse.nodes.values():
                if isinstance(node, PolledNode):
                    node.pending = 5.0
        scheduler.resume("hot", NOW)
        scheduler.resume("cold", NOW)
    (notice,) = scheduler.notices
    assert said in notice.text
    assert notice.text.endswith("; the tables stay on the tracks that they were placed on before")
    assert sorted(names(scheduler.decide(NOW))) == [["cold"], ["hot"]]


# --- priorities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared_now", "priority"),
    [pytest.param(1.0, 50.0, id="as it was declared"), pytest.param(7.0, 7.0, id="declared anew")],
)
def test_a_priority_that_a_user_has_set_stays_until_another_one_is_declared(
    tmp_path: Path, declared_now: float, priority: float
) -> None:
    before = Scheduler(opened(declared(tmp_path, "hot"), tmp_path), RunOptions(), NOW)
    before.set_priority("hot", 50.0)
    anew = opened(declared(tmp_path, "hot", priority=declared_now), tmp_path)
    after = Scheduler(anew, RunOptions(), NOW + 1, before=before)
    assert row_of(after, "hot").priority == priority


# --- a run ----------------------------------------------------------------------------------------------------------


class Told:
    """Waits for what a run tells its users."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.notices: list[RunNotice] = []
        self.redeclared: list[tuple[str, ...]] = []
        self.changes: list[object] = []

    def notice(self, notice: RunNotice) -> None:
        with self._news:
            self.notices.append(notice)
            self._news.notify_all()

    def anew(self, _: float, warehouse: OpenWarehouse) -> None:
        with self._news:
            self.redeclared.append(warehouse.spec.names())
            self._news.notify_all()

    def until(self, what: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: bool(getattr(self, what)), PATIENCE)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def idle(tmp_path: Path, told: Told) -> Iterator[Runtime]:
    """A run that has nothing to do."""
    warehouse = opened(declared(tmp_path, "hot"), tmp_path, pending=0.0)
    runtime = Runtime(warehouse, NO_SPARK, on_notice=told.notice, on_redeclared=told.anew)
    runtime.start()
    yield runtime
    runtime.stop()


def test_whoever_asks_a_run_gets_its_notices(tmp_path: Path, told: Told) -> None:
    spec = declared(tmp_path, "hot")
    warehouse = opened(spec, tmp_path, pending=0.0)
    warehouse.nodes["readings"].last_poll = Pending(note="waiting for it", missing=True)
    runtime = Runtime(warehouse, NO_SPARK, on_notice=told.notice)
    runtime.start()
    told.until("notices")
    assert [(notice.table, notice.text) for notice in runtime.notices()] == [("readings", "waiting for it")]
    runtime.stop()


def test_a_run_tells_at_its_end_what_is_not_loaded(tmp_path: Path) -> None:
    told: list[NotLoaded] = []
    warehouse = opened(declared(tmp_path, "hot"), tmp_path, pending=0.0)
    runtime = Runtime(warehouse, NO_SPARK, on_waiting=told.append, clock=lambda: NOW)
    runtime.start()
    runtime.stop()
    assert told == [NotLoaded(NOW, {}, ("readings",))], "it is no node that can be asked"


def test_a_run_in_which_nothing_happens_tells_once_what_is_not_loaded(tmp_path: Path) -> None:
    told: list[NotLoaded] = []
    warehouse = opened(declared(tmp_path, "hot"), tmp_path, pending=0.0)
    clock = iter(NOW + 30.0 * number for number in range(10**6))
    runtime = Runtime(warehouse, NO_SPARK, on_waiting=told.append, clock=lambda: next(clock))
    for _ in range(50):
        runtime._step()
    assert len(told) == 1
    assert NOW + 15 <= told[0].at < NOW + 100
    assert told[0].unknown == ("readings",)


def test_a_run_goes_on_with_other_declarations_and_says_so(idle: Runtime, told: Told, tmp_path: Path) -> None:
    idle.replace_warehouse(lambda: opened(declared(tmp_path, "hot", "cold"), tmp_path, pending=0.0))
    told.until("redeclared")
    assert told.redeclared == [("readings", "hot", "cold")]
    assert [row.name for row in idle.statistics()] == ["readings", "hot", "cold"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [("inheritance", ("sum", "density", "none", "max-plus")), ("together", ("auto", "auto", "never", "declared"))],
)
def test_a_setting_of_the_pipeline_is_recorded_as_it_is_in_force(
    tmp_path: Path, told: Told, setting: str, words: tuple[str, str, str, str]
) -> None:
    declared_first, stated, declared_next, declared_last = words
    spec = declared(tmp_path, "hot")
    warehouse = opened(replace(spec, **{setting: declared_first}), tmp_path, pending=0.0)
    changes: list[object] = []
    runtime = Runtime(
        warehouse, NO_SPARK, on_change=lambda _, what: changes.append(what[setting]), on_redeclared=told.anew
    )
    runtime.start()
    for said, declared_now in ((stated, declared_next), ("default", declared_last), ("default", declared_last)):
        getattr(runtime, f"set_{setting}")(said)
        anew = opened(replace(spec, **{setting: declared_now}), tmp_path, pending=0.0)
        runtime.replace_warehouse(lambda anew=anew: anew)  # type: ignore[misc]
        told.until("redeclared")
        told.redeclared.clear()
    assert getattr(runtime.glance(), setting) == declared_last
    runtime.stop()
    assert changes == [stated, declared_next, declared_last, declared_last]


def test_declarations_that_cannot_be_opened_change_nothing(idle: Runtime, told: Told) -> None:
    def fail() -> OpenWarehouse:
        raise ParameterError("mode append is not possible")

    idle.replace_warehouse(fail)
    told.until("notices")
    assert "nothing changes: mode append is not possible" in told.notices[0].text
    assert [row.state for row in idle.statistics()] == ["new", "new"]


def test_a_run_whose_scheduler_has_failed_says_so_and_takes_no_more_commands(tmp_path: Path) -> None:
    # There is no Spark, so the first update fails, and nobody here can start one.
    runtime = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK)
    runtime.start()
    runtime._thread.join(PATIENCE)
    assert not runtime.is_running
    for row in runtime.statistics():
        assert row.state == "stopped"
        assert row.error.startswith(
            "the run has failed: SparkLostError: Spark, which was started by somebody else, has"
        )
    with pytest.raises(RunFailedError, match=r"nothing is updated any more: SparkLostError: Spark"):
        runtime.pause("hot")
    with pytest.raises(SparkLostError, match="start it, and this run, again"):
        runtime.stop()


@pytest.mark.parametrize(("first", "last"), [(None, None), (0, None), ("yesterday", 5)])
def test_a_backfill_between_what_are_no_times_is_refused(tmp_path: Path, first: Any, last: Any) -> None:
    runtime = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK)
    with pytest.raises(ParameterError, match=r"'hot' goes from one event time to another.*got (None|'yesterday')"):
        runtime.backfill("hot", first, last)


@pytest.mark.parametrize("priority", [-1.0, 1e300, float("inf"), float("nan")])
def test_a_priority_beyond_what_may_be_stated_is_refused(tmp_path: Path, priority: float) -> None:
    runtime = Runtime(opened(declared(tmp_path, "hot"), tmp_path), NO_SPARK)
    with pytest.raises(ParameterError, match=r"the priority of 'hot' takes a number from 0 to 1e\+12; got "):
        runtime.set_priority("hot", priority)
    assert {row.name: row.priority for row in runtime.statistics()}["hot"] == 1.0
