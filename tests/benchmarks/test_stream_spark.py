"""What the benchmarks of queries inside tables compare: the peers' sessions, Q1 by the hour, the rows that land. No
Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from benchmarks.harness.catalogue import discover
from benchmarks.stream_spark import rows, running_totals, sessionising, ticket_pairs
from benchmarks.stream_spark.sessions_peers import Held, divided
from headgate.stream import Collect, Query, Stream, from_batches, run
from workloads.tpcxbb import q1
from workloads.tpcxbb.clicks import web_clickstreams
from workloads.tpcxbb.sales import store_sales

HOUR = 3_600


def ran(build: object, table: pa.Table) -> pa.Table:
    sink, query = Collect(), Query("q")
    assert callable(build)
    stream: Stream = build(query.source(from_batches(table)))
    stream.to(sink)
    run(query, workers=1)
    return sink.table()


def test_the_folder_of_helpers_is_not_taken_for_a_benchmark() -> None:
    assert "stream_spark" not in discover()


def test_seconds_of_the_workload_survive_the_landed_timestamps() -> None:
    sales = store_sales(1_000, seed=1)
    landed = rows.stamped(sales)
    assert landed.schema.field("ts").type == rows.TIMESTAMP
    assert landed.column("ts")[0].as_py().year == 2001
    (batch,) = landed.combine_chunks().to_batches()
    assert rows.with_seconds(batch).column("ts").equals(sales.column("ts").combine_chunks())


@pytest.mark.parametrize("files", [1, 3, 7])
def test_cutting_loses_no_row(files: int) -> None:
    table = pa.table({"n": list(range(20))})
    parts = rows.cut(table, files)
    assert len(parts) == files
    assert pa.concat_tables(parts).equals(table)


def test_a_landed_file_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    path = rows.land(pa.table({"n": [1]}), tmp_path / "new", "a")
    assert [each.name for each in path.parent.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("cuts", [1, 2, 5], ids=["at once", "in two parts", "in five parts"])
def test_the_peers_find_the_sessions_that_headgate_finds(cuts: int) -> None:
    clicks = web_clickstreams(6_000, seed=1, customers=40)
    found = ran(sessionising.sessions, rows.stamped(clicks))
    triggers = rows.as_seconds(found.column("trigger").combine_chunks())
    expected = sorted(
        (int(trigger), tuple(items))
        for trigger, items in zip(triggers, found.column("items").to_pylist(), strict=True)
        # sessions that the end of the stream closes have no trigger, and peers keep them open
        if trigger > 0
    )
    assert sorted(_by_peer(clicks.to_pandas(), cuts)) == expected
    assert len(expected) > 100


def _by_peer(clicks: pd.DataFrame, cuts: int) -> list[tuple[int, tuple[int, ...]]]:
    known = clicks[(clicks["user"] >= 0) & (clicks["item"] >= 0)]
    held: dict[int, Held] = {}
    found: list[tuple[int, tuple[int, ...]]] = []
    for part in np.array_split(np.arange(len(known)), cuts):
        for user, frame in known.iloc[part].groupby("user"):
            # Spark promises no order inside a group
            closed, held[user] = divided(held.get(user), iter([frame.iloc[::-1]]))
            if closed is not None:
                found += [(int(t), tuple(map(int, i))) for t, i in zip(closed["trigger"], closed["items"], strict=True)]
    return found


def test_q1_by_the_hour_is_q1() -> None:
    sales = store_sales(30_000, seed=1, lines_per_hour=5_000.0)
    hours = pa.array(sales.column("ts").to_numpy() // HOUR)
    by_hour = ran(ticket_pairs.top_pairs, rows.stamped(sales).append_column(ticket_pairs.KEY, hours))
    sink = Collect()
    run(q1.query(from_batches(sales), sink, q1.PAPER), workers=1)
    expected = sink.table()
    # buckets of hours follow each other in any order
    ranked = by_hour.select(expected.column_names).sort_by([("window", "ascending"), ("rank", "ascending")])
    assert ranked.equals(expected.combine_chunks())
    assert expected.num_rows > 500


@pytest.mark.parametrize("of", [20_000, 5_000_000])
def test_keys_to_touch_differ_and_spread(of: int) -> None:
    keys = np.concatenate([running_totals.some_keys(of // 100, of, number * (of // 100)) for number in range(100)])
    assert len(np.unique(keys)) == of
    assert np.unique(keys[: of // 100] * 8 // of).tolist() == list(range(8))
