"""A running warehouse: one thread decides, a few tracks work.

The *keeper* is the only thread that touches nodes, features and the dispatch loop, so none of them needs a lock: tracks
hand it what they have done through its inbox, and so does whoever wants something changed. It looks at each source as
often as the source's period asks for, decides on every arrival and every completion, and never waits for Spark.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from headgate.core.errors import ParameterError, UnknownNameError
from headgate.core.explain import Explanation
from headgate.core.inheritance import Inheritance
from headgate.core.placement import Placement, Workers
from headgate.core.placements import Proportional
from headgate.core.policies import MaxBenefit
from headgate.core.policy import Policy
from headgate.core.trace import Layer
from headgate.warehouse.run.session import BACKFILL_POOL, LIVE_POOL, MAINTENANCE_POOL
from headgate.warehouse.run.tracks import Done, Task, Tracks, failure_of
from headgate.warehouse.schedule.agenda import Agenda, Release
from headgate.warehouse.schedule.book import NodeStatistics
from headgate.warehouse.schedule.trouble import Failure
from headgate.warehouse.updates.nodes import Outcome
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POOLS = {"live": LIVE_POOL, "backfill": BACKFILL_POOL, "maintenance": MAINTENANCE_POOL}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a warehouse. ``chop`` limits an update to so many periods of data; ``poll`` is how often at most a
    source is looked at, in seconds."""

    tracks: int = 2
    policy: Policy = field(default_factory=MaxBenefit)
    placement: Placement = field(default_factory=Proportional)
    inheritance: Inheritance = "max"
    chop: float = math.inf
    poll: float = 0.05


@dataclass(frozen=True, slots=True)
class UpdateMade:
    """Told to the observer after every update, good or bad.

    ``name`` is the node that made it: ``table`` itself, or what is done to it. The update was ready from ``released``;
    a track began with it at ``began`` and needed ``seconds``, of which ``overhead`` were not reading, computing or
    writing data. It was expected to bring ``gained`` seconds of event time.
    """

    name: str
    table: str
    layer: Layer
    track: int
    released: float
    began: float
    seconds: float
    gained: float
    overhead: float
    outcome: Outcome | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Load:
    """Where the time has gone so far, in seconds: of the keeper, of all updates, and of the work inside them."""

    keeper: float
    updates: float
    work: float


Observer = Callable[[UpdateMade], None]
#: told when somebody has changed something: the moment, and what
ChangeObserver = Callable[[float, Mapping[str, object]], None]
Answer = TypeVar("Answer")


