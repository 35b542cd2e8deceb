"""A commit is one atomic log entry: it names files and carries the state, or nothing happens at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from headgate.warehouse.storage.errors import (
    AlreadyCommittedError,
    ForeignCommitError,
    StorageError,
    TableVanishedError,
)
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.log import CHECKPOINT_INTERVAL
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
    seen_by_delta,
    values,
)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(tmp_path / "clicks", "ts")


def test_before_the_first_commit_there_is_nothing(store: TableStore) -> None:
    assert (store.exists, store.version, store.state, store.files(), store.partitions()) == (False, -1, {}, (), ())
    assert store.schema.names == []
    assert not store.directory.exists()


def test_a_commit_makes_the_table_and_another_reader_sees_its_rows(store: TableStore) -> None:
    assert load(store, 1, clicks(1, HOUR + 1)) == 0
    assert seen_by_delta(store) == values(clicks(1, HOUR + 1)) == values(store.arrow())
    assert store.partitions() == tuple(hours(0, 1))
    assert [(file.rows, file.first, file.last) for file in store.files()] == [
        (1, SECOND, SECOND),
        (1, (HOUR + 1) * SECOND, (HOUR + 1) * SECOND),
    ]


def test_the_log_says_how_the_table_is_kept(store: TableStore) -> None:
    load(store, 1, clicks(1))
    metadata = DeltaTable(store.directory).metadata()
    assert metadata.partition_columns == ["_partition"]
    assert metadata.configuration == {
        "delta.checkpointInterval": "50",
        "delta.enableChangeDataFeed": "true",
        "delta.dataSkippingNumIndexedCols": "-1",
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": "interval 86400 seconds",
        "delta.deletedFileRetentionDuration": "interval 86400 seconds",
    }


@pytest.mark.parametrize(
    ("replaced", "left"),
    [
        pytest.param(None, [1, 2, HOUR, 2 * HOUR], id="append keeps everything"),
        pytest.param([], [1, 2, HOUR, 2 * HOUR], id="replacing no partition is appending"),
        pytest.param(hours(0), [HOUR, 2 * HOUR], id="one partition"),
        pytest.param(hours(0, 2), [HOUR], id="two partitions"),
        pytest.param(hours(0, 0, 9), [HOUR, 2 * HOUR], id="named twice, and one that does not exist"),
        pytest.param(ALL, [], id="everything"),
    ],
)
def test_exactly_the_partitions_named_are_replaced(store: TableStore, replaced: object, left: list[int]) -> None:
    load(store, 1, clicks(1, HOUR))
    load(store, 2, clicks(2, 2 * HOUR))
    load(store, 3, clicks(3, 5 * HOUR), replaced)
    assert seen_by_delta(store) == values(clicks(*left, 3, 5 * HOUR))
    assert values(store.arrow()) == seen_by_delta(store)


@pytest.mark.parametrize(
    ("replaced", "left"),
    [(None, [1, HOUR]), (hours(1), [1]), (ALL, [])],
    ids=["moves the state only", "deletes a partition", "empties the table"],
)
def test_a_commit_without_new_files(store: TableStore, replaced: object, left: list[int]) -> None:
    load(store, 1, clicks(1, HOUR))
    version = store.commit(2, [], replace=replaced, state={"freshness": 5}, schema=CLICKS)  # type: ignore[arg-type]
    assert (version, store.state, seen_by_delta(store)) == (1, {"freshness": 5}, values(clicks(*left)))


def test_a_table_can_be_made_empty(store: TableStore) -> None:
    store.commit(1, [], state={"freshness": None}, schema=CLICKS)
    assert (store.version, store.schema, store.arrow().num_rows) == (0, CLICKS, 0)
    assert TableStore(store.directory, "ts").state == {"freshness": None}


def test_a_table_without_event_time_is_replaced_as_a_whole(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "items")
    load(store, 1, clicks(1, HOUR))
    load(store, 2, clicks(2), ALL)
    assert seen_by_delta(store) == values(clicks(2))
    assert [(file.partition, file.first, file.last) for file in store.files()] == [(None, None, None)]
    assert TableStore(tmp_path / "items").files() == store.files()


STATE = {
    "format": 1,
    "update": 7,
    "kind": "append",
    "freshness": 1_794_736_800_000_000,
    "sources": {"clicks ü": 12, 'with "quotes"': 2**62},
    "dirty": [[0, 10], [-5, 2**53 + 1]],
    "offset": None,
    "ratio": 0.1,
    "late": True,
}


def test_the_state_comes_back_from_the_log_as_it_was_given(store: TableStore) -> None:
    load(store, 7, clicks(1), state=STATE)
    assert store.state == TableStore(store.directory, "ts").state == STATE
    assert DeltaTable(store.directory).history(1)[0]["headgate"] == STATE


def test_the_state_of_a_commit_is_safe_from_its_givers_and_its_readers(store: TableStore) -> None:
    given = {"dirty": [[0, 10]]}
    load(store, 1, clicks(1), state=given)  # type: ignore[arg-type]
    given["dirty"].append([1, 2])
    store.state["dirty"] = []
    assert store.state == {"dirty": [[0, 10]]}


@pytest.mark.parametrize(
    "state",
    [{"a": float("nan")}, {"a": {1, 2}}, {"a": (1, 2)}, {1: "a"}, {"a": {1: 2}}],
    ids=["not a number", "a set", "a tuple", "a number as key", "a number as inner key"],
)
def test_a_state_that_json_would_change_is_refused(store: TableStore, state: dict[str, object]) -> None:
    with pytest.raises(StorageError, match="state of a commit must"):
        load(store, 1, clicks(1), state=state)
    assert not store.exists


@pytest.mark.parametrize("reopened", [False, True], ids=["by the same process", "after reopening"])
@pytest.mark.parametrize(("update", "version"), [(5, 1), (3, 0), (4, None)], ids=["newest", "older", "left out"])
def test_an_update_is_committed_once(store: TableStore, reopened: bool, update: int, version: int | None) -> None:
    load(store, 3, clicks(1))
    load(store, 5, clicks(2))
    store.compact()
    again = TableStore(store.directory, "ts") if reopened else store
    with pytest.raises(AlreadyCommittedError, match=r"newest update is 5.*with update 6") as caught:
        load(again, update, clicks(9))
    assert (caught.value.update, caught.value.version, caught.value.newest) == (update, version, 5)
    assert seen_by_delta(store) == values(clicks(1, 2))
    load(again, 6, clicks(3))


def test_the_number_of_the_last_update_outlives_checkpoints_and_the_cleaning_of_the_log(store: TableStore) -> None:
    load(store, 41, clicks(1))
    store.checkpoint()
    log_entries(store)[0].unlink()
    (store.directory / "_delta_log" / f"{1:020}.json").write_text(
        json.dumps({"commitInfo": {"headgate": {"moved": True}}}) + "\n"
    )
    again = TableStore(store.directory, "ts")
    with pytest.raises(AlreadyCommittedError, match="older than what is left of the log") as caught:
        load(again, 41, clicks(2))
    assert (caught.value.version, again.state) == (None, {"moved": True})


def test_files_are_checked_before_anything_is_written(store: TableStore, tmp_path: Path) -> None:
    load(store, 1, clicks(1))
    [live] = store.files()
    [new] = store.write_arrow(2, clicks(2), HOUR)
    outside = tmp_path / "x.parquet"
    outside.write_bytes(b"x")

    def changed(**fields: object) -> list[object]:
        return [replace(new, file=replace(new.file, **fields))]  # type: ignore[arg-type]

    refused = {
        "does not exist": changed(path="data/u2/gone.parquet"),
        "must be a path below": changed(path="data/../../x.parquet"),
        "relative to": changed(path=str(outside)),
        f"expected {new.file.size + 1}": changed(size=new.file.size + 1),
        "already": changed(path=live.path),
        "each file is added once": [new, new],
        "has event time": changed(partition=None),
        "not the name of a partition": changed(partition="2026"),
        "do not lie in its partition": changed(partition=hours(1)[0]),
    }
    for complaint, files in refused.items():
        with pytest.raises(StorageError, match=complaint):
            store.commit(2, files, state={}, schema=CLICKS)  # type: ignore[arg-type]
    assert (store.version, len(log_entries(store))) == (0, 1)
    store.commit(2, [new], state={}, schema=CLICKS)
    assert seen_by_delta(store) == values(clicks(1, 2))


def test_partitions_do_not_fit_a_table_without_event_time(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "items")
    [new] = store.write_arrow(1, clicks(1))
    with pytest.raises(StorageError, match="does not have event time"):
        store.commit(1, [replace(new, file=replace(new.file, partition=hours(0)[0]))], state={}, schema=CLICKS)


def test_a_commit_of_somebody_else_is_noticed_loaded_and_then_built_upon(store: TableStore) -> None:
    load(store, 1, clicks(1))
    other = TableStore(store.directory, "ts")
    load(other, 2, clicks(2))
    with pytest.raises(ForeignCommitError, match=r"version 1 .*was written by another process"):
        load(store, 2, clicks(3))
    assert (store.version, store.state, store.files()) == (1, {"update": 2}, other.files())
    with pytest.raises(AlreadyCommittedError):
        load(store, 2, clicks(3))
    load(store, 3, clicks(3))
    assert seen_by_delta(store) == values(clicks(1, 2, 3))


@pytest.mark.parametrize("reopened", [False, True], ids=["after a commit", "after opening"])
def test_rows_that_another_tool_appended_are_noticed_and_kept(tmp_path: Path, reopened: bool) -> None:
    store = TableStore(tmp_path / "items")
    load(store, 1, clicks(1))
    if reopened:
        store = TableStore(tmp_path / "items")
    write_deltalake(store.directory, clicks(2), mode="append")
    with pytest.raises(ForeignCommitError):
        load(store, 2, clicks(3))
    assert (store.version, store.state, values(store.arrow())) == (1, {"update": 1}, values(clicks(1, 2)))
    load(store, 2, clicks(3))
    assert (store.version, seen_by_delta(store)) == (2, values(clicks(1, 2, 3)))
    assert store.sweep(0) != [] and store.vacuum(0) == 0
    assert values(store.arrow()) == values(clicks(1, 2, 3))


def test_a_commit_stands_even_if_the_library_fails_after_writing_it(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, 1, clicks(1))
    write = DeltaTable.create_write_transaction

    def write_and_fail(table: DeltaTable, *arguments: Any, **options: Any) -> None:
        write(table, *arguments, **options)
        raise DeltaError("the disk went away")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", write_and_fail)
        assert load(store, 2, clicks(2), hours(0)) == 1
        assert store.compact() is None
    load(store, 3, clicks(3))
    assert (store.version, seen_by_delta(store)) == (2, values(clicks(2, 3)))


def test_two_that_make_the_same_table_do_not_both_succeed(store: TableStore) -> None:
    other = TableStore(store.directory, "ts")
    load(other, 1, clicks(1))
    with pytest.raises(ForeignCommitError):
        load(store, 1, clicks(2))
    assert seen_by_delta(store) == values(clicks(1))


def test_a_log_that_cannot_be_written_changes_nothing_and_the_update_can_be_tried_again(store: TableStore) -> None:
    load(store, 1, clicks(1))
    files = store.write_arrow(2, clicks(2), HOUR)
    log = store.directory / "_delta_log"
    log.rename(store.directory / "_away")
    log.write_text("not a directory")
    with pytest.raises(TableVanishedError, match="was deleted since it was last written"):
        store.commit(2, files, state={}, schema=CLICKS)
    log.unlink()
    (store.directory / "_away").rename(log)
    assert store.version == 0
    store.commit(2, files, state={"update": 2}, schema=CLICKS)
    assert seen_by_delta(store) == values(clicks(1, 2))


def test_a_table_that_headgate_did_not_write_is_refused(store: TableStore) -> None:
    write_deltalake(store.directory, clicks(1).append_column("_partition", [hours(0)]), partition_by=["_partition"])
    with pytest.raises(StorageError, match="headgate did not write this table"):
        TableStore(store.directory, "ts").check_readable()


def test_a_table_declared_with_event_time_cannot_lose_it(store: TableStore) -> None:
    load(store, 1, clicks(1))
    with pytest.raises(StorageError, match=r"without event time.* stored by event time: state the time= that it had"):
        TableStore(store.directory).check_readable()


def test_a_table_declared_without_event_time_cannot_gain_it(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "sums")
    store.commit(1, store.write_arrow(1, clicks(1)), state={"update": 1}, schema=CLICKS)
    with pytest.raises(StorageError, match=r"with time='ts'.* without event time: state time=None, as before"):
        TableStore(store.directory, "ts").check_readable()


def test_the_event_time_of_a_table_cannot_become_a_column_that_it_does_not_have(store: TableStore) -> None:
    load(store, 1, clicks(1))
    with pytest.raises(StorageError, match=r"declared as 'minute', but .* no such column"):
        TableStore(store.directory, "minute").check_readable()


@pytest.mark.parametrize("name", ["a b", "ü", "a=b", "50%", "a#1?", "it's"], ids=str)
def test_directories_may_have_unusual_names(tmp_path: Path, name: str) -> None:
    store = TableStore(tmp_path / name / "clicks", "ts")
    load(store, 1, clicks(1))
    load(store, 2, clicks(2))
    store.compact()
    store.checkpoint()
    assert seen_by_delta(store) == values(clicks(1, 2))
    assert TableStore(store.directory, "ts").files() == store.files()


@pytest.mark.parametrize("name", ["a%20b", "a\\b"], ids=str)
def test_directories_that_the_library_would_misread_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="Choose a directory whose path has none"):
        TableStore(tmp_path / name / "clicks", "ts")


@pytest.mark.slow
def test_the_log_is_summed_up_every_fifty_commits_and_no_older_entry_is_needed_to_open_it(store: TableStore) -> None:
    for update in range(1, CHECKPOINT_INTERVAL + 3):
        load(store, update, clicks(update))
    checkpoints = sorted(path.name for path in (store.directory / "_delta_log").glob("*.checkpoint.parquet"))
    assert checkpoints == [f"{CHECKPOINT_INTERVAL - 1:020}.checkpoint.parquet"]
    for entry in log_entries(store)[: CHECKPOINT_INTERVAL - 1]:
        entry.unlink()
    again = TableStore(store.directory, "ts")
    assert (again.version, again.state, again.files()) == (store.version, store.state, store.files())
    assert values(again.arrow()) == values(clicks(*range(1, CHECKPOINT_INTERVAL + 3)))
    load(again, 99, clicks(99))
    assert paths(again.files()) - paths(store.files()) == paths(changes(again, store.version).added)
