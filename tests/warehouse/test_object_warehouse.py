"""A whole warehouse in an object store, on a Spark that has no file system for it, and in HDFS, which Spark reads and
writes itself: tables, states, reading, the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.places.object_path import ObjectPath
from headgate.places.place import path_from
from headgate.stream import Stream, on_spark
from headgate.stream.spark.update import state_folder
from headgate.warehouse import reading
from headgate.warehouse.run.lease import lease_of
from headgate.warehouse.run.lock import holder
from headgate.warehouse.run.trace import newest_trace, read_trace
from headgate.warehouse.updates import derive, load
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.services.hdfs import HdfsServer
from tests.services.object_store import ObjectStoreServer
from tests.services.rough_proxy import RoughProxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

SCHEMA = "ts timestamp, user long, price double"
SPENT = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("user", pa.int64()), ("price", pa.float64()), ("spent", pa.float64())]
)


def totals(stream: Stream) -> Stream:
    """Each row with what its user has spent so far."""
    return stream.key_by("user").fold(_spend, 0.0, SPENT)


def _spend(spent: float, row: Any) -> tuple[float, list[dict[str, Any]]]:
    return spent + row["price"], [{**row, "spent": spent + row["price"]}]


def warehouse(folder: Path, place: ObjectPath) -> hg.Warehouse:
    wh = hg.Warehouse("shop", str(place), storage=dict(place.bucket.options))
    (folder / "landing").mkdir(exist_ok=True)
    source = hg.Files(str(folder / "landing"), format="json", schema=SCHEMA, settle=0)
    wh.stream("clicks", source, time="ts", partition="1 hour", period=2.0)

    @wh.table(time="ts", mode="append", partition="1 hour")
    def spent(clicks: DataFrame) -> DataFrame:
        return on_spark(clicks, totals, keys=["user"], time="ts", buckets=2)

    wh.sql("sums", "select user, sum(price) as total from clicks group by user", time=None)
    return wh


def write_clicks(folder: Path, number: int, count: int = 20) -> None:
    """A file of rows, each a second after the one before; one of them cannot be read."""
    numbers = range(number * count, (number + 1) * count)
    rows = [{"ts": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z", "user": n % 3, "price": 1.0 + n} for n in numbers]
    text = "".join(json.dumps(row) + "\n" for row in rows) + "not json\n"
    (folder / "landing" / f"{number:04d}.json").write_text(text, encoding="utf-8")


def expected(files: int, count: int = 20) -> dict[int, float]:
    numbers = range(files * count)
    return {user: sum(1.0 + n for n in numbers if n % 3 == user) for user in range(3)}


def check(place: ObjectPath, files: int) -> None:
    """All tables are what the files that were written give."""
    found = reading.read(place, ["clicks", "spent", "sums", "clicks__rejected"])
    assert (found["clicks"].num_rows, found["clicks__rejected"].num_rows) == (20 * files, files)
    assert {row["user"]: row["total"] for row in found["sums"].to_pylist()} == expected(files)
    most: dict[int, float] = {}
    for row in found["spent"].to_pylist():
        most[row["user"]] = max(most.get(row["user"], 0.0), row["spent"])
    assert found["spent"].num_rows == 20 * files and most == expected(files)


@pytest.fixture(params=["object store", "HDFS"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if request.param == "HDFS":
        hadoop: HdfsServer = request.getfixturevalue("hdfs")
        return hadoop.place() / "shop"
    store: ObjectStoreServer = request.getfixturevalue("object_store")
    return store.bucket() / "shop"


@pytest.mark.parametrize("large", [False, True], ids=["written by the driver", "written by Spark"])
def test_tables_and_states_go_on_from_where_they_were(
    spark: SparkSession, place: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:  # what counts as large
        for module in (derive, load):
            monkeypatch.setattr(module, "LARGE_BYTES", 0)
    for number in range(3):
        wh = warehouse(tmp_path, place)
        write_clicks(tmp_path, number)
        open_warehouse(wh.spec(), spark).bring_up_to_date(spark)
        check(place, number + 1)
    assert state_folder(place / "tables" / "spent").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"landing"}


def test_a_run_has_the_lease_keeps_tables_fresh_and_gives_it_back(
    spark: SparkSession, place: ObjectPath, tmp_path: Path
) -> None:
    wh = warehouse(tmp_path, place)
    write_clicks(tmp_path, 0)
    with wh.start(spark=spark) as run:
        run.wait_until_fresh("10 min")
        lease = lease_of(place)
        assert lease is not None and lease.fence == 1 and lease.control is not None
        assert [table.name for table in reading.tables(place)] == ["clicks", "clicks__rejected", "spent", "sums"]
        assert run.trace is not None and run.trace.is_relative_to(tmp_path / "state")
    assert holder(place) is None
    check(place, 1)
    assert run.kept_trace == newest_trace(place) is not None
    assert read_trace(run.kept_trace) == read_trace(run.trace), "kept with the warehouse, for other machines"
    assert wh.read("clicks").num_rows == 20
    answer = reading.query(place, "select count(*) as n from clicks")
    assert answer.rows.to_pylist() == [{"n": 20}]


def test_a_store_that_refuses_every_tenth_request_and_answers_late_costs_no_row(
    spark: SparkSession, object_store: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with RoughProxy(object_store.port, refuses=10, loses_answers=23, late=7, delay=0.5) as proxy:
        place = object_store.bucket(proxy.port) / "shop"
        wh = warehouse(tmp_path, place)
        write_clicks(tmp_path, 0)
        with wh.start(spark=spark) as run:
            for number in (1, 2):
                run.wait_until_fresh("20 min")
                write_clicks(tmp_path, number)
            run.wait_until_fresh("20 min")
            assert [row.name for row in run.statistics() if row.state == "held"] == []
        assert proxy.requests() > 100
    behind = path_from(str(place), object_store.options())
    assert isinstance(behind, ObjectPath)
    check(behind, 3)
