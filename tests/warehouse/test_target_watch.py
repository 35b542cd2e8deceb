"""Target lags that cannot be kept are named, with what would help: before a run and while it runs. No Spark."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.core import CostModel, TargetPlan, Update, plan_lines, policy_from
from headgate.warehouse import Generator, Warehouse
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.schedule.kept_costs import KnownCost, KnownPace, read_costs, read_paces, write_costs
from headgate.warehouse.schedule.lasting_costs import LASTING_SECONDS, LastingCosts, SeenCost
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.schedule.target_watch import LOOK_AGAIN_AFTER, plan_before_run
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.warehouse.test_notices import NO_SPARK
from tests.warehouse.test_scheduler import PretendedNode


class Endless(PretendedNode):
    """Has something pending at all times."""

    def end(self, update: Update) -> None:
        self.running = False


def warehouse(folder: Path, target: str | None) -> Warehouse:
    wh = Warehouse("w", folder)
    wh.stream("readings", Generator(), time="ts", period="10 s")
    wh.sql("hot", "select ts from readings", time="ts", target_lag=target, priority=10)
    wh.sql("cold", "select ts from readings", time="ts", target_lag=target)
    return wh


def scheduler_of(
    folder: Path, target: str | None, tracks: int = 1, before: Scheduler | None = None, policy: str = "max-benefit"
) -> Scheduler:
    spec = warehouse(folder, target).spec()
    nodes = {name: Endless(name, TableStore(folder / name), 10.0) for name in spec.names()}
    options = RunOptions(tracks=tracks, budget=1e9, policy=policy_from(policy))
    return Scheduler(OpenWarehouse(spec, spec.graph(), nodes), options, 0.0, before)


def run_updates(scheduler: Scheduler, count: int, seconds: float = 2.0, now: float = 0.0) -> float:
    """So many updates from ``now`` on, one after the other, of ``seconds`` each; returns when the last has ended."""
    for _ in range(count):
        # pretended nodes have no period of their own
        scheduler._nodes.matrix.fill("period", [10.0] * len(scheduler._nodes))
        for updates in scheduler.decide(now):
            now += seconds
            for update in updates:
                update.commits(seconds)
                scheduler.ended(update, now)
    return now


def notes(scheduler: Scheduler, now: float) -> dict[str, str]:
    return {row.name: row.target_note for row in scheduler.statistics(now) if row.target_note}


def test_a_target_that_no_update_can_meet_is_named_while_it_runs_and_told_once(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, "1 s")
    now = run_updates(scheduler, 10 * LOOK_AGAIN_AFTER)
    said = notes(scheduler, now)
    assert list(said) == ["hot", "cold"]
    # 2 s for the source, 2 s for the table
    assert said["hot"].startswith("its target lag of 1 s cannot be met: with its sources, an update takes 4")
    (helps,) = {row.target_help for row in scheduler.statistics(now) if row.target_note}
    assert helps.startswith("a target_lag of ")
    assert f"{said['hot']}; it would help: {helps}" in str(scheduler.explain("hot", now))
    assert {row.name: row.note for row in scheduler.statistics(now)}["hot"] == said["hot"]
    (notice,) = scheduler.notices
    assert notice.table is None and "hot: its target lag of 1 s cannot be met" in notice.text


def test_a_burst_of_data_is_no_reason_to_say_that_a_target_cannot_be_met(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, "0.5 s", policy="fifo")  # all tables in turn
    now, said = 0.0, set[str]()
    for seconds in [0.1] * 200 + ([0.6] * 20 + [0.1] * 200) * 3:
        now = run_updates(scheduler, 1, seconds, now)
        said |= set(notes(scheduler, now))
    assert (said, scheduler.notices) == (set(), [])
    after = run_updates(scheduler, 10 * LOOK_AGAIN_AFTER, seconds=0.6, now=now)
    assert list(notes(scheduler, after)) == ["hot", "cold"]
    (notice,) = scheduler.notices
    assert now + LASTING_SECONDS < notice.at < now + 2 * LASTING_SECONDS + 3 * 0.6 * LOOK_AGAIN_AFTER


LOW, HIGH, UNKNOWN = SeenCost(1.0, 0.0, 10.0), SeenCost(0.5, 0.4, 10.0), SeenCost(math.nan, 0.0, 10.0)


@pytest.mark.parametrize(
    ("looks", "least"),
    [
        pytest.param([(0, 0, HIGH)], HIGH, id="the first counts at once"),
        pytest.param([(0, 0, LOW), (20, 9, HIGH), (30, 19, HIGH)], LOW, id="for less than a stretch"),
        pytest.param([(0, 0, LOW), (20, 9, HIGH), (36, 19, HIGH)], HIGH, id="for a stretch"),
        pytest.param([(0, 0, LOW), (20, 9, HIGH), (900, 11, HIGH)], LOW, id="of two updates"),
        pytest.param([(0, 0, LOW), (20, 9, HIGH), (900, 12, HIGH)], HIGH, id="of three updates"),
        pytest.param([(0, 0, HIGH), (20, 9, HIGH), (21, 9, LOW)], LOW, id="a lower one counts at once"),
        pytest.param([(0, 0, UNKNOWN), (20, 9, HIGH), (30, 19, HIGH)], UNKNOWN, id="known for less than a stretch"),
        pytest.param([(0, 0, UNKNOWN), (20, 4, HIGH), (36, 4, HIGH)], HIGH, id="known for some seconds"),
        pytest.param([(0, 0, HIGH), (20, 9, UNKNOWN), (36, 19, UNKNOWN)], UNKNOWN, id="not known any more"),
    ],
)
def test_costs_count_as_higher_when_that_has_lasted(looks: list[tuple[float, int, SeenCost]], least: SeenCost) -> None:
    costs = LastingCosts()
    *_, last = [costs.least(*look) for look in looks]
    assert last is least


def test_targets_that_can_be_kept_are_not_worth_a_word(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, "1 min")
    now = run_updates(scheduler, 10 * LOOK_AGAIN_AFTER)
    assert (notes(scheduler, now), scheduler.notices) == ({}, [])


def test_users_are_told_when_more_tracks_have_helped(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, "16 s")
    now = run_updates(scheduler, 10 * LOOK_AGAIN_AFTER, seconds=7.0)  # three updates of 7 s every 10 s
    assert any("they take 2.10 tracks at least" in notice.text for notice in scheduler.notices), scheduler.notices
    assert "it would help: 3 tracks" in scheduler.notices[-1].text
    assert notes(scheduler, now)
    scheduler.set_tracks(3)
    run_updates(scheduler, 4 * LOOK_AGAIN_AFTER, seconds=7.0)
    assert scheduler.notices[-1].text == "all target lags can be met again"
    assert not notes(scheduler, now)


def test_users_are_not_told_that_all_is_well_if_targets_will_be_missed_now_and_then(tmp_path: Path) -> None:
    """Updates of 5 s: on two tracks, one may have to wait for two others, and then has to wait for its source."""
    scheduler = scheduler_of(tmp_path, "16 s")
    now = run_updates(scheduler, 10 * LOOK_AGAIN_AFTER, seconds=5.0)  # three updates of 5 s every 10 s
    assert "they take 1.50 tracks at least" in scheduler.notices[-1].text
    scheduler.set_tracks(2)
    run_updates(scheduler, 4 * LOOK_AGAIN_AFTER, seconds=5.0)
    assert scheduler.notices[-1].text == (
        "the target lags take no more than the tracks now; some may still be missed now and then"
    )
    assert not notes(scheduler, now)
    plan = scheduler._state.targets.plan
    assert plan is not None and plan.verdict == "tight"
    assert "help" not in vars(plan), "nobody is told what would help, which takes long to find"


def test_nothing_is_said_of_targets_that_are_not_stated_any_more(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, "1 s")
    now = run_updates(scheduler, 10 * LOOK_AGAIN_AFTER)
    assert list(notes(scheduler, now)) == ["hot", "cold"]
    saved_without = scheduler_of(tmp_path, None, before=scheduler)
    saved_without.decide(now)
    assert (notes(saved_without, now), saved_without.notices) == ({}, [])


# --- before a run ---------------------------------------------------------------------------------------------------


def learned(alpha: float, beta: float = 0.0) -> CostModel:
    return CostModel.fitted([(1.0, alpha + beta), (20.0, alpha + 20 * beta)])


def plan(folder: Path, target: str | None, costs: dict[str, KnownCost], tracks: int = 1) -> TargetPlan | None:
    paces = {name: KnownPace(per_second=2.0) for name in costs}
    return plan_before_run(warehouse(folder, target).spec(), tracks, costs, paces)


def test_what_earlier_runs_learned_says_whether_targets_can_be_met(tmp_path: Path) -> None:
    costs = {name: ("", learned(2.0)) for name in ("readings", "hot", "cold")}
    found = plan(tmp_path, "3 s", costs)
    assert found is not None and [table.name for table in found.impossible] == ["hot", "cold"]
    found = plan(tmp_path, "1 min", costs)
    assert found is not None and plan_lines(found) == []


def test_costs_by_size_count_by_the_pace_of_the_data(tmp_path: Path) -> None:
    """0.1 s for a megabyte, and 2 of them come every second: 2 s for the 10 s of a period."""
    costs = {name: ("bytes", learned(0.5, 0.1)) for name in ("readings", "hot")}
    found = plan(tmp_path, "30 s", costs)
    assert found is not None and found.unknown == ("cold",)
    assert found.tables[0].least == pytest.approx(2 * (0.5 + 0.1 * 2 * 10), rel=0.01)


def test_without_targets_there_is_nothing_to_plan(tmp_path: Path) -> None:
    assert plan(tmp_path, None, {}) is None


def test_the_pace_of_data_is_kept_beside_the_costs_and_older_files_are_still_read(tmp_path: Path) -> None:
    costs, paces = {"t": ("bytes", learned(1.0))}, {"t": KnownPace(3.0, 10.0), "unlearned": KnownPace()}
    write_costs(tmp_path, costs, paces)
    assert read_paces(tmp_path) == {"t": KnownPace(3.0, 10.0)}
    assert list(read_costs(tmp_path)) == ["t"]
    write_costs(tmp_path, costs)
    assert read_paces(tmp_path) == {}
    old = json.loads((tmp_path / "costs.json").read_text())
    del old["paces"]
    (tmp_path / "costs.json").write_text(json.dumps(old))
    assert (list(read_costs(tmp_path)), read_paces(tmp_path)) == (["t"], {})


@pytest.mark.parametrize(
    "pace",
    [KnownPace(150e3, 0.4), KnownPace(150e3, None), KnownPace(None, 0.4)],
    ids=["both", "no period", "no pace"],
)
def test_a_run_that_loads_nothing_keeps_the_paces_that_an_earlier_one_has_learned(
    tmp_path: Path, pace: KnownPace
) -> None:
    wh = Warehouse("w", tmp_path)
    wh.stream("readings", Generator(start="2999-01-01T00:00:00Z"), time="ts")
    spec = wh.spec()
    node = StreamNode(spec.streams[0], TableStore(tmp_path / "readings"), TableStore(tmp_path / "rejected"))
    write_costs(tmp_path, {"readings": ("bytes", learned(0.5))}, {"readings": pace})
    opened = OpenWarehouse(spec, spec.graph(), {"readings": node})
    runtime = Runtime(opened, NO_SPARK, RunOptions(tracks=1))
    runtime.start()
    runtime.stop()
    assert read_paces(tmp_path)["readings"] == pace


def test_a_pace_in_bytes_tells_nothing_about_one_in_rows(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path, None)
    entry = scheduler._ledger.of("hot")
    entry.know(("bytes", learned(0.5)), KnownPace(150e3))
    entry.planned(Update("hot", gained=0.0, size=5.0, unit="rows"))
    assert (entry.pace.per_second, entry.per_second) == (None, 1.0)
    entry.planned(Update("hot", gained=10.0, size=500.0, unit="rows"))
    assert entry.pace.per_second == 50.0


PIPELINE = """
import headgate as hg
wh = hg.Warehouse("w", {folder!r})
wh.stream("readings", hg.Generator(), time="ts", period="10 s")
wh.sql("hot", "select ts from readings", time="ts", target_lag="3 s")
"""


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param({}, "run it for a while, then check again", id="never run"),
        pytest.param({"readings": 2.0, "hot": 2.0}, "hot: its target lag of 3 s cannot be met", id="too low"),
        pytest.param({"readings": 0.1, "hot": 0.1}, "target lags: can be met on 1 track, of which", id="with room"),
    ],
)
def test_check_says_whether_targets_can_be_met(tmp_path: Path, costs: dict[str, float], expected: str) -> None:
    pipeline = tmp_path / "pipeline.py"
    folder = tmp_path / "w.warehouse"
    folder.mkdir()
    pipeline.write_text(PIPELINE.format(folder=str(folder)))
    write_costs(folder, {name: ("", learned(alpha)) for name, alpha in costs.items()})
    result = CliRunner().invoke(app, ["check", str(pipeline), "--no-spark", "--tracks", "1"])
    assert result.exit_code == 0, result.output
    assert expected in result.output
    assert "by default" not in result.output


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        pytest.param(0.1, "target lags: can be met on 2 tracks, of which they take 0.01", id="with room"),
        pytest.param(9.5, "may be missed now and then: they take 1.90 of 2 tracks", id="tight"),
        pytest.param(15.0, "hot: its target lag of 20 s cannot be met", id="impossible"),
    ],
)
def test_check_says_of_how_many_tracks_it_speaks_if_nobody_asked(tmp_path: Path, alpha: float, expected: str) -> None:
    pipeline, folder = tmp_path / "pipeline.py", tmp_path / "w.warehouse"
    folder.mkdir()
    pipeline.write_text(PIPELINE.format(folder=str(folder)).replace("3 s", "20 s"))
    write_costs(folder, {name: ("", learned(alpha)) for name in ("readings", "hot")})
    result = CliRunner().invoke(app, ["check", str(pipeline), "--no-spark"])
    assert expected in result.output
    assert "  headgate run has 2 tracks by default, and on a cluster one for each core: --tracks N" in result.output
