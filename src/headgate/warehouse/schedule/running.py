"""The updates that run, and which of them Spark may have died of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain

from headgate.core import Update


class RunningUpdates:
    """The updates on tracks, one after the other on each, and those that did not end when they were cancelled.

    The tables of the latter, which are *stuck*, are busy; their tracks are not. ``suspects`` are the tables that were
    being updated when Spark was lost, with how often: one of them at a time is tried again.

    Invariant: each track that is listed has at least one update.
    """

    def __init__(self, before: RunningUpdates | None = None, tables: Collection[str] = ()) -> None:
        """``before``: as it was before the warehouse was opened again, now with these tables."""
        self._by_track: dict[int, list[Update]] = {}
        self._stuck: list[Update] = []
        self.suspects: Counter[str] = Counter()
        if before is not None:
            self._stuck = [update for update in before._stuck if update.table in tables]
            self.suspects = Counter({name: deaths for name, deaths in before.suspects.items() if name in tables})
        #: updates that were begun by nodes which are not there any more
        self._begun_before = list(self._stuck)

    def __iter__(self) -> Iterator[Update]:
        yield from chain.from_iterable(self._by_track.values())
        yield from self._stuck

    def __bool__(self) -> bool:
        return bool(self._by_track or self._stuck)

    def __contains__(self, update: object) -> bool:
        return any(update is other for other in self)

    @property
    def names(self) -> set[str]:
        """The nodes that are being updated."""
        return {update.name for update in self}

    def is_busy(self, table: str) -> bool:
        return any(update.table == table for update in self)

    def must_wait(self, table: str) -> bool:
        """Whether a table that Spark may have died of must wait, because another such table is being updated."""
        return table in self.suspects and any(update.table in self.suspects for update in self)

    def was_begun_before(self, update: Update) -> bool:
        """Whether the warehouse has been opened again since it began, so that its node knows nothing of it."""
        return any(update is other for other in self._begun_before)

    def on_tracks(self) -> list[Update]:
        return list(chain.from_iterable(self._by_track.values()))

    def left(self) -> tuple[str, ...]:
        """The tables whose update was cancelled and does not end."""
        return tuple(sorted({update.table for update in self._stuck}))

    def is_on_track(self, update: Update) -> bool:
        return any(update is other for other in self._by_track.get(update.track, ()))

    def add(self, update: Update) -> None:
        """It has begun on its track, perhaps after others."""
        self._by_track.setdefault(update.track, []).append(update)

    def remove(self, update: Update) -> bool:
        """It has ended; returns whether that leaves its track without one."""
        if not self.is_on_track(update):
            self._stuck = [other for other in self._stuck if other is not update]
            return False
        left = [other for other in self._by_track.pop(update.track) if other is not update]
        if left:
            self._by_track[update.track] = left
        return not left

    def give_up(self, track: int) -> None:
        """The updates of a track do not end, so the track goes on without them."""
        self._stuck += self._by_track.pop(track)
