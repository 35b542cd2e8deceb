"""Small policies and placements: to compare with, to break on purpose, to run a loop of your own by."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TypeVar

import numpy as np

from headgate.core import FeatureView, Floats, Lane, Lanes, Placement, Policy, Workers, WrappingPolicy, in_view

PolicyT = TypeVar("PolicyT", bound=Policy)

# --- policies -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Largest(Policy):
    """The largest value of one feature first."""

    feature: str = "pending"

    name = "largest"
    summary = "the largest value of one feature"
    local = True

    def requires(self) -> tuple[str, ...]:
        return (self.feature,)

    def priorities(self, view: FeatureView) -> Floats:
        return view[self.feature].copy()


@dataclass(frozen=True)
class Smallest(Largest):
    """The smallest value of one feature first."""

    name = "smallest"
    summary = "the smallest value of one feature"

    def priorities(self, view: FeatureView) -> Floats:
        return -view[self.feature]


@dataclass(frozen=True)
class TwoKeys(Policy):
    """Priority first, then what waits; a table of two columns."""

    name = "two-keys"
    summary = "priority, then the most pending"
    needs = ("priority", "pending")
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((view["priority"], view["pending"]))


@dataclass(frozen=True)
class LongestWaiting(Policy):
    """Looks at the clock and at other nodes: far from the mean first."""

    name = "longest-waiting"
    summary = "farthest from the mean of what waits"
    needs = ("pending",)

    def priorities(self, view: FeatureView) -> Floats:
        amount = view["pending"] + view.now
        distance: Floats = np.abs(amount - amount.mean())
        return distance


@dataclass(frozen=True)
class FewestTurns(Policy):
    """Remembers how often each node was chosen."""

    name = "fewest-turns"
    summary = "the node chosen least often"

    def priorities(self, view: FeatureView) -> Floats:
        turns: Mapping[str, int] = view.memory or {}  # type: ignore[assignment]
        return np.array([-turns.get(name, 0) for name in view.graph.names], dtype=np.float64)

    def remember(self, view: FeatureView, node: int) -> object:
        turns: Mapping[str, int] = view.memory or {}  # type: ignore[assignment]
        name = view.graph.names[node]
        return {**turns, name: turns.get(name, 0) + 1}


@dataclass(frozen=True)
class Favourites(Policy):
    """The nodes named first, in that order, whatever waits; lets all others starve. A string names letters."""

    order: Sequence[str] = "a"

    name = "favourites"
    summary = "always the same nodes"
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        place = {name: float(-number) for number, name in enumerate(self.order)}
        return in_view(view, np.array([place.get(name, -math.inf) for name in view.graph.names], dtype=np.float64))


@dataclass(frozen=True)
class Measuring(Policy):
    """The stated priority, but also reads a feature that only running the node brings up to date."""

    name = "measuring"
    summary = "the stated priority"
    needs = ("priority", "cost")

    def priorities(self, view: FeatureView) -> Floats:
        return view["priority"]


@dataclass(frozen=True)
class NotedStart:
    """A node that was chosen: when, and its features at that moment."""

    now: float
    node: str
    features: Mapping[str, float]


@dataclass(frozen=True)
class Noted(WrappingPolicy):
    """Ranks like another policy and writes down every choice, with the ``noting`` features of the node chosen."""

    inner: Policy
    noting: tuple[str, ...] = ()
    starts: list[NotedStart] = field(default_factory=list, compare=False, repr=False)

    name = "noted"
    summary = "another policy, with notes"

    @property
    def wrapped(self) -> Policy:
        return self.inner

    def requires(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.inner.requires(), *self.noting)))

    def remember(self, view: FeatureView, node: int) -> object:
        values = {feature: float(view[feature][node]) for feature in self.noting}
        self.starts.append(NotedStart(view.now, view.graph.names[node], values))
        return self.inner.remember(view, node)

    def __str__(self) -> str:
        return str(self.inner)


def not_local(policy: PolicyT) -> PolicyT:
    """The same rule for a loop that ranks everything at each decision: what is started must be the same."""
    values = {each.name: getattr(policy, each.name) for each in fields(policy)}  # type: ignore[arg-type]
    same: PolicyT = _not_local(type(policy))(**values)
    return same


@cache
def _not_local(kind: type[PolicyT]) -> type[PolicyT]:
    return type(f"{kind.__name__}NotLocal", (kind,), {"local": False, "name": f"{kind.name}-not-local"})


# --- placements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanesByName(Placement):
    """The lane of every node, by name."""

    by_name: Mapping[str, Lane] = field(default_factory=dict)

    name = "lanes-by-name"
    summary = "as stated"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.of_nodes(self.by_name[name] for name in view.graph.names)


@dataclass(frozen=True)
class RandomLanes(Placement):
    """Lanes drawn by chance, each with some homes and some spare workers; nodes are dealt over ``lanes_drawn``."""

    seed: int = 0
    lanes_drawn: int = 3
    aggressive: bool | None = None
    one_home: bool = False

    name = "random-lanes"
    summary = "lanes drawn by chance"

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


@dataclass(frozen=True)
class OnWorker(Placement):
    """All nodes on one worker."""

    worker: int = 0

    name = "on-worker"
    summary = "all nodes on one worker"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.single(len(view), Lane((self.worker,)))


@dataclass(frozen=True)
class Wandering(Placement):
    """Every node on another worker in every turn."""

    name = "wandering"
    summary = "every node on another worker each time"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.of_workers((view.graph.tie + view.turn) % len(workers))
