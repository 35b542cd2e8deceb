"""A running warehouse: one thread schedules updates, a few tracks run them.

Only the *scheduler thread* touches the nodes and the scheduler, so neither needs a lock. Everything else reaches it
through its inbox: updates that have ended, which the tracks put there, and the calls of other threads. It polls each
source as often as its period demands, decides after every arrival and every update, and never waits for Spark.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headgate.core import (
    MOST_PRIORITY,
    MOST_TRACKS,
    Decision,
    DeclarationError,
    Explanation,
    HeadgateError,
    ParameterError,
    Placement,
    Policy,
    UnknownNameError,
    Update,
    inheritance_from,
    said_by,
    together_from,
    vet,
)
from headgate.core.trace import NotLoaded, RunNotice, TraceTable
from headgate.warehouse.run.late_updates import LateUpdates
from headgate.warehouse.run.observers import (
    ChangeObserver,
    NoticeObserver,
    Observer,
    Observers,
    RedeclaredObserver,
    WaitingObserver,
)
from headgate.warehouse.run.opened_table import OpenedTable, opened_table
from headgate.warehouse.run.spark_life import end_process, is_alive
from headgate.warehouse.run.steady_clock import SteadyClock
from headgate.warehouse.run.trace import traced_tables
from headgate.warehouse.run.tracks import Tracks
from headgate.warehouse.schedule.catching_up import Behind, CatchUp, NotFreshError
from headgate.warehouse.schedule.explaining import with_autopilot
from headgate.warehouse.schedule.glance import Glance
from headgate.warehouse.schedule.kept_costs import read_costs, read_paces, write_costs
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.schedule.planning import LONGEST_BETWEEN_POLLS
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: seconds between two looks at tables that have to catch up
CATCH_UP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Seconds spent so far: by the scheduler thread, in updates, and in the work of updates (see ``Update.work``)."""

    scheduler: float
    updates: float
    work: float


#: the most tracks that a run has because a cluster has so many cores: more keep its driver busy, not its executors
MOST_FOLLOWED = 32
#: learned costs are written to a file this often
KEEP_COSTS_SECONDS = 30.0
#: what has come to streams and is not loaded is told for the first time after so long, and then this often, if
#: something has happened since
FIRST_WAITING_SECONDS, WAITING_SECONDS = 15.0, 60.0
#: how long `stop` waits for running updates before it cancels them
STOP_SECONDS = 45.0
#: how long the scheduler has to end when everything else has; a user's code that it called may never return
END_SECONDS = 2.0
#: how long to wait before Spark is started, or the tables are opened, again: after the first failure, and at most
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
Answer = TypeVar("Answer")


class RunFailedError(HeadgateError):
    """The scheduler of a run has failed: nothing is updated any more. ``__cause__`` is why."""


class SparkLostError(HeadgateError):
    """Spark has stopped or died, and Headgate cannot start it again."""


