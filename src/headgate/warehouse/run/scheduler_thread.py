"""The scheduler thread of a running warehouse, and its inbox.

Only this thread touches the nodes and the scheduler, so neither needs a lock. Everything else reaches it through its
inbox: updates that have ended, which the tracks put there, and what other threads ask. It polls each source as often as
its period demands, decides after every arrival and every update, and never waits for Spark.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headgate.core import DeclarationError, HeadgateError, Update, said_by
from headgate.core.trace import NotLoaded, RunNotice
from headgate.warehouse.run.late_updates import LateUpdates
from headgate.warehouse.run.observers import (
    ChangeObserver,
    NoticeObserver,
    Observer,
    Observers,
    RedeclaredObserver,
    WaitingObserver,
)
from headgate.warehouse.run.spark_life import end_process, is_alive
from headgate.warehouse.run.steady_clock import SteadyClock
from headgate.warehouse.run.tracks import Tracks
from headgate.warehouse.schedule.kept_costs import read_costs, read_paces, write_costs
from headgate.warehouse.schedule.planning import LONGEST_BETWEEN_POLLS
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Seconds spent so far: by the scheduler thread, in updates, and in the work of updates (see ``Update.work``)."""

    scheduler: float
    updates: float
    work: float


class RunFailedError(HeadgateError):
    """The scheduler of a run has failed: nothing is updated any more. ``__cause__`` is why."""


class SparkLostError(HeadgateError):
    """Spark has stopped or died, and Headgate cannot start it again."""


class SchedulerThread:
    """Keeps an open warehouse fresh from ``start`` to ``stop``.

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

    # --- for any thread ---------------------------------------------------------------------------------------

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

    def _resize(self, count: int) -> None:
        self._scheduler.set_tracks(count)
        self._tracks.resize(count)

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
