"""Publishing a table to any place: no version is left out, whatever is committed or cleaned up meanwhile."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.places.place import AnyPath
from headgate.warehouse import PublishedVersion, PublishError, TableChanges
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.publish.owner import warehouse_id
from headgate.warehouse.storage.errors import DamagedFileError
from headgate.warehouse.storage.fence import GuardedObject, LeaseLostError
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.written import Row, Written


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


class Shelf:
    """A place in memory that has the rows of one table."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.at: PublishedVersion | None = None
        self.whole = 0
        self.take_over = False

    def resolve(self, base: Path) -> Shelf:
        return self

    def last(self, table: str) -> PublishedVersion | None:
        return self.at

    def publish(self, table: str, changes: TableChanges) -> None:
        removed, added = changes.removed.table(), changes.added.table()  # read before anything changes
        if changes.before is None:
            self.rows = []
            self.whole += 1
        for row in map(_row, removed.to_pylist()):
            self.rows.remove(row)
        self.rows += map(_row, added.to_pylist())
        self.at = changes.published


class Closed(Shelf):
    """A place that can be closed."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.is_closed = True
        self.asked = 0

    def __repr__(self) -> str:
        return f"Closed({self.name})"

    def last(self, table: str) -> PublishedVersion | None:
        self.asked += 1
        if self.is_closed:
            raise ConnectionError(f"no key for {self.name}")
        return super().last(table)


def _row(row: dict[str, Any]) -> Row:
    return row["id"], row["city"], row["amount"]


def publish(node: PublishNode) -> None:
    """Publish until there is nothing to do."""
    while node.plan() is not None:
        node.update(None)  # type: ignore[arg-type]


def test_a_version_that_is_committed_while_a_place_is_asked_is_published(written: Written) -> None:
    place = Shelf()
    written.becomes([(1, "bern", 1.0)])
    publish(PublishNode(written, [place]))
    again = PublishNode(written, [place])
    versions = written.store.versions

    def and_then_a_commit(*since: Any) -> Any:
        found = versions(*since)
        written.store.versions = versions  # type: ignore[method-assign]
        written.becomes([(2, "rom", 2.0)], replace=False)
        return found

    written.store.versions = and_then_a_commit  # type: ignore[method-assign]
    publish(again)
    assert place.rows == [(1, "bern", 1.0), (2, "rom", 2.0)]


def test_a_place_gets_the_whole_table_if_files_that_it_missed_were_cleaned_up(written: Written) -> None:
    place = Shelf()
    written.becomes([(1, "bern", 1.0)])
    publish(PublishNode(written, [place]))
    for number in range(2, 5):
        written.becomes([(number, "rom", 2.0)])
    assert written.store.vacuum(-1) > 0
    publish(PublishNode(written, [place]))
    assert (place.rows, place.whole) == ([(4, "rom", 2.0)], 2)


def test_a_damaged_file_is_no_reason_to_publish_the_whole_table(written: Written) -> None:
    place = Shelf()
    written.becomes([(1, "bern", 1.0)])
    publish(PublishNode(written, [place]))
    written.becomes([(2, "rom", 2.0)], replace=False)
    newest = max(written.store.files(), key=lambda file: file.path)
    written.store.path_of(newest).write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DamagedFileError):
        publish(PublishNode(written, [place]))
    assert (place.rows, place.whole) == ([(1, "bern", 1.0)], 1)


def test_a_warehouse_has_an_id_of_its_own_that_stays(tmp_path: Path) -> None:
    first, second = (warehouse_id(tmp_path / folder, "shop") for folder in ("a", "b"))
    assert first != second and first.startswith("shop-")
    assert [warehouse_id(tmp_path / folder, "renamed") for folder in ("a", "b")] == [first, second]


def test_a_place_of_another_warehouse_is_refused_unless_it_is_taken_over(tmp_path: Path) -> None:
    place = Shelf()
    first, second = Written(tmp_path / "a"), Written(tmp_path / "b")
    first.becomes([(1, "bern", 1.0)])
    second.becomes([(2, "rom", 2.0)])
    publish(PublishNode(first, [place], lambda: "shop-1"))
    with pytest.raises(
        PublishError, match=r"version 0 of another warehouse, 'shop-1'; this one is 'shop-2'.*take_over"
    ):
        publish(PublishNode(second, [place], lambda: "shop-2"))
    assert place.rows == [(1, "bern", 1.0)]
    place.take_over = True
    publish(PublishNode(second, [place], lambda: "shop-2"))
    assert place.rows == [(2, "rom", 2.0)]
    place.take_over = False
    first.becomes([(3, "bern", 1.0)])
    with pytest.raises(PublishError, match="of another warehouse, 'shop-2'"):
        publish(PublishNode(first, [place], lambda: "shop-1"))


def test_a_place_that_does_not_know_whose_its_version_is_goes_on(written: Written) -> None:
    place = Shelf()
    written.becomes([(1, "bern", 1.0)])
    publish(PublishNode(written, [place]))
    written.becomes([(2, "rom", 2.0)], replace=False)
    publish(PublishNode(written, [place], lambda: "shop-1"))
    assert (len(place.rows), place.whole) == (2, 1)
    assert place.at is not None and place.at.warehouse == "shop-1"


def test_places_that_fail_wait_each_by_itself_and_hold_up_no_other(written: Written) -> None:
    now = 0.0
    first, good, second = Closed("first"), Shelf(), Closed("second")
    node = PublishNode(written, [first, good, second], clock=lambda: now)
    written.becomes([(1, "bern", 1.0)])
    with pytest.raises(PublishError, match=r"2 of 3 places: Closed\(first\): no key.*; Closed\(second\): no key"):
        publish(node)
    assert good.rows == [(1, "bern", 1.0)]
    assert (node.plan(), node.waits(), node.failures) == (None, 1.0, 1), "they are not tried before they are due"
    written.becomes([(2, "rom", 2.0)])
    publish(node)
    assert good.rows == [(2, "rom", 2.0)], "the good one does not wait for them"
    assert (first.asked, second.asked, node.version) == (1, 1, -1)
    second.is_closed = False
    now = 1.0
    with pytest.raises(PublishError, match=r"1 of 3 places: Closed\(first\)"):
        publish(node)
    assert second.rows == [(2, "rom", 2.0)]
    assert node.waits() == 2.0, "it waits longer and longer"
    first.is_closed = False
    node.retry_now()
    publish(node)
    assert (first.rows, node.failures, node.problem, node.version) == ([(2, "rom", 2.0)], 0, "", 1)
    assert node.waits() == float("inf")


def test_after_a_version_that_is_not_complete_the_whole_table_is_published(written: Written) -> None:
    place = Shelf()
    written.becomes([(1, "bern", 1.0)])
    publish(PublishNode(written, [place]))
    assert place.at is not None
    place.at, place.rows = replace(place.at, is_complete=False), []
    written.becomes([(2, "rom", 2.0)], replace=False)
    publish(PublishNode(written, [place]))
    assert (place.rows, place.whole) == ([(1, "bern", 1.0), (2, "rom", 2.0)], 2)


def test_a_place_catches_up_some_versions_at_a_time(written: Written) -> None:
    for number in range(6):
        written.becomes([(number, "bern", 1.0)], replace=False)
    store = written.store
    assert [entry.version for entry in store.versions(1, most=3)] == [2, 3, 4]
    assert [entry.version for entry in store.versions(3, most=3)] == [4, 5]
    assert [entry.version for entry in store.versions(-1, most=2)] == [0, 1]


class Runs:
    """The right to commit of the process with this number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_lost = False

    def check(self) -> None:
        if self.is_lost:
            raise LeaseLostError("it is lost")

    def lost_to(self, number: int, where: str) -> LeaseLostError:
        return LeaseLostError(f"{where} is of {number}, and this is {self.number}")

    def decider(self, table: AnyPath) -> GuardedObject | None:
        return None


