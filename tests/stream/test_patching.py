"""Rows put into tables at their places, whatever their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvariantError
from headgate.stream.kernel import Changes, Snapshot, TableChange
from headgate.stream.patching import laid_over, merged, patched

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integers": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "narrow integers": (pa.uint8(), st.integers(0, 255)),
    "floats": (pa.float64(), st.floats(allow_nan=False)),
    "nulls": (pa.int32(), st.none() | st.integers(0, 9)),
    "texts": (pa.string(), st.none() | st.text(max_size=3)),
    "booleans": (pa.bool_(), st.booleans()),
    "times": (pa.timestamp("us"), st.none() | st.datetimes()),
    "lists": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
}


def change_of(kind: pa.DataType, rows: dict[int, Any], length: int) -> Changes:
    positions = np.array(sorted(rows), dtype=np.int64)
    table = pa.table({"x": pa.array([rows[place] for place in sorted(rows)], type=kind)})
    return Changes({"t": TableChange(positions, table, length)}, {"length": length})


@pytest.mark.parametrize(("kind", "values"), VALUES.values(), ids=VALUES)
@given(st.data())
def test_tables_become_what_a_list_becomes_in_one_step_or_in_several(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(values, max_size=6))
    # In two pieces, as a table that was patched before is.
    whole = pa.chunked_array([pa.array(rows[:2], type=kind), pa.array(rows[2:], type=kind)])
    first = snapshot = Snapshot({"t": pa.table({"x": whole})})
    together: Changes | None = None
    for _ in range(data.draw(st.integers(1, 3))):
        length = data.draw(st.integers(max(0, len(rows) - 1), len(rows) + 3))
        replaced = data.draw(st.sets(st.integers(0, length - 1))) if length else set()
        new = {place: data.draw(values) for place in replaced | set(range(len(rows), length))}
        rows = [new.get(place, rows[place] if place < len(rows) else None) for place in range(length)]
        change = change_of(kind, new, length)
        snapshot = patched(snapshot, change)
        together = change if together is None else merged(together, change)
    assert together is not None
    for made in (snapshot, patched(first, together)):
        assert made.tables["t"].equals(pa.table({"x": pa.array(rows, type=kind)}))
        assert made.values == {"length": len(rows)}


def test_what_is_patched_is_not_written_to() -> None:
    table = pa.table({"x": [1, 2, 3]})
    patched(Snapshot({"t": table}), change_of(pa.int64(), {1: 9}, 3))
    assert table.column("x").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (change_of(pa.int64(), {5: 1}, 6), "with 1 rows added to 3 it should have 6"),
        (change_of(pa.string(), {1: "a"}, 3), "whose columns are .x: int64."),
        (Changes(), "do not fit a snapshot of ..t.."),
    ],
    ids=["a gap", "another type", "other tables"],
)
def test_changes_to_something_else_are_refused(change: Changes, text: str) -> None:
    with pytest.raises(InvariantError, match=text):
        patched(Snapshot({"t": pa.table({"x": [1, 2, 3]})}), change)


def test_the_later_word_counts_for_each_state_by_name() -> None:
    table = Snapshot({"t": pa.table({"x": [1, 2]})})
    other = Snapshot({"t": pa.table({"x": [7]})})
    step = [change_of(pa.int64(), {0: 5}, 2), change_of(pa.int64(), {1: 6}, 2)]
    known = laid_over({"a": table, "b": step[0], "c": step[0], "gone": table}, {"a": step[0], "b": step[1], "c": other})
    assert list(known) == ["a", "b", "c"]
    a, b, c = known.values()
    assert isinstance(a, Snapshot) and a.tables["t"].column("x").to_pylist() == [5, 2]
    assert isinstance(b, Changes) and b.tables["t"].positions.tolist() == [0, 1]
    assert c is other
    with pytest.raises(InvariantError, match="changes of 'new', but no snapshot"):
        laid_over({}, {"new": step[0]})
