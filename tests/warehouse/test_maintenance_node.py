"""Maintenance is due by what is on disk: it counts across restarts, and rejected rows get theirs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.core import Update
from headgate.stream.spark.update import state_folder
from headgate.warehouse.storage.fence import LeaseLostError
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates import maintain
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.maintain import CLEANED, MOST_EXTRA_FILES, MaintenanceNode
from headgate.warehouse.updates.node import Node
from tests.warehouse.storage_helpers import HOUR, Ends, clicks, on_disk, paths

WITHOUT_SPARK: Any = None


class Table(Node):
    """A table that somebody else updates."""

    def __init__(self, folder: Path) -> None:
        self.table = "clicks"
        self.store = TableStore(folder / "clicks", "ts", history_seconds=0, syncs=False)
        self.rejected = TableStore(folder / "clicks__rejected", history_seconds=0, syncs=False)

    def plan(self) -> Update | None:
        return None

    def begin(self, update: Update, most_seconds: float = 0.0) -> bool:
        return False

    def run(self, *_: object) -> None:
        raise NotImplementedError

    def commit(self, count: int) -> None:
        for _ in range(count):
            self._commit(self.store, clicks(self.state.update), HOUR)

    def reject(self, count: int) -> None:
        assert self.rejected is not None
        for _ in range(count):
            self._commit(self.rejected, pa.table({"reason": ["bad"]}), None)

    @staticmethod
    def _commit(store: TableStore, rows: pa.Table, partition: float | None) -> None:
        number = CommitState.from_json(store.state).update + 1
        files = store.write_arrow(number, rows, partition)
        store.commit(number, files, state=CommitState(number, "load").to_json(), schema=rows.schema)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cleaning up is due after every six commits."""
    monkeypatch.setattr(maintain, "COMMITS_BETWEEN_CLEANING", 6)


def test_many_files_of_rejected_rows_are_merged(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.reject(MOST_EXTRA_FILES - 1)
    node = MaintenanceNode(table, HOUR)
    assert node.plan() is None
    table.reject(1)
    assert node.update(WITHOUT_SPARK) is not None
    assert table.rejected is not None
    assert [file.rows for file in table.rejected.files()] == [MOST_EXTRA_FILES]
    assert node.plan() is None


@pytest.mark.usefixtures("often")
def test_commits_count_across_restarts_until_the_table_is_cleaned_up(tmp_path: Path) -> None:
    for _ in range(3):
        table = Table(tmp_path)
        assert MaintenanceNode(table, HOUR).plan() is None
        table.commit(2)
    table.commit(1)
    assert MaintenanceNode(Table(tmp_path), HOUR).update(WITHOUT_SPARK) is not None
    table = Table(tmp_path)
    assert on_disk(table.store) == paths(table.store.files())
    assert MaintenanceNode(table, HOUR).plan() is None
    table.commit(6)
    assert MaintenanceNode(Table(tmp_path), HOUR).plan() is not None


@pytest.mark.usefixtures("often")
def test_what_was_cleaned_up_is_forgotten_with_the_table(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit(3)
    (table.store.directory / CLEANED).write_text("1000", encoding="utf-8")
    node = MaintenanceNode(table, HOUR)
    assert node.plan() is None
    table.commit(4)
    assert node.plan() is not None


@pytest.mark.usefixtures("often")
def test_cleaning_up_that_failed_is_still_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path)
    table.commit(7)
    node = MaintenanceNode(table, HOUR)

    def fails() -> int:
        raise OSError("no")

    monkeypatch.setattr(table.store, "vacuum", fails)
    with pytest.raises(OSError, match="no"):
        node.update(WITHOUT_SPARK)
    assert node.plan() is not None


@pytest.mark.usefixtures("often")
def test_rejected_rows_are_cleaned_up_by_their_own_commits(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit(2)
    table.reject(7)
    MaintenanceNode(table, HOUR).update(WITHOUT_SPARK)
    assert table.rejected is not None
    assert (table.rejected.directory / CLEANED).exists() and not (table.store.directory / CLEANED).exists()
    assert on_disk(table.rejected) == paths(table.rejected.files())


@pytest.mark.usefixtures("often")
def test_files_of_rejected_rows_that_wait_for_their_commit_are_left_alone(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.reject(7)
    named = CommitState(8, "load", rejected_files={"update": 8, "files": ["u8"], "anew": False})
    table.store.commit(8, (), state=named.to_json(), schema=clicks().schema)
    assert MaintenanceNode(table, HOUR).plan() is None
    assert table.rejected is not None
    table.reject(1)
    MaintenanceNode(table, HOUR).update(WITHOUT_SPARK)
    assert (table.rejected.directory / CLEANED).exists()


@pytest.mark.usefixtures("often")
def test_who_was_replaced_leaves_the_states_of_queries_alone(tmp_path: Path) -> None:
    fence = Ends()
    table = Table(tmp_path)
    table.store = TableStore(tmp_path / "clicks", "ts", syncs=False, fence=fence)
    for hour in range(7):  # nothing to merge, and nothing that is old enough to be deleted
        table._commit(table.store, clicks(hour * HOUR), HOUR)
    file = state_folder(table.store.directory) / "u9-b0.state"  # which a commit of the successor names
    file.parent.mkdir()
    file.touch()
    os.utime(file, (0, 0))
    fence.looks = 0
    with pytest.raises(LeaseLostError):
        MaintenanceNode(table, HOUR).update(WITHOUT_SPARK)
    assert file.exists()
    fence.looks = 1
    MaintenanceNode(table, HOUR).update(WITHOUT_SPARK)
    assert not file.exists()


def test_a_table_that_was_deleted_needs_no_maintenance(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit(MOST_EXTRA_FILES + 1)
    node = MaintenanceNode(table, HOUR)
    assert node.plan() is not None
    shutil.rmtree(table.store.directory)
    assert node.update(WITHOUT_SPARK) is None
