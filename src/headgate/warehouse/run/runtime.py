"""A running warehouse, as other threads see it: what they may ask of it and change in it while it goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from headgate.core import (
    MOST_PRIORITY,
    MOST_TRACKS,
    Decision,
    Explanation,
    ParameterError,
    Placement,
    Policy,
    UnknownNameError,
    inheritance_from,
    together_from,
    vet,
)
from headgate.core.trace import RunNotice, TraceTable
from headgate.warehouse.run.opened_table import OpenedTable, opened_table
from headgate.warehouse.run.scheduler_thread import SchedulerThread, TimeSpent
from headgate.warehouse.run.trace import traced_tables
from headgate.warehouse.schedule.catching_up import Behind, CatchUp, NotFreshError
from headgate.warehouse.schedule.explaining import with_autopilot
from headgate.warehouse.schedule.glance import Glance
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

#: seconds between two looks at tables that have to catch up
CATCH_UP_SECONDS = 0.1
#: the most tracks that a run has because a cluster has so many cores: more keep its driver busy, not its executors
MOST_FOLLOWED = 32


class Runtime(SchedulerThread):
    """A warehouse that is kept fresh. Every public method may be called by any thread: what it asks or changes is
    carried out by the scheduler thread."""

    def statistics(self) -> tuple[NodeStatistics, ...]:
        """The statistics of every table now, in the order declared. If the run has failed, all are "stopped"."""
        return self._as_stopped(self._ask(lambda: self._scheduler.statistics(self._clock()), also_if_failed=True))

    def glance(self) -> Glance:
        """How everything stands now, in one visit to the scheduler, for those who watch."""
        glance = self._ask(lambda: self._scheduler.glance(self._clock()), also_if_failed=True)
        tables = self._as_stopped(glance.tables)
        return replace(glance, tables=tables, file_problem=self._file_problem)

    def refuse_file(self, why: str) -> None:
        """Tell those who watch why the pipeline file, as it was saved last, is not used; nothing if it is."""
        self._file_problem = why

    def _as_stopped(self, rows: tuple[NodeStatistics, ...]) -> tuple[NodeStatistics, ...]:
        if self.error is None:
            return rows
        why = f"the run has failed: {type(self.error).__name__}: {self.error}"
        return tuple(replace(row, state="stopped", error=why, next_update=None) for row in rows)

    def declared(self) -> tuple[TraceTable, ...]:
        """The tables as they are declared now."""
        return traced_tables(self.warehouse.spec, {})

    def decisions(self, name: str) -> tuple[Decision, ...]:
        """The last decisions at which a table could have been chosen, the newest first."""
        return self._ask(lambda: self._scheduler.decisions(self._known(name)))

    def opened(self, name: str) -> OpenedTable:
        """A table for those who look into it, which they do without disturbing the scheduler."""
        return opened_table(self.warehouse, self._known(name))

    def notices(self) -> tuple[RunNotice, ...]:
        """The latest that users should know: about sources, about the policy, about the pipeline file."""
        return self._ask(lambda: tuple(self._observers.notices), also_if_failed=True)

    def time_spent(self) -> TimeSpent:
        """How much time was spent on what."""
        return self._ask(lambda: TimeSpent(self._busy, self._update_seconds, self._work_seconds))

    def explain(self, name: str) -> Explanation:
        """Why a table is or is not being updated at this moment."""
        told = self._ask(lambda: self._scheduler.explain(self._known(name), self._clock()))
        return with_autopilot(told, self.autopilot)

    def catch_up(self, tables: Iterable[str] | None = None, *, publications: bool = False) -> CatchUp:
        """Begin to watch whether ``tables``, or all, have taken in what has arrived by now; see ``behind``.

        With ``publications`` also whether it is published.
        """
        return self._ask(lambda: self._scheduler.catch_up(self._clock(), tables, publications))

    def behind(self, catch_up: CatchUp) -> Behind:
        """The tables that have not caught up yet."""
        return self._ask(lambda: self._scheduler.behind(catch_up, self._clock()))

    def wait_until_fresh(self, timeout: float | None = None, tables: Iterable[str] | None = None) -> None:
        """Wait until ``tables``, or all, and what they are computed from, have taken in what has arrived by now.

        Raises NotFreshError after ``timeout`` seconds, or at once when only tables are left that will not catch up
        without a user: paused or held ones, those whose source cannot be read, and what is computed from them.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        watched = self.catch_up(tables)
        while (behind := self.behind(watched)).tables:
            if behind.stuck or time.monotonic() >= end or not self.is_running:
                raise self.error or NotFreshError(behind.tables)
            time.sleep(min(CATCH_UP_SECONDS, max(0.0, end - time.monotonic())))

    def check_settings(
        self,
        policy: Policy | None = None,
        placement: Placement | None = None,
        tracks: int | None = None,
        names: Iterable[str] = (),
    ) -> None:
        """Refuse settings, and names of tables, that would be refused if they were asked for; nothing changes."""

        def check() -> None:
            for name in names:
                self._known(name)
            self._scheduler.check(policy, placement, tracks)

        self._ask(check)

    def replace_policy(self, policy: Policy) -> None:
        vet(policy)
        self._change({"policy": str(policy)}, lambda _: self._scheduler.replace_policy(policy))

    def replace_placement(self, placement: Placement) -> None:
        vet(placement)
        self._change({"placement": str(placement)}, lambda _: self._scheduler.replace_placement(placement))

    def switch(
        self, policy: Policy, placement: Placement | None, tracks: int | None, why: str, still: Callable[[], bool]
    ) -> bool:
        """Change several settings at once, for a reason that users are told; None for what stays. Whether it was done.

        ``still`` is asked last whether that is to be done: somebody may have changed something meanwhile.
        """

        def carry_out() -> bool:
            if not still():
                return False
            self._scheduler.check(policy, placement, tracks)  # or what is refused last leaves the rest changed
            now = self._clock()
            what: dict[str, object] = {"policy": str(policy)}
            if placement is not None:
                self._scheduler.replace_placement(placement)
                what["placement"] = str(placement)
            if tracks is not None:
                self._follows_cores = False
                self._resize(tracks)
                what["tracks"] = tracks
            self._scheduler.replace_policy(policy)
            self._observers.changed(now, {**what, "why": why})
            self._scheduler.notices.append(RunNotice(now, None, why))
            return True

        return self._ask(carry_out)

    def set_inheritance(self, inheritance: str) -> None:
        """Let sources inherit priorities in another way, such as ``sum``; ``default`` leaves it to the pipeline, and
        then to the policy."""
        inheritance_from(inheritance)
        self._restate("inheritance", lambda: self._scheduler.set_inheritance(inheritance))

    def set_together(self, together: str) -> None:
        """Let tables share jobs in another way, such as ``auto``, from the next update on; ``default`` leaves it to the
        pipeline."""
        together_from(together)
        self._restate("together", lambda: self._scheduler.set_together(together))

    def _restate(self, setting: str, change: Callable[[], None]) -> None:
        """Change a setting that the pipeline may state, too; what holds then is recorded."""

        def carry_out() -> None:
            change()
            self._observers.changed(self._clock(), {setting: self._scheduler.stated[setting]})

        self._ask(carry_out)

    def set_tracks(self, count: int) -> None:
        """Change the number of tracks; one that is removed finishes its updates."""
        if not 1 <= count <= MOST_TRACKS:
            raise ParameterError(f"there are from 1 to {MOST_TRACKS} tracks; got {count}")

        def change(_: float) -> None:
            self._follows_cores = False
            self._resize(count)

        self._change({"tracks": count}, change)

    def follow_cores(self, cores: int) -> None:
        """Have as many tracks as a cluster has cores now, unless somebody has said how many there are to be."""
        count = min(cores, MOST_FOLLOWED)
        if count and self._follows_cores and count != self.tracks:
            self._change({"tracks": count}, lambda _: self._resize(count))

    def tell(self, text: str) -> None:
        """Tell users something that concerns no single table."""
        self._ask(lambda: self._scheduler.notices.append(RunNotice(self._clock(), None, text)))

    def remark(self, name: str, text: str) -> None:
        """Tell users something about a table that concerns no update, and show it beside the table until it changes."""
        self._ask(lambda: self._scheduler.remark(self._known(name), text, self._clock()))

    def set_budget(self, budget: float | None) -> None:
        """Change how long one update should take at most, in seconds; None for no limit."""
        if budget is not None and not budget > 0:
            raise ParameterError(f"a budget is a number of seconds above 0, or None; got {budget}")
        limit = math.inf if budget is None else budget
        self._change({"budget": budget}, lambda now: self._scheduler.set_budget(limit, now))

    def pause(self, name: str) -> None:
        """Begin no more updates of a table until it is resumed; a running one is finished."""

        def change(now: float) -> None:
            self._scheduler.pause(self._known(name), now)
            self._late.take_back(self._scheduler, "its table was paused before its turn in a job", now, name)

        self._change({"paused": name}, change)

    def resume(self, name: str) -> None:
        """Update a table again that was paused, is held, or waits for a retry."""
        self._change({"resumed": name}, lambda now: self._scheduler.resume(self._known(name), now))

    def refresh(self, name: str) -> None:
        """Update a table, and the tables it is built on, before all others."""
        self._change({"refresh": name}, lambda now: self._scheduler.refresh_now(self._known(name), now))

    def set_priority(self, name: str, priority: float) -> None:
        """Change the priority of a table, from the next decision on."""
        if not 0 <= priority <= MOST_PRIORITY:
            raise ParameterError(f"the priority of {name!r} takes a number from 0 to {MOST_PRIORITY:g}; got {priority}")
        what = {"priority": [name, priority]}
        self._change(what, lambda _: self._scheduler.set_priority(self._known(name), priority))

    def backfill(self, name: str, first: int, last: int, chunk: float | None = None) -> None:
        """Recompute the event times from ``first`` to ``last`` (microseconds), while no live update waits.

        ``chunk`` is how many seconds of event time one update recomputes; by default, about a second of work.
        """
        for moment in (first, last):
            if not isinstance(moment, int):
                raise ParameterError(
                    f"a backfill of {name!r} goes from one event time to another, in whole microseconds since the "
                    f"epoch; got {moment!r}"
                )
        if last < first:
            raise ParameterError(f"a backfill of {name!r} must end after it begins; got {first} to {last}")
        what = {"backfill": [name, first, last]}
        self._change(what, lambda now: self._scheduler.backfill(self._known(name), first, last, chunk, now))

    def replace_warehouse(self, reopen: Callable[[], OpenWarehouse]) -> None:
        """Continue with another declaration of the same warehouse; ``reopen`` is called when no update runs."""

        def change() -> None:
            self._reopen = reopen

        self._ask(change)

    def _known(self, name: str) -> str:
        if name not in self.warehouse.nodes:
            raise UnknownNameError("table", name, self.warehouse.nodes)
        return name

    def _change(self, what: Mapping[str, object], change: Callable[[float], None]) -> None:
        def carry_out() -> None:
            now = self._clock()
            change(now)
            self._observers.changed(now, what)

        self._ask(carry_out)
