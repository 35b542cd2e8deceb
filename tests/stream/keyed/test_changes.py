"""What a state says has changed makes of its last snapshot the one that it would give now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.stream.kernel import Changes, IncrementalState, Output, Part, Snapshot
from headgate.stream.keyed import Aggregate, Dedupe, Fold, InOrder, RunningAggregate, SessionAggregate, TopK
from headgate.stream.patching import merged, patched
from tests.stream.keyed_driver import AGGREGATES, KEYS, SCHEMA, Row, batch_of, few_examples, streams

Make = Callable[[pa.Schema, Sequence[str]], IncrementalState]


def _remembered(state: list[int], row: Row) -> tuple[list[int], list[Row]]:
    state.append(row["time"])
    return state[-3:], [{"sum": sum(state)}]


STATES: dict[str, Make] = {
    "running": lambda schema, keys: RunningAggregate(schema, keys, AGGREGATES),
    "fold": lambda schema, keys: Fold(schema, keys, _remembered, [], pa.schema([("sum", pa.int64())])),
    "dedupe": Dedupe,
    "dedupe within": lambda schema, keys: Dedupe(schema, keys, 6, "time"),
    "sessions": lambda schema, keys: SessionAggregate(schema, keys, "time", 4, AGGREGATES),
    "top": lambda schema, keys: TopK(schema, keys, "amount", 2),
    "in order": lambda schema, keys: InOrder(schema, keys, "time"),
}


class Kept:
    """What is kept of a state: a snapshot, and in the other way the last whole one with all changes since."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self._whole = Snapshot()
        self._since: Changes | None = None
        self.times_told = 0

    def put_down(self, state: IncrementalState) -> Snapshot:
        changes = state.changes()
        if changes is None or self.snapshot is None:
            assert changes is None, "a state cannot know of changes before it was put down"
            self.snapshot = self._whole = state.snapshot()
            self._since = None
            return self.snapshot
        self.times_told += 1
        self.snapshot = patched(self.snapshot, changes)
        self._since = changes if self._since is None else merged(self._since, changes)
        assert_same(patched(self._whole, self._since), self.snapshot)
        return self.snapshot


def assert_same(found: Snapshot, expected: Snapshot) -> None:
    assert dict(found.values) == dict(expected.values)
    assert {name: (table.schema, table.to_pydict()) for name, table in found.tables.items()} == {
        name: (table.schema, table.to_pydict()) for name, table in expected.tables.items()
    }


def readable(output: Output) -> tuple[Any, ...]:
    """All that it says, to be compared."""
    parents = None if output.parents is None else output.parents.tolist()
    return repr(output.batch.to_pydict()), parents, [array.to_pylist() for array in output.order], output.rejected


def part_of(batch: pa.RecordBatch) -> Part:
    return Part.whole(batch, np.maximum.accumulate(batch.column("time").to_numpy()))


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
@few_examples
@given(
    streams(late=True),
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["go on", "put down", "restart"])), min_size=1),
)
def test_changes_on_the_last_snapshot_are_the_snapshot_and_go_on_exactly(
    make: Make, keys: tuple[str, ...], rows: list[Row], cuts: list[tuple[int, str]]
) -> None:
    state, twin = make(SCHEMA, keys), make(SCHEMA, keys)
    batch, kept, begin, packet = batch_of(rows), Kept(), 0, 0
    while begin < len(rows):
        size, action = cuts[packet % len(cuts)]
        part = part_of(batch.slice(begin, size))
        assert readable(state.process(part)) == readable(twin.process(part))
        if action != "go on":
            assert_same(kept.put_down(state), twin.snapshot())
        if action == "restart":
            assert kept.snapshot is not None
            state, again = make(SCHEMA, keys), make(SCHEMA, keys)
            state.restore(kept.snapshot)
            again.restore(twin.snapshot())
            twin = again
        begin, packet = begin + size, packet + 1
    assert readable(state.flush()) == readable(twin.flush())


LARGE = pa.schema([("user", pa.int64()), ("time", pa.int64()), ("amount", pa.int64())])


