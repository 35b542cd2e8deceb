"""Whatever is done to a table, in whatever order, it agrees with a dictionary of rows by partition."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import count
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.places.place import AnyPath
from headgate.warehouse.storage.files import ALL, DataFile
from headgate.warehouse.storage.live import FileIndex
from headgate.warehouse.storage.maintenance import delete_folder
from headgate.warehouse.storage.partitions import partition_label, partition_start
from headgate.warehouse.storage.store import TableStore
from tests.services.object_store import ObjectStoreServer
from tests.warehouse.storage_helpers import CLICKS, HOUR, SECOND, TIME, changes, hours, rows_of, seen_by_delta

hour_numbers = st.integers(0, 9)
event_times = st.integers(0, 10 * HOUR - 1)


def numbered(rows: list[tuple[int, int]]) -> pa.Table:
    """A table of event times and values."""
    return pa.table([pa.array([time for time, _ in rows], TIME), [value for _, value in rows]], schema=CLICKS)


@settings(max_examples=25, stateful_step_count=12)
class Model(RuleBasedStateMachine):
    """``rows`` is the model; ``past`` holds, for each version, all its rows, so that changes can be checked."""

    @initialize()
    def open_a_new_table(self) -> None:
        self.root = self.new_place()
        self.store = TableStore(self.root / "clicks", "ts")
        self.rows: dict[str, Counter[int]] = {}
        self.past: list[Counter[int]] = []
        self.state: dict[str, object] = {}
        self.update = 0
        self.values = count()

    def new_place(self) -> AnyPath:
        return Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        try:
            self.store.vacuum(0)
            reopened = TableStore(self.store.directory, "ts")
            assert rows_of(reopened, reopened.files()) == self.everything()
        finally:
            delete_folder(self.root)

    def everything(self) -> Counter[int]:
        return sum(self.rows.values(), Counter())

    def commit(self, times: list[int], replaced: object) -> None:
        self.update += 1
        new = [(second * SECOND, next(self.values)) for second in times]
        table = numbered(new)
        self.state = {"update": self.update, "freshness": max(times, default=None)}
        files = self.store.write_arrow(self.update, table, HOUR)
        self.store.commit(self.update, files, replace=replaced, state=self.state, schema=CLICKS)  # type: ignore[arg-type]
        for label in list(self.rows) if replaced is ALL else replaced or ():  # type: ignore[attr-defined]
            self.rows.pop(label, None)
        for micros, value in new:
            self.rows.setdefault(partition_label(micros, HOUR), Counter())[value] += 1
        self.past.append(self.everything())

    @rule(times=st.lists(event_times, max_size=4))
    def append(self, times: list[int]) -> None:
        self.commit(times, None)

    @rule(times=st.lists(event_times, max_size=4), numbers=st.lists(hour_numbers, max_size=4))
    def replace(self, times: list[int], numbers: list[int]) -> None:
        self.commit(times, hours(*numbers))

    @rule(times=st.lists(event_times, max_size=4))
    def replace_everything(self, times: list[int]) -> None:
        self.commit(times, ALL)

    @rule(numbers=st.none() | st.lists(hour_numbers, max_size=4, unique=True))
    def compact(self, numbers: list[int] | None) -> None:
        if self.store.compact(None if numbers is None else hours(*numbers)) is not None:
            self.past.append(self.everything())

    @rule(before=st.integers(0, 12), length=st.sampled_from([2, 3, 6]))
    def roll_up(self, before: int, length: int) -> None:
        if self.store.roll_up(before * HOUR * SECOND, length * HOUR) is not None:
            self.past.append(self.everything())
        rolled: dict[str, Counter[int]] = {}
        for label, rows in self.rows.items():
            longer = partition_label(partition_start(label), length * HOUR)
            ends = partition_start(longer) + length * HOUR * SECOND
            rolled.setdefault(longer if ends <= before * HOUR * SECOND else label, Counter()).update(rows)
        self.rows = rolled

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule(times=st.lists(event_times, min_size=1, max_size=3))
    def die_before_the_commit(self, times: list[int]) -> None:
        self.store.write_arrow(self.update + 1, numbered([(time * SECOND, -1) for time in times]), HOUR)
        self.store = TableStore(self.store.directory, "ts")
        assert len(self.store.sweep(0)) >= 1

    @rule()
    def reopen(self) -> None:
        before = self.store
        self.store = TableStore(before.directory, "ts")
        assert (self.store.files(), self.store.version, self.store.schema) == (
            before.files(),
            before.version,
            before.schema,
        )

    @invariant()
    def the_table_agrees(self) -> None:
        store = self.store
        store._table.index.validate()
        assert store.version == len(self.past) - 1
        assert store.state == self.state
        assert store.partitions() == tuple(sorted(self.rows))
        assert {label: rows_of(store, store.files_in([label])) for label in store.partitions()} == self.rows

    @rule(data=st.data())
    def changes_and_old_versions_agree(self, data: st.DataObject) -> None:
        since = data.draw(st.integers(-1, self.store.version), label="since")
        before = self.past[since] if since >= 0 else Counter()
        found = changes(self.store, since)
        after = before + rows_of(self.store, found.added)
        after.subtract(rows_of(self.store, found.removed))
        assert +after == self.everything() and min(after.values(), default=0) >= 0
        if since >= 0:
            assert rows_of(self.store, self.store.snapshot(since).files) == before

    @rule()
    def another_reader_agrees(self) -> None:
        if self.store.exists:
            assert seen_by_delta(self.store) == self.everything()


@pytest.mark.slow
class TestModel(Model.TestCase):  # type: ignore[name-defined,misc]
    pass


class ObjectModel(Model):
    """The same in an object store."""

    server: ClassVar[ObjectStoreServer]

    def new_place(self) -> AnyPath:
        return self.server.bucket()


@pytest.fixture(scope="module")
def served(object_store: ObjectStoreServer) -> None:
    ObjectModel.server = object_store


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.usefixtures("served")
class TestObjectModel(ObjectModel.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=12, stateful_step_count=10)


spans = st.tuples(hour_numbers, st.integers(0, 20_000), st.integers(0, 20_000))


@given(st.lists(spans, max_size=12), st.sets(st.integers(0, 11)), event_times, event_times)
def test_the_index_finds_what_a_search_through_all_files_finds(
    added: list[tuple[int, int, int]], removed: set[int], one: int, other: int
) -> None:
    files = []
    for number, (hour, begin, length) in enumerate(added):
        start = (hour * HOUR + begin) * SECOND
        files.append(DataFile(f"data/u/{number}", hours(hour)[0], 1, number, start, start + length * SECOND))
    index = FileIndex(files)
    for number in removed & set(range(len(files))):
        assert index.remove(files[number].path) == files[number]
    left = [file for number, file in enumerate(files) if number not in removed]
    index.validate()
    first, last = sorted((one * SECOND, other * SECOND))
    assert set(index.files()) == set(left)
    assert index.partitions() == tuple(sorted({str(file.partition) for file in left}))
    overlapping = {str(f.partition) for f in left if f.first <= last and f.last >= first}  # type: ignore[operator]
    assert index.partitions_between(first, last) == tuple(sorted(overlapping))