class Runtime:
    """Keeps an open warehouse fresh from ``start`` to ``stop``. Every public method may be called by any thread.

    ``reopen`` opens all tables again, on the Spark that is passed to it. ``revive`` starts Spark again when it was
    lost; without it, the run ends then.
    """

    def __init__(
        self,
        warehouse: OpenWarehouse,
        spark: SparkSession,
        options: RunOptions | None = None,
        observer: Observer | None = None,
        on_change: ChangeObserver | None = None,
        clock: Callable[[], float] | None = None,
        on_notice: NoticeObserver | None = None,
        on_redeclared: RedeclaredObserver | None = None,
        reopen: Callable[[SparkSession], OpenWarehouse] | None = None,
        revive: Callable[[], SparkSession] | None = None,
        on_waiting: WaitingObserver | None = None,
    ) -> None:
        clock = clock or SteadyClock()
        self.options = options or RunOptions()
        self.error: BaseException | None = None
        #: what the autopilot has to say, for explanations
        self.autopilot = ""
        self._observers = Observers(observer, on_change, on_notice, on_redeclared, on_waiting)
        #: why the pipeline file, as it was saved last, is not used
        self._file_problem = ""
        self._clock = clock
        # Costs are kept beside the tables, so that a restarted run need not learn them again.
        self._directory = warehouse.spec.folder()
        costs, paces = read_costs(self._directory), read_paces(self._directory)
        self._scheduler = Scheduler(warehouse, self.options, clock(), costs=costs, paces=paces)
        self._costs_kept = clock()
        #: what waited when that was looked at last, when to look again, and whether an update has ended meanwhile
        self._waited: NotLoaded | None = None
        self._look_at_waiting = clock() + FIRST_WAITING_SECONDS
        self._ended_since = False
        self._inbox: queue.SimpleQueue[Update | Callable[[], None]] = queue.SimpleQueue()
        self._tracks = Tracks(spark, self._node_of, self._inbox.put, clock)
        self._stopping = False
        #: the change that asks for the end of the run, until it is recorded
        self._stop_asked: Mapping[str, object] | None = None
        self._late = LateUpdates(self._tracks)
        self._reopen: Callable[[], OpenWarehouse] | None = None
        self._spark = spark
        self._open_again = reopen
        #: when the warehouse is to be opened again by itself, and how long to wait after a failure of that; None: not
        self._open_again_at: float | None = None
        self._opening_wait = FIRST_WAIT
        self._revive = revive
        #: when Spark is to be started again, and how long to wait after the next failure of that; None: it is there
        self._revival: tuple[float, float] | None = None
        self._follows_cores = self.options.follows_cores
        self._busy = 0.0
        self._update_seconds = 0.0
        self._work_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="headgate-scheduler", daemon=True)

    def _node_of(self, update: Update) -> Node:
        return self._scheduler.node_of(update)

    @property
    def spark(self) -> SparkSession:
        """The session that tables are opened with; another one after Spark was lost."""
        return self._spark

    @property
    def warehouse(self) -> OpenWarehouse:
        return self._scheduler.warehouse

    @property
    def tracks(self) -> int:
        """How many updates may run at the same time now."""
        return self._scheduler.tracks

    # --- for any thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, cancel: bool = False, grace: float = STOP_SECONDS) -> None:
        """Begin no more updates and wait for those that run, up to ``grace`` seconds; then, or with ``cancel``, cancel.

        What does not end within some seconds after that is not waited for: nothing of it is committed later than
        the end of the process, and the next run computes it again.
        """
        self._stop_within(0.0 if cancel else grace)
        while self.is_running:
            self._thread.join(0.1)  # a second call, from a signal, may shorten the time
        if self.error is not None:
            raise self.error

    def fail(self, error: BaseException) -> None:
        """End the run with an error: nothing more can be committed. Returns at once."""

        def end() -> None:
            raise error

        self._inbox.put(end)

    def stop_soon(self, grace: float = STOP_SECONDS) -> None:
        """Begin no more updates, as somebody has asked for, which is recorded; returns at once."""
        self._stop_asked = {"stop": grace}
        self._stop_within(grace)

    def _stop_within(self, grace: float) -> None:
        # Not by the inbox: the scheduler may be stuck in a call that never returns, and the end must come all the same.
        self._late.stop_within(grace)
        self._stopping = True
        self._inbox.put(lambda: None)  # wakes it

    @property
    def is_running(self) -> bool:
        """Whether tables are updated, or the scheduler is still waited for."""
        return self._answers()

    def _answers(self) -> bool:  # a method, because what it says may change between two calls
        return self._thread.is_alive() and not self._late.were_left(END_SECONDS)

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

    def _resize(self, count: int) -> None:
        self._scheduler.set_tracks(count)
        self._tracks.resize(count)

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

    def _ask(self, question: Callable[[], Answer], also_if_failed: bool = False) -> Answer:
        """Call ``question`` on the scheduler thread and return its result."""
        if self.error is not None and not also_if_failed:
            raise RunFailedError(
                f"the run has failed, and nothing is updated any more: {type(self.error).__name__}: {self.error}; "
                "start it again"
            ) from self.error
        if not self._answers() or threading.current_thread() is self._thread:
            return question()
        answers: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put((question(), None))
            except BaseException as error:
                answers.put((None, error))

        self._inbox.put(answer)
        while True:
            try:
                value, error = answers.get(timeout=1.0)
                break
            except queue.Empty:
                if not self._answers():  # it ended before it took this from its inbox
                    return self._ask(question, also_if_failed)
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    # --- the scheduler thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._tracks.resize(self._scheduler.tracks)
            while not (self._stopping and (self._scheduler.is_idle or self._late.are_left)):
                self._step()
            self._tell(self._clock())
            self._observers.waiting(self._scheduler.not_loaded(self._clock()))
        except BaseException as error:
            self.error = error
        finally:
            self._tracks.close(0.0 if self._late.are_left or self.error is not None else None)
            write_costs(self._directory, self._scheduler.costs(), self._scheduler.paces())

    def _step(self) -> None:
        started = time.perf_counter()
        now = self._clock()
        wake = self._scheduler.poll(now)
        if now >= self._costs_kept + KEEP_COSTS_SECONDS:
            write_costs(self._directory, self._scheduler.costs(), self._scheduler.paces())
            self._costs_kept = now
        if now >= self._look_at_waiting:
            self._tell_waiting(now)
        if self._late.look(self._scheduler, now):
            self._note_spark(now)  # if it is Spark that hangs, every update would
        if self._revival is not None and self._scheduler.tracks_are_idle and now >= self._revival[0]:
            self._revive_spark(now)
        if self._scheduler.is_outdated and self._open_again_at is None:
            self._open_again_at = now
        is_due = self._open_again_at is not None and now >= self._open_again_at
        if is_due and self._reopen is None and self._open_again is not None:
            self._reopen = partial(self._open_again, self._spark)
        if self._reopen is not None and self._scheduler.tracks_are_idle and self._revival is None:
            self._adopt(self._reopen)
        if self._stopping:
            self._late.take_back(self._scheduler, "the run was stopped before its turn in a job", now)
        elif self._reopen is None and self._revival is None:
            self._start_updates(now)
        self._tell(now)
        self._busy += time.perf_counter() - started
        try:
            # A moment by the clock of the machine may never come: waiting is bounded.
            item = self._inbox.get(timeout=min(max(0.0, wake - self._clock()), LONGEST_BETWEEN_POLLS))
        except queue.Empty:
            return
        started = time.perf_counter()
        if isinstance(item, Update):
            self._ended(item)
        else:
            item()
        self._busy += time.perf_counter() - started

    # --- a Spark that is lost, and tables that are opened again -----------------------------------------------

    def _note_spark(self, now: float) -> None:
        """After a failure: if Spark was lost, begin no updates before it is back."""
        if self._revival is not None or is_alive(self._spark):
            return
        self._scheduler.spark_lost(now)
        if self._revive is None:
            raise SparkLostError(
                "Spark, which was started by somebody else, has stopped. Nothing is lost: start it, and this run, again"
            )
        end_process()  # if it lives but does not answer, what waits for it would wait for ever
        self._scheduler.notices.append(RunNotice(now, None, "Spark was lost; it is started again"))
        self._revival = (now, FIRST_WAIT)

    def _revive_spark(self, now: float) -> None:
        assert self._revive is not None and self._revival is not None
        _, wait = self._revival
        try:
            self._spark = self._revive()
        except Exception as error:
            text = f"Spark cannot be started again: {error}; the next try is in {wait:.0f} s"
            self._scheduler.notices.append(RunNotice(now, None, text))
            self._revival = (now + wait, min(2 * wait, LONGEST_WAIT))
            return
        self._revival = None
        self._tracks.use(self._spark)
        self._open_again_at = now  # what tables have prepared for Spark is lost with it
        self._scheduler.notices.append(RunNotice(now, None, "Spark is there again"))

    def _adopt(self, reopen: Callable[[], OpenWarehouse]) -> None:
        self._reopen = None
        now = self._clock()
        try:
            opened = reopen()
            scheduler = Scheduler(opened, self.options, now, before=self._scheduler)
        except BaseException as error:  # it may be a user's
            if not isinstance(error, DeclarationError):
                self._note_spark(now)
            if self._revival is not None:  # that is why; it is done when Spark is back
                self._reopen = reopen
                return
            text = f"the changed declarations cannot be used, so nothing changes: {said_by(error)}"
            if self._open_again_at is not None:
                wait, self._opening_wait = self._opening_wait, min(2 * self._opening_wait, LONGEST_WAIT)
                self._open_again_at = now + wait
                text = f"the tables cannot be opened again: {said_by(error)}; the next try is in {wait:.0f} s"
            self._scheduler.notices.append(RunNotice(now, None, text))
            return
        self._open_again_at, self._opening_wait = None, FIRST_WAIT
        self._tell(now)
        before, self._scheduler = self._scheduler.stated, scheduler
        for setting, value in scheduler.stated.items():
            if value != before[setting]:
                self._observers.changed(now, {setting: value})
        self._observers.redeclared(now, opened)

    def _tell(self, now: float) -> None:
        """Pass on what the scheduler wants users to know, and what it has changed by itself."""
        for change in self._scheduler.changes:
            self._observers.changed(now, change)
        self._scheduler.changes.clear()
        if self._stop_asked is not None:
            asked, self._stop_asked = self._stop_asked, None
            self._observers.changed(now, asked)
        for notice in self._scheduler.notices:
            self._observers.notice(notice)
        self._scheduler.notices.clear()

    def _tell_waiting(self, now: float) -> None:
        """Pass on what is not loaded; of a warehouse in which nothing happens, no more than once."""
        before, self._waited = self._waited, self._scheduler.not_loaded(now)
        if self._ended_since or before is None or replace(before, at=now) != self._waited:
            self._observers.waiting(self._waited)
        self._look_at_waiting, self._ended_since = now + WAITING_SECONDS, False

    def _start_updates(self, now: float) -> None:
        started = time.perf_counter()
        decided = self._scheduler.decide(now)
        if not decided:
            return
        planning = (time.perf_counter() - started) / sum(map(len, decided))
        for updates in decided:
            if updates[0].status == "failed":  # it could not begin
                self._observers.updated(updates[0], now)
                continue
            for update in updates:
                update.overhead = planning
            self._tracks.submit(updates[0].track, updates)

    def _ended(self, update: Update) -> None:
        if update not in self._scheduler.running:
            return
        self._late.ended(update)
        if not update.committed:
            self._note_spark(self._clock())
        self._scheduler.ended(update, self._clock())
        self._update_seconds += update.seconds
        self._work_seconds += update.work
        self._ended_since = True
        self._observers.updated(update, self._clock())
