"""Things that go wrong around a warehouse: a clear state, and nothing lost."""

from __future__ import annotations

import contextlib
import errno
import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import HeadgateError
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.sources.errors import SourceChanged
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.bad_chunks import TRIES
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.warehouse.test_opened import START, arrive, assert_all_as_batch, reading, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, sensor string, temp double"


def opened(
    folder: Path, spark: SparkSession, columns: str = COLUMNS, query: str = "select ts, sensor from readings"
) -> OpenWarehouse:
    wh = Warehouse("faults", path=str(folder / "warehouse"))
    source = Files(str(folder / "readings"), format="json", schema=columns, settle=0)
    wh.stream("readings", source, time="ts", partition="10 minutes")
    wh.sql("derived", query, time="ts", partition="10 minutes")
    return open_warehouse(wh.spec(), spark)


def rows(warehouse: OpenWarehouse, name: str) -> list[dict[str, Any]]:
    table = warehouse.nodes[name].store.arrow().drop_columns(["_partition"])
    return sorted(table.to_pylist(), key=lambda row: row["ts"])


def test_a_column_more_is_null_in_older_rows_and_a_column_less_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "readings", "1", [reading(0)])
    opened(tmp_path, spark).bring_up_to_date(spark)

    arrive(tmp_path, "readings", "2", [reading(1) | {"unit": "C"}])
    more = opened(tmp_path, spark, f"{COLUMNS}, unit string", "select ts, sensor, unit from readings")
    more.bring_up_to_date(spark)
    assert [row["unit"] for row in rows(more, "readings")] == [None, "C"]
    assert [row["unit"] for row in rows(more, "derived")] == [None, "C"]

    arrive(tmp_path, "readings", "3", [reading(2)])
    less = opened(tmp_path, spark)
    with pytest.raises(HeadgateError, match="unit"):
        less.nodes["readings"].update(spark)
    assert len(rows(less, "readings")) == 2
    again = opened(tmp_path, spark, f"{COLUMNS}, unit string", "select ts, sensor, unit from readings")
    again.bring_up_to_date(spark)
    assert len(rows(again, "derived")) == 3, "what was refused is still there to be loaded"


def test_a_stream_that_becomes_a_table_is_computed_anew_and_a_table_never_becomes_a_stream(
    tmp_path: Path, spark: SparkSession
) -> None:
    arrive(tmp_path, "readings", "1", [reading(0), reading(1)])
    arrive(tmp_path, "others", "1", [reading(5)])

    def declared(as_stream: bool) -> OpenWarehouse:
        wh = Warehouse("faults", path=str(tmp_path / "warehouse"))
        for name in ("readings", "others") if as_stream else ("readings",):
            wh.stream(name, Files(str(tmp_path / name), schema=COLUMNS, settle=0), time="ts")
        if not as_stream:
            wh.sql("others", "select ts, sensor, temp from readings", time="ts")
        return open_warehouse(wh.spec(), spark)

    declared(as_stream=True).bring_up_to_date(spark)
    as_table = declared(as_stream=False)
    as_table.bring_up_to_date(spark)
    assert rows(as_table, "others") == rows(as_table, "readings")
    with pytest.raises(HeadgateError, match="the table that is there was computed from others"):
        declared(as_stream=True).nodes["others"].plan()


def test_a_file_that_changes_while_it_is_read_is_loaded_once_as_it_is_then(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "readings", "1", [reading(0)])
    warehouse = opened(tmp_path, spark)
    node = warehouse.nodes["readings"]
    update = node.plan()
    assert update is not None and node.begin(update)
    arrive(tmp_path, "readings", "1", [reading(0), reading(1), reading(2)])
    with pytest.raises(SourceChanged, match=r"1\.json"):
        node.run(update, spark)
    node.end(update)
    warehouse.bring_up_to_date(spark)
    assert len(rows(warehouse, "readings")) == 3


def test_a_file_that_disappears_is_told_and_the_others_are_loaded(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "readings", "1", [reading(0)])
    arrive(tmp_path, "readings", "2", [reading(1)])
    warehouse = opened(tmp_path, spark)
    node = warehouse.nodes["readings"]
    update = node.plan()
    assert update is not None and node.begin(update)
    (tmp_path / "readings" / "1.json").unlink()
    with pytest.raises(SourceChanged, match=r"1\.json.*removed"):
        node.run(update, spark)
    node.end(update)
    warehouse.bring_up_to_date(spark)
    assert len(rows(warehouse, "readings")) == 1


def parquet(path: Path, **columns: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    times = pa.array([START], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"ts": times, "sensor": ["a"], "temp": [1.5], **columns}), path)


def damaged_parquet(folder: Path) -> None:
    """A file with a good footer, whose data was overwritten."""
    parquet(folder / "bad.parquet", sensor=["a" * 4000])
    content = bytearray((folder / "bad.parquet").read_bytes())
    content[4:400] = b"\xff" * 396
    (folder / "bad.parquet").write_bytes(content)


