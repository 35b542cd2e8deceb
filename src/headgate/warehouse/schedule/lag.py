"""How long data has been waiting to get into a table: its lag.

Staleness grows even when nothing arrives; lag is zero then. Data counts as waiting from the moment it arrived at the
source, through every table on its way. Over several streams it counts from when the last of them had it: before, the
table could not have used it. Pure: times are passed in; event times are microseconds, all others seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping


class ArrivalLog:
    """What was loaded into one stream: since when it had waited, and up to which event time it reached.

    Invariant: both columns of ``_loads`` increase; loads that did not bring the stream further are left out.
    """

    #: loads remembered; a table further behind than that has waited at least since the oldest of them
    MOST = 1000

    def __init__(self, freshness: int | None) -> None:
        self.freshness = freshness
        #: since when something has been waiting that is not loaded yet
        self.pending_since: float | None = None
        self._loads: deque[tuple[float, int]] = deque(maxlen=self.MOST)

    def loaded(self, arrived: float, freshness: int | None) -> None:
        """A load of data that had arrived at ``arrived`` has brought the stream up to ``freshness``."""
        if freshness is None or (self.freshness is not None and freshness <= self.freshness):
            return
        if self._loads and arrived < self._loads[-1][0]:
            arrived = self._loads[-1][0]
        self.freshness = freshness
        self._loads.append((arrived, freshness))

    def arrived_beyond(self, freshness: int | None) -> float | None:
        """When the first data beyond ``freshness`` came that is loaded; None if there is none."""
        first = None
        for came, upto in reversed(self._loads):  # a table is seldom many loads behind
            if freshness is not None and upto <= freshness:
                break
            first = came
        return first


def waiting_since(
    table_freshness: int | None, streams: Collection[str], logs: Mapping[str, ArrivalLog]
) -> float | None:
    """Since when the oldest data that a table could have but has not has been waiting; None if it has everything."""
    above = [logs[name] for name in streams]
    known = [log.freshness for log in above if log.freshness is not None]
    if not above or len(known) < len(above):
        # a stream that is empty keeps the table waiting for what is coming, not for what is there
        since = [log.pending_since for log in above if log.freshness is None]
        return max((s for s in since if s is not None), default=None) if None not in since else None
    edge = min(known)
    if table_freshness is None or table_freshness < edge:
        came = [log.arrived_beyond(table_freshness) for log in above]
        return max((c for c in came if c is not None), default=None)
    since = [log.pending_since for log in above if log.freshness == edge]
    return None if None in since else max(s for s in since if s is not None)
