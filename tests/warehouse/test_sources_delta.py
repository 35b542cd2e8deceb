"""A Delta table of another program as a source: its rows are loaded once, and what else happens is told."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

import headgate as hg
from headgate.core import DeclarationError
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.run.run import resolved
from headgate.warehouse.sources import Limit, Offset, SourceError
from headgate.warehouse.sources.delta.log import ForeignLog
from headgate.warehouse.sources.delta.offsets import DeltaOffset, DeltaRange
from headgate.warehouse.sources.postgres.offsets import PostgresContents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.object_store import ObjectStoreServer

ALL = Limit()


def rows(first: int, count: int = 2, city: str = "bern") -> pa.Table:
    moments = pa.array([1_700_000_000_000_000 + i for i in range(first, first + count)], pa.timestamp("us", "UTC"))
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": numbers, "ts": moments, "city": [city] * count})


def append(path: Path, first: int, count: int = 2, **options: Any) -> None:
    write_deltalake(str(path), rows(first, count), mode="append", **options)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three versions with one file of two rows each."""
    path = tmp_path / "orders"
    for version in range(3):
        append(path, 10 * version)
    return path


def loaded(source: hg.Delta, offset: Offset, limit: Limit = ALL) -> tuple[Offset, list[DeltaRange]]:
    """Load until there is nothing left."""
    ranges: list[DeltaRange] = []
    while (found := source.next_range(offset, limit)) is not None:
        offset = source.advance(offset, found)
        ranges.append(found)
    return offset, ranges


def ids(source: hg.Delta, ranges: list[DeltaRange]) -> list[int]:
    """The rows of ranges, by their numbers."""
    files = [file for found in ranges for file in source._follower.files_of(found) or ()]
    return sorted(n for file in files for n in source._rows(file).column("id").to_pylist())


# --- which rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param("beginning", [0, 1, 10, 11, 20, 21, 30, 31], id="the beginning"),
        pytest.param(1, [10, 11, 20, 21, 30, 31], id="a version"),
        pytest.param("now", [30, 31], id="now"),
        pytest.param("contents", [0, 1, 10, 11, 20, 21, 30, 31], id="contents"),
    ],
)
def test_a_stream_begins_where_it_is_declared_to(table: Path, start: Any, expected: list[int]) -> None:
    source = hg.Delta(table, start=start)
    offset = source.start()
    append(table, 30)
    _, ranges = loaded(source, offset)
    assert ids(source, ranges) == expected


def test_contents_are_the_rows_that_are_still_there(table: Path) -> None:
    DeltaTable(str(table)).delete("id = 0 OR id = 20")
    source = hg.Delta(table, start="contents")
    offset = source.start()
    append(table, 30)
    _, ranges = loaded(source, offset, Limit(chunks=1))
    assert ids(source, ranges) == [1, 10, 11, 21, 30, 31]


def test_contents_have_the_values_of_partition_columns(tmp_path: Path) -> None:
    path, day = tmp_path / "orders", date(2026, 11, 17)
    kinds = {"city": ["bern", None], "day": [day, day], "open": [True, False], "at": [datetime(2026, 11, 17, 8, 5)] * 2}
    write_deltalake(str(path), pa.table({"id": [1, 2], **kinds}), partition_by=[*kinds])
    append_only = ForeignLog(str(path), {})
    assert {file.path: file.partition for file in append_only.contents(0)} == {
        file.path: {name: value or None for name, value in file.partition.items()}
        for file in (append_only.entry(0) or pytest.fail("no entry")).added
    }


def test_contents_with_rows_that_are_marked_as_deleted_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    append(path, 1, 3)
    mark_the_second_row_as_deleted(path)
    source = hg.Delta(path, start="contents")
    found = source.next_range(source.start(), ALL)
    assert found is not None
    with pytest.raises(SourceError, match="has rows that are marked as deleted"):
        source.read(None, found)  # type: ignore[arg-type]


