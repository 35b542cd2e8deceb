"""State by key: histories, rounds, hashes and the Bloom filter, each against its definition."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np
import pyarrow as pa
import pytest

from headgate.core.errors import ParameterError
from workloads.riot.bloom import BloomFilter
from workloads.riot.hashing import mix, text_hashes
from workloads.riot.keyed import KeySlots, LastValues, grown, rounds


@pytest.mark.parametrize("size", [1, 6, 200])
@pytest.mark.parametrize("width", [1, 5])
def test_a_history_is_the_last_values_of_each_slot(size, width) -> None:
    random = np.random.default_rng(size * 10 + width)
    slots, values, kept = random.integers(0, 9, 200), random.random(200), random.random(200) < 0.7
    last: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=width))
    history = LastValues(width)
    for begin in range(0, 200, size):
        piece = slice(begin, begin + size)
        asked = np.flatnonzero(random.random(len(slots[piece])) < 0.6)
        windows, held = history.extend(slots[piece], values[piece], kept[piece], asked)
        answers = {}
        for place, (slot, value, keep) in enumerate(zip(slots[piece], values[piece], kept[piece], strict=True)):
            if keep:
                last[slot].append(value)
            answers[place] = list(last[slot])
        for place, window, count in zip(asked, windows, held, strict=True):
            assert window[width - count :].tolist() == answers[place]
            assert not window[: width - count].any()


def test_rounds_have_every_row_once_and_no_slot_twice() -> None:
    slots = np.array([4, 2, 4, 4, 7, 2])
    assert [sorted(rows.tolist()) for rows in rounds(slots)] == [[0, 1, 4], [2, 5], [3]]
    assert list(rounds(np.array([], dtype=np.int64))) == []


def test_slots_stay_and_can_be_restored() -> None:
    keys = KeySlots()
    assert keys.of(pa.array(["b", "a", "b"])).tolist() == [0, 1, 0]
    again = KeySlots()
    again.restore(pa.chunked_array([keys.column()]))
    assert again.of(pa.array(["c", "a"])).tolist() == [2, 1]


def test_arrays_grow_by_doubling_and_keep_what_they_had() -> None:
    array = np.array([1.0, 2.0, 3.0])
    assert grown(array, 3) is array
    assert grown(array, 4, fill=9).tolist() == [1, 2, 3, 9, 9, 9]


TEXTS = ["", "a", "a ", "abcdefgh", "abcdefgh ", "a much longer text, of several words", "Zürich"]


def test_a_hash_depends_on_the_text_alone() -> None:
    together = text_hashes(pa.array(TEXTS))
    assert len(set(together.tolist())) == len(TEXTS)
    assert [int(text_hashes(pa.array([text]))[0]) for text in TEXTS] == together.tolist()
    assert text_hashes(pa.array(["x", *TEXTS]).slice(1)).tolist() == together.tolist()
    assert text_hashes(pa.array([None, "a"])).tolist() == together[[0, 1]].tolist()
    assert not len(text_hashes(pa.array([], pa.string())))


def test_mixing_changes_half_of_the_bits() -> None:
    words = np.arange(1000, dtype=np.uint64)
    flipped = mix(words) ^ mix(words ^ np.uint64(1 << 40))
    bits = np.unpackbits(flipped.view(np.uint8)).mean()
    assert 0.48 < bits < 0.52


def test_a_bloom_filter_takes_all_it_knows_and_few_others() -> None:
    known = pa.array([f"known {number}" for number in range(3000)])
    bloom = BloomFilter(known, 3000, 0.02)
    assert bloom.contains(known).all()
    assert bloom.contains(pa.array([f"other {number}" for number in range(5000)])).mean() < 0.04


def test_a_bloom_filter_is_as_large_as_its_capacity_and_error_ask() -> None:
    bloom = BloomFilter(pa.array(["a"]), 20_000, 0.01)
    assert (bloom.size, bloom.hashes) == (191_702, 7)
    with pytest.raises(ParameterError, match="error"):
        BloomFilter(pa.array(["a"]), 10, 1.0)