class Runtime:
    """Keeps an open warehouse fresh from ``start`` to ``stop``. Every public method may be called by any thread."""

    def __init__(
        self,
        warehouse: OpenWarehouse,
        spark: SparkSession,
        options: RunOptions | None = None,
        observer: Observer | None = None,
        on_change: ChangeObserver | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.options = options or RunOptions()
        self.error: BaseException | None = None
        self._spark = spark
        self._observer = observer
        self._on_change = on_change
        self._clock = clock
        self._agenda = Agenda(warehouse, self.options, clock())
        self._inbox: queue.SimpleQueue[Done | Callable[[], None]] = queue.SimpleQueue()
        self._tracks = Tracks(spark, self._inbox.put, clock)
        #: {track: what it works on or will in the same task}
        self._running: dict[int, dict[str, Release]] = {}
        self._stopping = False
        self._reopen: Callable[[], OpenWarehouse] | None = None
        self._busy = 0.0
        self._update_seconds = 0.0
        self._work_seconds = 0.0
        self._keeper = threading.Thread(target=self._keep, name="headgate-keeper", daemon=True)

    @property
    def warehouse(self) -> OpenWarehouse:
        return self._agenda.warehouse

    # --- for whoever runs it --------------------------------------------------------------------------------

    def start(self) -> None:
        self._keeper.start()

    def stop(self, *, cancel: bool = False) -> None:
        """Begin no more updates and wait for those that run; with ``cancel``, cancel them."""
        self.stop_soon()
        while cancel and self._keeper.is_alive():
            # More than once: the keeper may just be beginning an update, and then take in that it should stop.
            self._spark.sparkContext.cancelAllJobs()
            self._keeper.join(1.0)
        if self._keeper.ident is not None:
            self._keeper.join()
        if self.error is not None:
            raise self.error

    def stop_soon(self) -> None:
        """Begin no more updates; returns at once."""
        self._inbox.put(self._stop)

    @property
    def is_running(self) -> bool:
        return self._keeper.is_alive()

    def statistics(self) -> tuple[NodeStatistics, ...]:
        """How every table fares now, in the order declared."""
        return self._ask(lambda: self._agenda.statistics(self._clock(), self._updating()))

    def _updating(self) -> list[str]:
        return [name for releases in self._running.values() for name in releases]

    def load(self) -> Load:
        """Where the time has gone."""
        return self._ask(lambda: Load(self._busy, self._update_seconds, self._work_seconds))

    def explain(self, name: str) -> Explanation:
        """Why a table is or is not being updated at this moment."""
        return self._ask(lambda: self._agenda.explain(self._known(name), self._clock()))

    def replace_policy(self, policy: Policy) -> None:
        self._change({"policy": str(policy)}, lambda _: self._agenda.replace_policy(policy))

    def replace_placement(self, placement: Placement) -> None:
        self._change({"placement": str(placement)}, lambda _: self._agenda.loop.replace_placement(placement))

    def set_tracks(self, count: int) -> None:
        """More or fewer tracks; one that is too many finishes what it has."""
        if count < 1:
            raise ParameterError(f"there must be at least one track; got {count}")

        def change(_: float) -> None:
            self._agenda.loop.set_workers(Workers.of(count))
            self._tracks.resize(count)

        self._change({"tracks": count}, change)

    def pause(self, name: str) -> None:
        """Make no more updates of a table until it is resumed; one that runs is finished."""
        self._change({"paused": name}, lambda now: self._agenda.pause(self._known(name), now))

    def resume(self, name: str) -> None:
        """Update a table again that was paused, is held, or waits after a failure."""
        self._change({"resumed": name}, lambda now: self._agenda.resume(self._known(name), now))

    def refresh(self, name: str) -> None:
        """Bring a table, and what it is built on, up to date now, before everything else."""
        self._change({"refresh": name}, lambda now: self._agenda.refresh_now(self._known(name), now))

    def set_priority(self, name: str, priority: float) -> None:
        """Another priority from the next decision on, also for what is waiting already."""
        if not 0 <= priority < math.inf:
            raise ParameterError(f"the priority of {name!r} must be a finite number of at least 0; got {priority}")
        what = {"priority": [name, priority]}
        self._change(what, lambda _: self._agenda.set_priority(self._known(name), priority))

    def backfill(self, name: str, first: int, last: int, chunk: float | None = None) -> None:
        """Compute the event times from ``first`` to ``last`` (microseconds) again, behind live updates.

        ``chunk`` is how many seconds of event time are computed at once; unless stated, about a second of work.
        """
        if last < first:
            raise ParameterError(f"a backfill of {name!r} must end after it begins; got {first} to {last}")
        what = {"backfill": [name, first, last]}
        self._change(what, lambda now: self._agenda.backfill(self._known(name), first, last, chunk, now))

    def replace_warehouse(self, reopen: Callable[[], OpenWarehouse]) -> None:
        """Go on with another declaration of the same warehouse: ``reopen`` is called when no update runs."""

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
            if self._on_change is not None:
                self._on_change(now, what)

        self._ask(carry_out)

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Have the keeper answer, as it alone may look."""
        if not self._keeper.is_alive() or threading.current_thread() is self._keeper:
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
                if not self._keeper.is_alive():  # it ended before it came to this question
                    return question()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    # --- the keeper -----------------------------------------------------------------------------------------

    def _keep(self) -> None:
        try:
            self._tracks.resize(len(self._agenda.loop.workers))
            while not (self._stopping and not self._running):
                self._step()
        except BaseException as error:
            self.error = error
        finally:
            self._tracks.close()

    def _step(self) -> None:
        started = time.perf_counter()
        now = self._clock()
        wake = self._agenda.look(now)
        if self._reopen is not None and not self._running:
            self._adopt(self._reopen)
        if not self._stopping and self._reopen is None:
            for start in self._agenda.loop.decide(now):
                self._begin(start.node, start.worker, now)
        self._busy += time.perf_counter() - started
        try:
            item = self._inbox.get(timeout=max(0.0, wake - self._clock()))
        except queue.Empty:
            return
        started = time.perf_counter()
        if isinstance(item, Done):
            self._ended(item)
        else:
            item()
        self._busy += time.perf_counter() - started

    def _stop(self) -> None:
        self._stopping = True

    def _adopt(self, reopen: Callable[[], OpenWarehouse]) -> None:
        self._reopen = None
        self._agenda = Agenda(reopen(), self.options, self._clock(), before=self._agenda)

    def _begin(self, index: int, track: int, now: float) -> None:
        started = time.perf_counter()
        try:
            release = self._agenda.begin(index, now)
        except Exception as error:
            self._failed_to_begin(index, track, now, error)
            return
        if release is None:
            self._agenda.loop.finished(track, now)
            return
        releases = {release.name: release}
        for companion in self._agenda.companions(release):
            with suppress(Exception):  # whoever cannot begin along with another will be asked by itself
                if (joined := self._agenda.begin(companion, now)) is not None:
                    releases[joined.name] = joined
        planning = (time.perf_counter() - started) / len(releases)
        for each in releases.values():
            each.planning = planning
        self._running[track] = releases
        jobs = {name: each.job for name, each in releases.items()}
        self._tracks.submit(track, Task(jobs, _POOLS[release.layer]))

    def _failed_to_begin(self, index: int, track: int, now: float, error: Exception) -> None:
        failure = failure_of(error, now)
        self._agenda.loop.finished(track, now)
        name, table, layer = self._agenda.failed_to_begin(index, failure, now)
        self._tell(UpdateMade(name, table, layer, track, now, now, 0.0, 0.0, 0.0, None, failure))

    def _ended(self, done: Done) -> None:
        now = self._clock()
        release = self._running[done.track].pop(done.name)
        if not done.left:
            del self._running[done.track]
            self._agenda.loop.finished(done.track, now)
        self._agenda.ended(release, done.outcome, done.failure, done.seconds, now)
        work = done.seconds if done.outcome is None else done.outcome.work
        self._update_seconds += done.seconds
        self._work_seconds += work
        self._tell(
            UpdateMade(
                name=release.name,
                table=release.table,
                layer=release.layer,
                track=done.track,
                released=release.released,
                began=done.began,
                seconds=done.seconds,
                gained=release.gained,
                overhead=release.planning + done.seconds - work,
                outcome=done.outcome,
                failure=done.failure,
            )
        )

    def _tell(self, made: UpdateMade) -> None:
        if self._observer is not None:
            self._observer(made)
