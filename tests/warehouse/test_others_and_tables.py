"""Others delete, replace or change tables on disk: every table becomes what its query says again, by itself."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headgate.core import UserCodeError
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.errors import DamagedFileError, ForeignCommitError, TableVanishedError
from headgate.warehouse.storage.history import entry_path
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.derived_table import TableNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.warehouse.test_opened import START, arrive, assert_all_as_batch, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: one table of each mode over the stream, and one over another table
TABLES: dict[str, dict[str, Any]] = {
    "copied": {"query": "select ts, who, v from sales where v > 0", "time": "ts"},
    "minutes": {
        "query": "select date_trunc('minute', ts) as ts, count(distinct who) as n from sales group by 1",
        "time": "ts",
    },
    "totals": {"query": "select who, max(ts) as ts, sum(v) as v from sales group by who", "time": "ts"},
    "latest": {
        "query": """select who, ts, v from (select *, row_number() over (partition by who order by ts desc, v desc)
            as place from sales) where place = 1""",
        "time": "ts",
        "partition": "1 day",
    },
    "per_who": {"query": "select who, max(ts) as ts, count(*) as n from latest group by who", "time": "ts"},
}


def declared(folder: Path) -> WarehouseSpec:
    wh = Warehouse("others", path=str(folder / "warehouse"))
    source = Files(str(folder / "sales"), format="json", schema="ts timestamp, who string, v double", settle=0)
    wh.stream("sales", source, time="ts", partition="10 minutes", max_future=None)
    for name, options in TABLES.items():
        wh.sql(name, **{"partition": "10 minutes", **options})
    return wh.spec()


def land(folder: Path, number: int) -> None:
    """Three rows; one of them is bad."""
    moment = START + timedelta(minutes=7 * number)
    rows: list[dict[str, Any] | str] = [
        {"ts": (moment + timedelta(seconds=i)).isoformat(), "who": f"p{(number + i) % 3}", "v": float(number + i)}
        for i in range(3)
    ]
    arrive(folder, "sales", str(number), [*rows, "bad"])


def node(warehouse: OpenWarehouse, name: str) -> TableNode:
    found = warehouse.nodes[name]
    assert isinstance(found, TableNode)
    return found


def bring_up_to_date(warehouse: OpenWarehouse, spark: SparkSession) -> None:
    """As a run does: what failed because others interfered is tried again."""
    for _ in range(4):
        try:
            warehouse.bring_up_to_date(spark)
        except (TableVanishedError, ForeignCommitError):
            continue
        return
    raise AssertionError("it did not recover")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A warehouse that has loaded two files, made once and copied for every test."""
    folder = tmp_path_factory.mktemp("begun")
    warehouse = open_warehouse(declared(folder), spark)
    for number in range(2):
        land(folder, number)
        warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    return folder