def mark_the_second_row_as_deleted(path: Path) -> None:
    """A version as Delta's own writer makes it: the file again, with a deletion vector in the entry."""
    # The format's magic number, one bitmap, its number; then a Roaring bitmap with one container that has the row 1.
    vector = struct.pack("<iqi", 1681511377, 1, 0) + struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 1)
    entry = (path / "_delta_log" / f"{0:020}.json").read_text()
    add = next(action["add"] for line in entry.splitlines() if "add" in (action := json.loads(line)))
    features = {f"{who}Features": ["deletionVectors", "timestampNtz"] for who in ("reader", "writer")}
    inline = {"storageType": "i", "pathOrInlineDv": z85(vector), "sizeInBytes": len(vector), "cardinality": 1}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "deletionVector": inline}},
    ]  # fmt: skip
    (path / "_delta_log" / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))


def z85(data: bytes) -> str:
    """ZeroMQ's encoding: four bytes are five digits to the base of 85."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    data += bytes(-len(data) % 4)
    numbers = [int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4)]
    return "".join(digits[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))


def test_maintenance_adds_nothing(table: Path) -> None:
    source = hg.Delta(table)
    DeltaTable(str(table)).optimize.compact()
    append(table, 30)
    _, ranges = loaded(source, source.start())
    assert ids(source, ranges) == [0, 1, 10, 11, 20, 21, 30, 31]


def test_versions_that_add_nothing_are_passed_with_the_one_before(table: Path) -> None:
    source = hg.Delta(table)
    DeltaTable(str(table)).optimize.compact()
    offset, _ = loaded(source, source.start())
    assert isinstance(offset, DeltaOffset)
    assert offset.loaded == (((0, 0), (4, 0)),)


@pytest.mark.parametrize("first", ["oldest", "newest"])
def test_a_version_of_many_files_is_loaded_in_parts(tmp_path: Path, first: Any) -> None:
    cities = [f"city {i}" for i in range(7)]
    table = pa.table({"id": range(7), "city": cities})
    write_deltalake(str(tmp_path / "t"), table, partition_by=["city"])
    source = hg.Delta(tmp_path / "t")
    _, ranges = loaded(source, source.start(), Limit(chunks=3, first=first))
    assert [found.chunks for found in ranges] == [3, 3, 1]
    assert ids(source, ranges) == list(range(7))
    names = [c for r in ranges for f in source._follower.files_of(r) or () for c in _cities(source, f)]
    assert sorted(names) == cities


def _cities(source: hg.Delta, file: Any) -> list[str]:
    found: list[str] = source._rows(file).column("city").to_pylist()
    return found


def test_a_restarted_stream_goes_on_where_it_was(table: Path) -> None:
    source = hg.Delta(table)
    found = source.next_range(source.start(), Limit(chunks=1))
    assert found is not None
    offset = Offset.from_json(source.advance(source.start(), found).to_json())
    _, ranges = loaded(hg.Delta(table), offset)
    assert ids(source, ranges) == [10, 11, 20, 21]


# --- what stands in the way -------------------------------------------------------------------------------------


def delete(table: Path) -> None:
    DeltaTable(str(table)).delete("id = 10")


def update(table: Path) -> None:
    DeltaTable(str(table)).update({"city": "'basel'"}, predicate="id = 10")


def overwrite(table: Path) -> None:
    write_deltalake(str(table), rows(90), mode="overwrite")


CHANGES = [pytest.param(change, id=change.__name__) for change in (delete, update, overwrite)]


@pytest.mark.parametrize("change", CHANGES)
def test_a_version_that_changes_rows_is_waited_at_and_named(table: Path, change: Callable[[Path], None]) -> None:
    source = hg.Delta(table)
    change(table)
    append(table, 30)
    before = source.latest(source.start())
    assert (before.chunks, before.missing) == (3, False)
    offset, ranges = loaded(source, source.start())
    assert ids(source, ranges) == [0, 1, 10, 11, 20, 21]
    pending = source.latest(offset)
    assert pending.chunks == 0 and pending.missing
    assert "version 3 " in pending.note and "changes='ignore'" in pending.note


@pytest.mark.parametrize("change", CHANGES)
def test_a_version_that_changes_rows_is_left_out_if_that_is_declared(
    table: Path, change: Callable[[Path], None]
) -> None:
    source = hg.Delta(table, changes="ignore")
    change(table)
    append(table, 30)
    _, ranges = loaded(source, source.start())
    assert ids(source, ranges) == [0, 1, 10, 11, 20, 21, 30, 31]


def test_versions_that_were_cleaned_up_are_named_with_the_way_on(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    for version in (0, 1):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    source = hg.Delta(table)
    pending = source.latest(source.start())
    assert pending.missing and pending.chunks == 0
    assert "versions 0 to 1 were cleaned up" in pending.note
    assert "start=2" in pending.note and "start='contents'" in pending.note


def test_a_stream_goes_on_after_what_was_cleaned_up(table: Path) -> None:
    source = hg.Delta(table)
    found = source.next_range(source.start(), Limit(chunks=1))
    assert found is not None
    offset = source.advance(source.start(), found)
    DeltaTable(str(table)).create_checkpoint()
    for version in (0, 1):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    assert source.latest(offset).chunks == 2, "what was read of the log is remembered"
    assert "version 1 were cleaned up" in hg.Delta(table).latest(offset).note
    on = hg.Delta(table, start=2)
    assert ids(on, loaded(on, offset)[1]) == [20, 21]


def test_a_table_that_was_made_anew_is_not_gone_on_with(table: Path) -> None:
    offset, _ = loaded(hg.Delta(table), hg.Delta(table).start())
    for path in (table / "_delta_log").iterdir():
        path.unlink()
    for version in range(5):
        append(table, 10 * version)
    source = hg.Delta(table)
    for _ in range(3):  # looks are not to forget it
        pending = source.latest(offset)
        assert pending.missing and pending.chunks == 0 and "made anew" in pending.note
        assert source.next_range(offset, ALL) is None


def test_a_table_that_was_put_back_to_an_older_version_is_told(table: Path) -> None:
    offset, _ = loaded(hg.Delta(table), hg.Delta(table).start())
    (table / "_delta_log" / f"{2:020}.json").unlink()
    assert "made anew or put back" in hg.Delta(table).latest(offset).note


def test_a_table_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    source = hg.Delta(tmp_path / "later", schema="id bigint, ts timestamp, city string")
    pending = source.latest(source.start())
    assert pending.missing and "does not exist" in pending.note
    append(tmp_path / "later", 0)
    assert source.latest(source.start()).chunks == 1


def test_without_a_schema_a_table_that_is_not_there_says_to_declare_one(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="declare the source with schema="):
        hg.Delta(tmp_path / "later").schema  # noqa: B018


def test_a_file_that_was_vacuumed_is_named_with_the_way_on(table: Path) -> None:
    source = hg.Delta(table)
    found = source.next_range(source.start(), Limit())
    assert found is not None
    for path in table.glob("*.parquet"):
        path.unlink()
    with pytest.raises(SourceError, match="removed before it was loaded"):
        source.read(None, found)  # type: ignore[arg-type]


# --- declaring --------------------------------------------------------------------------------------------------


def test_the_columns_are_those_of_the_table(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.struct([("c", pa.string())]))])
    nested = pa.array([{"a": [1], "b": {"c": "x"}}], inner)
    table = pa.table({"id": [1], "d": pa.array([1], pa.decimal128(10, 2)), "n": nested, "m x": [True]})
    write_deltalake(str(tmp_path / "t"), table)
    expected = "`id` bigint, `d` decimal(10,2), `n` struct<`a`: array<int>, `b`: struct<`c`: string>>, `m x` boolean"
    assert hg.Delta(tmp_path / "t").schema == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"start": "yesterday"}, "start takes", id="start"),
        pytest.param({"start": -1}, "start takes", id="a negative version"),
        pytest.param({"changes": "take"}, "changes takes", id="changes"),
        pytest.param({"schema": "id"}, "is not a column", id="schema"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        hg.Delta("orders", **options)


def test_a_relative_path_begins_at_the_pipeline_file(table: Path) -> None:
    source = hg.Delta("orders").resolve(table.parent)
    assert source.latest(source.start()).chunks == 3


def test_the_columns_are_looked_up_from_the_pipeline_file_on(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "import headgate as hg\nwh = hg.Warehouse('shop')\nwh.stream('orders', hg.Delta('orders'), time='ts')\n"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resolved(load(file).spec()).streams[0].source.schema.startswith("`id` bigint")


def test_an_address_is_looked_at_in_the_background_and_its_options_are_never_shown(tmp_path: Path) -> None:
    options = {"aws_secret_access_key": "hush-hush", "aws_endpoint": "http://127.0.0.1:9", "aws_allow_http": "true"}
    source = hg.Delta("s3://nowhere/table", schema="id bigint", storage_options=options)
    assert source.latest(source.start()).chunks == 0
    assert "hush" not in repr(source)


# --- dimensions -------------------------------------------------------------------------------------------------


def test_a_dimension_is_the_newest_version_that_changed_rows(table: Path) -> None:
    source = hg.Delta(table)
    first, _ = source.contents(None)
    assert first is not None and (first.version, first.chunks) == (2, 3)
    DeltaTable(str(table)).optimize.compact()
    again, _ = source.contents(first)
    assert again is not None and again.names_the_same_as(first)
    DeltaTable(str(table)).delete("id = 10")
    second, _ = source.contents(first)
    assert second is not None and not second.names_the_same_as(first)
    assert sorted(source._read_contents(second).column("id").to_pylist()) == [0, 1, 11, 20, 21]
    assert sorted(source._read_contents(first).column("id").to_pylist()) == [0, 1, 10, 11, 20, 21]


def test_a_restarted_dimension_finds_what_it_has_loaded(table: Path) -> None:
    loaded_before, _ = hg.Delta(table).contents(None)
    DeltaTable(str(table)).optimize.compact()
    found, _ = hg.Delta(table).contents(loaded_before)
    assert found is not None and loaded_before is not None and found.names_the_same_as(loaded_before)


def test_a_dimension_waits_for_a_table_that_is_not_there(tmp_path: Path) -> None:
    found, said = hg.Delta(tmp_path / "later", schema="id bigint").contents(None)
    assert found is None and said.missing and "does not exist" in said.note


def test_a_dimension_that_is_too_large_for_the_driver_is_refused_with_its_size(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.warehouse.sources.arrow_rows.MOST_CONTENTS", 1)
    source = hg.Delta(table)
    contents, _ = source.contents(None)
    assert contents is not None
    with pytest.raises(SourceError, match="too much for a dimension, which is read as a whole in the driver"):
        source.read(None, contents)  # type: ignore[arg-type]


def test_a_large_dimension_of_postgresql_is_refused_before_it_is_read() -> None:
    source = hg.Postgres("postgresql://127.0.0.1:1/away", "orders", schema="id bigint")
    with pytest.raises(SourceError, match=r"has about 1,024 MB, too much for a dimension.*at most 512 MB"):
        source.read(None, PostgresContents(9, "x", size=1 << 30, newest=0.0))  # type: ignore[arg-type]


# --- files that are too large for the driver ------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize("where", ["here", "at an address"])
def test_spark_reads_a_file_that_is_too_large_for_the_driver(
    where: str,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.warehouse.sources.delta.source.MOST_BYTES", 1)
    address, options = str(tmp_path / "orders"), {}
    if where == "at an address":
        store: ObjectStoreServer = request.getfixturevalue("object_store")
        place = store.bucket()
        address, options = f"{place}/orders", dict(place.bucket.options)
    write_deltalake(address, rows(0, 5), partition_by=["city"], storage_options=options or None)
    source = hg.Delta(address, schema="id bigint, ts timestamp, city string", storage_options=options)
    wanted = awaited(source)
    frame = source.read(spark, wanted)
    assert len(frame.inputFiles()) == 1, "Spark reads a file, and not rows that the driver has read"
    found = frame.toArrow()
    expected = rows(0, 5)
    for column in ("id", "ts", "city"):
        assert found.column(column).to_pylist() == expected.column(column).to_pylist()
    (chunk,) = set(found.column("_file").to_pylist())
    assert chunk.startswith("city=bern/")
    assert set(found.column("_error").to_pylist()) == {None}
    copied = Path(unquote(urlsplit(frame.inputFiles()[0]).path))
    source.release()
    assert copied.exists() == (where == "here"), "a copy is deleted when it is not needed any more"


def awaited(source: hg.Delta) -> DeltaRange:
    """The first range of a source, whose table may have to be looked at by another thread."""
    end = time.monotonic() + 600
    while (found := source.next_range(source.start(), ALL)) is None:
        assert time.monotonic() < end, source.latest(source.start())
        source.latest(source.start())
        time.sleep(0.01)
    return found
