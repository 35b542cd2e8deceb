"""The dispatch loop in its simplest and slowest form, as an oracle for the real one.

``NaiveDispatch`` knows nodes by name only, keeps no order and no heap, and works out every choice from the full list of
nodes that can run. ``ComparedDispatch`` tells the same facts to both and compares what they start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from headgate.core import (
    FEATURES,
    Dispatch,
    Feature,
    FeatureMatrix,
    FeatureView,
    Floats,
    Graph,
    HeadgateError,
    InvariantError,
    Placement,
    Policy,
    Workers,
)


class CheckError(HeadgateError, AssertionError):
    """What was checked does not hold; the message says what, where and what to do."""


@dataclass
class NaiveNode:
    """One node as the oracle sees it."""

    features: dict[str, float]
    ready: bool = False
    since: float | None = None

    @property
    def deadline(self) -> float:
        return math.inf if self.since is None else self.since + self.features["patience"]


class NaiveDispatch:
    """Decides from the full list of released jobs, one pick at a time.

    At each pick the most overdue job with a free track goes first, once per decision. Otherwise the jobs are gone
    through in the policy's order: the first with a free home track (an aggressive one also with a free spare track) is
    started there; if there is none, the first with a free spare track that no released job has as its home.
    """

    def __init__(
        self,
        graph: Graph,
        policy: Policy,
        placement: Placement,
        workers: int,
        features: Mapping[str, Feature] = FEATURES,
    ) -> None:
        self.features = features
        self.graph = graph
        self.policy = policy
        self.placement = placement
        self.workers = workers
        self.nodes = {name: self._new_node() for name in graph.names}
        self.running: dict[int, tuple[str, float]] = {}
        self.memory: object = None
        #: how much each start of the last decision may take
        self.portions: list[float] = []
        self.turn = 0
        self.now = 0.0
        self.place_again()

    def _new_node(self) -> NaiveNode:
        return NaiveNode({name: feature.default for name, feature in self.features.items()})

    # facts

    def tell(self, name: str, ready: bool, now: float) -> None:
        self.now = now
        self.nodes[name].ready = ready
        self.nodes[name].features["ready"] = float(ready)
        self._note_runnable(name)

    def finished(self, worker: int, now: float) -> None:
        self.now = now
        name, started = self.running.pop(worker)
        if name in self.nodes:
            self.nodes[name].features["window_time"] += now - started
            self._note_runnable(name)

    def regraph(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {name: self.nodes.get(name) or self._new_node() for name in graph.names}
        for name in self.nodes:
            self._note_runnable(name)
        self.memory = None  # it may speak of nodes by number
        self.place_again()

    def set_workers(self, workers: int) -> None:
        self.workers = workers
        self.place_again()

    def replace_policy(self, policy: Policy) -> None:
        self.policy, self.memory = policy, None

    def place_again(self) -> None:
        """Which lane each node is in now."""
        placed = self.placement.lanes(self._view(), Workers.of(self.workers))
        self.lanes = {name: placed.lanes[placed.of[i]] for i, name in enumerate(self.graph.names)}

    def limits_changed(self) -> None:
        for name in self.nodes:
            self._note_runnable(name)

    # decisions

    @property
    def free(self) -> list[int]:
        return [w for w in range(self.workers) if w not in self.running]

    def released(self) -> list[str]:
        """The runnable jobs, sorted by the policy; between equals downstream first, then most pending, then by name."""
        table = np.asarray(self.policy.priorities(self._view()), dtype=np.float64).reshape(len(self.graph), -1)
        jobs = [name for name, node in self.nodes.items() if node.since is not None]
        return sorted(jobs, key=lambda name: (*_larger_first(table[self.graph.index[name]]), *self._ties(name)))

    def _ties(self, name: str) -> tuple[float, float, str]:
        depth = float(self.graph.depth[self.graph.index[name]])
        return -depth, -self.nodes[name].features.get("pending", 0.0), name

    def decide(self, now: float) -> list[tuple[str, int, str]]:
        self.now = now
        starts: list[tuple[str, int, str]] = []
        self.portions = []
        while pick := self._guard_pick(starts) or self._policy_pick():
            starts.append(pick)
            self._start(*pick)
        return starts

    def _guard_pick(self, starts: list[tuple[str, int, str]]) -> tuple[str, int, str] | None:
        if any(reason == "guard" for _, _, reason in starts):
            return None
        overdue = [name for name, node in self.nodes.items() if node.deadline <= self.now and self._places(name)]
        if not overdue:
            return None
        depth = {name: self.graph.depth[self.graph.index[name]] for name in overdue}
        name = min(overdue, key=lambda name: (self.nodes[name].deadline, -depth[name], name))
        return name, self._places(name)[0], "guard"

    def _policy_pick(self) -> tuple[str, int, str] | None:
        jobs, free = self.released(), self.free
        for name in jobs:
            lane = self.lanes[name]
            at_once = (*lane.home, *(lane.spare if lane.aggressive else ()))
            for worker in at_once:
                if worker in free:
                    return name, worker, "policy"
        wanted = {worker for name in jobs for worker in self.lanes[name].home}
        for name in jobs:
            for worker in self.lanes[name].spare:
                if worker in free and worker not in wanted:
                    return name, worker, "policy"
        return None

    def _places(self, name: str) -> list[int]:
        lane = self.lanes[name]
        return [worker for worker in (*lane.home, *lane.spare) if worker in self.free]

    def _start(self, name: str, worker: int, reason: str) -> None:
        view, index = self._view(), self.graph.index[name]
        self.portions.append(float(self.policy.portion(view)[index]))
        self.memory = self.policy.remember(view, index)
        self.running[worker] = (name, self.now)
        self.nodes[name].features["last_turn"] = float(self.turn)
        self.nodes[name].since = None
        self.turn += 1
        self._note_runnable(name)

    def _note_runnable(self, name: str) -> None:
        node = self.nodes[name]
        node.features["workers"] = float(sum(running == name for running, _ in self.running.values()))
        runnable = node.ready and node.features["workers"] < node.features["max_workers"]
        if runnable and node.since is None:
            node.since = self.now
        elif not runnable:
            node.since = None

    def columns(self) -> dict[str, Floats]:
        return {f: np.array([self.nodes[name].features[f] for name in self.graph.names]) for f in self.features}

    def _view(self) -> FeatureView:
        return FeatureView(self.columns(), self.graph, self.now, self.turn, 0, self.memory)


def _larger_first(row: Floats) -> list[float]:
    """A row of priorities as a key for sorting; a priority that is no number comes last."""
    return [math.inf if math.isnan(priority) else -priority for priority in row.tolist()]


class ComparedDispatch:
    """The loop and its oracle, told the same facts; ``story`` is what they were told, for the report of a failure."""

    def __init__(
        self,
        graph: Graph,
        policy: Policy,
        placement: Placement,
        workers: int,
        features: Mapping[str, Feature] = FEATURES,
    ) -> None:
        self.loop = Dispatch(FeatureMatrix(graph, features.values()), policy, placement, Workers.of(workers))
        self.oracle = NaiveDispatch(graph, policy, placement, workers, features)
        self.story = [f"{''.join(graph.names)} by {policy} and {placement} on {workers} workers"]
        self.now = 0.0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def write(self, name: str, feature: str, value: float) -> None:
        """A feature changes; the loop is told, as it must be, only that something about the node did."""
        self._tell(f"{feature} of {name} = {value}")
        node = self.loop.matrix.graph.index[name]
        self.loop.matrix.columns[feature][node] = value
        self.oracle.nodes[name].features[feature] = value
        self.loop.note_change(node)

    def set_limits(self, name: str, max_workers: int, patience: float) -> None:
        self._tell(f"max_workers of {name} = {max_workers}, patience {patience}")
        node = self.loop.matrix.graph.index[name]
        for feature, value in (("max_workers", float(max_workers)), ("patience", patience)):
            self.loop.matrix.columns[feature][node] = value
            self.oracle.nodes[name].features[feature] = value
        self.loop.refresh_patience()
        self.oracle.limits_changed()

    def set_ready(self, name: str, ready: bool) -> None:
        self._tell(f"{name} is {'' if ready else 'not '}ready")
        self.loop.set_ready(self.loop.matrix.graph.index[name], ready, self.now)
        self.oracle.tell(name, ready, self.now)

    def finish(self, worker: int) -> None:
        self._tell(f"worker {worker} is done")
        self.loop.finished(worker, self.now)
        self.oracle.finished(worker, self.now)

    def replace_policy(self, policy: Policy) -> None:
        self._tell(f"policy {policy}")
        self.loop.replace_policy(policy)
        self.oracle.replace_policy(policy)

    def replace_placement(self, placement: Placement) -> None:
        self._tell(f"placement {placement}")
        self.loop.replace_placement(placement)
        self.oracle.placement = placement
        self.oracle.place_again()

    def set_workers(self, workers: int) -> None:
        self._tell(f"{workers} workers")
        self.loop.set_workers(Workers.of(workers))
        self.oracle.set_workers(workers)

    def regraph(self, names: Iterable[str]) -> None:
        """Other nodes; edges among those that stay, stay."""
        kept = set(names := list(names))
        graph = Graph(names, [(a, b) for a, b in self.oracle.graph.edges if a in kept and b in kept])
        self._tell(f"nodes {''.join(names)}")
        self.loop.regraph(graph)
        self.oracle.regraph(graph)

    def decide(self) -> list[tuple[str, int, str]]:
        """Both decide; returns what was started after checking that it is the same."""
        names = self.loop.matrix.graph.names
        expected = self.oracle.decide(self.now)
        starts = self.loop.decide(self.now)
        started = [(names[start.node], start.worker, start.reason) for start in starts]
        self._tell(f"decide: {expected}; the loop: {started}")
        if started != expected:
            raise CheckError(f"the loop started {started}, expected {expected} (node, worker, reason)\n{self.told()}")
        self._require([start.portion for start in starts], self.oracle.portions, "what the starts may take")
        return expected

    def check(self) -> None:
        """The invariants hold and the loop's own columns are what really happened."""
        try:
            self.loop.validate()
        except InvariantError as broken:
            raise CheckError(f"{broken}\n{self.told()}") from broken
        for feature, column in self.oracle.columns().items():
            self._require(self.loop.matrix.columns[feature].tolist(), column.tolist(), f"the column {feature!r}")
        statistics = self.loop.statistics()
        self._require(statistics.free_workers, len(self.oracle.free), "the number of free workers")
        self._require(statistics.runnable, len(self.oracle.released()), "the number of nodes that can run")

    def _require(self, got: object, expected: object, what: str) -> None:
        if got != expected:
            raise CheckError(f"{what} is {got}, expected {expected}\n{self.told()}")

    def runs(self, name: str) -> int:
        """How many workers run a node of that name, be it in the graph or not."""
        return sum(running == name for running, _ in self.oracle.running.values())

    def told(self) -> str:
        return "\n".join(self.story)

    def _tell(self, fact: str) -> None:
        self.story.append(f"{self.now:g} s: {fact}")
