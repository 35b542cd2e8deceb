"""Tables that share a job by the scheduler's own choice: who does, who does not, and what becomes of failures."""

from __future__ import annotations

import json
import math
import queue
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from headgate.core import CostModel, ParameterError, Update
from headgate.core.joint import PRIOR_SHARE
from headgate.warehouse import Files, Warehouse
from headgate.warehouse.declare.checks import DeclarationErrors
from headgate.warehouse.run.late_updates import LateUpdates
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.run.tracks import Tracks, run_updates
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.test_limits import BehindNode, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def known(seconds: float = 0.4, unit: str = "") -> tuple[str, CostModel]:
    """A cost that was learned from updates alone: nearly all of it is set-up."""
    return unit, CostModel.fitted([(0.0, seconds), (10.0, seconds + 0.01), (20.0, seconds + 0.02)])


def run_of(folder: Path, *tables: str, together: str = "auto", **options: Any) -> Run:
    """Tables on one stream and one track, with the same to do, and with costs that are known."""
    costs = options.pop("costs", {name: known() for name in tables})
    return Run(folder, dict.fromkeys(tables, 5.0), costs=costs, together=together, **options)


def begun(run: Run) -> list[list[str]]:
    return [[update.table for update in updates] for updates in run.scheduler.decide(run.now)]


def test_tables_with_the_same_sources_share_a_job_without_a_group(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", "three", priorities={"two": 9.0})
    updates = run.next()
    assert [update.table for update in updates] == ["two", "one", "three"]
    assert {update.together for update in updates} == {("two", "one", "three")}
    assert [update.has_joined for update in updates] == [False, True, True]


@pytest.mark.parametrize(
    ("together", "group", "shared"),
    [
        ("declared", None, False),
        ("declared", "all", True),
        ("never", "all", False),
        ("auto", "all", True),
        ("auto", None, True),
    ],
)
def test_who_shares_a_job_is_up_to_the_options(tmp_path: Path, together: str, group: str | None, shared: bool) -> None:
    run = run_of(tmp_path, "one", "two", together=together, group=group)
    assert begun(run) == ([["one", "two"]] if shared else [["one"]])


def test_other_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="together is default, auto, declared or never; got 'always'"):
        RunOptions(together="always")
    with pytest.raises(DeclarationErrors, match="together is default, auto, declared or never; got 'always'"):
        Warehouse("w", tmp_path, together="always").spec()


@pytest.mark.parametrize(
    ("declared", "stated", "shared"),
    [
        pytest.param("default", "default", False, id="only groups unless somebody says otherwise"),
        pytest.param("auto", "default", True, id="as the pipeline states"),
        pytest.param("auto", "never", False, id="the command line before the pipeline"),
        pytest.param("never", "auto", True, id="also this way round"),
    ],
)
def test_who_shares_a_job_is_stated_by_the_run_or_else_by_the_pipeline(
    tmp_path: Path, declared: str, stated: str, shared: bool
) -> None:
    run = run_of(tmp_path, "one", "two", together=stated, declared=declared)
    assert begun(run) == ([["one", "two"]] if shared else [["one"]])


