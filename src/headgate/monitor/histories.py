"""How one table of a recorded run stood at any moment of it: its staleness, lag and priority."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from headgate.core import is_past
from headgate.core.trace import FreshnessHistory, Trace, TraceTable, Waiting, waiting


@dataclass(frozen=True, slots=True)
class TableHistory:
    """``priorities`` are pairs of a moment and the priority from then on."""

    freshness: FreshnessHistory
    pieces: tuple[Waiting, ...]
    priorities: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, trace: Trace, table: TraceTable) -> TableHistory:
        pieces = () if table.kind == "dimension" else waiting(trace, table)
        return cls(FreshnessHistory.of(trace, table), pieces, tuple(trace.priorities(table)))

    def staleness(self, moment: float) -> float | None:
        reached = self.freshness.at(moment)
        return None if reached is None else max(0.0, moment - reached)

    def lag(self, moment: float) -> float:
        index = bisect_right(self.pieces, moment, key=lambda piece: piece.begin) - 1
        since = self.pieces[index].since if index >= 0 else math.inf
        return max(0.0, moment - since)

    def priority(self, moment: float) -> float:
        index = bisect_right(self.priorities, moment, key=lambda pair: pair[0]) - 1
        return self.priorities[max(0, index)][1]

    def is_past(self, moment: float) -> bool:
        """Whether the data that had arrived was of the past; before the table had rows, that of its first ones."""
        if self.freshness.moments:
            moment = max(moment, self.freshness.moments[0])
        return is_past(self.staleness(moment), self.lag(moment))
