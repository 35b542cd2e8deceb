"""What changed since a version is told from memory or from the log, and maintenance is not a change."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.warehouse.storage.errors import (
    ForeignHistoryError,
    HistoryLostError,
    StorageError,
    TableRecreatedError,
)
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import (
    CLICKS,
    HOUR,
    SECOND,
    changes,
    clicks,
    hours,
    load,
    log_entries,
    paths,
    rows_of,
    seen_by_delta,
    values,
)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    """Versions: 0 and 1 append, 2 replaces the first hour, 3 compacts, 4 appends, 5 moves only the state."""
    store = TableStore(tmp_path / "clicks", "ts")
    load(store, 1, clicks(1, HOUR))
    load(store, 2, clicks(2, HOUR + 2))
    load(store, 3, clicks(3), hours(0))
    store.compact()
    load(store, 4, clicks(4))
    store.commit(5, [], state={"update": 5}, schema=CLICKS)
    return store


@pytest.fixture(params=["from memory", "from the log"])
def reader(request: pytest.FixtureRequest, store: TableStore) -> TableStore:
    return store if request.param == "from memory" else TableStore(store.directory, "ts")


@pytest.mark.parametrize("since", range(-1, 6))
def test_the_rows_of_one_version_plus_the_changes_are_the_rows_of_another(reader: TableStore, since: int) -> None:
    before = seen_by_delta(reader, since) if since >= 0 else values(clicks())
    for until in range(max(since, 0), reader.version + 1):
        found = changes(reader, since, until)
        after = before + rows_of(reader, found.added)
        after.subtract(rows_of(reader, found.removed))
        assert +after == seen_by_delta(reader, until)
        assert min(after.values(), default=0) >= 0


def test_a_replaced_file_is_told_with_its_rows_and_times(reader: TableStore) -> None:
    found = changes(reader, 1, 2)
    told = [(file.partition, file.rows, file.first, file.last) for file in found.removed]
    assert sorted(told) == [(hours(0)[0], 1, SECOND, SECOND), (hours(0)[0], 1, 2 * SECOND, 2 * SECOND)]
    assert [(file.rows, file.first, file.last) for file in found.added] == [(1, 3 * SECOND, 3 * SECOND)]


def test_a_file_that_came_and_went_between_leaves_no_trace(reader: TableStore) -> None:
    found = changes(reader, 0, 2)
    assert rows_of(reader, found.removed) == values(clicks(1))
    assert rows_of(reader, found.added) == values(clicks(3, HOUR + 2))


def test_maintenance_and_a_moved_state_are_no_changes(reader: TableStore) -> None:
    for since in (2, 4):
        found = changes(reader, since, since + 1)
        assert (found.added, found.removed) == ((), ())


def test_a_version_that_the_table_does_not_have_yet_was_of_another_table(store: TableStore) -> None:
    with pytest.raises(TableRecreatedError, match="'clicks' was deleted and made anew since its version 6 was read"):
        store.versions(6)


def test_changes_that_were_cleaned_up_are_lost_for_whoever_did_not_remember_them(store: TableStore) -> None:
    remembered = changes(store, -1)
    store.checkpoint()
    for entry in log_entries(store)[:2]:
        entry.unlink()
    assert changes(store, -1) == remembered
    again = TableStore(store.directory, "ts")
    assert changes(again, 1) == changes(store, 1)
    with pytest.raises(HistoryLostError, match=r"version 1 .*Compute from a snapshot") as lost:
        changes(again, 0)
    assert lost.value.version == 1


def test_changes_of_others_that_do_not_say_what_they_removed_are_an_error(store: TableStore) -> None:
    from deltalake import DeltaTable

    DeltaTable(store.directory).delete(f"_partition = '{hours(0)[0]}'")
    again = TableStore(store.directory, "ts")
    assert again.state == {"update": 5}
    with pytest.raises(ForeignHistoryError, match="was not written by headgate"):
        changes(again, 5)


def test_a_snapshot_is_a_version_with_its_files_and_its_state(reader: TableStore) -> None:
    for version in range(reader.version + 1):
        snapshot = reader.snapshot(version)
        assert rows_of(reader, snapshot.files) == seen_by_delta(reader, version)
        assert (snapshot.version, snapshot.state["update"]) == (version, (1, 2, 3, 3, 4, 5)[version])
    assert reader.snapshot() == reader.snapshot(reader.version)


def test_the_states_of_all_updates_can_be_told_newest_first(reader: TableStore) -> None:
    assert [state["update"] for state in reader.states()] == [5, 4, 3, 2, 1]


def test_maintenance_repeats_no_state_even_if_it_came_last(reader: TableStore) -> None:
    reader.roll_up(24 * HOUR * SECOND, 24 * HOUR)
    assert reader.version == 6
    assert [state["update"] for state in reader.states()] == [5, 4, 3, 2, 1]
    assert [state["update"] for state in TableStore(reader.directory, "ts").states()] == [5, 4, 3, 2, 1]


def test_states_go_as_far_back_as_the_log(store: TableStore) -> None:
    store.checkpoint()
    for entry in log_entries(store)[:3]:
        entry.unlink()
    assert [state["update"] for state in TableStore(store.directory, "ts").states()] == [5, 4]


def test_a_table_that_does_not_exist_has_no_states(tmp_path: Path) -> None:
    assert list(TableStore(tmp_path / "clicks", "ts").states()) == []


def test_rows_of_files_can_be_read_with_all_columns_of_the_table(store: TableStore) -> None:
    load(store, 6, clicks(5).append_column("word", pa.array(["new"])))
    rows = store.rows(store.files_in(hours(0))).sort_by("v")
    assert rows.column("word").to_pylist() == [None, None, "new"]
    assert rows.schema == store.schema


def test_an_older_version_can_be_read(store: TableStore) -> None:
    assert values(store.arrow(at_version=1)) == values(clicks(1, 2, HOUR, HOUR + 2))
    assert store.arrow(columns=["v", "_partition"], at_version=0).column_names == ["v", "_partition"]


@pytest.mark.parametrize("version", [-1, 6])
def test_a_version_that_does_not_exist_cannot_be_read(store: TableStore, version: int) -> None:
    with pytest.raises(StorageError, match=f"has no version {version}; expected 0 to 5"):
        store.arrow(at_version=version)
    with pytest.raises(StorageError, match=f"has no version {version}"):
        store.snapshot(version)


def test_a_table_that_does_not_exist_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nothing has been committed yet"):
        TableStore(tmp_path / "clicks", "ts").arrow()


def test_a_version_whose_files_were_vacuumed_is_lost(store: TableStore) -> None:
    store.vacuum(0)
    with pytest.raises(HistoryLostError, match="version 0"):
        store.arrow(at_version=0)


def test_replacing_everything_removes_everything(store: TableStore) -> None:
    before = paths(store.files())
    load(store, 6, clicks(9), ALL)
    assert paths(changes(store, 5).removed) == before


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        pytest.param(0, HOUR - 1, [0], id="one partition"),
        pytest.param(0, 0, [], id="before its first row"),
        pytest.param(4, 5, [0], id="touching its last row"),
        pytest.param(5, HOUR - 1, [], id="after its last row"),
        pytest.param(4, HOUR, [0, 1], id="touching two"),
        pytest.param(9 * HOUR, 10 * HOUR, [], id="after all"),
    ],
)
def test_partitions_are_found_by_the_event_times_of_their_files(
    store: TableStore, first: int, last: int, found: list[int]
) -> None:
    assert store.partitions_between(first * SECOND, last * SECOND) == tuple(hours(*found))
