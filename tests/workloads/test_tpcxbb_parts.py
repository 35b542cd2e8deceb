"""The tools that the queries derived from TPCx-BB are made of."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from workloads.tpcxbb.arrays import lookup, packed, spread, stretches, unpacked
from workloads.tpcxbb.chains import Chains
from workloads.tpcxbb.counting import PairCounter
from workloads.tpcxbb.ranking import Best
from workloads.tpcxbb.runs import KeyRuns


def test_packed_pairs_sort_as_pairs_do_and_come_back() -> None:
    a, b = np.array([0, 1, 1, 2**31 - 1], dtype=np.int32), np.array([2**31 - 1, 0, 7, 3], dtype=np.int32)
    pairs = packed(a, b)
    assert np.all(np.diff(pairs) > 0)
    assert [half.tolist() for half in unpacked(pairs)] == [a.tolist(), b.tolist()]


def test_spread_numbers_the_rows_of_each_thing() -> None:
    owner, number = spread(np.array([2, 0, 3]))
    assert owner.tolist() == [0, 0, 2, 2, 2]
    assert number.tolist() == [0, 1, 0, 1, 2]


def test_stretches_are_of_equal_neighbours() -> None:
    assert stretches(np.array([4, 4, 2, 4])) == [(0, 2), (2, 3), (3, 4)]


def test_a_lookup_leaves_out_what_does_not_exist_and_null_unless_all_are_chosen() -> None:
    numbers = np.array([-1, 0, 1, 2])
    assert lookup((1, 2, -1, 7), 3)[numbers].tolist() == [False, False, True, True]
    assert lookup(None, 3)[numbers].tolist() == [True] * 4


def test_runs_hold_the_rows_of_a_slot_in_their_order() -> None:
    runs = KeyRuns.by_key(np.array([9, 2, 9, 9, 2]))
    assert runs.order.tolist() == [1, 4, 0, 2, 3]
    assert (runs.keys.tolist(), runs.starts.tolist(), runs.ends.tolist()) == ([2, 9], [0, 2], [2, 5])
    assert runs.of.tolist() == [0, 0, 1, 1, 1]


def test_runs_of_wide_keys_are_those_of_a_stable_sort() -> None:
    values = np.random.default_rng(8).integers(-(2**62), 2**62, size=40)[
        np.random.default_rng(9).integers(40, size=999)
    ]
    runs = KeyRuns.by_key(values)
    assert runs.order.tolist() == np.argsort(values, kind="stable").tolist()
    assert runs.keys[runs.of].tolist() == np.sort(values).tolist()


def test_a_gap_is_longer_than_the_timeout_also_across_parts() -> None:
    runs = KeyRuns.by_key(np.array([0, 0, 1, 1]))
    gaps = runs.gaps(np.array([10, 20, 10, 21]), last=np.array([0, -1]), timeout=10)
    assert gaps.tolist() == [False, False, True, True]


def test_counts_run_through_repeated_and_known_pairs() -> None:
    counter = PairCounter()
    assert counter.add(np.array([5, 5, 8, 5])).tolist() == [1, 2, 1, 3]
    assert counter.add(np.array([8, 5, 9, 8])).tolist() == [2, 4, 1, 3]
    pairs, counts = counter.totals
    assert dict(zip(pairs.tolist(), counts.tolist(), strict=True)) == {5: 4, 8: 3, 9: 1}


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("bite", [1, 13, 5_000])
def test_the_best_are_those_of_a_full_sort(size: int, bite: int) -> None:
    pairs = np.random.default_rng(size).zipf(1.3, size=5_000) % 900
    seen: dict[int, int] = defaultdict(int)
    counts = []
    for pair in pairs.tolist():
        seen[pair] += 1
        counts.append(seen[pair])
    best = Best(size)
    for start in range(0, len(pairs), bite):
        best.offer(pairs[start : start + bite], np.array(counts[start : start + bite]))
    wanted = sorted(seen.items(), key=lambda entry: (-entry[1], entry[0]))[:size]
    assert list(zip(best.pairs.tolist(), best.counts.tolist(), strict=True)) == wanted


def test_chains_hold_the_items_of_many_slots_through_tidying_up() -> None:
    generator = np.random.default_rng(2)
    chains, sets = Chains(), defaultdict(list)
    for _ in range(300):
        slots = np.sort(generator.integers(0, 50, size=40))
        items = generator.integers(0, 9, size=40).astype(np.int32)
        chains.append(slots, items)
        for slot, item in zip(slots.tolist(), items.tolist(), strict=True):
            sets[slot].append(item)
        taken = generator.permutation(60)[:12]
        owner, items = chains.take(taken)
        for place, slot in enumerate(taken.tolist()):
            assert set(items[owner == place].tolist()) == set(sets.pop(slot, []))
    owner, items = chains.look(np.arange(60))
    assert {slot: set(items[owner == slot].tolist()) for slot in np.unique(owner).tolist()} == {
        slot: set(held) for slot, held in sets.items()
    }
    assert len(chains._items) < 4_096, "12,000 items came, but only some hundreds are held"
