"""Maintenance merges and deletes files, and no reader of the newest version can tell."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.core.errors import InvariantError
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.history import clean_up_log
from headgate.warehouse.storage.live import FileIndex
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
    on_disk,
    paths,
    seen_by_delta,
    values,
)

DAY = 24 * HOUR


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    """Three files in the first hour, two in the second, one at noon."""
    store = TableStore(tmp_path / "clicks", "ts")
    load(store, 1, clicks(3, HOUR))
    load(store, 2, clicks(1, HOUR + 1))
    load(store, 3, clicks(2, 12 * HOUR))
    return store


EVERYTHING = clicks(1, 2, 3, HOUR, HOUR + 1, 12 * HOUR)


def actions(store: TableStore, kind: str) -> list[dict[str, object]]:
    """The actions of one kind in the newest log entry."""
    lines = log_entries(store)[-1].read_text().splitlines()
    return [json.loads(line)[kind] for line in lines if line.startswith(f'{{"{kind}"')]


def age(path: Path, seconds: float) -> None:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_compaction_leaves_one_file_in_a_partition_and_changes_no_row(store: TableStore) -> None:
    before = store.state
    version = store.compact(hours(0, 12, 13))
    assert version == store.version == 3
    assert [len(store.files_in([label])) for label in hours(0, 1, 12)] == [1, 2, 1]
    assert seen_by_delta(store) == values(EVERYTHING)
    assert store.state == before == TableStore(store.directory, "ts").state


def test_a_compacted_file_has_true_statistics_and_rows_in_the_order_of_files(store: TableStore) -> None:
    store.compact()
    [file] = store.files_in(hours(0))
    assert (file.rows, file.first, file.last) == (3, SECOND, 3 * SECOND)
    assert pq.read_table(store.path_of(file)).column("v").to_pylist() == [SECOND, 2 * SECOND, 3 * SECOND]


def test_the_log_says_that_compaction_changes_no_data_and_is_no_update(store: TableStore) -> None:
    store.compact()
    changed = [action["dataChange"] for kind in ("add", "remove") for action in actions(store, kind)]
    assert changed == [False] * 7
    assert actions(store, "txn") == []


def test_compaction_with_nothing_to_merge_writes_nothing(store: TableStore) -> None:
    assert store.compact(hours(12)) is None
    store.compact()
    assert store.compact() is None
    assert store.version == 3


def test_files_that_are_large_already_are_not_merged(store: TableStore) -> None:
    size = store.files_in(hours(0))[0].size
    assert store.compact(target_bytes=size) is None
    store.compact(hours(0), target_bytes=2 * size + 1)
    assert sorted(file.rows for file in store.files_in(hours(0))) == [1, 2]


def test_compaction_fills_columns_that_old_files_do_not_have(store: TableStore) -> None:
    load(store, 4, clicks(4).append_column("word", pa.array(["new"])))
    store.compact(hours(0))
    rows = store.arrow(["v", "word"]).sort_by("v").slice(0, 4).column("word").to_pylist()
    assert rows == [None, None, None, "new"]
    assert len(store.files_in(hours(0))) == 1


def test_a_table_without_event_time_is_compacted_too(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "items")
    load(store, 1, clicks(1))
    load(store, 2, clicks(2))
    store.compact()
    assert (len(store.files()), seen_by_delta(store)) == (1, values(clicks(1, 2)))


def test_old_partitions_are_rolled_up_into_longer_ones_and_newer_ones_are_not(store: TableStore) -> None:
    assert store.roll_up(DAY * SECOND - 1, DAY) is None
    assert store.roll_up(12 * HOUR * SECOND, 2 * HOUR) == 3
    assert store.partitions() == tuple(hours(0, 12))
    [file] = store.files_in(hours(0))
    assert (file.rows, file.first, file.last) == (5, SECOND, (HOUR + 1) * SECOND)
    assert seen_by_delta(store) == values(EVERYTHING)
    assert store.state == {"update": 3}
    assert changes(store, 2).added == changes(store, 2).removed == ()


def test_rolling_up_again_finds_only_what_came_late(store: TableStore) -> None:
    store.roll_up(DAY * SECOND, DAY)
    assert store.partitions() == tuple(hours(0))
    assert store.roll_up(DAY * SECOND, DAY) is None
    load(store, 4, clicks(5 * HOUR))
    assert store.partitions() == tuple(hours(0, 5))
    store.roll_up(DAY * SECOND, DAY)
    assert (store.partitions(), len(store.files())) == (tuple(hours(0)), 1)
    assert seen_by_delta(store) == values(EVERYTHING) + values(clicks(5 * HOUR))


def test_a_rolled_up_partition_is_found_by_any_time_within_its_rows(store: TableStore) -> None:
    store.roll_up(DAY * SECOND, DAY)
    load(store, 4, clicks(DAY + 1))
    for reader in (store, TableStore(store.directory, "ts")):
        assert reader.partitions_between(11 * HOUR * SECOND, DAY * SECOND) == tuple(hours(0))
        assert reader.partitions_between(12 * HOUR * SECOND + 1, DAY * SECOND) == ()
        assert reader.partitions_between(12 * HOUR * SECOND, 2 * DAY * SECOND) == tuple(hours(0, 24))


def test_files_replaced_while_they_are_merged_are_left_alone(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = TableStore._merge

    def merge_while_an_update_commits(self: TableStore, rewrite: object, *others: object) -> object:
        merged = merge(self, rewrite, *others)  # type: ignore[arg-type]
        if self.version == 2:
            load(self, 4, clicks(7), hours(0))
        return merged

    monkeypatch.setattr(TableStore, "_merge", merge_while_an_update_commits)
    assert store.compact() == 4
    assert seen_by_delta(store) == values(clicks(7, HOUR, HOUR + 1, 12 * HOUR))
    assert [len(store.files_in([label])) for label in hours(0, 1)] == [1, 1]
    assert store.state == {"update": 4}


def test_the_directories_of_updates_that_died_are_swept_and_no_others(store: TableStore) -> None:
    load(store, 4, clicks(9), hours(0))
    dead = TableStore(store.directory, "ts").write_arrow(5, clicks(5), HOUR)
    store.write_arrow(5, clicks(6), HOUR)
    kept = on_disk(store) - {dead[0].file.path}
    assert [path.name for path in store.sweep(0)] == [dead[0].file.path.split("/")[1]]
    assert on_disk(store) == kept
    assert values(store.arrow(at_version=2)) == values(EVERYTHING)


def test_a_fresh_process_sweeps_all_that_no_commit_names(store: TableStore) -> None:
    committed = on_disk(store)
    store.write_arrow(4, clicks(5), HOUR)
    store.stage(4).mkdir()
    again = TableStore(store.directory, "ts")
    assert len(again.sweep(0)) == 2
    assert on_disk(again) == committed
    assert again.sweep(0) == []


def test_directories_written_to_lately_are_not_swept(store: TableStore) -> None:
    other = TableStore(store.directory, "ts")
    young, old = (store.path_of(other.write_arrow(4, clicks(5), HOUR)[0].file).parent for _ in range(2))
    age(old, 100)
    assert store.sweep(60) == [old]
    assert young.exists()


def test_a_failed_attempt_is_swept_after_its_update_was_committed(store: TableStore) -> None:
    failed = store.write_arrow(4, clicks(5), HOUR)
    assert store.sweep(0) == []
    load(store, 4, clicks(5))
    assert [path.name for path in store.sweep(0)] == [failed[0].file.path.split("/")[1]]
    assert seen_by_delta(store) == values(EVERYTHING) + values(clicks(5))


def test_what_was_committed_after_the_first_sweep_is_not_swept(store: TableStore) -> None:
    store.sweep(0)
    load(store, 4, clicks(5))
    load(store, 5, clicks(6), hours(0))
    assert store.sweep(0) == []


def test_sweeping_before_there_is_a_table(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    assert store.sweep(0) == []
    TableStore(store.directory, "ts").write_arrow(1, clicks(1), HOUR)
    assert len(store.sweep(0)) == 1


def test_vacuuming_deletes_the_files_of_old_versions_only(store: TableStore) -> None:
    store.compact()
    running = store.write_arrow(4, clicks(5), HOUR)
    replaced = on_disk(store) - paths(store.files()) - {running[0].file.path}
    assert (store.vacuum(), store.vacuum(1000)) == (0, 0)
    assert store.vacuum(0) == len(replaced) == 5
    assert on_disk(store) == paths(store.files()) | {running[0].file.path}
    assert seen_by_delta(store) == values(EVERYTHING)
    store.commit(4, running, state={}, schema=CLICKS)
    assert (store.version, seen_by_delta(store)) == (4, values(EVERYTHING) + values(clicks(5)))


def test_vacuuming_removes_directories_that_became_empty(store: TableStore) -> None:
    store.compact()
    store.vacuum(0)
    held = {store.path_of(file).parent for file in store.files()}
    assert set((store.directory / "data").iterdir()) == held


def test_files_removed_within_the_retention_stay_however_old_they_are(store: TableStore) -> None:
    store.compact()
    for directory in (store.directory / "data").iterdir():
        age(directory, 10 * DAY)
    assert store.vacuum(1000) == 0
    for entry in log_entries(store):
        age(entry, 2000)
    assert store.vacuum(1000) == 5


def test_vacuuming_before_there_is_a_table(tmp_path: Path) -> None:
    assert TableStore(tmp_path / "clicks", "ts").vacuum(0) == 0


def test_a_checkpoint_keeps_everything(store: TableStore) -> None:
    store.checkpoint()
    again = TableStore(store.directory, "ts")
    assert (again.files(), again.state, again.version) == (store.files(), store.state, 2)
    load(store, 4, clicks(4))
    assert seen_by_delta(store) == values(EVERYTHING) + values(clicks(4))


def test_entries_before_an_old_checkpoint_are_cleaned_up_and_younger_versions_stay_readable(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    for update in range(1, 8):
        load(store, update, clicks(update))
        if update in (2, 4, 6):
            store.checkpoint()
    log = store.directory / "_delta_log"
    for version in (1, 3):
        age(log / f"{version:020}.checkpoint.parquet", 100)
    clean_up_log(store.directory, 4, 60)
    assert [int(entry.stem) for entry in log_entries(store)] == [3, 4, 5, 6]
    assert sorted(path.name[:20] for path in log.glob("*.checkpoint.parquet")) == [f"{v:020}" for v in (3, 5)]
    again = TableStore(store.directory, "ts")
    assert (again.files(), again.state) == (store.files(), {"update": 7})
    assert values(again.arrow(at_version=3)) == values(clicks(1, 2, 3, 4))
    assert [state["update"] for state in again.states()] == [7, 6, 5, 4]


@pytest.mark.parametrize(
    ("newest", "seconds"), [(0, 60), (4, 200)], ids=["too few entries would be left", "the checkpoint is too young"]
)
def test_nothing_is_cleaned_up_too_early(tmp_path: Path, newest: int, seconds: float) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    for update in (1, 2, 3):
        load(store, update, clicks(update))
    store.checkpoint()
    age(store.directory / "_delta_log" / f"{2:020}.checkpoint.parquet", 100)
    clean_up_log(store.directory, newest, seconds)
    assert len(log_entries(store)) == 3


def test_statistics_follow_the_table(store: TableStore) -> None:
    store.compact()
    load(store, 4, clicks(5), hours(1))
    store.stage(5)
    seen = store.statistics()
    assert (seen.version, seen.partitions, seen.files, seen.rows, seen.staged) == (4, 2, 3, 5, 1)
    assert seen.size == sum(store.path_of(file).stat().st_size for file in store.files())
    assert TableStore(store.directory, "ts").statistics().rows == seen.rows


def test_the_index_refuses_a_file_twice_and_notices_when_it_is_wrong() -> None:
    file = DataFile("data/u1/x", hours(0)[0], 1, 10, 0, 5)
    index = FileIndex([file])
    index.validate()
    with pytest.raises(InvariantError, match="in the table already"):
        index.add(file)
    index.rows += 1
    with pytest.raises(InvariantError, match=r"invariants \[4\]"):
        index.validate()
