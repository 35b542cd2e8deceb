"""Chance as a pure function: numbers that look random and depend only on what is passed in.

A node's number comes from its name, the seed and the turn; not from how many numbers were drawn before, so the order
of the nodes makes no difference and a run can be repeated. The mixing is SplitMix64's finalizer (Steele, Lea and
Flood, OOPSLA 2014): good enough for scheduling, useless for secrets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.core.graph import Floats

Words = NDArray[np.uint64]

_WORD = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def uniform(seed: int, turn: int, fingerprint: Words) -> Floats:
    """One number in [0, 1) per fingerprint, different for every seed and turn."""
    drawn = _mix(_mix(_mix(_word(seed)) ^ _word(turn)) ^ fingerprint)
    # a float has 53 bits: taking more would round some numbers up to 1
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _word(number: int) -> Words:
    # an array, because NumPy warns when scalars wrap around and arrays wrap silently
    return np.array([number & _WORD], dtype=np.uint64)


def _mix(words: Words) -> Words:
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
