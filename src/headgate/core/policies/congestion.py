"""EdgeWise's policy: look at nothing but the queues."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy


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
