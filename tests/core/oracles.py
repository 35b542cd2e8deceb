"""What the tests of the core share: small policies and placements, and a dispatch loop by the letter of the papers.

``NaiveDispatch`` is the oracle for ``Dispatch``. It knows nodes by name only, keeps no order and no heap, and works out
every choice from the full list of released jobs. ``SideBySide`` tells the same facts to both and compares what they do.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from headgate.core.dispatch import Dispatch
from headgate.core.errors import InvariantError
from headgate.core.features import FEATURES, features_named
from headgate.core.graph import Floats, Graph
from headgate.core.matrix import FeatureMatrix, FeatureView
from headgate.core.placement import Lane, Lanes, Placement, Workers
from headgate.core.policy import Policy

#: what the matrices of these tests hold
TEST_FEATURES = tuple(FEATURES)

#: shares of the examples of the profile, for properties that take long to check once
fewer_examples = settings(max_examples=max(1, settings().max_examples // 2))
few_examples = settings(max_examples=max(1, settings().max_examples // 5))

# --- graphs -------------------------------------------------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn, most: int = 9) -> Graph:
    """Directed acyclic graphs whose declaration order is no topological order."""
    names = draw(st.permutations([chr(ord("a") + i) for i in range(draw(st.integers(1, most)))]))
    order = draw(st.permutations(names))
    pairs = [(order[i], order[j]) for j in range(len(order)) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Graph(names, edges)


# --- policies -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Largest(Policy):
    """The largest value of one feature first; ranks only what changed."""

    feature: str = "pending"

    name = "largest"
    summary = "the largest value of one feature"
    paper = "tests"
    local = True

    def requires(self) -> tuple[str, ...]:
        return (self.feature,)

    def priorities(self, view: FeatureView) -> Floats:
        return view[self.feature].copy()


@dataclass(frozen=True)
class LargestOfAll(Largest):
    """The same rule for a loop that ranks everything at each decision."""

    name = "largest-of-all"
    local = False


@dataclass(frozen=True)
class Smallest(Largest):
    name = "smallest"

    def priorities(self, view: FeatureView) -> Floats:
        return -view[self.feature]


@dataclass(frozen=True)
class SmallestOfAll(Smallest):
    name = "smallest-of-all"
    local = False


@dataclass(frozen=True)
class TwoKeys(Policy):
    """Priority first, then what waits; a table of two columns."""

    name = "two-keys"
    summary = "priority, then the most pending"
    paper = "tests"
    needs = ("priority", "pending")
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((view["priority"], view["pending"]))


@dataclass(frozen=True)
class TwoKeysOfAll(TwoKeys):
    name = "two-keys-of-all"
    local = False


@dataclass(frozen=True)
class LongestWaiting(Policy):
    """Looks at the clock and at other nodes: far from the mean head time first."""

    name = "longest-waiting"
    summary = "farthest from the mean waiting time"
    paper = "tests"
    needs = ("pending",)

    def priorities(self, view: FeatureView) -> Floats:
        amount = view["pending"] + view.now
        return np.abs(amount - amount.mean())


@dataclass(frozen=True)
class FewestTurns(Policy):
    """Remembers how often each node was chosen."""

    name = "fewest-turns"
    summary = "the node chosen least often"
    paper = "tests"

    def priorities(self, view: FeatureView) -> Floats:
        turns: Mapping[str, int] = view.memory or {}  # type: ignore[assignment]
        return np.array([-turns.get(name, 0) for name in view.graph.names], dtype=np.float64)

    def remember(self, view: FeatureView, node: int) -> object:
        turns: Mapping[str, int] = view.memory or {}  # type: ignore[assignment]
        name = view.graph.names[node]
        return {**turns, name: turns.get(name, 0) + 1}


@dataclass(frozen=True)
class Favourites(Policy):
    """The nodes named first, in that order, whatever waits; starves all others."""

    order: str = "a"

    name = "favourites"
    summary = "always the same nodes"
    paper = "tests"
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        rows = range(len(view.graph)) if view.rows is None else view.rows
        places = (self.order.find(view.graph.names[i]) for i in rows)
        return np.array([-math.inf if place < 0 else -place for place in places], dtype=np.float64)


LOCAL_AND_FULL = [
    (Largest(), LargestOfAll()),
    (Smallest("last_turn"), SmallestOfAll("last_turn")),
    (Smallest("workers"), SmallestOfAll("workers")),
    (TwoKeys(), TwoKeysOfAll()),
]

# --- placements ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Everywhere(Placement):
    name = "everywhere"
    summary = "every worker"
    paper = "tests"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.single(len(view), Lane(tuple(range(len(workers)))))


@dataclass(frozen=True)
class Stated(Placement):
    """The lane of every node, by name."""

    by_name: Mapping[str, Lane] = field(default_factory=dict)

    name = "stated"
    summary = "as stated"
    paper = "tests"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.of_nodes(self.by_name[name] for name in view.graph.names)


@dataclass(frozen=True)
class Scattered(Placement):
    """Lanes drawn by chance, each with some homes and some spare workers; nodes are dealt over ``lanes_drawn``."""

    seed: int = 0
    lanes_drawn: int = 3
    aggressive: bool | None = None
    one_home: bool = False

    name = "scattered"
    summary = "lanes drawn by chance"
    paper = "tests"

    def lane(self, name: str, workers: int) -> Lane:
        number = zlib.crc32(f"{self.seed}/{name}".encode()) % self.lanes_drawn
        chance = random.Random(f"{self.seed}/{number}/{workers}")
        order = chance.sample(range(workers), workers)
        homes = 1 if self.one_home else chance.randint(1, workers)
        spares = chance.randint(0, workers - homes)
        aggressive = chance.random() < 0.5 if self.aggressive is None else self.aggressive
        return Lane(tuple(order[:homes]), tuple(order[homes : homes + spares]), aggressive)

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.of_nodes(self.lane(name, len(workers)) for name in view.graph.names)


# --- the loop by the letter ---------------------------------------------------------------------------------


def place_by_the_letter(
    sorted_jobs: Iterable[str], lane_of: Callable[[str], Lane], free: Iterable[int]
) -> dict[str, int]:
    """One pass over the sorted list, as printed in Golab et al., 3.2.2 and 3.2.3; {job: track}.

    A job goes to the first available home track; else, if its lane is not aggressive, to a track that it may be
    promoted to and that no released job remaining in the list has as its home; else it is delayed.
    """
    available = set(free)
    remaining = list(sorted_jobs)
    placed: dict[str, int] = {}
    while remaining:
        job = remaining.pop(0)
        lane = lane_of(job)
        wanted = {track for other in remaining for track in lane_of(other).home}
        spare = [track for track in lane.spare if lane.aggressive or track not in wanted]
        for track in (*lane.home, *spare):
            if track in available:
                available.remove(track)
                placed[job] = track
                break
    return placed


@dataclass
class NaiveNode:
    """One node as the oracle sees it."""

    features: dict[str, float] = field(default_factory=lambda: {name: FEATURES[name].default for name in TEST_FEATURES})
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

    def __init__(self, graph: Graph, policy: Policy, placement: Placement, workers: int) -> None:
        self.graph = graph
        self.policy = policy
        self.placement = placement
        self.workers = workers
        self.nodes = {name: NaiveNode() for name in graph.names}
        self.running: dict[int, tuple[str, float]] = {}
        self.memory: object = None
        self.turn = 0
        self.now = 0.0
        self.place_again()

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
        self.nodes = {name: self.nodes.get(name, NaiveNode()) for name in graph.names}
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
        """The runnable jobs, sorted by the policy and then by name."""
        table = np.asarray(self.policy.priorities(self._view()), dtype=np.float64).reshape(len(self.graph), -1)
        jobs = [name for name, node in self.nodes.items() if node.since is not None]
        return sorted(jobs, key=lambda name: ([-p for p in table[self.graph.index[name]]], name))

    def decide(self, now: float) -> list[tuple[str, int, str]]:
        self.now = now
        starts: list[tuple[str, int, str]] = []
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
        name = min(overdue, key=lambda name: (self.nodes[name].deadline, name))
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
        self.memory = self.policy.remember(self._view(), self.graph.index[name])
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
        return {f: np.array([self.nodes[name].features[f] for name in self.graph.names]) for f in TEST_FEATURES}

    def _view(self) -> FeatureView:
        return FeatureView(self.columns(), self.graph, self.now, self.turn, 0, self.memory)


# --- both together ------------------------------------------------------------------------------------------


def make_loop(
    names: Iterable[str] | Graph,
    policy: Policy,
    placement: Placement | None = None,
    workers: int = 1,
    *,
    window: float = math.inf,
    history: int = 0,
) -> Dispatch:
    """A dispatch loop over the features of these tests."""
    graph = names if isinstance(names, Graph) else Graph(names)
    matrix = FeatureMatrix(graph, features_named(TEST_FEATURES))
    return Dispatch(matrix, policy, placement or Everywhere(), Workers.of(workers), window=window, history=history)


class SideBySide:
    """The loop and its oracle, told the same facts; ``story`` is what they were told, for the report of a failure."""

    def __init__(self, graph: Graph, policy: Policy, placement: Placement, workers: int) -> None:
        self.loop = make_loop(graph, policy, placement, workers)
        self.oracle = NaiveDispatch(graph, policy, placement, workers)
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
        started = [(names[start.node], start.worker, start.reason) for start in self.loop.decide(self.now)]
        self._tell(f"decide: {expected}; the loop: {started}")
        assert started == expected, self.told()
        return expected

    def check(self) -> None:
        """The invariants hold and the loop's own columns are what really happened."""
        try:
            self.loop.validate()
        except InvariantError as broken:
            raise AssertionError(f"{broken}\n{self.told()}") from broken
        for feature, column in self.oracle.columns().items():
            assert self.loop.matrix.columns[feature].tolist() == column.tolist(), f"{feature}\n{self.told()}"
        statistics = self.loop.statistics()
        assert statistics.free_workers == len(self.oracle.free), self.told()
        assert statistics.runnable == len(self.oracle.released()), self.told()

    def runs(self, name: str) -> int:
        """How many workers run a node of that name, be it in the graph or not."""
        return sum(running == name for running, _ in self.oracle.running.values())

    def told(self) -> str:
        return "\n".join(self.story)

    def _tell(self, fact: str) -> None:
        self.story.append(f"{self.now:g} s: {fact}")
