"""Data files are described truly: what Headgate wrote itself, and what Spark left in a staged directory."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headgate.warehouse.storage.errors import DamagedFileError, SchemaError, StorageError
from headgate.warehouse.storage.parquet import read_file
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import (
    CLICKS,
    HOUR,
    SECOND,
    TIME,
    changes,
    clicks,
    hours,
    load,
    on_disk,
    seen_by_delta,
    spark_like,
    values,
)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(tmp_path / "clicks", "ts")


def test_each_update_writes_into_a_directory_of_its_own(store: TableStore) -> None:
    staged = [store.stage(3), store.stage(3), store.stage(4)]
    assert len(set(staged)) == 3
    assert [path.name.split("-")[0] for path in staged] == ["u3", "u3", "u4"]
    assert {path.parent for path in staged} == {store.directory / "data"}
    assert not any(path.exists() for path in staged)


def test_one_file_is_written_for_each_partition(store: TableStore) -> None:
    files = [new.file for new in store.write_arrow(1, clicks(5, HOUR + 1, 3, HOUR + 9), HOUR)]
    assert [(file.partition, file.rows, file.first, file.last) for file in files] == [
        (hours(0)[0], 2, 3 * SECOND, 5 * SECOND),
        (hours(1)[0], 2, (HOUR + 1) * SECOND, (HOUR + 9) * SECOND),
    ]
    for file in files:
        assert store.path_of(file).stat().st_size == file.size
        assert pq.read_schema(store.path_of(file)).names == ["ts", "v"]


def test_no_rows_make_no_file(store: TableStore) -> None:
    assert store.write_arrow(1, clicks(), HOUR) == []
    assert not store.directory.exists()


def test_the_length_of_partitions_must_be_given_where_there_is_event_time(store: TableStore) -> None:
    with pytest.raises(StorageError, match="length of its partitions must be given"):
        store.write_arrow(1, clicks(1))


def test_rows_without_event_time_are_refused(store: TableStore) -> None:
    with pytest.raises(StorageError, match="1 of 2 rows have no event time"):
        store.write_arrow(1, pa.table({"ts": pa.array([1, None], TIME), "v": [1, 2]}), HOUR)


def test_statistics_bound_the_columns_that_every_reader_compares_alike(store: TableStore) -> None:
    rows = pa.table(
        {
            "ts": pa.array([SECOND + 1, 2 * SECOND], TIME),
            "number": pa.array([7, None]),
            "word": ["b", "a"],
            "essay": ["x" * 33, "y"],
            "day": [dt.date(2026, 11, 15), dt.date(1969, 1, 1)],
            "ratio": [0.5, float("nan")],
            "yes": [True, False],
            "void": pa.array([None, None], pa.int64()),
            "far": pa.array([2**62, 0], TIME),
            "list": [[1], [2]],
        }
    )
    [new] = store.write_arrow(1, rows, HOUR)
    assert json.loads(new.statistics) == {
        "numRecords": 2,
        "minValues": {"ts": "1970-01-01T00:00:01.000001Z", "number": 7, "word": "a", "day": "1969-01-01"},
        "maxValues": {"ts": "1970-01-01T00:00:02.000000Z", "number": 7, "word": "b", "day": "2026-11-15"},
        "nullCount": {
            **dict.fromkeys(("ts", "word", "essay", "day", "ratio", "yes", "far"), 0),
            **{"number": 1, "void": 2},
        },
    }


def test_bounds_cover_all_row_groups(store: TableStore) -> None:
    directory = store.stage(1)
    folder = directory / f"_partition={hours(0)[0]}"
    folder.mkdir(parents=True)
    pq.write_table(clicks(3, 1, 7, 5), folder / "x.parquet", row_group_size=1)
    [new] = store.adopt(directory)
    assert (new.file.first, new.file.last, new.file.rows) == (SECOND, 7 * SECOND, 4)


def test_the_time_column_is_described_even_if_it_is_the_hundredth(store: TableStore) -> None:
    wide = pa.table({**{f"c{i}": [i] for i in range(99)}, "ts": pa.array([5], TIME)})
    [new] = store.write_arrow(1, wide, HOUR)
    assert list(json.loads(new.statistics)["minValues"])[-2:] == ["c31", "ts"]
    store.commit(1, [new], state={}, schema=wide.schema)
    assert TableStore(store.directory, "ts").files()[0].last == 5


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        ("v = 1000000", [1]),
        ("v > 1000000", [2, HOUR]),
        (f"ts >= '{dt.datetime.fromtimestamp(HOUR, dt.UTC).isoformat()}'", [HOUR]),
        ("_partition = '1970-01-01T00:00:00Z'", [1, 2]),
        ("word = 'w'", [1, 2, HOUR]),
        ("word is null", []),
    ],
)
def test_readers_that_skip_files_by_statistics_find_all_rows(
    store: TableStore, predicate: str, found: list[int]
) -> None:
    for update, second in enumerate((1, 2, HOUR), start=1):
        load(store, update, clicks(second).append_column("word", pa.array(["w"])))
    seen = pa.table(DeltaTable(store.directory).scan(predicate=predicate))
    assert values(seen) == values(clicks(*found))


def test_what_spark_wrote_is_adopted_with_its_partitions_and_without_its_markers(store: TableStore) -> None:
    directory = store.stage(1)
    spark_like(directory, {hours(0)[0]: clicks(1, 2), hours(1)[0]: clicks(HOUR), hours(2)[0]: clicks()})
    leftover = directory / "_temporary" / "0" / "part-00001.parquet"
    leftover.parent.mkdir(parents=True)
    pq.write_table(clicks(99), leftover)

    files = store.adopt(directory)
    assert [(new.file.partition, new.file.rows, new.file.first) for new in files] == [
        (hours(0)[0], 2, SECOND),
        (hours(1)[0], 1, HOUR * SECOND),
    ]
    assert "%3A" in files[0].file.path and " " in files[0].file.path
    assert {path.name for path in directory.rglob("*") if path.is_file()} == {"part-00000-a b.c000.snappy.parquet"}

    store.commit(1, files, state={}, schema=CLICKS)
    assert seen_by_delta(store) == values(clicks(1, 2, HOUR))
    again = TableStore(store.directory, "ts")
    assert again.files() == store.files()
    assert tuple(replace(file, arrived=0) for file in again.files()) == tuple(new.file for new in files)
    load(again, 2, clicks(3), hours(0))
    assert seen_by_delta(store) == values(clicks(3, HOUR))
    assert changes(again, -1) == changes(TableStore(store.directory, "ts"), -1)
    assert changes(again, -1, 0) == changes(store, -1, 0)


def test_rewriting_and_vacuuming_cope_with_the_names_that_spark_gives(store: TableStore) -> None:
    for update in (1, 2):
        directory = store.stage(update)
        spark_like(directory, {hours(0)[0]: clicks(update), hours(1)[0]: clicks(HOUR + update)})
        store.commit(update, store.adopt(directory), state={}, schema=CLICKS)
    store.compact(hours(0))
    store.vacuum(0)
    assert on_disk(store) == {file.path for file in store.files()}
    assert seen_by_delta(store) == values(clicks(1, 2, HOUR + 1, HOUR + 2))


def test_a_table_without_event_time_adopts_files_without_partitions(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "items")
    directory = store.stage(1)
    directory.mkdir(parents=True)
    pq.write_table(clicks(1), directory / "part-0.parquet")
    store.commit(1, store.adopt(directory), state={}, schema=CLICKS)
    assert seen_by_delta(store) == values(clicks(1))


@pytest.mark.parametrize(
    ("label", "rows", "complaint"),
    [
        pytest.param("__HIVE_DEFAULT_PARTITION__", clicks(1), "rows without an event time", id="null partition"),
        pytest.param("yesterday", clicks(1), "not the name of a partition", id="odd partition"),
        pytest.param(hours(0)[0], clicks(1).drop_columns("ts"), "has no event times", id="no time column"),
        pytest.param(hours(0)[0], clicks(1).cast(pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64())])),
                     "TIMESTAMP_MICROS", id="time without zone"),
        pytest.param(hours(0)[0], clicks(1).cast(pa.schema([("ts", TIME), ("v", pa.uint32())])),
                     "must store 'v' as int64; got uint32", id="a type to be converted"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_described_are_not_adopted(
    store: TableStore, label: str, rows: pa.Table, complaint: str
) -> None:
    directory = store.stage(1)
    spark_like(directory, {label: rows})
    with pytest.raises((StorageError, SchemaError), match=complaint):
        store.adopt(directory)


def test_spark_must_write_where_it_was_told(store: TableStore, tmp_path: Path) -> None:
    spark_like(tmp_path / "elsewhere", {hours(0)[0]: clicks(1)})
    with pytest.raises(StorageError, match="let Spark write where `stage` says"):
        store.adopt(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "_SUCCESS").exists()


def test_a_flipped_bit_in_a_data_file_is_noticed(store: TableStore) -> None:
    load(store, 1, clicks(*range(100)))
    (file,) = store.files()
    path = store.path_of(file)
    good = path.read_bytes()
    footer = int.from_bytes(good[-8:-4], "little") + 8
    noticed = 0
    for place in range(4, len(good) - footer):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        try:
            same = store.rows([file]) == clicks(*range(100)) and read_file(path) == clicks(*range(100))
        except DamagedFileError as error:
            assert str(path) in str(error)
            noticed += 1
        else:
            assert same, f"byte {place} was read silently as something else"
    assert noticed > 0.9 * (len(good) - footer - 4)
