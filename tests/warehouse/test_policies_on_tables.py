"""What a policy says of tables beyond their order reaches updates: portions, and what sources inherit. No Spark."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from headgate.core import (
    CostModel,
    FeatureView,
    Floats,
    Inheritance,
    ParameterError,
    Policy,
    Update,
    UserCodeError,
    placement_from,
    policy_from,
)
from headgate.core.policies import MaxBenefit
from headgate.warehouse import Files, Generator, Warehouse
from headgate.warehouse.declare.analysis import Analysis
from headgate.warehouse.declare.checks import DeclarationErrors
from headgate.warehouse.declare.modes import TableMode
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.derive import TableDeriver
from headgate.warehouse.updates.derive_plan import SourceTable
from headgate.warehouse.updates.derived_table import TableNode
from headgate.warehouse.updates.hosted import HostedQueries
from headgate.warehouse.updates.load import DimensionNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.warehouse.test_limits import Run
from tests.warehouse.test_scheduler import PretendedNode


@dataclass(frozen=True)
class InPortions(MaxBenefit):
    """Max Benefit in portions of so many seconds of data."""

    seconds: float = 25.0

    name = "in-portions"

    def portion(self, view: FeatureView) -> Floats:
        return np.full(len(view), self.seconds)


def known_cost() -> CostModel:
    """A set-up of 1 s, and 0.01 s for a second of data."""
    return CostModel.fitted([(10.0, 1.1), (20.0, 1.2)])


# --- portions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        pytest.param({"budget": math.inf}, 25.0, id="the portion of the policy"),
        pytest.param({}, 25.0, id="less than the budget allows"),
        pytest.param({"chop": 2.0}, 20.0, id="more than was stated: what was stated"),
    ],
)
def test_an_update_takes_in_the_smaller_of_portion_and_limit(
    tmp_path: Path, options: dict[str, float], taken: float
) -> None:
    (update,) = Run(tmp_path, {"one": 3000.0}, policy=InPortions(), **options).next()
    assert update.gained == taken


def test_a_strike_of_the_guard_takes_in_a_portion_only(tmp_path: Path) -> None:
    waiting = {"hot": 30_000.0, "cold": 3000.0}
    costs = {name: ("", known_cost()) for name in waiting}
    run = Run(tmp_path, waiting, costs=costs, policy=InPortions(), priorities={"hot": 100.0}, alpha=1.0)
    while "cold" not in {update.table for update in run.updates}:
        run.next()
    (struck,) = [update for update in run.updates if update.table == "cold"]
    assert struck.gained == 25.0
    assert run.scheduler._loop.statistics().guard_strikes == 1


def test_tables_of_a_group_share_the_portion_of_the_one_that_was_chosen(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 3000.0, "two": 3000.0}, group="both", policy=InPortions(), budget=math.inf)
    assert [update.gained for update in run.next()] == [25.0, 25.0]


def test_a_backlog_is_taken_in_by_priced_benefit_in_portions_that_follow_the_costs(tmp_path: Path) -> None:
    costs = {"one": ("", known_cost())}
    run = Run(
        tmp_path, {"one": 30_000.0}, costs=costs, policy=policy_from("priced-benefit"), budget=math.inf, alpha=1.0
    )
    (first,) = run.next()
    assert first.gained == pytest.approx(3200.0), "32 set-ups of 1 s at 0.01 s for a second of data, in periods of 10 s"


def test_a_table_of_unknown_costs_is_not_cut(tmp_path: Path) -> None:
    run = Run(tmp_path, {"one": 30_000.0}, policy=policy_from("priced-benefit"), budget=math.inf)
    (first,) = run.next()
    assert first.gained == 30_000.0


def test_explain_names_price_worth_and_portion(tmp_path: Path) -> None:
    waiting = {"one": 30_000.0, "two": 9_000.0}
    costs = {name: ("", known_cost()) for name in waiting}
    run = Run(tmp_path, waiting, costs=costs, policy=policy_from("priced-benefit"), budget=math.inf, alpha=1.0)
    told = str(run.scheduler.explain("two", run.now))
    assert "no table has waited for long, so this update is ranked as by max-benefit" in told
    assert "; one update takes in at most 53.3 min of data" in told
    assert "an update takes at most 53.3 min of the 2.5 h of data that wait" in told
    run.next()
    run.next()
    run.now += 10_000_000.0
    told = str(run.scheduler.explain("two", run.now))
    assert re.search(r"a second of a track is worth \d\S* weighted staleness to the tables that wait", told)
    assert re.search(r"worth \d\S* per second of a track, less than 0.7 of that .*updates that are worth that go", told)


class WholeTable(TableNode):
    """Is computed as a whole by every update, and has an hour of data pending."""

    def __init__(self, spec: TableSpec, folder: Path) -> None:
        types = pytest.importorskip("pyspark.sql.types")
        store, rejected = TableStore(folder / "whole"), TableStore(folder / "rejected")
        source = SourceTable("readings", TableStore(folder / "readings"), types.StructType(), "ts")
        hosted = HostedQueries(spec, store, rejected, hosts=False, has_states=False)
        mode = TableMode("whole", "it is stated")
        super().__init__(TableDeriver(spec, store, [source], hosted, mode, Analysis(types.StructType())))

    def plan(self) -> Update | None:
        return Update(self.table, gained=3600.0)


def test_explain_claims_no_portion_of_a_table_that_is_never_cut(tmp_path: Path) -> None:
    wh = Warehouse("w", tmp_path)
    wh.stream("readings", Generator(), time="ts", period="10 s")
    wh.dimension("zones", Files(tmp_path / "zones", schema="id int", settle=0))
    wh.sql("whole", "select ts from readings", time="ts", mode="whole")
    spec = wh.spec()
    (tmp_path / "zones").mkdir()
    (tmp_path / "zones" / "all.csv").write_text("1\n")
    nodes: dict[str, Node] = {
        "readings": PretendedNode("readings", TableStore(tmp_path / "readings"), 3600.0),
        "zones": DimensionNode(spec.dimensions[0], TableStore(tmp_path / "zones_table"), TableStore(tmp_path / "r")),
        "whole": WholeTable(spec.tables[0], tmp_path),
    }
    scheduler = Scheduler(OpenWarehouse(spec, spec.graph(), nodes), RunOptions(policy=InPortions()), 100.0)
    scheduler.poll(1e10)
    told = {name: str(scheduler.explain(name, 1e10)) for name in nodes}
    assert "an update takes at most 25 s of the 1 h of data that wait" in told["readings"]
    assert "number " in told["zones"] and "number " in told["whole"]
    assert "at most" not in told["zones"] + told["whole"]


# --- inheritance ----------------------------------------------------------------------------------------------------


def scheduler_of(folder: Path, declared: str, options: RunOptions) -> Scheduler:
    """One stream of priority 1, and a table of priority 10 and one of priority 4 on it."""
    wh = Warehouse("w", folder, inheritance=declared)
    wh.stream("readings", Generator(), time="ts", period="10 s")
    for name, priority in (("hot", 10.0), ("cold", 4.0)):
        wh.sql(name, "select ts from readings", time="ts", priority=priority)
    spec = wh.spec()
    nodes = {name: PretendedNode(name, TableStore(folder / name), 5.0) for name in spec.names()}
    return Scheduler(OpenWarehouse(spec, spec.graph(), nodes), options, 100.0)


def inherited(scheduler: Scheduler) -> float:
    """The priority of the stream."""
    return float(scheduler._nodes.matrix.columns["priority"][0])


@pytest.mark.parametrize(
    ("declared", "stated", "policy", "priority"),
    [
        pytest.param("default", "default", "max-benefit", 10.0, id="max unless somebody says otherwise"),
        pytest.param("default", "default", "priced-benefit", 5.5, id="the policy asks for density"),
        pytest.param("default", "default", "priced-benefit:density=off", 10.0, id="or not"),
        pytest.param("sum", "default", "priced-benefit", 15.0, id="the pipeline before the policy"),
        pytest.param("sum", "none", "priced-benefit", 1.0, id="the command line before the pipeline"),
        pytest.param("default", "max-plus:k=3", "fifo", 30.0, id="with a factor"),
        pytest.param("default", "density", "max-benefit", 5.5, id="density for another policy, because it is stated"),
    ],
)
def test_sources_inherit_as_stated_or_as_the_policy_asks(
    tmp_path: Path, declared: str, stated: str, policy: str, priority: float
) -> None:
    scheduler = scheduler_of(tmp_path, declared, RunOptions(policy=policy_from(policy), inheritance=stated))
    assert inherited(scheduler) == pytest.approx(priority)


def test_inheritance_follows_changes_while_running(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, "default", RunOptions())
    seen = [inherited(scheduler)]
    for change in (
        lambda: scheduler.replace_policy(policy_from("priced-benefit")),
        lambda: scheduler.set_inheritance("sum"),
        lambda: scheduler.set_priority("hot", 20.0),
        lambda: scheduler.set_inheritance("default"),
    ):
        change()
        seen.append(inherited(scheduler))
    assert seen == pytest.approx([10.0, 5.5, 15.0, 25.0, 10.5])


@pytest.mark.parametrize(
    "text", ["most", "max-plus:k=1", "max-plus:k=x", "max:k=2", "max-plus:2", "", "max-plus:k=inf"]
)
def test_a_way_to_inherit_that_does_not_exist_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        ParameterError, match="inheritance is default, none, sum, max, max-plus, density, or max-plus:k"
    ):
        RunOptions(inheritance=text)
    with pytest.raises(DeclarationErrors, match="inheritance is default"):
        Warehouse("w", tmp_path, inheritance=text).spec()


class Sideways(MaxBenefit):
    """Asks for a way to inherit that does not exist."""

    name = "sideways-benefit"

    @property
    def inheritance(self) -> Inheritance | None:
        return "sideways"  # type: ignore[return-value]


def test_a_policy_that_is_refused_while_running_leaves_everything_as_it_was(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, "default", RunOptions(policy=policy_from("priced-benefit")))
    with pytest.raises(UserCodeError, match=r"inheritance must be one of none, .*; got 'sideways'"):
        scheduler.replace_policy(Sideways())
    assert scheduler.glance(100.0).policy == "priced-benefit"
    with pytest.raises(UserCodeError, match="got 'sideways'"):
        scheduler.check(Sideways(), None, 3)
    scheduler.check(policy_from("fifo"), placement_from("proportional"), 3)
    assert (scheduler.glance(100.0).policy, scheduler.tracks) == ("priced-benefit", 2)
    scheduler.set_priority("hot", 20.0)  # which inherits again, as a commit does
    assert inherited(scheduler) == pytest.approx(10.5)


def test_a_policy_that_asks_for_nothing_leaves_it_to_max() -> None:
    assert isinstance(MaxBenefit(), Policy)
    assert MaxBenefit().inheritance is None