def test_a_process_that_was_replaced_does_not_publish_over_its_successor(tmp_path: Path) -> None:
    place = Shelf()
    old, new = Written(tmp_path), Written(tmp_path)
    old.store = TableStore(tmp_path / "sums", syncs=False, fence=Runs(1))
    old.becomes([(1, "bern", 1.0)])
    new.store = TableStore(tmp_path / "sums", syncs=False, fence=Runs(2))
    new.becomes([(2, "rom", 2.0)], replace=False)
    publish(PublishNode(new, [place]))
    with pytest.raises(LeaseLostError, match="is of 2, and this is 1"):
        publish(PublishNode(old, [place]))
    assert (place.rows, place.whole) == ([(1, "bern", 1.0), (2, "rom", 2.0)], 1)


def test_a_process_without_its_lease_neither_asks_a_place_nor_publishes_to_it(tmp_path: Path) -> None:
    class Asked(Closed):
        def last(self, table: str) -> PublishedVersion | None:
            fence.is_lost = True
            return super().last(table)

    fence, place = Runs(1), Asked("first")
    place.is_closed = False
    table = Written(tmp_path)
    table.store = TableStore(tmp_path / "sums", syncs=False, fence=fence)
    table.becomes([(1, "bern", 1.0)])
    for _ in range(2):
        with pytest.raises(LeaseLostError, match="it is lost"):
            publish(PublishNode(table, [place]))
    assert (place.asked, place.whole) == (1, 0)


