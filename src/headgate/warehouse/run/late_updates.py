"""Updates that take too long: they are cancelled, and if they do not end then, the run goes on without them.

An update is late beyond its time limit, or if it still runs when the run has to stop. Its jobs in Spark are cancelled.
Code in Python that does not return gets an exception, which cannot end everything either: then the thread is left
alone, its track gets another one, and only the table of the update has to wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from headgate.core import Update
from headgate.core.trace import RunNotice
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.run.tracks import Tracks
from headgate.warehouse.schedule.scheduler import Scheduler

#: how long an update has to end after it was cancelled; then its track goes on without it
CANCEL_SECONDS = 5.0


class LateUpdates:
    """Looks after the updates on tracks. For one thread, except for `stop_within` and what it sets.

    Time is measured by the monotonic clock, and not by that of the machine, which may be set meanwhile.
    """

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        #: when updates that still run are cancelled, and when they are not waited for any longer
        self._stop_by = self._leave_by = math.inf
        #: {update on a track: since when it runs}, by identity
        self._since: dict[int, float] = {}
        #: {update that was cancelled: (why, when)}, by identity
        self._cancelled: dict[int, tuple[str, float]] = {}

    def stop_within(self, grace: float) -> None:
        """The run has to stop: updates that still run in ``grace`` seconds are late."""
        self._stop_by = min(self._stop_by, time.monotonic() + grace)
        self._leave_by = self._stop_by + CANCEL_SECONDS

    @property
    def are_left(self) -> bool:
        """Whether the run has stopped for so long that updates which still run are not waited for."""
        return time.monotonic() >= self._leave_by

    def were_left(self, seconds: float) -> bool:
        """Whether that was so long ago."""
        return time.monotonic() >= self._leave_by + seconds

    def look(self, scheduler: Scheduler, now: float) -> bool:
        """Cancel the updates that are late; go on without those that do not end. Whether there were such."""
        given_up = False
        for update, why in self._late(scheduler):
            key = id(update)
            if key not in self._cancelled:
                self._cancelled[key] = (why, time.monotonic())
            if time.monotonic() < self._cancelled[key][1] + CANCEL_SECONDS:
                self._tracks.cancel([update.name])  # repeated: it may have had no job in Spark the last time
            elif scheduler.running.is_on_track(update):
                self._give_up(scheduler, update, why, now)
                given_up = True
        return given_up

    def _late(self, scheduler: Scheduler) -> list[tuple[Update, str]]:
        late: list[tuple[Update, str]] = []
        for update in scheduler.running.on_tracks():
            if not update.began or update.status != "running":
                # It waits for its turn in a job, perhaps because it failed when it was prepared; or it has just ended.
                self._since.pop(id(update), None)
                continue
            limit = scheduler.time_limit(update)
            if time.monotonic() >= self._stop_by:
                late.append((update, "was stopped with the run before it had ended"))
            elif time.monotonic() - self._since.setdefault(id(update), time.monotonic()) > limit:
                late.append((update, f"took longer than its time limit of {readable(limit)}"))
        return late

    def _give_up(self, scheduler: Scheduler, update: Update, why: str, now: float) -> None:
        text = (
            f"its update {why}, and does not end although it was cancelled. Other tables go on without it. If "
            "it never ends, stop the run and mend the function that does not return"
        )
        scheduler.notices.append(RunNotice(now, update.table, text))
        on_track = [other for other in scheduler.running.on_tracks() if other.track == update.track]
        after = self._tracks.withdraw(on_track)
        scheduler.give_up(update.track, now)
        self._tracks.replace(update.track)
        self._pass_over(after, TimeoutError(f"the update of {update.table} before it does not end"), scheduler, now)

    def take_back(self, scheduler: Scheduler, why: str, now: float, table: str | None = None) -> None:
        """Withdraw the updates that wait for their turn in a job that another one has set up; of a table, if given."""
        waiting = [u for u in scheduler.running.on_tracks() if u.has_joined and table in (None, u.table)]
        self._pass_over(self._tracks.withdraw(waiting), InterruptedError(why), scheduler, now)

    def _pass_over(self, updates: Iterable[Update], why: Exception, scheduler: Scheduler, now: float) -> None:
        """Updates that waited for their turn in a job were withdrawn: they are tried again at once, alone."""
        for update in updates:
            self._since.pop(id(update), None)
            if update.status != "failed":  # when it was prepared, by its own fault
                update.was_passed_over = True
                update.fails(why, transient=True)
            scheduler.ended(update, now)

    def ended(self, update: Update) -> None:
        """An update has ended; if it failed because it was cancelled, its error says so."""
        self._since.pop(id(update), None)
        cancelled = self._cancelled.pop(id(update), None)
        if cancelled is not None and not update.committed:
            update.error = f"it {cancelled[0]}, and was cancelled"
