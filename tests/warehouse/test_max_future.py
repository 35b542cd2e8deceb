"""Rows from clocks that are wrong: event times too far in the future are rejected, and nothing else is."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.warehouse.declare.checks import DeclarationErrors
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.storage.partitions import split_by_partition
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates import load as loading
from headgate.warehouse.updates.good_rows import FIRST_TIME, LAST_TIME, EventTimes, split_rows
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.warehouse.test_opened import arrive, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)
SCHEMA = "ts timestamp, n int"


def declared(folder: Path, **options: Any) -> Warehouse:
    wh = Warehouse("clocks", path=str(folder / "warehouse"))
    wh.stream("beats", Files(str(folder / "beats"), schema=SCHEMA, settle=0), time="ts", **options)
    return wh


def beat(ahead: timedelta, n: int) -> dict[str, Any]:
    return {"ts": (NOW + ahead).isoformat(), "n": n}


BEATS = [
    beat(-timedelta(days=400), 1),
    beat(timedelta(minutes=59), 2),
    beat(timedelta(minutes=61), 3),
    beat(timedelta(days=26_000), 4),
]


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("latest", "good"),
    [
        pytest.param(None, [0, 1, 2], id="no limit"),
        pytest.param(1, [0, 1], id="up to the limit, and the limit itself"),
        pytest.param(-1, [], id="before all of them"),
    ],
)
def test_rows_beyond_the_latest_time_are_rejected_with_that_reason(latest: int | None, good: list[int]) -> None:
    rows = pa.table(
        {
            "ts": pa.array([0, 1, 2, None, 9], pa.timestamp("us", tz="UTC")),
            FILE_COLUMN: ["f"] * 5,
            RAW_COLUMN: list("abcde"),
            ERROR_COLUMN: pa.array([None, None, None, None, "does not parse"], pa.string()),
        }
    )
    kept, bad = split_rows(rows, EventTimes("ts", latest, 3600.0))
    assert kept.column("ts").cast(pa.int64()).to_pylist() == good
    reasons = dict(zip(bad.column("raw").to_pylist(), bad.column("reason").to_pylist(), strict=True))
    late = "its event time is more than 1 h in the future"
    expected = dict.fromkeys("abc"[len(good) :], late)
    assert reasons == {**expected, "d": "it has no event time", "e": "does not parse"}, "the first reason counts"


def test_event_times_that_cannot_be_stored_are_rejected_whatever_the_limit() -> None:
    good = [FIRST_TIME, 0, LAST_TIME]
    bad = [FIRST_TIME - 1, LAST_TIME + 1, -(2**63), 2**63 - 1]
    rows = pa.table(
        {
            "ts": pa.array(good + bad, pa.timestamp("us", tz="UTC")),
            FILE_COLUMN: ["f"] * 7,
            RAW_COLUMN: list("abcdefg"),
            ERROR_COLUMN: pa.array([None] * 7, pa.string()),
        }
    )
    for limit in (None, 2**62):
        kept, rejected = split_rows(rows, EventTimes("ts", limit, 3600.0))
        assert kept.column("ts").cast(pa.int64()).to_pylist() == good
        assert rejected.column("reason").to_pylist() == ["its event time is not in the years 2 to 9999"] * 4
        assert split_by_partition(kept, "ts", 86_400 * 365), "every one of them belongs to a partition"


@pytest.mark.parametrize(
    ("written", "seconds"), [("5 min", 300.0), (0, 0.0), (None, None), ("default", 3600.0)], ids=str
)
def test_max_future_is_a_length_of_time_or_none_and_an_hour_unless_stated(
    tmp_path: Path, written: Any, seconds: float | None
) -> None:
    options = {} if written == "default" else {"max_future": written}
    assert declared(tmp_path, **options).spec().streams[0].max_future == seconds


def test_a_max_future_that_is_no_length_of_time_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(DeclarationErrors, match="max_future takes a length of time"):
        declared(tmp_path, max_future="soon").spec()


def opened(folder: Path, spark: SparkSession, now: datetime = NOW, **options: Any) -> OpenWarehouse:
    return open_warehouse(declared(folder, **options).spec(), spark, clock=now.timestamp)


def rejected(folder: Path) -> list[str]:
    store = TableStore(folder / "warehouse" / "tables" / "beats__rejected")
    return store.arrow().column("reason").to_pylist() if store.exists else []


@pytest.mark.spark
@pytest.mark.parametrize("limits", [{}, {"DROP_TEXT_BYTES": 1}, {"LARGE_BYTES": 1}], ids=["rows", "text", "spark"])
def test_a_clock_in_2099_does_not_move_the_freshness_of_a_stream(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    for name, value in limits.items():  # small and large loads take different ways
        monkeypatch.setattr(loading, name, value)
    arrive(tmp_path, "beats", "1", BEATS)
    warehouse = opened(tmp_path, spark)
    warehouse.bring_up_to_date(spark)
    assert [row[1] for row in rows_of(warehouse.nodes["beats"].store)] == [1, 2]
    assert warehouse.nodes["beats"].freshness == micros(NOW + timedelta(minutes=59))
    assert rejected(tmp_path) == ["its event time is more than 1 h in the future"] * 2


@pytest.mark.spark
def test_without_a_limit_every_time_is_taken(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "beats", "1", BEATS)
    warehouse = opened(tmp_path, spark, max_future=None)
    warehouse.bring_up_to_date(spark)
    assert sorted(row[1] for row in rows_of(warehouse.nodes["beats"].store)) == [1, 2, 3, 4]
    assert rejected(tmp_path) == []


@pytest.mark.spark
@pytest.mark.parametrize("limits", [{}, {"DROP_TEXT_BYTES": 1}, {"LARGE_BYTES": 1}], ids=["rows", "text", "spark"])
def test_a_row_beyond_the_year_9999_is_rejected_and_the_others_are_loaded(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(loading, name, value)
    times = ["+12026-11-15T10:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0002-01-01T00:00:00Z"]
    arrive(tmp_path, "beats", "1", [{"ts": moment, "n": n} for n, moment in enumerate(times)])
    warehouse = opened(tmp_path, spark, max_future=None)
    warehouse.bring_up_to_date(spark)
    assert sorted(warehouse.nodes["beats"].store.arrow().column("n").to_pylist()) == [1, 3]
    assert rejected(tmp_path) == ["its event time is not in the years 2 to 9999"] * 2


@pytest.mark.spark
@pytest.mark.parametrize("table", ["beats", "beats__rejected"])
def test_whichever_of_the_two_commits_fails_every_row_is_loaded_or_rejected_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    arrive(tmp_path, "beats", "1", BEATS)
    warehouse = opened(tmp_path, spark)
    commit = TableStore.commit

    def crash(self: TableStore, *args: Any, **named: Any) -> int:
        if self.directory.name == table:
            raise OSError("the machine is gone")
        return commit(self, *args, **named)

    with monkeypatch.context() as patch, contextlib.suppress(OSError):
        patch.setattr(TableStore, "commit", crash)
        warehouse.nodes["beats"].update(spark)
    assert rejected(tmp_path) == []
    later = opened(tmp_path, spark)
    later.bring_up_to_date(spark)
    assert [row[1] for row in rows_of(later.nodes["beats"].store)] == [1, 2]
    assert len(rejected(tmp_path)) == 2
