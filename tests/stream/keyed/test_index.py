"""Keys become dense slots, exactly, and can be read back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError, UnknownNameError
from headgate.stream.keyed import KeyIndex, RowKeys
from headgate.stream.sorting import sorted_places
from tests.stream.keyed_driver import few_examples, in_key_order

INT64 = st.integers(-(2**63), 2**63 - 1)
KEYS = st.integers(-3, 3) | INT64 | st.integers(0, 40).map(lambda n: n << 44)


def ints(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


@few_examples
@given(st.lists(st.lists(KEYS, max_size=60), max_size=6))
def test_slots_are_numbered_in_the_order_of_first_appearance(batches: list[list[int]]) -> None:
    index, slots = KeyIndex(), dict[int, int]()
    for batch in batches:
        assert index.find(ints(batch)).tolist() == [slots.get(key, -1) for key in batch]
        expected = [slots.setdefault(key, len(slots)) for key in batch]
        assert index.slots(ints(batch)).tolist() == expected
    assert index.keys.tolist() == list(slots)
    assert len(index) == len(slots)


@few_examples
@given(st.lists(st.sets(KEYS, max_size=60), max_size=6))
def test_keys_that_are_known_to_be_different_get_the_same_slots(batches: list[set[int]]) -> None:
    index, other = KeyIndex(), KeyIndex()
    for batch in batches:
        keys = ints(list(batch))
        assert index.slots_of_different(keys).tolist() == other.slots(keys).tolist()
    assert index.keys.tolist() == other.keys.tolist()


@pytest.mark.parametrize(
    "batches",
    [
        [range(100), range(50, 900), range(-700, 0)],
        [range(100), [2**62], range(50, 200)],
        [[0, 2**40], range(10_000), range(-10_000, 20_000)],
        [[2**63 - 1], range(2**63 - 300, 2**63), [2**63 - 70_000]],
        [[-(2**63)], range(-(2**63), -(2**63) + 300), [2**63 - 1, -(2**63) + 70_000]],
    ],
    ids=["a range that widens", "one far away", "close together in the end", "at the upper end", "at the lower end"],
)
def test_slots_stay_the_same_when_keys_move_apart_or_together(batches: list[Any]) -> None:
    index, slots = KeyIndex(), dict[int, int]()
    for batch in batches:
        keys = [key for key in batch for _ in range(2)]
        assert index.slots(ints(keys)).tolist() == [slots.setdefault(key, len(slots)) for key in keys]
        assert index.find(ints([*slots, 12345678])).tolist() == [*slots.values(), -1]


def test_keys_are_found_while_they_are_moved_into_a_greater_table() -> None:
    generator = np.random.default_rng(0)
    index, null = KeyIndex(), np.zeros(2_000, dtype=np.bool_)
    null[77] = True
    keys = generator.permutation(200_000) << 40
    slots = np.empty(len(keys), dtype=np.int64)
    for begin in range(0, len(keys), 2_000):
        rows = slice(begin, begin + 2_000)
        slots[rows] = index.slots(keys[rows], null if not begin else None)
        known = generator.integers(78, begin + 2_000, size=500)
        assert index.slots(keys[known]).tolist() == slots[known].tolist()
    assert index.keys[slots[78:]].tolist() == keys[78:].tolist()
    assert sorted(slots.tolist()) == list(range(len(index)))
    assert index.find(keys + 1).max() == -1


@few_examples
@given(st.lists(st.none() | KEYS, min_size=1, max_size=60), st.data())
def test_after_forgetting_the_rest_is_numbered_anew_and_the_forgotten_is_unknown(
    keys: list[int | None], data: st.DataObject
) -> None:
    index = KeyIndex()
    values, nulls = ints([key or 0 for key in keys]), np.array([key is None for key in keys])
    slots = index.slots(values, nulls)
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(index), max_size=len(index))))
    moved = index.keep(kept)
    assert moved[kept].tolist() == list(range(len(index)))
    assert (moved[~kept] == -1).all()
    present = kept[slots]
    assert index.slots(values[present], nulls[present]).tolist() == moved[slots[present]].tolist()
    assert (index.find(values[~present & ~nulls]) == -1).all()


@pytest.mark.parametrize(
    "keys",
    [np.arange(200_000), np.arange(200_000) << 40, np.arange(200_000) * -(2**20) - 1],
    ids=["in a row", "alike in the low bits", "negative multiples"],
)
def test_hundreds_of_thousands_of_keys_keep_their_slots_while_the_table_grows(keys: Any) -> None:
    index = KeyIndex()
    for begin in range(0, len(keys), 65_536):
        index.slots(keys[begin : begin + 65_536])
    assert (index.find(keys[::-1]) == np.arange(len(keys))[::-1]).all()


SCHEMA = pa.schema(
    [
        ("small", pa.int8()),
        ("huge", pa.uint64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("text", pa.string()),
        ("bytes", pa.large_binary()),
        ("word", pa.dictionary(pa.int8(), pa.string())),
        pa.field("sure", pa.int64(), nullable=False),
    ]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "small": st.integers(-2, 2),
    "huge": st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    "flag": st.booleans(),
    "day": st.integers(-1, 1),
    "at": st.integers(-1, 1),
    "text": st.sampled_from(["", "a", "b"]),
    "bytes": st.sampled_from([b"", b"a", b"\xff"]),
    "word": st.sampled_from(["", "u", "v"]),
}


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[list[str], list[dict[str, Any]]]:
    columns = draw(st.lists(st.sampled_from(list(SCHEMA.names)), min_size=1, max_size=4, unique=True))
    one = {name: (st.none() | VALUES[name]) if name in VALUES else st.integers(0, 3) for name in SCHEMA.names}
    return columns, draw(st.lists(st.fixed_dictionaries(one), max_size=40))


@few_examples
@given(keyed_rows(), st.integers(1, 20))
def test_rows_share_a_slot_exactly_if_their_keys_are_equal_and_keys_can_be_read_back_and_sorted(
    made: tuple[list[str], list[dict[str, Any]]], cut: int
) -> None:
    columns, rows = made
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    keys = RowKeys(SCHEMA, columns)
    slots = np.concatenate(
        [ints([]), *(keys.slots(batch.slice(begin, cut)) for begin in range(0, batch.num_rows, cut))]
    )
    wanted = list(zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
    assert len(keys) == len(set(wanted)) == len(set(slots.tolist()))
    assert len(set(zip(slots.tolist(), wanted, strict=True))) == len(keys)
    read = keys.columns(slots)
    assert [array.type for array in read] == [SCHEMA.field(name).type for name in columns]
    assert list(zip(*(array.to_pylist() for array in read), strict=True)) == wanted
    order = sorted_places(keys.order(read)).tolist()
    assert [wanted[place] for place in order] == sorted(wanted, key=in_key_order)


@few_examples
@given(keyed_rows())
def test_forgotten_keys_are_gone_from_every_column(made: tuple[list[str], list[dict[str, Any]]]) -> None:
    columns, rows = made
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    keys = RowKeys(SCHEMA, columns)
    slots = keys.slots(batch)
    kept = np.arange(len(keys)) % 2 == 0
    before = keys.table(np.flatnonzero(kept)).to_pylist()
    moved = keys.keep(kept)
    assert sorted(moved[kept].tolist()) == list(range(len(keys)))
    assert keys.table(moved[kept]).to_pylist() == before
    staying = np.flatnonzero(kept[slots])
    assert keys.slots(batch.take(pa.array(staying))).tolist() == moved[slots[staying]].tolist()


def test_a_key_column_must_exist_and_be_exactly_comparable() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'user'"):
        RowKeys(pa.schema([("user", pa.int64())]), ["usr"])
    with pytest.raises(DeclarationError, match="column 'x' of type double cannot be a key"):
        RowKeys(pa.schema([("x", pa.float64())]), ["x"])
