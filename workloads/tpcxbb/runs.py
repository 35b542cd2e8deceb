"""The rows of a part put together by key: what a loop over rows with a dictionary would do, as arithmetic on runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.stream import Ints, stable_order

#: the last click of a user who has not come yet: no gap to it is ever long
NEVER = 2**62


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Rows sorted by key, those of a key in their order. A *place* is a position in this sorting.

    ``order[place]`` is the row, ``of[place]`` the number of the run it is in. Run r is of ``keys[r]`` and has the
    places from ``starts[r]`` up to, but not including, ``ends[r]``. Keys ascend.
    """

    order: Ints
    of: Ints
    keys: Ints
    starts: Ints
    ends: Ints

    @classmethod
    def by_key(cls, keys: Ints) -> KeyRuns:
        """Keys of rows; at least one row."""
        keys = keys.astype(np.int64, copy=False)
        order = stable_order(keys)
        return cls._of_sorted(order, keys[order])

    @classmethod
    def _of_sorted(cls, order: Ints, keys: Ints) -> KeyRuns:
        first = np.empty(len(keys), dtype=np.bool_)
        first[0] = True
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        return cls(order, np.cumsum(first) - 1, keys[starts], starts, np.append(starts[1:], len(keys)))

    @property
    def lengths(self) -> Ints:
        return self.ends - self.starts

    def gaps(self, ts: Ints, last: Ints, timeout: int) -> NDArray[np.bool_]:
        """Of each place whether its row comes more than ``timeout`` after the one before of its key.

        ``ts`` are the times of places; ``last`` is, of each run, that of its key's last row in earlier parts.
        """
        before = np.empty_like(ts)
        before[1:] = ts[:-1]
        before[self.starts] = last
        return ts - before > timeout
