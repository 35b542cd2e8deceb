"""The time of a run: that of the wall clock, but it never goes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class SteadyClock:
    """Seconds since the epoch, for waiting as well as for telling how old data is.

    If the wall clock is set back, whatever waits for a moment would wait too long. So time goes on from there at half
    its speed, until the wall clock has caught up. If the wall clock is set forward, it is followed at once.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._last, self._last_monotonic = wall(), monotonic()

    def __call__(self) -> float:
        with self._guard:
            passed = self._monotonic()
            at_least = self._last + 0.5 * (passed - self._last_monotonic)
            self._last, self._last_monotonic = max(at_least, self._wall()), passed
            return self._last
