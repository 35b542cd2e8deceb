"""How the simulated workers get their work, and what deciding costs: one dataclass per loop.

All costs are seconds of worker time. They are modelled, not measured here; measure an engine and put its numbers in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from headgate.core.consumption import AtMost, Consumption
from headgate.core.errors import ScenarioError
from headgate.core.worklist import RoundsConfig


@dataclass(frozen=True, slots=True)
class DispatchLoop:
    """Whenever a worker is free, the best runnable node goes there (``headgate.core.dispatch``).

    A worker takes what ``consumption`` allows, and no more than its outputs have room downstream. A decision holds one
    lock for ``decision_cost``; going on with another node than the worker ran last costs ``switch_cost``. Nodes are
    placed again ``place_every`` seconds, for placements that go by costs. ``window`` is the length of the window in
    which ``window_time`` counts.
    """

    consumption: Consumption = field(default_factory=lambda: AtMost(50))
    decision_cost: float = 0.0
    switch_cost: float = 0.0
    place_every: float | None = None
    window: float = math.inf

    def __post_init__(self) -> None:
        _costs("dispatch", decision_cost=self.decision_cost, switch_cost=self.switch_cost)
        _positive("dispatch", window=self.window)
        if self.place_every is not None:
            _positive("dispatch", place_every=self.place_every)


@dataclass(frozen=True, slots=True)
class RoundsLoop:
    """Workers run their own lists for a ``period``, then meet (``headgate.core.rounds``; Haren's P, b and d).

    At a meeting reading one feature of one node costs ``feature_cost``, placing a node ``place_cost``, ranking and
    sorting a node ``rank_cost``. How long workers wait for each other comes out by itself.
    """

    period: float = 0.1
    batch: int = 10
    delay: float | None = None
    backoff_min: float = 0.001
    feature_cost: float = 0.0
    place_cost: float = 0.0
    rank_cost: float = 0.0
    switch_cost: float = 0.0

    def __post_init__(self) -> None:
        _costs(
            "rounds",
            feature_cost=self.feature_cost,
            place_cost=self.place_cost,
            rank_cost=self.rank_cost,
            switch_cost=self.switch_cost,
        )
        self.config(0)

    def config(self, seed: int) -> RoundsConfig:
        return RoundsConfig(self.period, self.batch, self.delay, self.backoff_min, seed)


@dataclass(frozen=True, slots=True)
class ThreadsLoop:
    """One thread for each worker a node may have, and the operating system decides: the baseline.

    The thread that has had least processor time goes next, for at most ``quantum`` seconds, as under Linux's CFS. One
    that has slept is credited with at most ``sleeper_credit`` seconds, and takes the processor that it ran on last from
    a thread that is more than ``wakeup_granularity`` ahead of it. These defaults are CFS's for four processors: half a
    latency period of 18 ms, and 3 ms. How early a bottleneck falls behind depends on them, so vary them before
    drawing conclusions. A change of threads costs ``switch_cost``.
    """

    quantum: float = 0.004
    sleeper_credit: float = 0.009
    wakeup_granularity: float = 0.003
    switch_cost: float = 5e-6

    def __post_init__(self) -> None:
        _costs(
            "threads",
            sleeper_credit=self.sleeper_credit,
            wakeup_granularity=self.wakeup_granularity,
            switch_cost=self.switch_cost,
        )
        _positive("threads", quantum=self.quantum)


Loop = DispatchLoop | RoundsLoop | ThreadsLoop


def _costs(loop: str, **values: float) -> None:
    for key, value in values.items():
        if not value >= 0:
            raise ScenarioError(f"{key} of the {loop} loop must be at least 0; got {value}")


def _positive(loop: str, **values: float) -> None:
    for key, value in values.items():
        if not value > 0:
            raise ScenarioError(f"{key} of the {loop} loop must be more than 0; got {value}")
