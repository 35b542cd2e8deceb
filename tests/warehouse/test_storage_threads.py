"""One store serves many threads, and what it does for one table does not depend on how many others there are."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.history import entry_path
from headgate.warehouse.storage.live import FileIndex
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import CLICKS, HOUR, SECOND, changes, clicks, hours, load, seen_by_delta, values


@pytest.mark.slow
def test_updates_maintenance_and_planning_from_many_threads_agree_in_the_end(tmp_path: Path) -> None:
    stores = [TableStore(tmp_path / f"clicks{i}", "ts") for i in range(2)]
    updates = range(1, 13)

    def update(store: TableStore) -> None:
        for number in updates:
            load(store, number, clicks(number, HOUR + number), state={"update": number})

    def maintain(store: TableStore) -> None:
        while store.state.get("update") != updates[-1]:
            store.compact()
            store.sweep(0)
        store.compact()

    def plan(store: TableStore) -> None:
        while store.state.get("update") != updates[-1]:
            snapshot = store.snapshot()
            rows = sum(file.rows for file in snapshot.files)
            assert rows == 2 * int(snapshot.state.get("update", 0))
            found = changes(store, -1, snapshot.version)
            assert sum(file.rows for file in found.added) == rows

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, store) for store in stores for work in (update, maintain, plan)]:
            done.result(timeout=300)
    for store in stores:
        store._table.index.validate()
        assert [len(store.files_in([label])) for label in hours(0, 1)] == [1, 1]
        assert seen_by_delta(store) == values(clicks(*updates, *(HOUR + number for number in updates)))
        assert TableStore(store.directory, "ts").files() == store.files()


def test_planning_does_not_wait_for_a_commit_under_way(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "clicks", "ts")
    load(store, 1, clicks(1))
    with store._writing, ThreadPoolExecutor(1) as pool:
        planned = pool.submit(lambda: (store.partitions_between(0, SECOND), changes(store, -1), store.stage(2)))
        assert planned.result(timeout=300)[0] == tuple(hours(0))


def test_planning_does_not_wait_while_cleaning_reads_the_log(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "clicks", "ts", syncs=False)
    load(store, 1, clicks(1))
    load(store, 2, clicks(2))
    store.write_arrow(9, clicks(9), HOUR)  # of an update that died
    store = TableStore(store.directory, "ts", syncs=False)
    entry = entry_path(store.directory, 0)
    assert isinstance(entry, Path)
    content = entry.read_bytes()
    entry.unlink()
    os.mkfifo(entry)  # whoever reads it waits
    with ThreadPoolExecutor(2) as pool:
        sweeping = pool.submit(store.sweep, 0)
        with entry.open("wb", buffering=0) as answer:  # when it is being read
            try:
                assert pool.submit(lambda: store.version).result(timeout=300) == 1
            finally:
                answer.write(content)
        assert len(sweeping.result(timeout=300)) == 1
    assert store.files() and all(store.path_of(file).exists() for file in store.files())


def calls(work: Callable[[], object]) -> Counter[str]:
    """How often ``work`` calls which functions, those of C included."""
    counted: Counter[str] = Counter()

    def count(frame: object, event: str, argument: object) -> None:
        if event == "c_call":
            counted[getattr(argument, "__qualname__", "?")] += 1
        elif event == "call":
            counted[frame.f_code.co_qualname] += 1  # type: ignore[attr-defined]

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def test_planning_among_ten_thousand_partitions_takes_the_steps_that_it_takes_among_ten() -> None:
    def steps(partitions: int) -> Counter[str]:
        index = FileIndex(
            DataFile(f"data/u/{n}", hours(n)[0], 1, 1, n * HOUR * SECOND, n * HOUR * SECOND) for n in range(partitions)
        )
        newest = partitions - 1
        late = DataFile("data/late", hours(newest - 2)[0], 1, 1, *[(newest - 2) * HOUR * SECOND] * 2)

        def plan_and_follow() -> None:
            found = index.partitions_between((newest - 1) * HOUR * SECOND, newest * HOUR * SECOND)
            assert len(index.files_in(found)) == 2
            index.add(late)
            index.remove(f"data/u/{newest}")

        return calls(plan_and_follow)

    assert steps(10) == steps(10_000)


def test_committing_to_a_table_of_many_partitions_takes_the_steps_that_it_takes_with_few(tmp_path: Path) -> None:
    def steps(partitions: int) -> Counter[str]:
        # Without waiting for the disk, on which other threads wait, in an order of their own.
        store = TableStore(tmp_path / f"clicks{partitions}", "ts", syncs=False)
        load(store, 1, clicks(*(n * HOUR for n in range(partitions))))
        newest = partitions - 1
        files = store.write_arrow(2, clicks(newest * HOUR + 1), HOUR)
        return calls(lambda: store.commit(2, files, replace=hours(newest), state={}, schema=CLICKS))

    assert steps(5) == steps(60)
