"""What the experiments with operators have in common: what scheduling costs, and how a point is measured.

Haren and EdgeWise ran on boards with four ARM cores of 1.2 to 2 GHz. Neither paper states what a switch or a decision
took there, so these are typical figures, chosen before any result was seen. Work of operators takes the same
time wherever it runs: caches appear only in what a switch costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Row
from benchmarks.harness.table import average
from headgate.core.consumption import consumption_from
from headgate.core.registry import placement_from, policy_from
from headgate.sim.operators import (
    DispatchLoop,
    OperatorResult,
    OperatorScenario,
    Query,
    RoundsLoop,
    ThreadsLoop,
    simulate_operators,
)

CORES = 4

#: Another operator's code and data come into the first-level caches: 32 KiB each way, line by line from the second
#: level. Whoever goes on with another operator pays it, thread or worker of a pool.
CACHE_REFILL = 5e-6
#: Wake-up, run queue and change of registers and stack: what only a change of threads takes. With the refill 15 µs,
#: between the 5 of a bare switch and the 30 of threads with large working sets.
KERNEL_SWITCH = 10e-6
#: A lock without contention, and a look at the lengths of some ten queues.
DECISION = 3e-6
#: A meeting of Haren's workers: reading a counter that another thread wrote (a cache miss or two), drawing a worker
#: for a node, and computing the priority of a node and sorting it in.
FEATURE_READ, PLACE_NODE, RANK_NODE = 0.5e-6, 0.5e-6, 2e-6


@dataclass(frozen=True)
class Variant:
    """One line of a figure: how the operators get their turns."""

    label: str
    loop: DispatchLoop | RoundsLoop | ThreadsLoop
    policy: str | None = None
    placement: str = "anywhere"


def threads(label: str = "threads", switch_cost: float = KERNEL_SWITCH + CACHE_REFILL) -> Variant:
    """The baseline: a thread for each operator, scheduled by the operating system."""
    return Variant(label, ThreadsLoop(switch_cost=switch_cost))


def pool(policy: str, consumption: str = "at-most-50", label: str | None = None) -> Variant:
    """EdgeWise's worker pool, under any policy."""
    loop = DispatchLoop(consumption_from(consumption), decision_cost=DECISION, switch_cost=CACHE_REFILL)
    return Variant(label or policy, loop, policy)


def haren(policy: str) -> Variant:
    """Haren's workers: P = 100 ms, b = 10 tuples, operators dealt out by chance (section 7.2)."""
    loop = RoundsLoop(
        period=0.1,
        batch=10,
        feature_cost=FEATURE_READ,
        place_cost=PLACE_NODE,
        rank_cost=RANK_NODE,
        switch_cost=CACHE_REFILL,
    )
    return Variant(policy, loop, policy, "random")


def simulate(queries: Sequence[Query], variant: Variant, seed: int, **more: Any) -> OperatorResult:
    """Run queries on four cores; ``more`` are settings of the scenario, such as its horizon."""
    scenario = OperatorScenario(tuple(queries), CORES, variant.loop, **more)
    if variant.policy is None:
        return simulate_operators(scenario, seed=seed)
    return simulate_operators(scenario, policy_from(variant.policy), placement_from(variant.placement), seed)


def means(rows: Sequence[Row], by: Sequence[str], value: str) -> dict[Any, float]:
    """{the cell, or tuple of cells, of the columns ``by``: mean of ``value`` over repetitions}."""
    averages = average(rows, by, value)
    return {tuple(row[c] for c in by) if len(by) > 1 else row[by[0]]: row["mean"] for row in averages}
