"""Staleness and lag of a table. Pure: times are passed in.

*Staleness* is now minus the event time up to which a table is complete. It grows by one second per second, also when no
data arrives, and falls with every update; it is 0 for data ahead of the clock, so that a sensor whose clock is fast
does not make up for tables that are late. *Lag* is how long the oldest data that has arrived but is not in the table
has been waiting; it is 0 while nothing waits. Data waits from the moment it arrived at the source, through every table
on its path. If a table has several streams, data waits from when all of them had it: before, the table could not have
used it.

The staleness of historical data is its age, and says nothing of how well a table is kept: there, lag does.

The simulator, the running warehouse and the measures of a trace all use the two meters here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping

#: data older than this when it arrives is of the past, and staleness says little of it; see ``is_past``
PAST_SECONDS = 86_400.0


def is_past(staleness: float | None, lag: float) -> bool:
    """Whether the newest data that has arrived for a table is more than a day old.

    Staleness is then the age of the data, whatever the updates do. Lag says how far behind the table is.
    """
    return staleness is not None and staleness - lag > PAST_SECONDS


class StalenessMeter:
    """Mean and maximum of one table's staleness over time. All times are seconds.

    Staleness counts from ``begin``: from when the meter was made, or from when the table first had rows.

    Invariants:
    1. ``area`` is the integral of staleness from ``begin`` to ``since``, and ``maximum`` the highest value in between,
       at least 0.
    2. From ``since`` on the table is complete up to event time ``fresh``, which is -inf while it has no rows.
    """

    __slots__ = ("area", "begin", "fresh", "maximum", "since")

    def __init__(self, now: float, fresh: float = -math.inf) -> None:
        self.begin = now
        self.since = now
        self.fresh = fresh
        self.area = 0.0
        self.maximum = 0.0 if fresh == -math.inf else max(0.0, now - fresh)

    @property
    def empty(self) -> bool:
        """The table has no rows, so it has no staleness."""
        return self.fresh == -math.inf

    def advance(self, now: float) -> None:
        """Count up to ``now``; does nothing if that is counted already."""
        since, fresh = self.since, self.fresh
        if now <= since or fresh == -math.inf:
            return
        if now > fresh:
            late = max(since, fresh)
            # from then on staleness grows by one second a second, so its integral is that of a trapezium
            self.area += (now - late) * ((now - fresh) + (late - fresh)) / 2
            self.maximum = max(self.maximum, now - fresh)
        self.since = now

    def refresh(self, now: float, fresh: float) -> None:
        """An update has made the table complete up to event time ``fresh``."""
        if self.fresh == -math.inf:
            self.begin = self.since = now
            self.maximum = max(0.0, now - fresh)
        else:
            self.advance(now)
        self.fresh = fresh

    def staleness(self, now: float) -> float | None:
        """How stale the table is now; None while it has no rows."""
        return None if self.empty else max(0.0, now - self.fresh)

    @property
    def seconds(self) -> float:
        """For how long staleness has been counted."""
        return self.since - self.begin

    @property
    def mean(self) -> float | None:
        """Mean staleness of the time counted; None while the table has no rows."""
        return self.area / self.seconds if self.seconds > 0 else self.staleness(self.since)


class LagMeter:
    """The lag of one table, and the share of time in which it was within a target. All times are seconds.

    Invariants:
    1. ``late`` is for how long from ``begin`` to ``since`` the lag was above ``target``, ``area`` the integral of the
       lag over that time, and ``maximum`` its highest value.
    2. From ``since`` on, the oldest data that the table has not has been waiting since ``waiting``, None if nothing
       waits.
    """

    __slots__ = ("area", "begin", "late", "maximum", "since", "target", "waiting")

    def __init__(self, now: float, target: float | None = None) -> None:
        self.begin = now
        self.since = now
        self.target = target
        self.waiting: float | None = None
        self.late = 0.0
        self.area = 0.0
        self.maximum = 0.0

    def advance(self, now: float) -> None:
        """Count up to ``now``; does nothing if that is counted already."""
        if now <= self.since:
            return
        if self.waiting is not None:
            if self.target is not None:
                self.late += max(0.0, now - max(self.since, self.waiting + self.target))
            before, after = self.lag(max(self.since, self.waiting)), self.lag(now)
            # lag grows by one second a second from when something waits, so its integral is that of a trapezium
            self.area += (after - before) * (after + before) / 2
            self.maximum = max(self.maximum, after)
        self.since = now

    def wait(self, now: float, since: float | None) -> None:
        """From ``now`` on, the oldest data that is not in the table has been waiting since ``since``.

        ``since`` may be in the future, if data is known to arrive then.
        """
        self.advance(now)
        self.waiting = since

    def lag(self, now: float) -> float:
        """How long the oldest data that is not in the table has been waiting; 0 if nothing waits."""
        return 0.0 if self.waiting is None else max(0.0, now - self.waiting)

    @property
    def mean(self) -> float:
        """Mean lag of the time counted."""
        seconds = self.since - self.begin
        return self.area / seconds if seconds > 0 else self.lag(self.since)

    @property
    def target_met(self) -> float | None:
        """The share of the time counted in which the lag was within the target; None without a target."""
        seconds = self.since - self.begin
        return max(0.0, 1 - self.late / seconds) if self.target is not None and seconds > 0 else None


class ArrivalLog:
    """The loads of one stream: since when the data had waited, and the event time that the stream reached.

    Event times are microseconds, all others seconds. Invariant: both columns of ``_loads`` increase; loads that did not
    bring the stream further are left out.
    """

    #: loads remembered; a table further behind than that has waited at least since the oldest of them
    MOST = 1000

    def __init__(self, freshness: int | None) -> None:
        self.freshness = freshness
        #: since when something has been waiting that is not loaded yet
        self.pending_since: float | None = None
        self._loads: deque[tuple[float, int]] = deque(maxlen=self.MOST)

    def loaded(self, arrived: float, freshness: int | None) -> None:
        """Data that had arrived at ``arrived`` was loaded; the stream is now complete up to ``freshness``."""
        if freshness is None or (self.freshness is not None and freshness <= self.freshness):
            return
        if self._loads and arrived < self._loads[-1][0]:
            arrived = self._loads[-1][0]
        self.freshness = freshness
        self._loads.append((arrived, freshness))

    def arrived_beyond(self, freshness: int | None) -> float | None:
        """When the first loaded data beyond ``freshness`` arrived; None if there is none."""
        first = None
        for came, upto in reversed(self._loads):  # a table is seldom many loads behind
            if freshness is not None and upto <= freshness:
                break
            first = came
        return first


def waiting_since(
    table_freshness: int | None, streams: Collection[str], logs: Mapping[str, ArrivalLog]
) -> float | None:
    """Since when the oldest data that the table could take in has been waiting; None if nothing waits."""
    above = [logs[name] for name in streams]
    known = [log.freshness for log in above if log.freshness is not None]
    if not above or len(known) < len(above):
        # an empty stream holds up the table, so only the data that is pending there counts
        since = [log.pending_since for log in above if log.freshness is None]
        return max((s for s in since if s is not None), default=None) if None not in since else None
    edge = min(known)
    if table_freshness is None or table_freshness < edge:
        came = [log.arrived_beyond(table_freshness) for log in above]
        return max((c for c in came if c is not None), default=None)
    since = [log.pending_since for log in above if log.freshness == edge]
    return None if None in since else max(s for s in since if s is not None)
