"""What others do to a table on disk is noticed: its folder is deleted, put back, or rows are changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.warehouse.storage.errors import (
    ForeignHistoryError,
    StorageError,
    TableRecreatedError,
    TableVanishedError,
)
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import HOUR, clicks, hours, load, log_entries, seen_by_delta, values


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    store = TableStore(tmp_path / "clicks", "ts")
    for update in (1, 2, 3):
        load(store, update, clicks(update))
    return store


def delete_folder(store: TableStore) -> None:
    shutil.rmtree(store.directory)


def delete_log(store: TableStore) -> None:
    shutil.rmtree(store.directory / "_delta_log")


@pytest.mark.parametrize("delete", [delete_folder, delete_log])
@pytest.mark.parametrize("reopened", [False, True], ids=["running", "just opened"])
def test_nothing_is_added_to_a_table_that_was_deleted_and_then_it_starts_anew(
    store: TableStore, delete: Callable[[TableStore], None], reopened: bool
) -> None:
    writer = TableStore(store.directory, "ts") if reopened else store
    before = writer.table_id
    delete(writer)
    with pytest.raises(TableVanishedError, match="made anew with the next update"):
        load(writer, 4, clicks(4))
    assert (writer.exists, writer.version, writer.state, writer.table_id) == (False, -1, {}, "")
    load(writer, 1, clicks(9))
    assert (writer.version, seen_by_delta(writer)) == (0, values(clicks(9)))
    assert writer.table_id not in ("", before)


def test_an_update_that_adds_to_a_table_is_refused_if_somebody_noticed_first_that_it_is_gone(store: TableStore) -> None:
    files = store.write_arrow(4, clicks(4), 3600.0)
    delete_folder(store)
    store.look()
    with pytest.raises(TableVanishedError):
        store.commit(4, files, state={}, schema=clicks(4).schema, after=3)
    assert not store.exists


def test_a_look_notices_that_the_table_is_gone_and_costs_no_reading_if_it_is_not(store: TableStore) -> None:
    known = store._table
    store.look()
    assert store._table is known
    delete_folder(store)
    assert store.exists
    store.look()
    assert not store.exists


def test_a_look_during_a_commit_leaves_it_alone(store: TableStore) -> None:
    delete_folder(store)
    with store._writing:
        store.look()
    assert store.exists


def test_a_table_deleted_while_its_entry_is_written_leaves_no_entry_that_nobody_can_read(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store._delta._write

    def write_into_deleted(*arguments: object) -> None:
        for entry in log_entries(store):
            entry.unlink()
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store._delta, "_write", write_into_deleted)
    with pytest.raises(StorageError):
        load(store, 4, clicks(4))
    assert log_entries(store) == []
    assert not TableStore(store.directory, "ts").exists


def test_a_table_made_anew_is_another_table_even_at_the_same_version(store: TableStore) -> None:
    before = store.version_id
    assert TableStore(store.directory, "ts").version_id == before
    assert store.versions(2, before) == ()
    delete_folder(store)
    store.look()
    for update in range(1, 5):
        load(store, update, clicks(10 + update))
    assert store.version == 3
    with pytest.raises(TableRecreatedError, match="'clicks' was deleted and made anew since its version 2 was read"):
        store.versions(2, before)
    assert store.versions(3, store.version_id) == ()
    assert [entry.version for entry in store.versions(2)] == [3], "an unknown id is taken as the same"
    assert len(store.versions(-1, before)) == 4, "who has consumed nothing reads from the beginning"


def test_a_table_put_back_from_a_copy_is_the_one_it_was(store: TableStore, tmp_path: Path) -> None:
    shutil.copytree(store.directory, tmp_path / "copy")
    load(store, 4, clicks(4))
    delete_folder(store)
    shutil.copytree(tmp_path / "copy", store.directory)
    store.look()
    assert (store.version, store.state, seen_by_delta(store)) == (2, {"update": 3}, values(clicks(1, 2, 3)))
    with pytest.raises(TableRecreatedError):
        store.versions(3, store.version_id)


def test_columns_that_change_leave_the_id_of_a_table(store: TableStore) -> None:
    import pyarrow as pa

    before = store.table_id
    load(store, 4, clicks(4).append_column("word", pa.array(["new"])), hours(0))
    assert (store.table_id, TableStore(store.directory, "ts").table_id) == (before, before)


@pytest.mark.parametrize("how", ["delete", "append"])
def test_rows_that_another_program_changes_are_noticed_until_the_next_update(store: TableStore, how: str) -> None:
    if how == "delete":
        DeltaTable(store.directory).delete("v = 1000000")
    else:
        rows = clicks(5).append_column("_partition", [[hours(0)[0]]])
        write_deltalake(store.directory, rows, mode="append")
    assert not store.is_foreign
    store.look()
    assert store.is_foreign and TableStore(store.directory, "ts").is_foreign
    assert store.state == {"update": 3}
    with pytest.raises(ForeignHistoryError, match="version 3 of 'clicks' was not written by headgate"):
        store.versions(2)
    (whole,) = store.versions(-1)
    assert sum(file.rows for file in whole.added) == (2 if how == "delete" else 4)
    store.compact()
    assert store.is_foreign and TableStore(store.directory, "ts").is_foreign, "maintenance changes no rows"
    load(store, 4, clicks(4))
    assert not store.is_foreign and not TableStore(store.directory, "ts").is_foreign


def test_maintenance_of_another_program_changes_no_rows_and_is_followed(store: TableStore) -> None:
    DeltaTable(store.directory).optimize.compact()
    store.look()
    assert not store.is_foreign
    assert [(entry.version, entry.added, entry.state) for entry in store.versions(2)] == [(3, (), {"update": 3})]


def test_a_log_without_a_beginning_is_an_error_that_says_what_to_do(store: TableStore) -> None:
    log_entries(store)[0].unlink()
    with pytest.raises(StorageError, match=r"cannot be read.*delete the folder, then the table is made anew"):
        TableStore(store.directory, "ts").check_readable()


def test_files_of_old_versions_that_were_deleted_are_told(store: TableStore) -> None:
    old = store.files()
    store.compact()
    assert store.missing(old) == []
    store.vacuum(0)
    assert store.missing([*old, *store.files()]) == [file.path for file in old]
    load(store, 4, clicks(HOUR))


def test_a_dropped_table_is_gone_and_can_be_made_anew(store: TableStore) -> None:
    store.drop()
    assert not store.exists and list(store.directory.parent.iterdir()) == []
    load(store, 1, clicks(9))
    assert seen_by_delta(store) == values(clicks(9))
