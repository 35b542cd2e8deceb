"""What is committed is on disk, and everything that a commit names was there before it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from headgate.warehouse.storage.copy_on_write import replace_rows
from headgate.warehouse.storage.errors import StorageError
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.storage.sync import with_directories
from tests.warehouse.storage_helpers import CLICKS, HOUR, clicks, hours, load, log_entries, spark_like


class Disk:
    """Records what was synced, and whether the log entry of ``version`` was there already."""

    def __init__(self, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.before: set[str] = set()
        self.after: set[str] = set()
        self._entries = len(log_entries(store))
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        name = path.relative_to(self.store.directory.parents[1]).as_posix()
        is_committed = len(log_entries(self.store)) > self._entries
        (self.after if is_committed else self.before).add(name)
        self._fsync(descriptor)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(tmp_path / "tables" / "clicks", "ts")


def test_the_first_commit_of_a_table_syncs_its_folders_too(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(store, monkeypatch)
    load(store, 1, clicks(1))
    (file,) = store.files()
    path = Path("tables/clicks") / file.path
    assert disk.before == {str(path), str(path.parent), "tables/clicks/data"}
    log = "tables/clicks/_delta_log"
    assert disk.after == {f"{log}/{0:020}.json", log, "tables/clicks", "tables", "."}


def test_an_entry_that_was_written_before_a_crash_is_synced_before_anything_is_built_on_it(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, 1, clicks(1))
    load(store, 2, clicks(2))
    # The process may have been killed between writing the entry and syncing it: nobody knows any more.
    disk = Disk(store, monkeypatch)
    TableStore(store.directory, "ts")
    assert disk.before == {f"tables/clicks/_delta_log/{1:020}.json", "tables/clicks/_delta_log"}


def test_data_files_of_spark_are_synced_with_all_directories_then_the_entry(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, 1, clicks(1))
    directory = store.stage(2)
    spark_like(directory, {hours(0)[0]: clicks(2), hours(1)[0]: clicks(HOUR)})
    files = store.adopt(directory)
    disk = Disk(store, monkeypatch)
    store.commit(2, files, state={}, schema=CLICKS)
    named = [Path("tables/clicks") / new.file.path for new in files]
    folders = {parent for path in named for parent in path.parents[:3]}
    assert disk.before == {str(path) for path in (*named, *folders)}
    assert disk.after == {f"tables/clicks/_delta_log/{1:020}.json", "tables/clicks/_delta_log"}


def test_files_that_say_which_rows_have_changed_are_synced_too(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, 1, clicks(1, 2, 3))
    (file,) = store.files()
    new = replace_rows(store, 2, {file.path: np.array([0])}, clicks(4), HOUR)
    disk = Disk(store, monkeypatch)
    store.commit(2, new.files, replace=new.removed, state={}, schema=CLICKS, changes=new.changes)
    assert new.changes is not None
    written = (*(each.file for each in new.files), *new.changes.added, *new.changes.removed)
    assert {f"tables/clicks/{file.path}" for file in written} < disk.before


def test_a_checkpoint_is_on_disk_before_old_entries_are_deleted(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, 1, clicks(1))
    disk = Disk(store, monkeypatch)
    store.checkpoint()
    log = "tables/clicks/_delta_log"
    assert disk.before == {f"{log}/{0:020}.checkpoint.parquet", f"{log}/_last_checkpoint", log}


def test_who_prefers_speed_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TableStore(tmp_path / "tables" / "clicks", "ts", syncs=False)
    disk = Disk(store, monkeypatch)
    load(store, 1, clicks(1))
    store.checkpoint()
    assert disk.before == disk.after == set()


def test_a_disk_that_cannot_sync_fails_the_update_and_nothing_is_committed(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, 1, clicks(1))

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(StorageError, match=r"the disk did not take what was written.*Input/output error"):
            load(store, 2, clicks(2))
    assert store.version == 0
    assert load(store, 2, clicks(2)) == 1


def test_every_directory_on_the_way_to_a_file_is_named_once(tmp_path: Path) -> None:
    files = [tmp_path / "a" / "b" / "1", tmp_path / "a" / "b" / "2"]
    assert with_directories(tmp_path, files) == [files[0], tmp_path / "a" / "b", tmp_path / "a", files[1]]


def test_a_warehouse_syncs_unless_it_is_declared_not_to(tmp_path: Path) -> None:
    from headgate.warehouse import Warehouse

    assert Warehouse("shop", tmp_path).spec().sync
    assert not Warehouse("shop", tmp_path, sync=False).spec().sync