@pytest.mark.parametrize(
    ("format_", "spoil", "reason"),
    [
        pytest.param("parquet", damaged_parquet, "TProtocolException", id="parquet, overwritten"),
        pytest.param(
            "parquet",
            lambda folder: parquet(folder / "bad.parquet", temp=["warm"]),
            "temp",
            id="parquet, a column of another type",
        ),
        pytest.param(
            "json",
            lambda folder: (folder / "bad.json.gz").write_bytes(gzip.compress(b'{"sensor": "x"}\n' * 9999)[:-20]),
            "it is damaged: Compressed file ended",
            id="gzip, cut off",
        ),
        pytest.param(
            "json",
            lambda folder: (folder / "bad.json.zst").write_bytes(b"not compressed at all"),
            "ZstdIOException: Unknown frame descriptor",
            id="zstandard, something else",
        ),
        pytest.param(
            "json",
            lambda folder: (folder / "bad.json").write_text("x" * 17_000_000),
            "longer than max_line",
            id="a line of 17 MB",
        ),
    ],
)
def test_a_bad_file_is_set_aside_and_the_rest_of_the_stream_goes_on(
    tmp_path: Path, spark: SparkSession, format_: str, spoil: Any, reason: str
) -> None:
    wh = Warehouse("faults", path=str(tmp_path / "warehouse"))
    source = Files(str(tmp_path / "readings"), format=format_, schema=COLUMNS, settle=0)
    wh.stream("readings", source, time="ts", partition="10 minutes")

    def good(name: str) -> None:
        if format_ == "parquet":
            parquet(tmp_path / "readings" / f"{name}.parquet")
        else:
            arrive(tmp_path, "readings", name, [reading(0)])

    good("a")
    good("z")
    spoil(tmp_path / "readings")
    warehouse = open_warehouse(wh.spec(), spark)
    node = warehouse.nodes["readings"]
    for _ in range(TRIES):
        with contextlib.suppress(Exception):  # what Spark calls it
            node.update(spark)
    assert len(rows_of(node.store)) == 2
    again = open_warehouse(wh.spec(), spark).nodes["readings"]
    assert again.plan() is None
    assert re.match(f"bad.* is set aside until it changes: .*{reason}", again.last_poll.note)
    good("b")
    assert again.update(spark) is not None
    for bad in (tmp_path / "readings").glob("bad*"):
        bad.unlink()
    good("bad")
    assert again.update(spark) is not None
    assert len(rows_of(again.store)) == 4
    assert (again.plan(), again.last_poll.note) == (None, "")


def test_an_empty_file_is_loaded_without_rows(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "readings", "0", [])
    arrive(tmp_path, "readings", "1", [reading(0)])
    warehouse = opened(tmp_path, spark)
    warehouse.bring_up_to_date(spark)
    assert len(rows(warehouse, "readings")) == 1
    assert warehouse.nodes["readings"].plan() is None


@pytest.mark.parametrize("table", ["readings", "derived"])
def test_a_full_disk_fails_the_update_and_loses_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    arrive(tmp_path, "readings", "1", [reading(0)])
    warehouse = opened(tmp_path, spark)
    warehouse.bring_up_to_date(spark)
    arrive(tmp_path, "readings", "2", [reading(1)])
    if table == "derived":
        warehouse.nodes["readings"].update(spark)
        warehouse.updated("readings")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
        patch.setattr("pyarrow.parquet.write_table", full)
        with pytest.raises(OSError, match="No space left"):
            warehouse.nodes[table].update(spark)
    assert len(rows_of(warehouse.nodes[table].store)) == 1
    warehouse.bring_up_to_date(spark)
    assert len(rows_of(warehouse.nodes["derived"].store)) == 2
    assert_all_as_batch(warehouse, spark)


def test_rejected_rows_of_updates_that_a_stream_has_lost_are_replaced_with_those_that_are_loaded_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    for number in range(3):
        arrive(tmp_path, "readings", f"{number}", [reading(number), reading(number) | {"ts": f"nonsense {number}"}])
        opened(tmp_path, spark).bring_up_to_date(spark)
    log = tmp_path / "warehouse" / "tables" / "readings" / "_delta_log"
    for version in (1, 2):  # as after a power cut without syncing
        (log / f"{version:020}.json").unlink()
    arrive(tmp_path, "readings", "3", [reading(3), reading(3) | {"ts": "nonsense 3"}])
    again = opened(tmp_path, spark)
    again.bring_up_to_date(spark)
    assert_all_as_batch(again, spark)
    assert len(rows(again, "readings")) == 4
    rejected = TableStore(tmp_path / "warehouse" / "tables" / "readings__rejected").arrow()
    assert sorted(raw.split("nonsense ")[1][0] for raw in rejected["raw"].to_pylist()) == ["0", "1", "2", "3"]
