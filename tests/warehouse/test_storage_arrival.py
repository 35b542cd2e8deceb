"""Every data file says in which commit its rows arrived, and the log remembers it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.warehouse.storage.files import ALL, DataFile
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import HOUR, changes, clicks, hours, load, spark_like

#: a table that an earlier version of Headgate wrote: two updates, a compaction, an update, a roll up, an update
WRITTEN_BEFORE = Path(__file__).parent / "table_written_before"


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(tmp_path / "clicks", "ts")


def in_order(store: TableStore, files: Iterable[DataFile]) -> list[list[int]]:
    """The seconds in each file, by when the files arrived; those of one commit together."""
    commits: dict[int, list[int]] = {}
    for file in files:
        micros = pq.read_table(store.path_of(file), partitioning=None).column("v").to_pylist()
        commits.setdefault(file.arrived, []).extend(value // 1_000_000 for value in micros)
    return [sorted(commits[arrived]) for arrived in sorted(commits)]


def test_files_of_one_update_arrive_together_and_after_those_of_earlier_ones(store: TableStore) -> None:
    for update, second in enumerate([5, 3, 8, 1]):
        load(store, update, clicks(second, HOUR + second))
    expected = [[5, HOUR + 5], [3, HOUR + 3], [8, HOUR + 8], [1, HOUR + 1]]
    for reader in (store, TableStore(store.directory, "ts")):
        assert in_order(reader, reader.files()) == expected
        assert in_order(reader, changes(reader, -1).added) == expected
        assert in_order(reader, changes(reader, 1).added) == expected[2:]
        assert in_order(reader, reader.snapshot(2).files) == expected[:3]


def test_the_number_is_the_same_from_memory_from_the_log_and_from_a_checkpoint(store: TableStore) -> None:
    for update in range(4):
        load(store, update, clicks(update, HOUR))
    live, changed = store.files(), changes(store, 0).added
    assert all(file.arrived > 0 for file in live)
    for _ in range(2):
        reopened = TableStore(store.directory, "ts")
        assert reopened.files() == live
        assert changes(reopened, 0).added == changed
        store.checkpoint()


def test_the_order_outlives_the_log_entries(store: TableStore) -> None:
    for update, second in enumerate([5, 3, 8, 1]):
        load(store, update, clicks(second))
    store.checkpoint()
    for entry in (store.directory / "_delta_log").glob("*[0-2].json"):
        entry.unlink()
    reopened = TableStore(store.directory, "ts")
    assert in_order(reopened, reopened.files()) == [[5], [3], [8], [1]]


def test_files_that_spark_wrote_arrive_with_their_commit(store: TableStore) -> None:
    load(store, 1, clicks(7))
    directory = store.stage(2)
    spark_like(directory, {hours(0)[0]: clicks(2), hours(1)[0]: clicks(HOUR)})
    store.commit(2, store.adopt(directory), state={}, schema=clicks().schema)
    load(store, 3, clicks(1))
    reopened = TableStore(store.directory, "ts")
    assert in_order(reopened, reopened.files()) == in_order(store, store.files()) == [[7], [2, HOUR], [1]]


def test_a_compacted_file_comes_before_what_is_committed_later(store: TableStore) -> None:
    for update in range(1, 6):
        load(store, update, clicks(10 - update))
    store.compact()
    load(store, 6, clicks(0))
    for reader in (store, TableStore(store.directory, "ts")):
        assert in_order(reader, reader.files()) == [[5, 6, 7, 8, 9], [0]]
        # The changes do not know of the compaction.
        assert in_order(reader, changes(reader, -1).added) == [[9], [8], [7], [6], [5], [0]]


def test_a_compacted_file_comes_before_what_was_committed_while_it_was_written(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for update in range(1, 6):
        load(store, update, clicks(10 - update))
    merge = TableStore._merge

    def merge_slowly(self: TableStore, *arguments: object) -> object:
        load(store, 6, clicks(0))
        return merge(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TableStore, "_merge", merge_slowly)
    store.compact()
    for reader in (store, TableStore(store.directory, "ts")):
        assert in_order(reader, reader.files()) == [[5, 6, 7, 8, 9], [0]]


def test_rolled_up_files_come_before_what_is_committed_later(store: TableStore) -> None:
    load(store, 1, clicks(3, HOUR))
    load(store, 2, clicks(1))
    store.roll_up(4 * HOUR * 1_000_000, 2 * HOUR)
    load(store, 3, clicks(2))
    for reader in (store, TableStore(store.directory, "ts")):
        assert in_order(reader, reader.files()) == [[1, 3, HOUR], [2]]


def test_replacing_rows_and_gaining_columns_keeps_the_order(store: TableStore) -> None:
    load(store, 1, clicks(1, HOUR + 1))
    load(store, 2, clicks(2))
    load(store, 3, clicks(HOUR + 3).append_column("new", pa.array([1])), hours(1))
    for reader in (store, TableStore(store.directory, "ts")):
        assert in_order(reader, reader.files()) == [[1], [2], [HOUR + 3]]
        assert [file.arrived for file in changes(reader, 0).removed] == [0]


def test_a_table_without_event_time_keeps_the_order_too(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "plain")
    rows = pa.table({"v": [3_000_000]})
    for update in range(3):
        store.commit(update, store.write_arrow(update, rows), state={}, schema=rows.schema)
    replaced = store.write_arrow(3, rows)
    assert len({file.arrived for file in store.files()}) == 3
    before = max(file.arrived for file in store.files())
    store.commit(3, replaced, replace=ALL, state={}, schema=rows.schema)
    (file,) = TableStore(store.directory).files()
    assert file.arrived > before


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("merged", [False, True])
def test_a_clock_that_is_set_back_changes_no_order(
    store: TableStore, monkeypatch: pytest.MonkeyPatch, reopened: bool, merged: bool
) -> None:
    load(store, 1, clicks(2))
    load(store, 2, clicks(1))
    if merged:
        store.compact()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    writer = TableStore(store.directory, "ts") if reopened else store
    load(writer, 3, clicks(0))
    assert in_order(writer, changes(writer, -1).added) == [[2], [1], [0]]
    assert in_order(writer, writer.files()) == ([[1, 2], [0]] if merged else [[2], [1], [0]])


def test_a_table_written_before_has_the_order_and_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "clicks"
    shutil.copytree(WRITTEN_BEFORE / "clicks", directory)
    store = TableStore(directory, "ts")
    assert store.state == {"update": 4}
    rolled_up, late = [1, 2, 3, HOUR + 3, HOUR + 4], [0, HOUR]
    assert in_order(store, store.files()) == [rolled_up, late]
    # Files that were merged are still on disk, so the changes name them in the order of their commits.
    assert in_order(store, changes(store, -1).added) == [[3, HOUR + 3], [1], [2, HOUR + 4], late]
    load(store, 5, clicks(4))
    assert in_order(store, store.files()) == [rolled_up, late, [4]]
    store.compact()
    load(store, 6, clicks(5))
    reopened = TableStore(directory, "ts")
    assert in_order(reopened, reopened.files())[-1] == [5]
