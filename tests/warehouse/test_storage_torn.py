"""A log that was torn by a power cut is repaired when the table is opened: what stands stays, the rest is set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.warehouse.storage.errors import StorageError, TableRecreatedError
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import clicks, hours, load, log_entries, seen_by_delta, values


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    """Version 3 replaces a file, so that its entry has lines of all kinds."""
    store = TableStore(tmp_path / "clicks", "ts")
    for update in (1, 2, 3):
        load(store, update, clicks(update))
    load(store, 4, clicks(4), hours(0))
    return store


def set_aside(store: TableStore) -> list[str]:
    return sorted(path.name for path in (store.directory / "_headgate_set_aside").rglob("*.*"))


def test_wherever_the_last_entry_is_cut_off_it_is_set_aside_and_done_again(store: TableStore) -> None:
    last = log_entries(store)[-1]
    whole = last.read_bytes()
    lines = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in {0, 1, len(whole) // 2, len(whole) - 1, *lines, *(place + 1 for place in lines)} - {len(whole)}:
        last.write_bytes(whole[:cut])
        again = TableStore(store.directory, "ts")
        assert (again.version, again.state) == (2, {"update": 3}), f"cut off after {cut} of {len(whole)} bytes"
        assert seen_by_delta(again) == values(clicks(1, 2, 3))
        assert set(set_aside(again)) == {last.name}
        with pytest.raises(TableRecreatedError):
            again.versions(3, store.version_id)
    load(again, 4, clicks(5))
    assert seen_by_delta(TableStore(store.directory, "ts")) == values(clicks(1, 2, 3, 5))


@pytest.mark.parametrize("content", [b"\0" * 700, b"\xff\xfe", b"[]\n", b"1\n"], ids=str)
def test_an_entry_of_something_else_is_set_aside(store: TableStore, content: bytes) -> None:
    log_entries(store)[-1].write_bytes(content)
    assert TableStore(store.directory, "ts").version == 2


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_an_entry_whose_data_did_not_reach_the_disk_is_set_aside(store: TableStore, content: bytes | None) -> None:
    path = store.path_of(store.files()[0])
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    again = TableStore(store.directory, "ts")
    assert (again.version, seen_by_delta(again)) == (2, values(clicks(1, 2, 3)))


def test_what_came_after_a_torn_entry_goes_with_it(store: TableStore) -> None:
    log_entries(store)[2].write_bytes(b"{")
    again = TableStore(store.directory, "ts")
    assert (again.version, again.state) == (1, {"update": 2})
    assert set_aside(again) == [f"{version:020}.json" for version in (2, 3)]


def test_a_table_whose_first_entry_is_torn_does_not_exist(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    load(store, 1, clicks(1))
    log_entries(store)[0].write_bytes(b"{")
    again = TableStore(store.directory, "ts")
    assert not again.exists
    load(again, 1, clicks(2))
    assert seen_by_delta(again) == values(clicks(2))


@pytest.mark.parametrize("hint", [b"", b"garbage", b"{}", b"[1]", b"\xff"], ids=str)
@pytest.mark.parametrize("reopened", [False, True], ids=["running", "opened"])
def test_a_damaged_hint_to_the_last_checkpoint_is_no_failure_of_a_commit(
    store: TableStore, hint: bytes, reopened: bool
) -> None:
    store.checkpoint()
    pointer = store.directory / "_delta_log" / "_last_checkpoint"
    pointer.write_bytes(hint)
    writer = TableStore(store.directory, "ts") if reopened else store
    assert load(writer, 5, clicks(5)) == 4
    assert b'"version":4' in pointer.read_bytes()
    again = TableStore(store.directory, "ts")
    assert (again.version, seen_by_delta(again)) == (4, values(clicks(4, 5)))


def test_a_hint_to_a_checkpoint_that_is_not_there_is_set_aside_for_the_next_attempt(store: TableStore) -> None:
    store.checkpoint()
    (store.directory / "_delta_log" / "_last_checkpoint").write_bytes(b'{"version": 99, "size": 1}')
    with pytest.raises(StorageError, match="try the update again"):
        load(store, 5, clicks(5))
    assert load(store, 5, clicks(5)) == 4
    assert seen_by_delta(TableStore(store.directory, "ts")) == values(clicks(4, 5))


def test_a_torn_checkpoint_is_set_aside_as_the_entries_are_still_there(store: TableStore) -> None:
    store.checkpoint()
    checkpoint = next((store.directory / "_delta_log").glob("*.checkpoint.parquet"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    again = TableStore(store.directory, "ts")
    assert (again.version, seen_by_delta(again)) == (3, values(clicks(4)))
    again.checkpoint()
    assert checkpoint.exists()
