"""Stream queries inside tables: the table is that of one serial run, over restarts, with states where commits say."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.core.errors import DeclarationError, UserCodeError
from headgate.stream import Collect, Query, Reject, Stream, from_batches, on_spark, run
from headgate.stream.spark.hosted_frame import HostedFrame
from headgate.stream.spark.passes import rows_of_all
from headgate.stream.spark.state_files import SnapshotError
from headgate.stream.spark.update import state_folder
from headgate.warehouse.declare.analysis import apply_query
from headgate.warehouse.run.tracks import run_updates
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.derived_table import TableNode
from headgate.warehouse.updates.hosted import HostedQueries
from headgate.warehouse.updates.open_warehouse import OnChange, OpenWarehouse, open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = "ts timestamp, user long, price double"
ARROW = pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.int64()), ("price", pa.float64())])


def totals(stream: Stream) -> Stream:
    """Each row with what its user has spent so far."""
    with_key = stream.filter(pc.field("price") > 1).key_by("user")
    return with_key.fold(_spend, 0.0, pa.schema([*ARROW, ("spent", pa.float64())]))


def _spend(spent: float, row: Any) -> tuple[float, list[dict[str, Any]]]:
    return spent + row["price"], [{**row, "spent": spent + row["price"]}]


def warehouse(folder: Path, mode: str = "append") -> hg.Warehouse:
    wh = hg.Warehouse("streams", folder / "warehouse")
    landing = folder / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    source = hg.Files(str(landing), format="json", schema=SCHEMA, settle=0)
    wh.stream("clicks", source, time="ts", partition="1 hour", period=2.0)

    @wh.table(time="ts", mode=mode, partition="1 hour")
    def spent(clicks: DataFrame) -> DataFrame:
        return on_spark(clicks, totals, keys=["user"], time="ts", buckets=2)

    return wh


def land(folder: Path, number: int, count: int = 40) -> list[dict[str, Any]]:
    """A file of rows, each a second after the one before."""
    first = number * count
    rows = [
        {"ts": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z", "user": n % 7, "price": float(n % 5)}
        for n in range(first, first + count)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "landing" / f"{number:04d}.json").write_text(text, encoding="utf-8")
    return rows


def bring_up_to_date(opened: OpenWarehouse, spark: SparkSession) -> None:
    for name in ("clicks", "spent"):
        while opened.nodes[name].update(spark) is not None:
            opened.updated(name)
        opened.updated(name)


def by_user(rows: list[dict[str, Any]]) -> dict[int, list[tuple[Any, float]]]:
    found: dict[int, list[tuple[Any, float]]] = {}
    for row in sorted(rows, key=lambda row: (row["user"], row["ts"])):
        found.setdefault(row["user"], []).append((row["ts"], row["spent"]))
    return found


def serially(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    typed = pa.Table.from_pylist(rows, pa.schema([("ts", pa.string()), *list(ARROW)[1:]]))
    stamps = pc.strptime(typed.column("ts"), "%Y-%m-%dT%H:%M:%SZ", "us").cast(ARROW.field("ts").type)
    sink, query = Collect(), Query("q")
    totals(query.source(from_batches(typed.set_column(0, "ts", stamps)))).to(sink)
    run(query, workers=1)
    return sink.rows()


def test_a_table_goes_on_from_its_states_after_every_update_and_restart(spark: SparkSession, tmp_path: Path) -> None:
    landed: list[dict[str, Any]] = []
    for number in range(4):
        opened = open_warehouse(warehouse(tmp_path).spec(), spark)
        landed += land(tmp_path, number)
        bring_up_to_date(opened, spark)
    store = opened.nodes["spent"].store
    found = store.rows(store.files()).to_pylist()
    assert by_user(found) == by_user(serially(landed))
    queries: Any = store.state["queries"]
    named = {name for chain in queries["query"]["files"].values() for name in chain}
    assert named <= {path.name for path in state_folder(store.directory).iterdir()}
    assert len(named) == 2


def test_a_table_with_states_must_be_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="holds a stream query with states"):
        open_warehouse(warehouse(tmp_path, mode="recompute").spec(), spark)


# --- rows that queries cannot take --------------------------------------------------------------------------


def per_user(stream: Stream) -> Stream:
    return stream.filter(_not_too_cheap, over="row").key_by("user").running(n="count", last=("max", "ts"))


def _not_too_cheap(row: dict[str, Any]) -> bool:
    if row["price"] == 0:
        raise Reject("a price of nothing")
    return True


def counting(folder: Path, build: Any = per_user, buckets: int = 2, tables: tuple[str, ...] = ("counts",)) -> Any:
    """A warehouse with tables that count, all in one group."""
    wh = hg.Warehouse("streams", folder / "warehouse")
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    source = hg.Files(str(folder / "landing"), format="json", schema=SCHEMA, settle=0)
    wh.stream("clicks", source, time="ts", partition="1 hour", period=2.0)
    for name in tables:

        def counted(clicks: DataFrame) -> DataFrame:
            made = on_spark(clicks, build, keys=["user"], time="ts", buckets=buckets)
            return made.withColumnRenamed("last", "ts")

        wh.table(name=name, time="ts", mode="append", partition="1 hour", group="all")(counted)
    return wh


def update_all(opened: OpenWarehouse, spark: SparkSession) -> None:
    opened.bring_up_to_date(spark)


def rejected_rows(folder: Path, table: str = "counts") -> list[dict[str, Any]]:
    store = TableStore(folder / "warehouse" / "tables" / f"{table}__rejected")
    return list(store.arrow().to_pylist()) if store.exists else []


def test_rows_that_a_query_rejects_are_in_a_table_of_their_own_once_each(spark: SparkSession, tmp_path: Path) -> None:
    bad: list[float] = []
    for number in range(3):
        opened = open_warehouse(counting(tmp_path).spec(), spark)
        bad += [row["price"] for row in land(tmp_path, number) if row["price"] == 0]
        opened.nodes["clicks"].update(spark)
        opened.updated("clicks")
        update = opened.nodes["counts"].update(spark)
        assert update is not None
        assert update.rejected == 8
        assert [figure.rejected for figure in update.operators if figure.name == "_not_too_cheap"] == [8]
    found = rejected_rows(tmp_path)
    assert len(found) == len(bad) == 24
    assert {row["reason"] for row in found} == {"a price of nothing"}
    assert {row["operator"] for row in found} == {"_not_too_cheap"}


def test_rejected_rows_are_not_lost_if_the_process_dies_between_the_two_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_warehouse(counting(tmp_path).spec(), spark)
    land(tmp_path, 0)

    with monkeypatch.context() as patched:
        opened.nodes["clicks"].update(spark)
        opened.updated("clicks")
        update = opened.nodes["counts"].plan()
        assert update is not None and opened.nodes["counts"].begin(update)
        commit_rejected, calls = HostedQueries.commit_rejected, []

        def second_dies(self: HostedQueries) -> None:
            calls.append(1)
            if len(calls) > 1:
                raise KeyboardInterrupt
            commit_rejected(self)

        patched.setattr(HostedQueries, "commit_rejected", second_dies)
        with pytest.raises(KeyboardInterrupt):
            opened.nodes["counts"].run(update, spark)
    assert rejected_rows(tmp_path) == []
    again = open_warehouse(counting(tmp_path).spec(), spark)
    assert len(rejected_rows(tmp_path)) == 8
    update_all(again, spark)
    land(tmp_path, 1)
    update_all(again, spark)
    assert len(rejected_rows(tmp_path)) == 16


# --- several tables, one pass -------------------------------------------------------------------------------


def test_tables_of_a_group_are_served_by_one_job_and_a_broken_one_hurts_nobody(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = counting(tmp_path, tables=("first", "second"))

    @wh.table(time="ts", mode="append", partition="1 hour", group="all")
    def third(clicks: DataFrame) -> HostedFrame:
        return on_spark(clicks, failing, keys=["user"], time="ts", buckets=2)

    opened = open_warehouse(wh.spec(), spark)
    shared: list[int] = []
    monkeypatch.setattr(
        "headgate.stream.spark.update.rows_of_all",
        lambda requests, reports: shared.append(len(requests)) or rows_of_all(requests, reports),
    )
    calls: Counter[str] = Counter()
    monkeypatch.setattr(
        "headgate.warehouse.updates.derive.apply_query",
        lambda spec, frames, spark: calls.update([spec.name]) or apply_query(spec, frames, spark),
    )
    for number in range(2):
        land(tmp_path, number)
        opened.nodes["clicks"].update(spark)
        opened.updated("clicks")
        planned = [opened.nodes[name].plan() for name in ("first", "second", "third")]
        updates = [update for update in planned if update is not None and opened.nodes[update.name].begin(update)]
        assert len(updates) == 3
        for update in run_updates(updates, lambda update: opened.nodes[update.name], spark, time.time):
            opened.nodes[update.name].end(update)
        # the broken table has not taken in the first file, so the second time it reads other rows
        assert shared.pop() == 3 - number
        assert not shared
        assert [update.status for update in updates] == ["committed", "committed", "failed"]
        assert re.search(r"table 'third' failed: .* operator 'always' failed", str(updates[2].error))
        assert calls == {"first": number + 1, "second": number + 1, "third": number + 1}, "once for every update"
    alone = tmp_path / "alone"
    other = open_warehouse(counting(alone).spec(), spark)
    for number in range(2):
        land(alone, number)
        update_all(other, spark)
    expected = sorted(map(str, other.nodes["counts"].store.arrow().to_pylist()))
    for name in ("first", "second"):
        assert sorted(map(str, opened.nodes[name].store.arrow().to_pylist())) == expected
    assert not opened.nodes["third"].store.exists


def failing(stream: Stream) -> Stream:
    return stream.map(_fails, name="always").key_by("user").dedupe()


def _fails(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows:
        raise RuntimeError("always")
    return batch


# --- changed queries ----------------------------------------------------------------------------------------


def with_total(stream: Stream) -> Stream:
    rows = stream.filter(_not_too_cheap, over="row").key_by("user")
    return rows.running(n="count", last=("max", "ts"), total=("sum", "price"))


@pytest.mark.parametrize("on_change", ["rebuild", "keep"])
def test_a_query_that_has_changed_is_rebuilt_or_asks_for_a_rebuild_which_runs_as_a_backfill(
    spark: SparkSession, tmp_path: Path, on_change: OnChange
) -> None:
    update_all(open_warehouse(counting(tmp_path).spec(), spark), spark)
    land(tmp_path, 0)
    update_all(open_warehouse(counting(tmp_path).spec(), spark), spark)
    land(tmp_path, 1)
    changed = open_warehouse(counting(tmp_path, with_total).spec(), spark, on_change=on_change)
    changed.nodes["clicks"].update(spark)
    changed.updated("clicks")
    node = changed.nodes["counts"]
    assert isinstance(node, TableNode)
    if on_change == "keep":
        with pytest.raises(UserCodeError, match=r"states do not fit any more: .* headgate backfill"):
            node.update(spark)
        node.backfill(0, 1 << 62)
    assert node.plan() is None, "what is new is taken in by the rebuild"
    assert changed.bring_up_to_date(spark) == 1
    land(tmp_path, 2)
    update_all(changed, spark)
    fresh = tmp_path / "fresh"
    expected = open_warehouse(counting(fresh, with_total).spec(), spark)
    for number in range(3):
        land(fresh, number)
    update_all(expected, spark)
    assert rows_in(changed) == rows_in(expected)
    assert len(rows_in(changed)) == 96
    assert len(rejected_rows(tmp_path)) == 24, "those of the rebuild instead of those from before"


def rows_in(opened: OpenWarehouse) -> list[str]:
    return sorted(map(str, opened.nodes["counts"].store.arrow().to_pylist()))


def test_a_source_that_was_computed_again_has_the_table_built_anew(spark: SparkSession, tmp_path: Path) -> None:
    opened = open_warehouse(counting(tmp_path).spec(), spark)
    land(tmp_path, 0)
    update_all(opened, spark)
    before = rows_in(opened)
    clicks = opened.nodes["clicks"].store
    update = int(opened.nodes["clicks"].state.update) + 1
    kept = clicks.arrow().drop_columns(["_partition"]).slice(0, 30)
    files = clicks.write_arrow(update, kept, 3600.0)
    state = {**clicks.state, "update": update}
    clicks.commit(update, files, replace=ALL, state=state, schema=clicks.schema)
    opened.updated("clicks")
    update_all(opened, spark)
    assert len(before) == 32
    assert len(rows_in(opened)) == 24


def damage(folder: Path, pattern: str) -> None:
    """Flip a bit in each file of a table's states or rejected rows."""
    files = list(state_folder(folder / "warehouse" / "tables" / "counts").glob(pattern))
    assert files
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])