def moving(begin: int, size: int, known: int) -> pa.RecordBatch:
    """Rows of users that come into a window of ``known`` users and leave it."""
    chance = np.random.default_rng(begin)
    times = np.arange(begin, begin + size)
    users = times // 2 + chance.integers(0, known, size)
    return pa.RecordBatch.from_arrays([pa.array(users), pa.array(times), pa.array(times % 997)], schema=LARGE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dedupe(LARGE, ["user"], 3_000, "time"),
        lambda: SessionAggregate(LARGE, ["user"], "time", 2_000, [Aggregate("sum", "amount")]),
        lambda: TopK(LARGE, ["user"], "time", 1),
    ],
    ids=["dedupe", "sessions", "top"],
)
@pytest.mark.parametrize("restarting", [False, True], ids=["the state lives on", "a new state every time"])
def test_slots_that_are_numbered_anew_are_put_down_whole(
    make: Callable[[], IncrementalState], restarting: bool
) -> None:
    state, twin, kept = make(), make(), Kept()
    packets = 80
    for begin in range(0, packets * 300, 300):
        part = part_of(moving(begin, 300, 2_000))
        assert state.process(part).batch.equals(twin.process(part).batch)
        snapshot = kept.put_down(state)
        if restarting:
            state = make()
            state.restore(snapshot)
            twin, before = make(), twin
            twin.restore(before.snapshot())
        for name, table in twin.snapshot().tables.items():
            assert snapshot.tables[name].equals(table)
    assert state.flush().batch.equals(twin.flush().batch)
    # Both happened: changes were told, and slots were numbered anew after the first snapshot.
    assert packets / 2 < kept.times_told < packets - 1
    assert len(snapshot.tables["keys"]) < 12_000


@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_what_is_told_grows_with_what_changed_and_not_with_the_state(make: Make) -> None:
    state = make(SCHEMA, ["user"])
    state.process(part_of(batch_of([{"user": user, "time": 0, "amount": 1} for user in range(3_000)])))
    state.snapshot()
    state.process(part_of(batch_of([{"user": user, "time": 3, "amount": 2} for user in (7, 2_999, 3_000)])))
    changes = state.changes()
    assert changes is not None
    assert {name: change.length for name, change in changes.tables.items() if name != "rows"} == {
        name: 3_001 for name in changes.tables if name != "rows"
    }
    assert changes.tables["keys"].rows.to_pydict() == {"user": [3_000]}
    assert max(change.rows.num_rows for change in changes.tables.values()) <= 3


@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_a_state_of_which_much_has_changed_asks_to_be_put_down_whole(make: Make) -> None:
    state = make(SCHEMA, ["user"])
    state.process(part_of(batch_of([{"user": user, "time": 0, "amount": 1} for user in range(5_000)])))
    state.snapshot()
    state.process(part_of(batch_of([{"user": user, "time": 9, "amount": 2} for user in range(3_000, 7_000)])))
    assert state.changes() is None
    assert state.changes() is None, "it stays so until it is put down"
    state.snapshot()
    changes = state.changes()
    assert changes is not None
    assert [change.rows.num_rows for change in changes.tables.values()] == [0] * len(changes.tables)


def test_a_null_among_the_keys_keeps_its_row() -> None:
    schema: Any = pa.schema([("user", pa.int64()), ("time", pa.int64())])
    state = InOrder(schema, ["user"], "time")
    for users in ([1, 2], [None], [3]):
        state.process(part_of(pa.RecordBatch.from_pylist([{"user": u, "time": 5} for u in users], schema=schema)))
    snapshot = state.snapshot()
    restored = InOrder(schema, ["user"], "time")
    restored.restore(snapshot)
    restored.process(part_of(pa.RecordBatch.from_pylist([{"user": None, "time": 8}], schema=schema)))
    changes = restored.changes()
    assert changes is not None
    assert patched(snapshot, changes).tables["latest"].to_pydict() == {"latest": [5, 5, 8, 5]}
    assert snapshot.tables["keys"].to_pydict() == {"user": [1, 2, None, 3]}