@pytest.fixture
def loaded(begun: Path, tmp_path: Path, spark: SparkSession) -> OpenWarehouse:
    """A warehouse that runs: it has updated each of its tables itself."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    warehouse = open_warehouse(declared(tmp_path), spark)
    land(tmp_path, 2)
    warehouse.bring_up_to_date(spark)
    return warehouse


def folder_of(warehouse: OpenWarehouse, name: str) -> Path:
    return warehouse.nodes[name].store.directory


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_table_whose_folder_was_deleted_comes_back_and_so_do_those_built_on_it(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse, restarted: bool
) -> None:
    warehouse = loaded
    for files, name in enumerate(["sales", *TABLES], start=4):
        shutil.rmtree(folder_of(warehouse, name))
        warehouse = open_warehouse(declared(tmp_path), spark) if restarted else warehouse
        land(tmp_path, files - 1)
        bring_up_to_date(warehouse, spark)
        assert len(rows_of(warehouse.nodes["sales"].store)) == 3 * files
        assert len(rows_of(warehouse.nodes["copied"].store)) == 3 * files - 1
        assert_all_as_batch(warehouse, spark)
        rejected = warehouse.nodes["sales"].rejected
        assert rejected is not None and rejected.statistics().rows == files, "each bad row once"


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_source_made_anew_is_recognised_even_at_the_version_that_was_consumed(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse, restarted: bool
) -> None:
    before = loaded.nodes["sales"].store.version
    shutil.rmtree(folder_of(loaded, "sales"))
    shutil.rmtree(tmp_path / "sales")
    for number in range(10, 13):
        land(tmp_path, number)
        loaded.nodes["sales"].store.look()
        loaded.nodes["sales"].update(spark)  # nobody tells the tables built on it
    assert loaded.nodes["sales"].store.version == before
    warehouse = open_warehouse(declared(tmp_path), spark) if restarted else loaded
    if not restarted:
        warehouse.updated("sales")
    assert "was deleted and made anew" in node(warehouse, "totals").rebuild_reason
    warehouse.bring_up_to_date(spark)
    assert len(rows_of(warehouse.nodes["copied"].store)) == 9
    assert_all_as_batch(warehouse, spark)


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_rows_that_another_program_deleted_from_a_table_are_computed_again_and_from_a_stream_are_gone(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse, restarted: bool
) -> None:
    warehouse = loaded
    for files, name in enumerate(["sales", *TABLES], start=4):
        DeltaTable(folder_of(warehouse, name)).delete("true" if name == "minutes" else "who = 'p1'")
        warehouse = open_warehouse(declared(tmp_path), spark) if restarted else warehouse
        land(tmp_path, files - 1)
        bring_up_to_date(warehouse, spark)
        assert len(rows_of(warehouse.nodes["sales"].store)) == 3 * files - 3
        assert_all_as_batch(warehouse, spark)
        assert not any(table.rebuild_reason for table in warehouse.tables())


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_tables_put_back_from_an_older_copy_catch_up(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse, restarted: bool
) -> None:
    for name in ("sales", "copied", "latest"):
        shutil.copytree(folder_of(loaded, name), tmp_path / "copy" / name)
    land(tmp_path, 3)
    loaded.bring_up_to_date(spark)
    warehouse = loaded
    for files, name in enumerate(("latest", "copied", "sales"), start=5):
        shutil.rmtree(folder_of(warehouse, name))
        shutil.copytree(tmp_path / "copy" / name, folder_of(warehouse, name))
        warehouse = open_warehouse(declared(tmp_path), spark) if restarted else warehouse
        land(tmp_path, files - 1)
        bring_up_to_date(warehouse, spark)
        assert len(rows_of(warehouse.nodes["sales"].store)) == 3 * files
        assert_all_as_batch(warehouse, spark)


def vacuumed(warehouse: OpenWarehouse) -> None:
    for name in ("sales", "latest"):
        store = warehouse.nodes[name].store
        store.compact()
        store.vacuum(0.0)


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_table_that_lags_behind_vacuumed_changes_is_rebuilt(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse, restarted: bool
) -> None:
    for number in range(3, 5):
        land(tmp_path, number)
        for name in ("sales", "latest"):
            loaded.nodes[name].update(spark)
            loaded.updated(name)
    vacuumed(loaded)
    warehouse = open_warehouse(declared(tmp_path), spark) if restarted else loaded
    assert node(warehouse, "per_who").update(spark) is None
    assert "was deleted before its changes were taken in" in node(warehouse, "per_who").rebuild_reason
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert len(rows_of(warehouse.nodes["copied"].store)) == 14


def test_a_torn_last_commit_of_a_source_is_done_again_and_those_built_on_it_follow(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse
) -> None:
    store = loaded.nodes["sales"].store
    entry = entry_path(store.directory, store.version)
    entry.write_bytes(entry.read_bytes()[:-5])
    warehouse = open_warehouse(declared(tmp_path), spark)
    warehouse.bring_up_to_date(spark)
    assert len(rows_of(warehouse.nodes["copied"].store)) == 8
    assert_all_as_batch(warehouse, spark)


def test_commits_of_older_releases_name_no_ids_and_are_followed(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_json = CommitState.to_json
    with monkeypatch.context() as older:
        older.setattr(
            CommitState, "to_json", lambda self: {k: v for k, v in to_json(self).items() if k != "source_ids"}
        )
        land(tmp_path, 3)
        loaded.bring_up_to_date(spark)
    assert node(loaded, "copied").state.source_ids == {}
    land(tmp_path, 4)
    warehouse = open_warehouse(declared(tmp_path), spark)
    assert not any(table.rebuild_reason for table in warehouse.tables())
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert set(node(warehouse, "copied").state.source_ids) == {"sales"}


def flip(path: Path, place: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


@pytest.mark.parametrize("name", ["totals", "latest"])
def test_a_table_whose_own_file_is_damaged_is_rebuilt(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse, name: str
) -> None:
    for file in node(loaded, name).store.files():
        flip(node(loaded, name).store.path_of(file), 30)
    land(tmp_path, 3)
    loaded.nodes["sales"].update(spark)
    loaded.updated("sales")
    with pytest.raises(DamagedFileError):
        node(loaded, name).update(spark)
    assert "cannot be read as it was written" in node(loaded, name).rebuild_reason
    if name == "latest":  # the table built on it cannot read the rows that the rebuild has replaced
        with pytest.raises(UserCodeError, match="table 'per_who' failed"):
            loaded.bring_up_to_date(spark)
        assert "of 'latest' cannot be read" in node(loaded, "per_who").rebuild_reason
    loaded.bring_up_to_date(spark)
    assert_all_as_batch(loaded, spark)


def test_a_damaged_file_of_a_source_is_an_error_that_names_it_and_no_wrong_number(
    tmp_path: Path, spark: SparkSession, loaded: OpenWarehouse
) -> None:
    store = loaded.nodes["sales"].store
    column = pq.read_metadata(store.path_of(store.files()[0])).row_group(0).column(2)
    for file in store.files():
        flip(store.path_of(file), column.data_page_offset + column.total_compressed_size - 1)
    before = rows_of(node(loaded, "copied").store)
    node(loaded, "copied").backfill(0, 1 << 60)
    with pytest.raises(UserCodeError, match=r"sales/data/.*parquet"):
        loaded.bring_up_to_date(spark)
    assert rows_of(node(loaded, "copied").store) == before