def test_a_table_that_was_put_back_from_a_copy_is_published_as_a_whole(tmp_path: Path) -> None:
    place = Shelf()
    table = Written(tmp_path / "now")
    table.becomes([(1, "bern", 1.0)])
    shutil.copytree(tmp_path / "now", tmp_path / "copy")
    table.becomes([(2, "rom", 2.0)], replace=False)
    publish(PublishNode(table, [place]))
    publish(PublishNode(Written(tmp_path / "copy"), [place]))
    assert (place.rows, place.whole) == ([(1, "bern", 1.0)], 2)


def test_a_process_that_does_not_know_the_version_of_a_place_looks_for_it(tmp_path: Path) -> None:
    place = Shelf()
    one, another = Written(tmp_path), Written(tmp_path)
    one.becomes([(1, "bern", 1.0)])
    another.store.look()
    another.becomes([(2, "rom", 2.0)], replace=False)
    publish(PublishNode(another, [place]))
    publish(PublishNode(one, [place]))
    assert (place.rows, place.whole) == ([(1, "bern", 1.0), (2, "rom", 2.0)], 1)


@pytest.mark.parametrize("is_complete", [True, False], ids=["of another life", "not complete"])
def test_a_whole_table_says_what_the_place_had_when_it_was_prepared(written: Written, is_complete: bool) -> None:
    class Takes(Shelf):
        expected: PublishedVersion | None = None

        def publish(self, table: str, changes: TableChanges) -> None:
            self.expected = changes.expected
            super().publish(table, changes)

    place = Takes()
    written.becomes([(1, "bern", 1.0)])
    place.at = there = PublishedVersion(7, "another/life", is_complete=is_complete)
    publish(PublishNode(written, [place]))
    assert (place.expected, place.whole) == (there, 1)
    place.at = None
    publish(PublishNode(written, [place]))
    assert (place.expected, place.whole) == (None, 2)


def test_rows_are_read_some_at_a_time_as_they_are_in_memory(written: Written) -> None:
    written.becomes([(number, None if number % 3 else f"x{number}", float(number)) for number in range(100)])
    written.becomes([(100, "y", None)], replace=False)
    store = written.store
    batches = list(store.batches(store.files(), store.schema, 16))
    assert [batch.num_rows for batch in batches] == [16] * 6 + [4, 1]
    assert pa.Table.from_batches(batches) == store.rows(store.files())
