"""A Bloom filter over texts: it may take a text that was never put in, but never refuses one that was."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import ParameterError
from workloads.riot.hashing import Words, mix, text_hashes

_SECOND = np.uint64(0xD6E8FEB86659FD93)


class BloomFilter:
    """Made for ``capacity`` texts of which a share of ``error`` is taken wrongly. It does not change once made.

    The k places of a text are h1 + i * h2 (Kirsch and Mitzenmacher): two hashes do as well as k.
    """

    def __init__(self, texts: pa.Array, capacity: int, error: float = 0.01) -> None:
        if capacity < 1 or not 0 < error < 1:
            raise ParameterError(f"a Bloom filter needs a capacity from 1 and 0 < error < 1; got {capacity}, {error}")
        self.size = max(math.ceil(-capacity * math.log(error) / math.log(2) ** 2), 1)
        self.hashes = max(round(self.size / capacity * math.log(2)), 1)
        self._bytes = np.zeros(-(-self.size // 8), dtype=np.uint8)
        places = self._places(text_hashes(texts))
        np.bitwise_or.at(self._bytes, places >> np.uint64(3), _bit(places))

    def contains(self, texts: pa.Array) -> NDArray[np.bool_]:
        """Which texts may have been put in."""
        places = self._places(text_hashes(texts))
        found: NDArray[np.bool_] = (self._bytes[places >> np.uint64(3)] & _bit(places)).all(axis=0)
        return found

    def _places(self, first: Words) -> Words:
        """A row for each hash function."""
        second = mix(first ^ _SECOND) | np.uint64(1)
        numbers = np.arange(self.hashes, dtype=np.uint64)[:, None]
        return (first + numbers * second) % np.uint64(self.size)


def _bit(place: Words) -> NDArray[np.uint8]:
    return np.uint8(1) << (place & np.uint64(7)).astype(np.uint8)
