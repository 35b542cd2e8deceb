"""When a table is expected to be updated, and what would have to change for it to meet its target."""

from __future__ import annotations

import pytest

from headgate.core import Decision, Ranked, Update
from headgate.core.trace import TraceHeader, TraceTable
from headgate.monitor.prospects import needs, prospects, seconds_until
from headgate.monitor.record import RunRecord
from headgate.monitor.watch import RunWatch
from headgate.warehouse.updates.repairs import Repairs
from tests.monitor.pretended import PretendedRun


@pytest.mark.parametrize(
    ("queue", "running", "tracks", "expected"),
    [
        pytest.param([], [], 1, None, id="nothing waits"),
        pytest.param(["a"], [], 1, 0.0, id="a track is free"),
        pytest.param(["b", "a"], [], 1, 4.0, id="behind another one"),
        pytest.param(["b", "a"], [], 2, 0.0, id="beside another one"),
        pytest.param(["b", "a"], [("c", 1.0, 0)], 1, 5.0, id="behind one that runs and one that waits"),
        pytest.param(["a"], [("c", 9.0, 0)], 1, 0.0, id="one that should have ended ends at once"),
        pytest.param(["a"], [("b", 1.0, 0), ("c", 0.0, 1)], 1, 2.0, id="a track was taken away"),
        pytest.param(["a"], [("b", 1.0, 0), ("c", 0.0, 0)], 2, 0.0, id="beside two of one track"),
        pytest.param(["a"], [("b", 1.0, 0), ("c", 0.0, 0)], 1, 5.0, id="behind two of one track"),
    ],
)
def test_an_update_begins_when_those_ahead_of_it_are_done(
    queue: list[str], running: list[tuple[str, float, int]], tracks: int, expected: float | None
) -> None:
    assert seconds_until("a", queue, running, tracks, {"a": 1.0, "b": 4.0, "c": 2.0}) == expected


def record_of(*updates: tuple[str, float, float], target: float | None = 10.0) -> RunRecord:
    """A stream s, a table t of it and another one on one track, with updates that (table, waited, took)."""
    tables = (TraceTable("s", kind="stream"), TraceTable("t", sources=("s",), target_lag=target), TraceTable("other"))
    record = RunRecord(TraceHeader("city", 0.0, 1, "max-benefit", "proportional", "max", None, tables, None))
    at = 0.0
    for table, waited, took in updates:
        update = Update(table, track=0, released=at + 1.0, began=at + 1.0 + waited, work=took)
        update.commits(took)
        record.updated(update)
        at += 100.0
    record.at = at + 100.0
    record.tables["t"].now = {"priority": 2.0}
    return record


@pytest.mark.parametrize(
    ("record", "said"),
    [
        pytest.param(record_of(target=None), "It has no target", id="no target"),
        pytest.param(record_of(("s", 1.0, 1.0)), "Nothing is known yet", id="never updated"),
        pytest.param(record_of(("s", 1.0, 1.0), ("t", 2.0, 3.0)), "So it meets its target", id="met"),
        pytest.param(record_of(("s", 0.0, 6.0), ("t", 0.0, 5.0)), "The updates alone take 11 s", id="too much work"),
        pytest.param(record_of(("s", 4.0, 1.0), ("t", 8.0, 1.0)), "may wait 8 s at most", id="waits too long"),
    ],
)
def test_what_a_table_needs_depends_on_the_way_of_its_oldest_data(record: RunRecord, said: str) -> None:
    assert said in " ".join(needs(record, "t", ()))


def test_the_way_is_that_of_the_slowest_source() -> None:
    text = needs(record_of(("s", 4.0, 1.0), ("t", 8.0, 1.0)), "t", ())[0]
    assert "about 14 s after it has arrived (target 10 s): s waits 4 s and takes 1 s; t waits 8 s" in text


def test_a_lost_decision_tells_the_priority_that_would_have_won() -> None:
    record = record_of(("s", 0.0, 1.0), ("t", 30.0, 1.0))
    ranking = (Ranked("s", (0.0, 6.0), 1.0), Ranked("t", (0.0, 1.5), 1.0))
    decisions = tuple(Decision(turn, 1.0, "s", 0, "policy", "max-benefit", ranking) for turn in (3, 2))
    told = prospects(record, "t", decisions)
    assert any("a priority above 8 instead of 2" in line for line in told["needs"])
    assert not any("a priority above" in line for line in needs(record, "t", ()))


def test_a_running_backfill_lasts_as_long_as_backfills_do() -> None:
    record = record_of(("t", 0.0, 1.0))
    backfill = Update("other", layer="backfill", track=0, released=1.0, began=1.0)
    backfill.commits(90.0)
    record.updated(backfill)
    record.running = [{"name": backfill.name, "table": "other", "layer": "backfill", "track": 0, "began": record.at}]
    record.queue = [{"name": "t", "priority": [1.0]}]
    assert prospects(record, "t", ())["begins"] == pytest.approx(90.0)


def test_a_table_far_down_a_ranking_is_told_of_with_its_place() -> None:
    class Long(PretendedRun):
        def decisions(self, name: str) -> tuple[Decision, ...]:
            ranking = tuple(Ranked(f"t{place}", (1.0,), 0.5) for place in range(1, 50))
            ranking = (*ranking[:39], Ranked(name, (0.5,), 9.0), *ranking[39:])
            return (Decision(1, 1.0, "t1", 0, "policy", "fifo", ranking),) * 64

    watch = RunWatch(every=None)
    Long(watch, tables=3)
    watch.look()
    told = watch.why("table001")
    assert [each["place"] for each in told["decisions"][0]["ranking"]] == [*range(1, 21), 40]


def test_more_data_is_expected_when_the_scheduler_says_so_and_not_of_a_table_that_is_halted() -> None:
    watch = RunWatch(every=None)
    run = PretendedRun(watch, tables=3)
    run.expected["table001"] = 4_000_000_000.0
    watch.look()
    assert watch.why("table001")["expected"] == 4_000_000_000.0
    assert watch.why("table002")["expected"] is None
    run.pause("table001")
    watch.look()
    assert watch.why("table001")["expected"] is None


def test_the_share_of_a_backfill_that_is_done_is_of_the_most_that_was_left() -> None:
    watch = RunWatch(every=None)
    run = PretendedRun(watch, tables=3)

    def told(seconds: float | None) -> tuple[object, object]:
        run.repairs = {} if seconds is None else {"table001": Repairs(0, 1, seconds)}
        watch.look()
        table = watch.table("table001")
        return table["repairs"], table["repaired"]

    assert told(None) == (None, None)
    assert told(200.0) == (200.0, 0.0)
    assert told(50.0) == (50.0, 0.75)
    assert told(400.0) == (400.0, 0.0), "another one was asked for"
    assert told(100.0) == (100.0, 0.75)
    assert told(None) == (None, None)
    assert told(10.0) == (10.0, 0.0)
    run.repairs = {"table001": Repairs(-(10**18), 1, 6.4e10)}
    watch.look()
    assert watch.table("table001")["repaired"] is None, "all of the past: nobody knows how much that is"


def test_busy_tracks_are_a_reason_to_wait() -> None:
    idle = record_of(("t", 30.0, 1.0), ("other", 0.0, 1.0))
    busy = record_of(("t", 30.0, 1.0), *[("other", 0.0, 100.0)] * 30)
    assert not any("The tracks are busy" in line for line in needs(idle, "t", ()))
    assert any("The tracks are busy 9" in line for line in needs(busy, "t", ()))
