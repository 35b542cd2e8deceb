"""Columns are stored as types that every Delta reader knows, and a table only ever gains columns."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.warehouse.storage.errors import SchemaError, StorageError
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.schemas import merge, storable
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import CLICKS, TIME, clicks, hours, load, seen_by_delta


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary(3), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", tz="Europe/Berlin"), TIME),
        (pa.timestamp("s", tz="+02:00"), TIME),
        (pa.decimal128(10, 2), pa.decimal128(10, 2)),
        (pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int16()))),
        (pa.struct([pa.field("at", pa.timestamp("ms", tz="UTC"), False)]), pa.struct([("at", TIME)])),
        (pa.map_(pa.string(), pa.uint32()), pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_a_type_is_stored_as_one_that_loses_nothing_and_may_be_null(given: pa.DataType, stored: pa.DataType) -> None:
    assert storable(pa.schema([pa.field("x", given, nullable=False)])) == pa.schema([pa.field("x", stored)])


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.timestamp("us"), "timestamp with a time zone"),
        (pa.list_(pa.timestamp("ns")), "'x.element' is timestamp"),
        (pa.null(), "give its nulls a type"),
        (pa.uint64(), "cast it to another type"),
        (pa.time64("us"), "cast it to another type"),
        (pa.duration("us"), "cast it to another type"),
        (pa.decimal256(50, 2), "cast it to another type"),
    ],
    ids=str,
)
def test_a_type_that_some_delta_readers_do_not_know_is_refused(kind: pa.DataType, advice: str) -> None:
    with pytest.raises(SchemaError, match=advice):
        storable(pa.schema([("x", kind)]))


@pytest.mark.parametrize(
    ("names", "complaint"),
    [(["_partition"], "is taken"), ([], "at least one column"), (["a", "a"], "each of its own name")],
    ids=["the partition column", "none", "two of one name"],
)
def test_impossible_names_of_columns_are_refused(names: list[str], complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        storable(pa.schema([(name, pa.int64()) for name in names]))


def test_gained_columns_go_to_the_end() -> None:
    before = pa.schema([("a", pa.int64()), ("b", pa.string())])
    update = pa.schema([("c", pa.int64()), ("b", pa.string()), ("a", pa.int64())])
    assert merge(before, update).names == ["a", "b", "c"]


ODD = pa.table(
    {
        "ts": pa.array([dt.datetime(2026, 11, 15, 10, 0, 0, 123456, tzinfo=dt.UTC)] * 2, pa.timestamp("ns", "UTC")),
        "small": pa.array([200, None], pa.uint8()),
        "word": pa.array(["ü", "v"]).dictionary_encode(),
        "price": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(10, 2)),
        "tags": pa.array([["a", None], None], pa.large_list(pa.large_string())),
        "place": pa.array([{"lat": 1.5}, None]),
        "counts": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.uint16())),
        "day": pa.array([dt.date(2026, 11, 15), None], pa.date64()),
        "raw": pa.array([b"xyz", None], pa.binary(3)),
        "yes": pa.array([True, None]),
    }
)


def test_values_of_every_kind_come_back_from_another_reader(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "odd", "ts")
    load(store, 1, ODD)
    found = DeltaTable(store.directory).to_pyarrow_table().drop_columns("_partition")
    assert found.select(ODD.column_names).to_pylist() == ODD.to_pylist()
    assert found.schema.field("ts").type == TIME


def test_the_table_is_readable_by_the_oldest_readers(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "odd", "ts")
    load(store, 1, ODD)
    wider = ODD.append_column("more", pa.array([1, 2]))
    load(store, 2, wider)
    protocol = DeltaTable(store.directory).protocol()
    # Whoever else would write needs version 4, because of the change data feed.
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 4)
    assert not protocol.reader_features and not protocol.writer_features


def test_every_column_may_be_null_for_readers(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    strict = pa.schema([pa.field("ts", TIME, nullable=False), pa.field("v", pa.int64(), nullable=False)])
    load(store, 1, clicks(1).cast(strict))
    assert all(field.nullable for field in DeltaTable(store.directory).schema().fields)


@pytest.mark.parametrize("replaced", [None, hours(0), hours(7), ALL], ids=["append", "replace", "replace none", "all"])
def test_a_gained_column_comes_in_the_same_commit_as_its_rows(tmp_path: Path, replaced: object) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    load(store, 1, clicks(1, 4000))
    wider = clicks(2).append_column("word", pa.array(["new"]))
    version = load(store, 2, wider, replaced)
    assert version == 1
    assert store.schema.names == ["ts", "v", "word"]
    kept = [{"v": 1_000_000, "word": None}] * (replaced in (None, hours(7)))
    kept += [{"v": 4_000_000_000, "word": None}] * (replaced is not ALL)
    found = DeltaTable(store.directory).to_pyarrow_table(columns=["v", "word"]).sort_by("v").to_pylist()
    assert found == sorted([*kept, {"v": 2_000_000, "word": "new"}], key=lambda row: row["v"])
    assert TableStore(store.directory, "ts").files() == store.files()


def test_a_table_without_event_time_gains_columns_only_when_all_of_it_is_replaced(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "items")
    items = pa.table({"v": [1, 2]})
    wider = pa.table({"v": [3], "name": ["c"]})
    load(store, 1, items)
    with pytest.raises(StorageError, match=r"replaces all of it; gained: \['name'\]"):
        load(store, 2, wider)
    load(store, 2, wider, ALL)
    assert store.arrow().to_pylist() == [{"v": 3, "name": "c"}]


@pytest.mark.parametrize(
    ("update", "complaint"),
    [
        pytest.param(CLICKS.remove(1), "it lost 'v'", id="lost"),
        pytest.param(CLICKS.set(1, pa.field("v", pa.int32())), "changed 'v' from int64 to int32", id="changed"),
        pytest.param(CLICKS.remove(0), "time column 'ts' must be a column of timestamp", id="lost the time"),
        pytest.param(CLICKS.set(0, pa.field("ts", pa.int64())), "must be a column of timestamp", id="time as a number"),
    ],
)
def test_losing_or_changing_a_column_is_refused_before_anything_is_written(
    tmp_path: Path, update: pa.Schema, complaint: str
) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    load(store, 1, clicks(1))
    files = store.write_arrow(2, clicks(2), 3600)
    with pytest.raises(StorageError, match=complaint):
        store.commit(2, files, state={}, schema=update)
    assert (store.version, store.schema, seen_by_delta(store)) == (0, CLICKS, {1_000_000: 1})


def test_files_whose_columns_differ_from_those_announced_are_refused(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    wider = store.write_arrow(1, clicks(1).append_column("word", pa.array(["x"])), 3600)
    other = store.write_arrow(1, pa.table({"ts": clicks(1)["ts"], "v": ["text"]}), 3600)
    with pytest.raises(SchemaError, match="column 'word' that the table is not to have"):
        store.commit(1, wider, state={}, schema=CLICKS)
    with pytest.raises(SchemaError, match="'v' must be int64, as in the table; got string"):
        store.commit(1, other, state={}, schema=CLICKS)
    assert not store.exists
