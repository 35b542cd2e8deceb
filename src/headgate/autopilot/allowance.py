"""A share of a processor that is not exceeded: whoever has used more waits until it is less again."""

from __future__ import annotations

import time
from collections.abc import Callable

#: of one core
SHARE = 0.015


class Allowance:
    """``keep`` sleeps as long as the process has used more than its share since it began."""

    def __init__(
        self,
        share: float = SHARE,
        used: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._share = share
        self._used = used
        self._clock = clock
        self._sleep = sleep
        self._began = clock()

    @property
    def share(self) -> float:
        """What was used, as a share of the time that has passed."""
        return self._used() / max(self._clock() - self._began, 1e-9)

    def keep(self) -> None:
        """Wait until no more than the share was used."""
        while (wait := self._used() / self._share - (self._clock() - self._began)) > 0:
            self._sleep(wait)
