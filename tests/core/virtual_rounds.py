"""A machine in virtual time for the tests of the *rounds* loop, with small policies and placements to run it by.

``Machine`` is a single-threaded reference of the runtime: workers run nodes of known run time over queues that are
plain numbers, and each keeps to the protocol in the docstring of ``rounds``. It asserts at every step that no node is
run by two workers, that nothing runs while all wait at the barrier, and that every list is in order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headgate.core.features import FEATURES, features_named
from headgate.core.graph import Floats, Graph, Ints
from headgate.core.loop import Start
from headgate.core.matrix import FeatureMatrix, FeatureView
from headgate.core.placement import Lanes, Placement, Workers
from headgate.core.placements import Anywhere
from headgate.core.policy import Policy
from headgate.core.rounds import NewRound, Rounds
from headgate.core.worklist import Reschedule, RoundsConfig, Wait
from headgate.testing import Largest, Measuring

PERIOD = 0.125
QUICK = RoundsConfig(period=PERIOD, delay=math.inf)
#: the stated priority, and any worker
STATED, ANYWHERE = Largest("priority"), Anywhere()
USED = ("priority", "patience", "cost", "pending", "output_pending", "last_turn", "window_time", "ready", "workers")


# --- small policies and placements --------------------------------------------------------------------------


@dataclass(frozen=True)
class Counting(Policy):
    """Remembers how many nodes it was shown."""

    name = "counting"

    def priorities(self, view: FeatureView) -> Floats:
        return np.full(len(view), float(view.memory or 0))  # type: ignore[arg-type]

    def remember(self, view: FeatureView, node: int) -> object:
        return (view.memory or 0) + 1  # type: ignore[operator]


@dataclass(frozen=True)
class Broken(Policy):
    """Fails, or returns too little."""

    fails: bool = True

    name = "broken"

    def priorities(self, view: FeatureView) -> Floats:
        if self.fails:
            raise ZeroDivisionError("by nought")
        return np.zeros(1)


@dataclass(frozen=True)
class Forgetful(Largest):
    """Fails when it should remember."""

    name = "forgetful"

    def remember(self, view: FeatureView, node: int) -> object:
        raise LookupError("what was it")


@dataclass(frozen=True)
class Lost(Placement):
    """Fails."""

    name = "lost"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        raise KeyError("no map")


# --- the machine --------------------------------------------------------------------------------------------


class Machine:
    """Queues, run times and workers in virtual time.

    ``queues[name]`` is what waits for a node; infinity never runs dry. A run takes ``seconds(name)``, consumes up to
    the batch and puts as much into the queue of each node downstream. What the last to arrive at the barrier does takes
    ``rescheduling_time``.
    """

    loop: type[Rounds] = Rounds

    def __init__(
        self,
        graph: Graph,
        *,
        policy: Policy = STATED,
        placement: Placement = ANYWHERE,
        workers: int = 1,
        config: RoundsConfig = QUICK,
        queues: Mapping[str, float] | None = None,
        stated: Mapping[tuple[str, str], float] | None = None,
        seconds: Callable[[str], float] = lambda name: 0.01,
        rescheduling_time: float = 0.0,
    ) -> None:
        self.rounds = self.loop(
            FeatureMatrix(graph, features_named(USED)), policy, placement, Workers.of(workers), config
        )
        self.queues: dict[str, float] = {name: 0.0 for name in graph.names} | dict(queues or {})
        self.stated = dict(stated or {})
        self.seconds = seconds
        self.rescheduling_time = rescheduling_time
        self.now = 0.0
        self.running: dict[int, str] = {}
        self.trace: list[tuple[float, int, str, str]] = []
        self.reads: list[tuple[str, str]] = []
        self.new_rounds: list[NewRound] = []
        self.runnable_since: dict[str, float] = {name: 0.0 for name, queued in self.queues.items() if queued}
        self.longest_wait: dict[str, float] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        for worker in range(workers):
            self.at(0.0, lambda worker=worker: self._ask(worker))  # type: ignore[misc]

    @property
    def names(self) -> tuple[str, ...]:
        return self.rounds.graph.names

    def at(self, when: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, act))

    def until(self, end: float) -> Machine:
        while self._events and self._events[0][0] <= end:
            self.now, _, act = heapq.heappop(self._events)
            act()
        for name, since in self.runnable_since.items():
            self._waited(name, end - since)
        return self

    def ran(self) -> list[str]:
        return [name for _, _, name, _ in self.trace]

    # what the loop asks

    def can_run(self, node: int) -> bool:
        return self.queues[self.names[node]] > 0

    def read(self, feature: str, rows: Ints) -> list[float]:
        names = [self.names[i] for i in rows]
        self.reads.extend((feature, name) for name in names)
        return [self.value(feature, name) for name in names]

    def value(self, feature: str, name: str) -> float:
        if feature == "pending":
            return self.queues.get(name, self.stated.get((feature, name), 0.0))
        return self.stated.get((feature, name), FEATURES[feature].default)

    # what workers do

    def _ask(self, worker: int) -> None:
        match self.rounds.next_step(worker, self.now, self.can_run):
            case Start(node, _, reason, batch):
                name = self.names[node]
                assert name not in self.running.values(), f"{name} is run by two workers at once"
                assert self.can_run(node), f"{name} was told to run without input"
                self.running[worker] = name
                self.trace.append((self.now, worker, name, reason))
                self._waited(name, self.now - self.runnable_since.pop(name))
                self.at(self.now + self.seconds(name), lambda: self._end(worker, node, batch))
            case Wait(seconds):
                assert seconds > 0, "a wait of no time would never end"
                self.at(self.now + seconds, lambda: self._ask(worker))
            case Reschedule():
                self.reschedule(worker)

    def reschedule(self, worker: int) -> None:
        self.rounds.refresh_own(worker, self.read)
        if self.rounds.arrive(worker):
            self.at(self.now + self.rescheduling_time, self._coordinate)

    def _end(self, worker: int, node: int, batch: int) -> None:
        name = self.running.pop(worker)
        assert self.names[node] == name, "the index of a node changed while it ran"
        taken = min(self.queues[name], batch)
        self._put(name, -taken)
        for target in self.rounds.graph.downstream[node]:
            self._put(self.names[target], taken)
        self.rounds.finished(worker, self.now)
        self._ask(worker)

    def _put(self, name: str, tuples: float) -> None:
        self.queues[name] += tuples
        if self.queues[name] and name not in self.running.values():
            self.runnable_since.setdefault(name, self.now)

    def _coordinate(self) -> None:
        assert not self.running, "nothing runs while all wait at the barrier"
        opened = self.rounds.coordinate(self.now, self.read)
        for name in opened.removed:
            del self.queues[name]
            self.runnable_since.pop(name, None)
        for name in opened.added:
            self.queues[name] = self.stated.get(("pending", name), 0.0)
            self._put(name, 0.0)
        for worker in range(opened.workers):
            self.rounds.sort_own(worker)
        self.rounds.validate()
        self.new_rounds.append(opened)
        for worker in range(opened.workers):
            self.at(self.now, lambda worker=worker: self._ask(worker))  # type: ignore[misc]

    def _waited(self, name: str, seconds: float) -> None:
        self.longest_wait[name] = max(self.longest_wait.get(name, 0.0), seconds)


def chain(names: str) -> Graph:
    return Graph(names, pairwise(names))


def endless(names: Iterable[str]) -> dict[str, float]:
    return dict.fromkeys(names, math.inf)


def patience(seconds: float, names: Iterable[str]) -> dict[tuple[str, str], float]:
    return {("patience", name): seconds for name in names}


def add_nodes(rounds: Rounds, names: Iterable[str], edges: Iterable[tuple[str, str]] = ()) -> None:
    rounds.regraph(rounds.next_graph.adding(names, edges))


def remove_nodes(rounds: Rounds, names: Iterable[str]) -> None:
    rounds.regraph(rounds.next_graph.removing(names))


def worker_of(rounds: Rounds) -> dict[str, int]:
    return {name: rounds.explain(i, 0.0).worker for i, name in enumerate(rounds.graph.names)}


def longest_round(run: float, rescheduling_time: float) -> float:
    return PERIOD + 2 * run + rescheduling_time


def assert_that_no_node_waits_longer_than_the_bound(
    machine_type: type[Machine], placement: Placement, workers: int, run: float, delay: float
) -> None:
    names = "abcdefg"
    seconds = {name: run * (1.0 if name in "ac" else 0.3) for name in names}
    length = longest_round(run, 0.02)
    bound = 1.0 + (len(names) - 2 + 2) * length  # all but a are guarded, so each has five others before it at most
    machine = machine_type(
        Graph(names),
        policy=Measuring(),
        placement=placement,
        workers=workers,
        config=RoundsConfig(period=PERIOD, delay=delay),
        queues=endless(names),
        stated={("priority", "a"): 9.0, ("priority", "b"): 5.0} | patience(1.0, names[1:]),
        seconds=seconds.__getitem__,
        rescheduling_time=0.02,
    ).until(2 * bound)
    assert max(machine.longest_wait[name] for name in names[1:]) <= bound
    assert {name for when, _, name, _ in machine.trace if when > length} == set(names)
