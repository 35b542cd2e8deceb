"""Chance is a pure function that looks random, whatever it is asked about."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.core.graph import Graph, uniform

NAMES = Graph(f"node{i}" for i in range(4_096)).fingerprint
NUMBERS = np.arange(4_096, dtype=np.uint64)

SEEDS = pytest.mark.parametrize("seed", [0, 7, -1, 2**64 + 5, -(2**70)], ids=["0", "7", "negative", "large", "lowest"])
FINGERPRINTS = pytest.mark.parametrize("fingerprint", [NAMES, NUMBERS], ids=["names", "consecutive numbers"])


@SEEDS
@FINGERPRINTS
def test_numbers_are_uniform_and_tell_nothing_of_the_next_turn(seed: int, fingerprint) -> None:
    now, then = uniform(seed, 1, fingerprint), uniform(seed, 2, fingerprint)
    assert now.min() >= 0 and now.max() < 1
    # 256 expected in each of 16 fields; the bound is five standard deviations
    assert np.all(np.abs(np.histogram2d(now, then, 4, ((0, 1), (0, 1)))[0] - 256) < 78)


@SEEDS
@FINGERPRINTS
def test_no_number_comes_up_twice_over_turns_and_seeds(seed: int, fingerprint) -> None:
    drawn = np.concatenate([uniform(s, turn, fingerprint) for s in (seed, seed + 1) for turn in (0, 1, 2)])
    assert len(np.unique(drawn)) == len(drawn)


def test_the_same_is_drawn_for_the_same_whoever_else_is_asked_about() -> None:
    assert uniform(1, 2, NAMES)[5] == uniform(1, 2, NAMES[5:6])[0]
    assert len(uniform(1, 2, NAMES[:0])) == 0