def test_a_table_whose_states_are_damaged_is_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    update_all(open_warehouse(counting(tmp_path / "before").spec(), spark), spark)
    land(tmp_path / "before", 0)
    update_all(open_warehouse(counting(tmp_path / "before").spec(), spark), spark)
    # In another place, because workers remember states by their place.
    folder = tmp_path / "after"
    shutil.copytree(tmp_path / "before", folder)
    damage(folder, "u*.state")
    opened = open_warehouse(counting(folder).spec(), spark)
    land(folder, 1)
    with pytest.raises(SnapshotError, match="its checksum differs"):
        update_all(opened, spark)
    node = opened.nodes["counts"]
    assert "its checksum differs" in node.rebuild_reason
    opened.bring_up_to_date(spark)
    assert node.rebuild_reason == ""
    land(tmp_path / "before", 1)
    expected = open_warehouse(counting(tmp_path / "before").spec(), spark)
    update_all(expected, spark)
    assert rows_in(opened) == rows_in(expected)
    assert len(rejected_rows(folder)) == len(rejected_rows(tmp_path / "before")) > 0


def test_a_table_whose_rejected_rows_are_damaged_before_their_commit_is_rebuilt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_in = counting(tmp_path).spec()
    land(tmp_path, 0)
    with monkeypatch.context() as dying:
        dying.setattr(HostedQueries, "commit_rejected", lambda _: None)
        update_all(open_warehouse(land_in, spark), spark)
    assert rejected_rows(tmp_path) == []
    damage(tmp_path, "rejected-*.state")
    opened = open_warehouse(counting(tmp_path).spec(), spark)
    land(tmp_path, 1)
    with pytest.raises(SnapshotError, match="its checksum differs"):
        update_all(opened, spark)
    opened.bring_up_to_date(spark)
    assert len(rows_in(opened)) == 64
    assert len(rejected_rows(tmp_path)) == 16