def test_who_shares_a_job_can_be_changed_while_running(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", together="default", declared="never")
    shown = []
    for word in ("auto", "declared", "default", "auto"):
        run.scheduler.set_together(word)
        for name, node in run.nodes.items():
            node.waiting = 5.0
            run.scheduler.resume(name, run.now)
        glance = run.scheduler.glance(run.now)
        shown.append((glance.together, [update.together for update in run.next()]))
        while run.next():
            pass
    both = ("one", "two")
    assert shown == [("auto", [both, both]), ("declared", [()]), ("never", [()]), ("auto", [both, both])]


def test_a_change_of_who_shares_jobs_outlives_a_new_declaration(tmp_path: Path) -> None:
    run = run_of(tmp_path / "before", "one", "two", together="default")
    run.scheduler.set_together("auto")
    opened = run_of(tmp_path / "after", "one", "two", declared="never").scheduler.warehouse
    assert Scheduler(opened, RunOptions(), run.now, before=run.scheduler).together == "auto"
    run.scheduler.set_together("default")
    assert Scheduler(opened, RunOptions(), run.now, before=run.scheduler).together == "never"


def test_what_a_group_took_is_not_taken_for_a_choice_if_that_was_made_meanwhile(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", together="declared", group="all")
    run.next()  # the first updates of a process tell nothing
    for name, node in run.nodes.items():
        node.waiting = 5.0
        run.scheduler.resume(name, run.now)
    (job,) = run.scheduler.decide(run.now)
    run.scheduler.set_together("auto")
    learned = run.scheduler._joint.jobs.learned(1)
    for update in job:
        update.commits(0.1)
        run.scheduler.ended(update, run.now)
    assert learned.share == PRIOR_SHARE


def test_a_table_with_a_free_track_of_its_own_does_not_wait_for_another(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", "three")
    run.scheduler.set_tracks(2)
    assert begun(run) == [["one", "two"], ["three"]], "between equals by name"


def test_a_table_whose_cost_is_not_known_is_updated_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", "three", costs={"one": known(), "three": known()}, priorities={"one": 9.0})
    assert begun(run) == [["one", "three"]]
    assert "alone until it is known what its updates cost" in str(run.scheduler.explain("two", run.now))


def test_a_paused_table_does_not_share_a_job(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", "three")
    run.scheduler.pause("two", run.now)
    assert begun(run) == [["one", "three"]]


def test_a_table_that_failed_is_updated_alone_until_it_commits_and_the_others_go_on(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", "three", priorities={"one": 9.0})
    updates = [update for job in run.scheduler.decide(run.now) for update in job]
    assert [update.table for update in updates] == ["one", "two", "three"]
    for update in updates:
        if update.table == "three":
            update.fails(ValueError("a bad row"), 0.1)
        else:
            update.commits(0.1)
        run.scheduler.ended(update, run.now)
    for node in run.nodes.values():
        node.waiting = 5.0
    run.now += 10.0
    run.scheduler.poll(run.now)
    for name in run.nodes:
        run.scheduler.resume(name, run.now) if name != "three" else None
    assert "alone until its next commit, after a failure" in str(run.scheduler.explain("three", run.now))
    assert sorted(map(sorted, [[u.table for u in run.next()] for _ in range(2)])) == [["one", "two"], ["three"]]
    for node in run.nodes.values():
        node.waiting = 5.0
    for name in run.nodes:
        run.scheduler.resume(name, run.now)
    assert [update.table for update in run.next()] == ["one", "two", "three"]


def test_one_whose_job_ended_before_its_turn_is_tried_again_at_once_and_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two")
    (job,) = run.scheduler.decide(run.now)
    for update in job:
        update.was_passed_over = True
        update.fails(RuntimeError("the job has failed"), transient=True)
        run.scheduler.ended(update, run.now)
    assert [row.failures for row in run.scheduler.statistics(run.now)] == [0, 0, 0]
    assert [update.table for update in run.next()] == ["one"]
    assert [update.table for update in run.next()] == ["two"]


def test_what_jobs_share_is_learned_and_costs_stay_those_of_updates_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two", budget=math.inf)
    jobs = run.scheduler._joint.jobs
    assert jobs.learned(1).share == PRIOR_SHARE
    for _ in range(60):
        for name, node in run.nodes.items():
            node.waiting = 5.0
            run.scheduler.resume(name, run.now)
        job = run.next(lambda update: 0.1 if update.has_joined else 0.4)
        assert len(job) == 2
    assert jobs.learned(1).share == pytest.approx(0.75, abs=0.06)
    for name in run.nodes:
        assert run.scheduler._ledger.of(name).cost.predict(5.0) == pytest.approx(0.4, rel=0.2), name


def test_what_jobs_share_is_kept_when_the_tables_are_declared_anew(tmp_path: Path) -> None:
    run = run_of(tmp_path / "before", "one", "two")
    for _ in range(9):
        run.scheduler._joint.jobs.learned(1).observe(1.0, 0.2, 0.9)
    learned = run.scheduler._joint.jobs.learned(1).share
    for tables, share in ((("two", "one"), learned), (("one", "other"), PRIOR_SHARE)):
        now = run_of(tmp_path / tables[1], *tables).scheduler.warehouse
        after = Scheduler(now, RunOptions(together="auto"), run.now, before=run.scheduler)
        assert after._joint.jobs.learned(1).share == share


def test_explain_says_why_together_with_numbers(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two")
    told = str(run.scheduler.explain("one", run.now))
    assert "if it is chosen now, together with 1 of 1 that could share its job: 0.61 s instead of 0.81 s" in told
    run.scheduler.decide(run.now)
    assert "its update shares a job with two" in str(run.scheduler.explain("one", run.now))
    assert "its update shares a job with one" in str(run.scheduler.explain("two", run.now))


def test_explain_counts_what_a_shared_job_takes_in_and_not_what_each_would_alone(tmp_path: Path) -> None:
    quick = CostModel.fitted([(0.0, 0.4), (1000.0, 0.5), (2000.0, 0.6)])
    slow = CostModel.fitted([(0.0, 0.4), (1000.0, 10.4), (2000.0, 20.4)])
    run = Run(
        tmp_path,
        {"one": 3000.0, "two": 3000.0},
        costs={"one": ("", quick), "two": ("", slow)},
        together="auto",
        budget=1.0,
    )
    told = str(run.scheduler.explain("one", run.now))
    (job,) = run.scheduler.decide(run.now)
    assert [update.gained for update in job] == pytest.approx([60.0, 60.0]), "as much as two may take in a second"
    # With the set-up shared by half: 0.406 s for one, and 1 s less 0.2 s for two.
    assert "together with 1 of 1 that could share its job: 1.21 s instead of 1.41 s" in told
    assert "which removes 99.5 weighted staleness per second of work; the first update alone, 4286" in told
    assert "each takes in at most 1 min of data, the limit of two" in told
    assert "when it was last chosen" not in told
    for update in job:
        update.commits(0.5)
        run.scheduler.ended(update, run.now)
    run.scheduler.pause("two", run.now)
    after = str(run.scheduler.explain("one", run.now))
    assert "when it was last chosen first: together with 1 of 1 that could share its job: 1.21 s" in after


def test_explain_says_no_limit_of_others_where_all_take_in_what_they_would_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two")
    assert "the limit of" not in str(run.scheduler.explain("one", run.now))


class RefusingNode(BehindNode):
    """``two`` finds that it has to be rebuilt when it begins, which is the work of another node."""

    must_rebuild = False

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        self.must_rebuild = self.table == "two"
        return not self.must_rebuild and super().begin(update, most_seconds)


def test_the_other_nodes_of_one_that_does_not_begin_in_a_job_are_planned_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, "one", "two", make=RefusingNode)
    other = run.scheduler._nodes.by_name["two (maintenance)"]
    two = run.nodes["two"]
    assert isinstance(two, RefusingNode)
    monkeypatch.setattr(other, "plan", lambda: Update("two", "maintenance") if two.must_rebuild else None)
    assert begun(run) == [["one"]]
    assert [update.name for update in run.scheduler._planned.values()] == ["two (maintenance)"]


@pytest.mark.parametrize(
    ("together", "amount"),
    [
        pytest.param("auto", 600.0, id="0.6 s beside the set-up"),
        pytest.param("declared", 400.0, id="as long as the set-up"),
    ],
)
def test_a_declared_group_shares_a_budget_and_others_have_their_own_by_which_they_were_chosen(
    tmp_path: Path, together: str, amount: float
) -> None:
    cost = CostModel.fitted([(0.0, 0.4), (1000.0, 1.4), (2000.0, 2.4)])
    costs = dict.fromkeys(("one", "two"), ("", cost))
    run = Run(tmp_path, dict.fromkeys(costs, 3000.0), costs=costs, group="all", together=together, budget=1.0)
    (job,) = run.scheduler.decide(run.now)
    assert [update.gained for update in job] == pytest.approx([amount, amount])


def test_to_ask_why_changes_nothing_that_was_learned_but_to_begin_alone_does(tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", "two")
    learned = run.scheduler._joint.jobs.learned(1)
    for _ in range(50):
        learned.observe(1.0, 2.0, 0.8)
    weight = learned._weight
    assert "alone: none of 1" in str(run.scheduler.explain("one", run.now))
    assert learned._weight == weight
    assert begun(run) == [["one"]]
    assert learned._weight < weight


# --- on Spark: one that does not end ---------------------------------------------------------------------------------


class EndlessNode(BehindNode):
    """Its first update does not end before ``go_on``."""

    entered, go_on = threading.Event(), threading.Event()

    def run(self, update: Update, *others: Any) -> None:
        self.entered.set()
        self.go_on.wait()


@pytest.mark.spark
@pytest.mark.slow
def test_a_table_behind_one_that_does_not_end_is_updated_at_once_on_the_free_track(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.warehouse.run.late_updates.CANCEL_SECONDS", 0.0)
    run = run_of(tmp_path, "one", "two", time_limit=1e-9, make=EndlessNode)
    reported: queue.SimpleQueue[Update] = queue.SimpleQueue()
    tracks = Tracks(spark, run.scheduler.node_of, reported.put, time.time)
    late = LateUpdates(tracks)
    tracks.resize(1)
    try:
        (job,) = run.scheduler.decide(run.now)
        assert [update.table for update in job] == ["one", "two"]
        tracks.submit(0, job)
        assert EndlessNode.entered.wait(60.0)
        while not late.look(run.scheduler, run.now):  # each look compares with the one before
            pass
        assert run.scheduler.running.left() == ("one",)
        assert begun(run) == [["two"]]
    finally:
        EndlessNode.go_on.set()
        tracks.close(60.0)
    assert reported.get(timeout=60.0).table == "one", "when it ends after all"
    assert reported.empty(), "the other one has not begun there"


class UnpreparedNode(BehindNode):
    """It fails when it is prepared; the first one of a job does not, and does not end before ``go_on``."""

    entered, go_on = threading.Event(), threading.Event()

    def prepare(self, update: Update, *others: Any) -> None:
        if update.has_joined:
            raise OSError("no space left")

    def run(self, update: Update, *others: Any) -> None:
        self.entered.set()
        self.go_on.wait()


@pytest.mark.spark
@pytest.mark.slow
def test_one_that_failed_when_it_was_prepared_is_not_late_while_it_waits_for_its_turn(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.warehouse.run.late_updates.CANCEL_SECONDS", 0.0)
    run = run_of(tmp_path, "one", "two", make=UnpreparedNode)
    monkeypatch.setattr(run.scheduler, "time_limit", lambda update: 1e-9 if update.table == "two" else math.inf)
    reported: queue.SimpleQueue[Update] = queue.SimpleQueue()
    tracks = Tracks(spark, run.scheduler.node_of, reported.put, time.time)
    late = LateUpdates(tracks)
    tracks.resize(1)
    try:
        (job,) = run.scheduler.decide(run.now)
        tracks.submit(0, job)
        assert UnpreparedNode.entered.wait(60.0)
        assert not any(late.look(run.scheduler, run.now) for _ in range(100)), "the healthy one goes on"
        UnpreparedNode.go_on.set()
        found = [reported.get(timeout=60.0) for _ in range(2)]
    finally:
        UnpreparedNode.go_on.set()
        tracks.close(60.0)
    assert [(update.table, update.error) for update in found] == [("one", None), ("two", "no space left")]


class PatientNode(BehindNode):
    """``one`` waits for ``go_on``; ``ran`` are the tables that were updated."""

    entered, go_on = threading.Event(), threading.Event()
    ran: ClassVar[list[str]] = []

    def run(self, update: Update, *others: Any) -> None:
        self.ran.append(self.table)
        if self.table == "one":
            self.entered.set()
            assert self.go_on.wait(60.0)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("ask", "run_then"), [("pause", ["one", "three"]), ("stop", ["one"])])
def test_pause_and_stop_hold_for_updates_that_wait_for_their_turn_in_a_job(
    tmp_path: Path, spark: SparkSession, ask: str, run_then: list[str]
) -> None:
    PatientNode.entered.clear()
    PatientNode.go_on.clear()
    PatientNode.ran.clear()
    opened = run_of(tmp_path, "one", "two", "three", group="all", make=PatientNode).scheduler.warehouse
    ended: queue.SimpleQueue[Update] = queue.SimpleQueue()
    runtime = Runtime(opened, spark, RunOptions(tracks=1), ended.put)
    runtime.start()
    try:
        assert PatientNode.entered.wait(60.0)
        if ask == "pause":
            runtime.pause("two")
        else:
            runtime.stop_soon()
            runtime.statistics()  # answered after the order to stop
        PatientNode.go_on.set()
        assert [ended.get(timeout=60.0).table for _ in run_then] == run_then
    finally:
        PatientNode.go_on.set()
        runtime.stop()
    assert PatientNode.ran == run_then
    assert {row.name: row.failures for row in runtime.statistics()} == dict.fromkeys(opened.nodes, 0)


# --- on Spark: rows --------------------------------------------------------------------------------------------------

START = datetime(2026, 11, 18, tzinfo=UTC).timestamp()
QUERIES = {
    "hot": "select ts, key, n from readings where n % 3 = 0",
    "sums": "select date_trunc('minute', ts) as ts, key, sum(n) as n from readings group by 1, 2",
    "most": "select date_trunc('minute', ts) as ts, max(n) as n from readings group by 1",
}


def landed(folder: Path, number: int) -> None:
    """A minute of readings in a file."""
    rows = []
    for second in range(60):
        moment = datetime.fromtimestamp(START + 60 * number + second, UTC)
        rows.append({"ts": f"{moment:%Y-%m-%dT%H:%M:%S}Z", "key": f"k{second % 4}", "n": 7 * second + number})
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.mark.spark
@pytest.mark.slow
def test_tables_that_share_jobs_equal_their_queries_also_if_one_of_them_fails(
    tmp_path: Path, spark: SparkSession
) -> None:
    broken = tmp_path / "broken"
    wh = Warehouse("w", tmp_path / "warehouse")
    source = Files(tmp_path / "landing", format="json", schema="ts timestamp, key string, n long", settle=0)
    wh.stream("readings", source, time="ts", partition="1 min")
    for name, query in QUERIES.items():
        wh.sql(name, query, time="ts", partition="1 min")

    @wh.table(name="fragile", time="ts", partition="1 min", mode="append", priority=50)
    def fragile(readings: DataFrame) -> DataFrame:
        if broken.exists():
            raise ValueError("it is broken")
        return readings.where("n % 2 = 0")

    opened = open_warehouse(wh.spec(), spark)
    tables = (*QUERIES, "fragile")
    costs: Mapping[str, tuple[str, CostModel]] = {name: known(0.4, "rows") for name in tables}
    scheduler, now = Scheduler(opened, RunOptions(tracks=1, together="auto"), 100.0, costs=costs), 100.0
    jobs: list[list[Update]] = []
    for number in range(3):
        landed(tmp_path / "landing", number)
        if number == 1:
            broken.touch()
        if number == 2:
            broken.unlink()
        for _ in range(5):
            now += 2.0
            scheduler.poll(now)
            for job in scheduler.decide(now):
                jobs.append(job)
                for update in run_updates(job, scheduler.node_of, spark, time.time):
                    scheduler.ended(update, now)
    shared = [job for job in jobs if len(job) > 1]
    assert any(job[0].table == "fragile" and job[0].error for job in shared), "it failed in a shared job"
    with_it = [job for job in shared if any(update.table == "fragile" for update in job)]
    assert all(update.committed for job in with_it for update in job if update.table != "fragile")
    failed = [job for job in jobs if any(update.error for update in job)]
    assert len(failed) > 1, "it was tried again"
    assert all(len(job) == 1 for job in failed[1:]), "alone"
    spark.read.schema("ts timestamp, key string, n long").json(str(tmp_path / "landing")).createOrReplaceTempView(
        "readings"
    )
    for name, query in {**QUERIES, "fragile": "select * from readings where n % 2 = 0"}.items():
        expected = sorted(tuple(row) for row in spark.sql(query).collect())
        rows = opened.nodes[name].store.arrow().to_pylist()
        columns = spark.sql(query).columns
        assert sorted(tuple(row[column] for column in columns) for row in rows) == sorted(
            tuple(value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for value in row)
            for row in expected
        ), name
