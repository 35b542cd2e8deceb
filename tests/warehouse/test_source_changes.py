"""What a table has not consumed of a source yet: version by version, or, if that is not known, all of it at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.source_changes import SourceChanges
from tests.warehouse.storage_helpers import SECOND, clicks, load, log_entries


def commit(store: TableStore, *seconds: int) -> None:
    number = CommitState.from_json(store.state).update + 1
    state = CommitState(number, "load", freshness=max(seconds) * SECOND).to_json()
    load(store, number, clicks(*seconds), state=state)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    store = TableStore(tmp_path / "clicks", "ts", syncs=False)
    for second in (1, 2, 3):
        commit(store, second)
    return store


def unconsumed(store: TableStore, consumed: int) -> SourceChanges:
    """The changes for a table that has consumed a version of the source as it is now."""
    entries = {entry.version: entry for entry in store.versions(-1)}
    return SourceChanges("clicks", store, consumed, f"{store.table_id}/{entries[consumed].token}")


def test_new_versions_are_read_one_by_one(store: TableStore) -> None:
    changes = unconsumed(store, 0)
    assert [version.version for version in changes.read()] == [1, 2]
    assert (changes.lost, changes.rows, changes.freshness, changes.is_current) == ("", 2, 3 * SECOND, True)


@pytest.mark.parametrize("commits", [1, 3, 5], ids=["fewer versions", "as many versions", "more versions"])
def test_a_source_made_anew_is_lost_however_many_versions_it_has(store: TableStore, commits: int) -> None:
    changes = unconsumed(store, 2)
    shutil.rmtree(store.directory)
    store.look()
    assert changes.is_current and changes.read() == (), "it is waited for until it exists again"
    for second in range(10, 10 + commits):
        commit(store, second)
    (whole,) = changes.read()
    assert "made anew" in changes.lost
    assert (whole.version, changes.rows, changes.version_id) == (commits - 1, commits, store.version_id)
    assert changes.is_current


def test_what_was_pending_of_the_old_table_is_forgotten_even_if_an_update_has_taken_it(store: TableStore) -> None:
    changes = unconsumed(store, 0)
    changes.read()
    changes.begin(1)
    shutil.rmtree(store.directory)
    store.look()
    commit(store, 9)
    changes.read()
    changes.end(committed=False)
    assert [version.version for version in changes.pending] == [0]
    assert changes.spans == ((9 * SECOND, 9 * SECOND),)


def test_an_unknown_id_is_taken_as_the_same_table_unless_it_has_not_got_so_far(store: TableStore) -> None:
    older = SourceChanges("clicks", store, 2, "")
    assert older.read() == () and not older.lost and older.version_id == store.version_id
    ahead = SourceChanges("clicks", store, 7, "")
    assert [version.version for version in ahead.read()] == [2]
    assert "made anew" in ahead.lost


def test_rows_that_another_program_deleted_are_lost_for_who_followed_the_log(store: TableStore) -> None:
    changes = unconsumed(store, 1)
    DeltaTable(store.directory).delete("v = 1000000")
    store.look()
    commit(store, 4)
    (whole,) = changes.read()
    assert "was not written by headgate" in changes.lost
    assert sum(file.rows for file in whole.added) == 3


def test_maintenance_by_another_program_is_a_version_as_fresh_as_the_one_before(store: TableStore) -> None:
    changes = unconsumed(store, 2)
    DeltaTable(store.directory).optimize.compact()
    store.look()
    assert [(version.version, version.freshness, version.files) for version in changes.read()] == [(3, 3 * SECOND, ())]
    assert not changes.lost


def test_a_log_that_was_cleaned_up_is_lost(store: TableStore) -> None:
    store.checkpoint()
    for entry in log_entries(store)[:2]:
        entry.unlink()
    changes = SourceChanges("clicks", TableStore(store.directory, "ts"), 0, "")
    (whole,) = changes.read()
    assert "cleaned up" in changes.lost and sum(file.rows for file in whole.added) == 3


@pytest.mark.parametrize("commits", [0, 1, 2], ids=["older", "the same version again", "newer"])
def test_a_source_put_back_from_a_copy_is_lost_for_who_had_read_further(
    store: TableStore, tmp_path: Path, commits: int
) -> None:
    shutil.copytree(store.directory, tmp_path / "copy")
    commit(store, 4)
    ahead, behind = unconsumed(store, 3), unconsumed(store, 2)
    shutil.rmtree(store.directory)
    shutil.copytree(tmp_path / "copy", store.directory)
    store.look()
    for second in range(10, 10 + commits):
        commit(store, second)
    (whole,) = ahead.read()
    assert "made anew" in ahead.lost and whole.version == 2 + commits
    assert len(behind.read()) == commits and not behind.lost
