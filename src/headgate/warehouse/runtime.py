"""A running warehouse: one thread decides, a few tracks work.

The *keeper* is the only thread that touches nodes, features and the dispatch loop, so none of them needs a lock: tracks
hand it what they have done through its inbox, and so does whoever wants something changed. It looks at the sources
every ``poll`` seconds, decides on every arrival and every completion, and never waits for Spark. A *track* is a
thread with a Spark session of its own that runs one update at a time.
"""

from __future__ import annotations

import math
import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from headgate.core.dispatch import Dispatch
from headgate.core.errors import ParameterError, UnknownNameError
from headgate.core.explain import Explanation
from headgate.core.features import features_named
from headgate.core.inheritance import Inheritance, derive_periods, inherit_priorities
from headgate.core.layers import LIVE, MAINTENANCE, Layered
from headgate.core.matrix import FeatureMatrix
from headgate.core.placement import Placement, Workers
from headgate.core.placements import Proportional
from headgate.core.policies import MaxBenefit
from headgate.core.policy import Policy
from headgate.core.table_grain import PATIENCE_PERIODS, TABLE_FEATURES
from headgate.warehouse.book import Book, NodeStatistics
from headgate.warehouse.nodes import Job, MaintenanceNode, Node, Outcome, maintenance_name
from headgate.warehouse.opened import OpenWarehouse
from headgate.warehouse.session import LIVE_POOL, MAINTENANCE_POOL
from headgate.warehouse.trouble import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: until arrivals have taught better
UNKNOWN_PERIOD = 10.0
#: maintenance waits behind all updates, but never longer than its patience of so many seconds times 20
MAINTENANCE_PERIOD = 30.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a warehouse. ``chop`` limits an update to so many periods of data."""

    tracks: int = 2
    policy: Policy = field(default_factory=MaxBenefit)
    placement: Placement = field(default_factory=Proportional)
    inheritance: Inheritance = "max"
    chop: float = math.inf
    poll: float = 0.1


@dataclass(frozen=True, slots=True)
class UpdateMade:
    """Told to the observer after every update, good or bad."""

    name: str
    track: int
    seconds: float
    outcome: Outcome | None
    failure: Failure | None


Observer = Callable[[UpdateMade], None]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Done:
    track: int
    name: str
    job: Job
    outcome: Outcome | None
    failure: Failure | None
    seconds: float


class Runtime:
    """Keeps an open warehouse fresh from ``start`` to ``stop``."""

    def __init__(
        self,
        warehouse: OpenWarehouse,
        spark: SparkSession,
        options: RunOptions | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.warehouse = warehouse
        self.options = options or RunOptions()
        self._spark = spark
        self._observer = observer
        self._clock = clock
        self._nodes: dict[str, Node] = dict(warehouse.nodes)
        self._nodes |= {node.name: node for node in map(MaintenanceNode, warehouse.nodes.values())}
        #: the tables, each with its number in the warehouse's own graph, and behind them their maintenance
        self._graph = warehouse.graph.adding(map(maintenance_name, warehouse.graph.names))
        self._names = self._graph.names
        self._book = Book(self._nodes, warehouse.spec, clock())
        self._matrix = FeatureMatrix(self._graph, features_named(TABLE_FEATURES))
        self._fill_stated_features()
        self._loop = Dispatch(
            self._matrix,
            Layered(self.options.policy),
            self.options.placement,
            Workers.of(self.options.tracks),
            history=64,
        )
        self._inbox: queue.SimpleQueue[_Done | Callable[[], None]] = queue.SimpleQueue()
        self._work: list[queue.SimpleQueue[tuple[str, Job] | None]] = [
            queue.SimpleQueue() for _ in range(self.options.tracks)
        ]
        #: {track: the table it updates and the seconds of data that the update takes in}
        self._running: dict[int, tuple[str, float]] = {}
        self._released: dict[int, float] = {}
        self._stopping = False
        self._next_poll = 0.0
        self._keeper = threading.Thread(target=self._keep, name="headgate-keeper", daemon=True)
        self._tracks = [
            threading.Thread(target=self._track, args=(number,), name=f"headgate-track-{number}", daemon=True)
            for number in range(self.options.tracks)
        ]
        self.error: BaseException | None = None

    def _fill_stated_features(self) -> None:
        spec, graph = self.warehouse.spec, self._graph
        declared = {node.name: node for node in spec.with_time()}
        declared |= {maintenance_name(name): node for name, node in declared.items()}
        self._fill_priorities()
        tables = len(self.warehouse.graph)
        self._matrix.fill("layer", [LIVE if i < tables else MAINTENANCE for i in range(len(self._names))])
        self._matrix.fill("class", [float(declared[name].importance_class) for name in self._names])
        periods = {stream.name: stream.period or UNKNOWN_PERIOD for stream in spec.streams}
        periods |= {maintenance_name(name): MAINTENANCE_PERIOD for name in self.warehouse.nodes}
        self._matrix.fill("period", [periods.get(name, 0.0) for name in self._names])
        self._matrix.fill("period", derive_periods(graph, self._matrix.columns["period"]))
        patience = [
            declared[name].patience or PATIENCE_PERIODS * period
            for name, period in zip(self._names, self._matrix.columns["period"].tolist(), strict=True)
        ]
        self._matrix.fill("patience", patience)

    def _fill_priorities(self) -> None:
        stated = np.array([self._book.of(name).priority for name in self._names])
        self._matrix.fill("priority", inherit_priorities(self._graph, stated, self.options.inheritance))

    # --- for whoever runs it --------------------------------------------------------------------------------

    def start(self) -> None:
        for thread in (*self._tracks, self._keeper):
            thread.start()

    def stop(self, *, cancel: bool = False) -> None:
        """Begin no more updates and wait for those that run; with ``cancel``, cancel them."""
        self._inbox.put(self._stop)
        if cancel:
            self._spark.sparkContext.cancelAllJobs()
        self._keeper.join()
        if self.error is not None:
            raise self.error

    def statistics(self) -> tuple[NodeStatistics, ...]:
        """How every table fares now, in the order declared."""
        return self._ask(lambda: self._book.statistics(self._clock(), {name for name, _ in self._running.values()}))

    def explain(self, name: str) -> Explanation:
        """Why a table is or is not being updated at this moment."""
        return self._ask(lambda: self._loop.explain(self._graph.index[self._known(name)], self._clock()))

    def replace_policy(self, policy: Policy) -> None:
        self._ask(lambda: self._loop.replace_policy(Layered(policy)))

    def replace_placement(self, placement: Placement) -> None:
        self._ask(lambda: self._loop.replace_placement(placement))

    def pause(self, name: str) -> None:
        """Make no more updates of a table until it is resumed; one that runs is finished."""
        self._ask(lambda: self._let(name, paused=True))

    def resume(self, name: str) -> None:
        """Update a table again that was paused, is held, or waits after a failure."""
        self._ask(lambda: self._let(name, paused=False))

    def set_priority(self, name: str, priority: float) -> None:
        """Another priority from the next decision on, also for what is waiting already."""
        if not 0 <= priority < math.inf:
            raise ParameterError(f"the priority of {name!r} must be a finite number of at least 0; got {priority}")
        self._ask(lambda: self._give_priority(name, priority))

    def _let(self, name: str, paused: bool) -> None:
        entry = self._book.of(self._known(name))
        entry.paused = paused
        if not paused:
            entry.trouble.resumed()
        self._refresh(self._graph.index[name], self._clock())

    def _give_priority(self, name: str, priority: float) -> None:
        self._book.of(self._known(name)).priority = priority
        self._fill_priorities()
        for index in range(len(self._names)):
            self._loop.note_change(index)

    def _known(self, name: str) -> str:
        if name not in self.warehouse.nodes:
            raise UnknownNameError("table", name, self.warehouse.nodes)
        return name

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Have the keeper answer, as it alone may look."""
        if not self._keeper.is_alive():
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
            while not (self._stopping and not self._running):
                self._step()
        except BaseException as error:
            self.error = error
        finally:
            for work in self._work:
                work.put(None)

    def _step(self) -> None:
        now = self._clock()
        if now >= self._next_poll:
            self._next_poll = now + self.options.poll
            for index, name in enumerate(self._names):
                if not self._nodes[name].sources or self._book.of(name).trouble.failures:
                    self._refresh(index, now)
        if not self._stopping:
            for start in self._loop.decide(now):
                self._begin(start.node, start.worker, now)
        try:
            self._handle(self._inbox.get(timeout=max(0.0, self._next_poll - self._clock())))
        except queue.Empty:
            return

    def _handle(self, item: _Done | Callable[[], None]) -> None:
        if isinstance(item, _Done):
            self._ended(item)
        else:
            item()

    def _stop(self) -> None:
        self._stopping = True

    def _refresh(self, index: int, now: float) -> None:
        """Look at a node and write down what the policies should know of it."""
        name = self._names[index]
        entry = self._book.of(name)
        pending = self._nodes[name].pending() if entry.due(now) else None
        columns = self._matrix.columns
        if pending is None:
            self._released.pop(index, None)
            self._loop.set_ready(index, False, now)
            return
        gain = min(pending.seconds, self._most(index))
        released = self._released.setdefault(index, now)
        columns["freshness_delta"][index] = gain
        columns["pending"][index] = pending.seconds
        columns["execution_time"][index] = max(1e-3, entry.cost.predict(gain))
        columns["setup_time"][index] = entry.cost.alpha
        columns["time_per_unit"][index] = entry.cost.beta
        columns["cost"][index] = max(1e-9, entry.cost.beta)
        columns["release_time"][index] = released
        columns["head_time"][index] = released if pending.arrived is None else pending.arrived
        columns["next_release"][index] = released + columns["period"][index]
        self._loop.set_ready(index, True, now)

    def _most(self, index: int) -> float:
        return self.options.chop * float(self._matrix.columns["period"][index])

    def _begin(self, index: int, track: int, now: float) -> None:
        name = self._names[index]
        try:
            job = self._nodes[name].begin(self._most(index))
        except Exception as error:
            self._failed_to_begin(index, track, now, error)
            return
        if job is None:
            self._loop.set_ready(index, False, now)
            self._loop.finished(track, now)
            return
        self._running[track] = (name, float(self._matrix.columns["freshness_delta"][index]))
        self._loop.set_ready(index, False, now)
        self._work[track].put((name, job))

    def _failed_to_begin(self, index: int, track: int, now: float, error: Exception) -> None:
        failure = _failure(now, error)
        self._book.of(self._names[index]).failed(failure)
        self._loop.set_ready(index, False, now)
        self._loop.finished(track, now)
        self._tell(UpdateMade(self._names[index], track, 0.0, None, failure))

    def _ended(self, done: _Done) -> None:
        now = self._clock()
        _, gained = self._running.pop(done.track)
        index = self._graph.index[done.name]
        self._nodes[done.name].end(done.job, done.outcome)
        self._released.pop(index, None)
        self._loop.finished(done.track, now)
        if done.outcome is not None:
            self._book.of(done.name).made(done.outcome, gained, done.seconds, now)
            if done.name in self.warehouse.nodes:
                self.warehouse.updated(done.name)
        elif done.failure is not None:
            self._book.of(done.name).failed(done.failure)
        self._refresh(index, now)
        for dependent in self._graph.downstream[index]:
            self._refresh(dependent, now)
        if done.name in self.warehouse.nodes:
            self._refresh(self._graph.index[maintenance_name(done.name)], now)
        self._tell(UpdateMade(done.name, done.track, done.seconds, done.outcome, done.failure))

    def _tell(self, made: UpdateMade) -> None:
        if self._observer is not None:
            self._observer(made)

    # --- a track --------------------------------------------------------------------------------------------

    def _track(self, number: int) -> None:
        session = self._spark.newSession()
        while (item := self._work[number].get()) is not None:
            name, job = item
            pool = LIVE_POOL if name in self.warehouse.nodes else MAINTENANCE_POOL
            session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            session.sparkContext.setJobGroup(f"headgate {name}", f"update of {name}", True)
            started = self._clock()
            outcome, failure = None, None
            try:
                outcome = job.run(session)
            except BaseException as error:
                failure = _failure(self._clock(), error)
            self._inbox.put(_Done(number, name, job, outcome, failure, self._clock() - started))


def _failure(now: float, error: BaseException) -> Failure:
    shown = error.__cause__ or error
    return Failure(now, str(error).strip().splitlines()[0], "".join(traceback.format_exception(shown)))
