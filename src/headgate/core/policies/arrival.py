"""Policies that look at nothing but when work came, how much waits, or who last had a turn: the baselines."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.graph import Floats, uniform
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy


@dataclass(frozen=True)
class FirstCome(Policy):
    """The tuple that came into the system first is served first, wherever in the graph it waits by now.
    Keeps the maximum latency low.

    Rule: ``-head_time``.
    Features: head_time.
    Fails: mean latency and memory suffer, because a dear tuple that came a moment earlier goes before many cheap ones.
    Paper: Haren, section 7.2.
    """

    name = "fcfs"
    summary = "the tuple that has been in the system for longest"
    paper = "Haren 7.2"
    needs = ("head_time",)
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return -view["head_time"]


@dataclass(frozen=True)
class ReleaseOrder(Policy):
    """Updates run in the order in which they were released.
    The baseline of a warehouse that does not schedule at all.

    Rule: ``-release_time``.
    Features: release_time.
    Fails: one long update delays everything released after it, whatever its priority.
    Paper: none, a baseline; the release times are those of Golab et al., section 3.1.
    """

    name = "fifo"
    summary = "the update that was released first"
    paper = "baseline"
    needs = ("release_time",)
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return -view["release_time"]


@dataclass(frozen=True)
class RoundRobin(Policy):
    """Whoever has not been chosen for longest goes next, so all runnable nodes get the same number of turns.
    What a fair operating system does for one thread per node, except that turns are counted and not time.

    Rule: ``-last_turn``.
    Features: last_turn.
    Fails: a heavy node gets no more turns than a light one and becomes the bottleneck (EdgeWise, section 5.1).
    Paper: Haren, section 8 (Aurora's queries); EdgeWise, section 3.3.
    """

    name = "round-robin"
    summary = "the node whose last turn is longest ago"
    paper = "Haren 8, EdgeWise 3.3"
    needs = ("last_turn",)
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return -view["last_turn"]


@dataclass(frozen=True)
class RandomChoice(Policy):
    """Every runnable node is equally likely to be next.
    Chance is a function of seed, turn and node name, so that a run can be repeated exactly.

    Rule: ``hash(seed, turn, name)`` as a number in [0, 1).
    Features: none.
    Fails: knows nothing of urgency, cost or queues; waiting times have no bound, only a small mean.
    Paper: the baseline of Golab et al., section 4.3, and of EdgeWise, section 7.1.
    """

    name = "random"
    summary = "any node, by chance"
    paper = "Golab 4.3, EdgeWise 7.1 (baseline)"

    def priorities(self, view: FeatureView) -> Floats:
        return uniform(view.seed, view.turn, view.graph.fingerprint)


@dataclass(frozen=True)
class LongestQueue(Policy):
    """The node with the most waiting tuples runs, so heavy nodes get turns in proportion to their load and queues
    stay balanced, without knowing costs. Puts off the moment of back-pressure; keeps latency low near saturation.

    Rule: ``pending``.
    Features: pending.
    Fails: a queue that stays short is never the longest, so under overload its tuples wait for ever. A tuple counts
    the same whatever it costs.
    Paper: EdgeWise, section 4.1.
    """

    name = "longest-queue"
    summary = "the node with the most waiting tuples"
    paper = "EdgeWise 4.1"
    needs = ("pending",)
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"]
