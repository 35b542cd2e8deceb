"""Tables that are kept by merging groups or by recomputing keys: states, changes between tables, rebuilding."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.storage import history
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.updates import derive
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.maintain import MaintenanceNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.warehouse.storage_helpers import changes
from tests.warehouse.test_opened import START, arrive, assert_all_as_batch, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOTALS = """select who, max(ts) as ts, count(*) as n, sum(v) as v, avg(v) as mean,
    round(stddev(v), 9) as apart, var_pop(v) > 1 as wide,
    max_by(v, ts) as last, sum(v) filter (where v > 2) as large, round(sum(v) / count(*), 1) as per
    from sales group by who"""
LATEST = """select who, ts, v from (select *, row_number() over (partition by who order by ts desc, v desc) as place
    from sales) where place = 1"""


def declared(folder: Path, **tables: dict[str, Any]) -> WarehouseSpec:
    wh = Warehouse("kept", path=str(folder / "warehouse"))
    source = Files(str(folder / "sales"), format="json", schema="ts timestamp, who string, v double", settle=0)
    wh.stream("sales", source, time="ts", partition="10 minutes", max_future=None)
    for name, options in tables.items():
        wh.sql(name, **{"time": "ts", **options})
    return wh.spec()


def sales(chance: random.Random, count: int, minutes: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {
            "ts": (START + timedelta(minutes=chance.uniform(*minutes), seconds=i / 1000)).isoformat(),
            "who": chance.choice(["ann", "bob", "eve", None]),
            "v": chance.choice([None, 0.5, 1.25, 3.0, 4.75]),
        }
        for i in range(count)
    ]


def land(folder: Path, warehouse: OpenWarehouse, spark: SparkSession, name: str, rows: list[dict[str, Any]]) -> None:
    """Rows arrive and are loaded into the stream; the tables are not updated."""
    arrive(folder, "sales", name, rows)
    assert warehouse.nodes["sales"].update(spark) is not None
    warehouse.updated("sales")


def node(warehouse: OpenWarehouse, name: str) -> TableNode:
    found = warehouse.nodes[name]
    assert isinstance(found, TableNode)
    return found


@pytest.mark.parametrize("is_large", [False, True], ids=["through the driver", "by Spark alone"])
def test_merged_groups_equal_the_query_after_every_update(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(derive, "LARGE_BYTES", 0)
    chance = random.Random(1)
    spec = declared(tmp_path, totals={"query": TOTALS})
    warehouse = open_warehouse(spec, spark)
    for number in range(4):
        land(tmp_path, warehouse, spark, str(number), sales(chance, 8, (0, 30 * (number + 1))))
        warehouse.bring_up_to_date(spark)
        assert_all_as_batch(warehouse, spark)
        if number == 1:
            node(warehouse, "totals").backfill(0, 1 << 60)  # from now on, a rebuild is pending
        if number == 2:
            warehouse = open_warehouse(spec, spark)


def test_states_are_hidden_from_readers_and_kept_by_maintenance(tmp_path: Path, spark: SparkSession) -> None:
    chance = random.Random(2)
    warehouse = open_warehouse(declared(tmp_path, totals={"query": TOTALS, "partition": "1 minute"}), spark)
    for number in range(3):
        land(tmp_path, warehouse, spark, str(number), sales(chance, 6, (0, 5)))
        warehouse.bring_up_to_date(spark)
        store = node(warehouse, "totals").store
        store.roll_up(1 << 60, 3600)
        store.compact()
    columns = DeltaTable(store.directory).to_pyarrow_table().column_names
    assert columns == ["who", "ts", "n", "v", "mean", "apart", "wide", "last", "large", "per", "_partition"]
    stored = pq.read_schema(store.path_of(store.files()[0])).names
    assert any(name.startswith("__headgate_") for name in stored)
    assert_all_as_batch(warehouse, spark)
    assert MaintenanceNode(warehouse.nodes["totals"], 60.0).plan() is None


def test_a_table_without_event_time_has_the_freshness_of_its_sources(tmp_path: Path, spark: SparkSession) -> None:
    chance = random.Random(3)
    spec = declared(
        tmp_path,
        totals={"query": "select who, count(*) as n from sales group by who", "time": None, "key": ["who"]},
        latest={"query": LATEST, "time": None, "key": ["who"]},
        frequent={"query": "select who, n from totals where n > 3", "time": None, "key": ["who"]},
        both={
            "query": "select t.who, t.n, l.v from totals t join latest l on t.who = l.who",
            "time": None,
            "key": ["who"],
        },
        best={"query": "select who, n from totals order by n desc, who limit 1", "time": None, "key": ["who"]},
    )
    warehouse = open_warehouse(spec, spark)
    modes = {name: mode.name for name, mode in warehouse.modes.items()}
    assert modes == {"totals": "merge", "latest": "keys", "frequent": "keys", "both": "keys", "best": "whole"}
    for number in range(3):
        land(tmp_path, warehouse, spark, str(number), sales(chance, 5, (0, 30 * (number + 1))))
        warehouse.bring_up_to_date(spark)
        for name in modes:
            assert warehouse.nodes[name].freshness == warehouse.nodes["sales"].freshness
        assert_all_as_batch(warehouse, spark)
        warehouse = open_warehouse(spec, spark)


def test_a_commit_says_which_rows_have_changed_and_no_others(tmp_path: Path, spark: SparkSession) -> None:
    spec = declared(tmp_path, latest={"query": LATEST, "partition": "1 day"})
    warehouse = open_warehouse(spec, spark)
    people = [{"ts": START.isoformat(), "who": f"p{i}", "v": 1.0} for i in range(20)]
    land(tmp_path, warehouse, spark, "first", people)
    warehouse.bring_up_to_date(spark)
    store = node(warehouse, "latest").store
    before = store.version
    later = (START + timedelta(minutes=1)).isoformat()
    land(tmp_path, warehouse, spark, "second", [{"ts": later, "who": "p7", "v": 2.0}, {**people[3], "v": 0.5}])
    warehouse.bring_up_to_date(spark)
    found = changes(store, before)

    def read(files: tuple[DataFile, ...]) -> list[dict[str, Any]]:
        return [row for file in files for row in pq.read_table(store.path_of(file)).to_pylist()]

    assert [(row["who"], row["v"]) for row in read(found.removed)] == [("p7", 1.0)]
    assert [(row["who"], row["v"]) for row in read(found.added)] == [("p7", 2.0)]
    store.vacuum(0.0)
    assert_all_as_batch(warehouse, spark)
    land(tmp_path, warehouse, spark, "third", [{**people[4], "v": 0.25}])
    version = store.version
    warehouse.bring_up_to_date(spark)
    assert (changes(store, version).added, changes(store, version).removed) == ((), ()), "an older row changes nothing"


def test_a_table_that_was_kept_in_another_way_is_rebuilt_first(tmp_path: Path, spark: SparkSession) -> None:
    chance = random.Random(4)
    query = "select date_trunc('minute', ts) as ts, who, avg(v) as v from sales group by 1, 2"
    warehouse = open_warehouse(declared(tmp_path, minutes={"query": query, "mode": "blocks"}), spark)
    land(tmp_path, warehouse, spark, "0", sales(chance, 9, (0, 20)))
    warehouse.bring_up_to_date(spark)
    before = rows_of(node(warehouse, "minutes").store)
    warehouse = open_warehouse(declared(tmp_path, minutes={"query": query}), spark)
    assert (node(warehouse, "minutes").mode.name, node(warehouse, "minutes").rebuild_reason) == (
        "merge",
        "its groups have no states yet",
    )
    assert rows_of(node(warehouse, "minutes").store) == before, "until it is rebuilt, it can be read as it was"
    land(tmp_path, warehouse, spark, "1", sales(chance, 9, (0, 40)))
    assert node(warehouse, "minutes").update(spark) is None, "live updates wait for the rebuild"
    warehouse.bring_up_to_date(spark)
    assert node(warehouse, "minutes").rebuild_reason == ""
    assert_all_as_batch(warehouse, spark)


def lose_the_log(warehouse: OpenWarehouse) -> None:
    """As if the source had been updated for so long that the first entries of its log were cleaned up."""
    store = warehouse.nodes["sales"].store
    store.checkpoint()
    for version in range(store.version):
        history.entry_path(store.directory, version).unlink()


def recompute_the_source(warehouse: OpenWarehouse) -> None:
    node(warehouse, "priced").backfill(0, 1 << 60)


@pytest.mark.parametrize("happens", [lose_the_log, recompute_the_source], ids=lambda function: function.__name__)
def test_a_table_is_rebuilt_if_the_changes_of_its_source_do_not_suffice(
    tmp_path: Path, spark: SparkSession, happens: Callable[[OpenWarehouse], None]
) -> None:
    chance = random.Random(5)
    tables = {
        "priced": {"query": "select ts, who, v from sales where v is not null"},
        "of_priced": {"query": "select who, max(ts) as ts, sum(v) as v from priced group by who"},
        "totals": {"query": TOTALS},
        "latest": {"query": LATEST},
    }
    spec = declared(tmp_path, **tables)
    warehouse = open_warehouse(spec, spark)
    for number in range(2):
        land(tmp_path, warehouse, spark, str(number), sales(chance, 6, (0, 20)))
        warehouse.bring_up_to_date(spark)
    land(tmp_path, warehouse, spark, "late", sales(chance, 6, (0, 20)))
    land(tmp_path, warehouse, spark, "later", sales(chance, 6, (0, 20)))
    happens(warehouse)
    warehouse = open_warehouse(spec, spark)
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)


@pytest.mark.parametrize("happens", ["rewritten", "lost"])
def test_no_commit_names_a_version_of_a_source_that_it_cannot_take_in(
    tmp_path: Path, spark: SparkSession, happens: str
) -> None:
    chance = random.Random(7)
    tables = {
        "priced": {"query": "select ts, who, v from sales where v is not null"},
        "totals": {"query": "select who, max(ts) as ts, sum(v) as v from priced group by who"},
        "latest": {"query": LATEST.replace("from sales", "from priced")},
    }
    spec = declared(tmp_path, **tables)
    warehouse = open_warehouse(spec, spark)
    land(tmp_path, warehouse, spark, "0", sales(chance, 9, (0, 20)))
    warehouse.bring_up_to_date(spark)
    priced = node(warehouse, "priced")
    names = ["totals"] if happens == "rewritten" else ["totals", "latest"]
    land(tmp_path, warehouse, spark, "1", sales(chance, 9, (0, 20)))
    assert priced.update(spark) is not None
    warehouse.updated("priced")
    updates = {name: node(warehouse, name).plan() for name in names}
    # Between planning and beginning, before anybody has taken notice.
    priced.backfill(0, 1 << 60)
    assert BackfillNode(priced).update(spark) is not None
    if happens == "lost":
        priced.store.checkpoint()
        for version in range(priced.store.version):
            history.entry_path(priced.store.directory, version).unlink()
    for name in names:
        update = updates[name]
        assert update is not None
        assert not node(warehouse, name).begin(update)
        assert node(warehouse, name).rebuild_reason
    warehouse = open_warehouse(spec, spark)  # as after a crash
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)


def test_the_state_of_a_table_is_parsed_once_per_commit(tmp_path: Path, spark: SparkSession) -> None:
    warehouse = open_warehouse(declared(tmp_path, totals={"query": TOTALS}), spark)
    totals = node(warehouse, "totals")
    for number in range(2):
        before = totals.state
        assert totals.state is before
        land(tmp_path, warehouse, spark, str(number), sales(random.Random(number), 3, (0, 20)))
        warehouse.bring_up_to_date(spark)
        assert totals.state.update == before.update + 1


def test_a_source_that_is_rewritten_while_a_table_is_rebuilt_has_it_rebuilt_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    chance = random.Random(6)
    tables = {
        "priced": {"query": "select ts, who, v from sales where v is not null"},
        "totals": {"query": "select who, max(ts) as ts, sum(v) as v from priced group by who"},
    }
    warehouse = open_warehouse(declared(tmp_path, **tables), spark)
    land(tmp_path, warehouse, spark, "0", sales(chance, 9, (0, 20)))
    warehouse.bring_up_to_date(spark)
    priced, totals = node(warehouse, "priced"), node(warehouse, "totals")

    def rewrite() -> None:
        priced.backfill(0, 1 << 60)
        assert BackfillNode(priced).update(spark) is not None
        warehouse.updated("priced")

    rewrite()
    assert totals.rebuild_reason == "rows of 'priced' have changed after they were added"
    rebuild = BackfillNode(totals)
    update = rebuild.plan()
    assert update is not None
    assert rebuild.begin(update)
    rewrite()  # after the rebuild has chosen what it reads
    rebuild.run(update, spark)
    update.commits(update.work)
    rebuild.end(update)
    assert totals.rebuild_reason == "rows of 'priced' have changed after they were added"
    warehouse.bring_up_to_date(spark)
    assert totals.rebuild_reason == ""
    assert_all_as_batch(warehouse, spark)
