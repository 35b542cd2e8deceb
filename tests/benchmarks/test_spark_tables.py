"""The workload of `spark_tables`, the files that land, and the measure that all contenders are judged by. No Spark."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.catalogue import discover
from benchmarks.spark import arrivals, workload
from benchmarks.spark.arrivals import Landing
from benchmarks.spark.log import LogWriter, Visible, read_log
from benchmarks.spark.measure import Window, fresh_after, staleness, table_staleness, without_waiting

AIR = workload.STREAMS[0]
#: Long ago, so that nothing waits.
START = 1_700_000_000.0


def test_the_folder_is_not_taken_for_a_benchmark() -> None:
    assert "spark" not in discover()


# --- workload ---------------------------------------------------------------------------------------------------------


def test_every_stream_has_five_tables_and_all_names_differ() -> None:
    assert [len(workload.derived(stream.name)) for stream in workload.STREAMS] == [5] * 4
    assert len(set(workload.names())) == 24
    assert set(workload.priorities()) == set(workload.stream_of()) == set(workload.names())


def test_priorities_are_the_documented_spread() -> None:
    spread = [round(100 ** (7 * i % 20 / 19)) for i in range(20)]
    assert [table.priority for table in workload.TABLES] == spread
    assert {stream.priority for stream in workload.STREAMS} == {1}


def test_derived_tables_come_with_the_most_important_first() -> None:
    for stream in workload.STREAMS:
        priorities = [table.priority for table in workload.derived(stream.name)]
        assert priorities == sorted(priorities, reverse=True)


# --- arrivals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speed", [1, 4, 10])
@pytest.mark.parametrize("stream", workload.STREAMS, ids=lambda stream: stream.name)
def test_files_come_more_often_and_smaller_while_the_rows_per_second_stay(stream: workload.Stream, speed: int) -> None:
    files = list(itertools.islice(arrivals.schedule(stream, speed, START, 500), 40))
    gaps = np.diff([file.due for file in files])
    assert gaps == pytest.approx(stream.period / speed, rel=1e-5)
    assert sum(file.rows for file in files) == pytest.approx(500 * 40 * stream.period / speed)
    assert all(before.due == pytest.approx(after.since, abs=1e-5) for before, after in itertools.pairwise(files))


def test_a_file_tells_of_the_time_since_the_previous_one_up_to_the_moment_it_is_due() -> None:
    first, second = itertools.islice(arrivals.schedule(AIR, 4, START, 100), 2)
    pool = arrivals.row_pool(AIR, seed=1)
    rows = [json.loads(line) for line in arrivals.file_text(second, pool).splitlines()]
    times = [datetime.fromisoformat(row["ts"]).timestamp() for row in rows]
    assert len(rows) == second.rows == 50
    assert times == sorted(times)
    assert times[-1] == pytest.approx(second.due, abs=1e-6)
    assert first.due < times[0]
    assert list(rows[0]) == [column.split()[0] for column in workload.SCHEMA.split(", ")]


def test_content_follows_from_the_seed() -> None:
    (file,) = itertools.islice(arrivals.schedule(AIR, 1, START, 100), 1)
    texts = [arrivals.file_text(file, arrivals.row_pool(AIR, seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_streams_of_one_seed_differ() -> None:
    pools = {tuple(arrivals.row_pool(stream, seed=1)) for stream in workload.STREAMS}
    assert len(pools) == len(workload.STREAMS)


def test_no_two_rows_tie_for_the_highest_value() -> None:
    values = [json.loads('{"ts":"' + row)["value"] for row in arrivals.row_pool(AIR, seed=1)]
    assert len(set(values)) == len(values)
    assert 0.03 < sum(value > 82.5 for value in values) / len(values) < 0.08


def test_files_land_whole_and_the_manifest_says_what_landed(tmp_path: Path) -> None:
    past = itertools.islice(arrivals.schedule(AIR, 1, START, 10), 3)
    assert arrivals.run(tmp_path, past, until=START + 3, seed=1) == 2
    files = sorted((tmp_path / "air").iterdir())
    landed = arrivals.read_manifest(tmp_path)
    assert [file.name for file in files] == [each.name for each in landed] == ["air-000000.json", "air-000001.json"]
    assert [len(file.read_text().splitlines()) for file in files] == [each.rows for each in landed] == [20, 20]
    assert [each.last for each in landed] == [START + 0.8, START + 2.8]
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.jsonl", *(s.name for s in workload.STREAMS)}


# --- the log and the measure ------------------------------------------------------------------------------------------


def test_a_log_reads_as_written_and_an_unfinished_line_is_left_out(tmp_path: Path) -> None:
    updates = [Visible("air", START, START - 1), Visible("air_top", START + 0.25, START - 1)]
    path = tmp_path / "new" / "log.jsonl"
    with LogWriter(path) as log:
        log.write(updates)
    with path.open("a") as file:
        file.write('{"table": "air", "vis')
    assert read_log(path) == updates


WINDOW = Window(origin=0.0, start=10.0, end=20.0)


@pytest.mark.parametrize(
    ("updates", "mean", "worst", "count"),
    [
        pytest.param([], 15.0, 20.0, 0, id="never updated: stale since data began"),
        pytest.param([(5, 5)], 10.0, 15.0, 0, id="updated before the window only"),
        pytest.param([(15, 13)], (12.5 * 5 + 4.5 * 5) / 10, 15.0, 1, id="updated in the middle"),
        pytest.param([(25, 24)], 15.0, 20.0, 0, id="updated too late"),
        pytest.param([(9, 8), (15, 8)], 7.0, 12.0, 0, id="an update that brings nothing new does not count"),
        pytest.param([(9, 8), (15, 3)], 7.0, 12.0, 0, id="a table does not get older"),
        pytest.param([(15, 15), (5, 5)], (7.5 * 5 + 2.5 * 5) / 10, 10.0, 1, id="in any order"),
    ],
)
def test_staleness_of_a_table(updates: list[tuple[float, float]], mean: float, worst: float, count: int) -> None:
    log = [Visible("t", visible, fresh) for visible, fresh in updates]
    got = table_staleness(log, WINDOW)
    assert (got.mean, got.worst, got.updates_per_second) == pytest.approx((mean, worst, count / 10))


def test_the_mean_is_the_time_average() -> None:
    chance = np.random.default_rng(5)
    log = [Visible("t", visible, visible - delay) for visible, delay in chance.uniform(0, 20, (30, 2))]
    moments = np.linspace(10, 20, 20_001)
    fresh = [max([0.0, *(u.fresh for u in log if u.visible <= moment)]) for moment in moments]
    assert table_staleness(log, WINDOW).mean == pytest.approx(float(np.mean(moments - fresh)), abs=0.01)
    assert table_staleness(log, WINDOW).worst == pytest.approx(float(np.max(moments - fresh)), abs=0.01)


def test_every_table_is_fresh_when_the_last_one_had_its_first_update_since_the_start() -> None:
    log = [Visible("a", 5.0, 4.0), Visible("a", 13.0, 11.0), Visible("b", 17.0, 12.0), Visible("a", 20.0, 19.0)]
    assert fresh_after(log, ["a", "b"], 10.0) == 7.0
    assert fresh_after(log, ["a", "b"], 18.0) is None, "b has no update since"


def test_staleness_is_weighted_by_priority() -> None:
    log = [Visible("hot", 9, 9), Visible("cold", 9, 4)]
    got = staleness(log, {"hot": 9, "cold": 1}, WINDOW)
    assert got.weighted == pytest.approx((9 * 6 + 1 * 11) / 10)
    assert got.updates_per_second == 0


def test_a_table_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="'colour'"):
        staleness([Visible("colour", 1, 1)], {"air": 1}, WINDOW)


def test_without_waiting_every_table_of_a_stream_is_as_fresh_as_its_last_file() -> None:
    landings = [Landing("air", f"{i}", landed=2.0 * i, last=2.0 * i, rows=1) for i in range(12)]
    got = staleness(without_waiting(landings, {"air": "air", "air_top": "air"}), {"air": 1, "air_top": 3}, WINDOW)
    assert got.weighted == pytest.approx(1.0)
    assert got.tables["air"] == got.tables["air_top"]


@pytest.mark.parametrize("times", [(0, 10, 10), (11, 10, 20)], ids=["empty", "before data began"])
def test_an_impossible_window_is_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="origin <= start < end"):
        Window(*times)
