"""What updates of a table cost at the least over a while: a burst of data soon passes, what lasts counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: costs that were seen for less than this many seconds, or updates of the table, may be those of a burst
LASTING_SECONDS, LASTING_UPDATES = 15.0, 3


@dataclass(frozen=True, slots=True)
class SeenCost:
    """The cost of updates, seen at one moment: ``setup``, and ``slope`` for each second of data; every ``period``."""

    setup: float
    slope: float
    period: float

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.load)

    @property
    def load(self) -> float:
        """What the table takes of a track if it is updated in every period; -inf if that is not known."""
        load = self.setup / self.period + self.slope if self.period > 0 else math.nan
        return -math.inf if math.isnan(load) else load


class LastingCosts:
    """The least of what was seen of the costs of one table, in the stretch that goes on and in the one before it.

    A stretch ends when it has lasted for ``LASTING_SECONDS`` and ``LASTING_UPDATES``. So costs count as higher when
    they have been for a stretch or two, and as lower at once. What is known for the first time waits for the seconds
    only. Costs of an earlier run, which are known at the first look, count from then on.
    """

    def __init__(self) -> None:
        self._stretches: tuple[SeenCost, SeenCost] | None = None
        self._began = 0.0
        self._updates = 0

    def least(self, now: float, updates: int, seen: SeenCost) -> SeenCost:
        """The least cost, with what is ``seen`` now; the table has had so many ``updates``."""
        before, current = self._stretches or (seen, seen)
        is_new = self._stretches is None or (not current.is_known and seen.is_known)
        enough = updates - self._updates >= LASTING_UPDATES or not before.is_known
        if is_new or (enough and now - self._began >= LASTING_SECONDS):
            self._stretches = current, seen
            self._began, self._updates = now, updates
        else:
            self._stretches = before, min(current, seen, key=_load)
        return min(self._stretches, key=_load)


def _load(seen: SeenCost) -> float:
    return seen.load
