"""What the experiments with operators have in common: what scheduling costs, and how a point is measured.

Haren and EdgeWise ran on boards with four ARM cores of 1.2 to 2 GHz. Neither paper states what a switch or a decision
took there, so these are typical figures, not fitted to the papers' results. Work of operators takes the same time
wherever it runs: caches appear only in what a switch costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from benchmarks._shapes import SATURATION, riot
from benchmarks.harness import Context, Row
from benchmarks.harness.table import average
from headgate.core import consumption_from, placement_from, policy_from
from headgate.sim import (
    DispatchModel,
    OperatorResult,
    OperatorScenario,
    QueryModel,
    RoundsModel,
    ThreadsModel,
    simulate_operators,
)

CORES = 4

#: Another operator's code and data come into the first-level caches: 32 KiB each, line by line from the second level.
#: Whoever goes on with another operator pays it, thread or worker of a pool.
CACHE_REFILL = 5e-6
#: Wake-up, run queue, registers and stack: what only a change of threads takes. With the refill it makes 15 µs, between
#: the 5 of a bare switch and the 30 of threads with large working sets.
KERNEL_SWITCH = 10e-6
#: Linux credits a thread that has slept with half of its scheduling latency, which is 18 ms on four cores.
SLEEPER_CREDIT = 0.009
#: A lock without contention, and a look at the lengths of some ten queues.
DECISION = 3e-6
#: A meeting of Haren's workers: reading a counter that another thread wrote (a cache miss or two), drawing a worker
#: for a node, and computing the priority of a node and sorting it in.
FEATURE_READ, PLACE_NODE, RANK_NODE = 0.5e-6, 0.5e-6, 2e-6
#: Haren's three HIGH and ten LOW queries at their steady rates keep so much of the four cores busy: little enough that
#: threads, whose switches take a third of the cores beside it, can follow the sources, too, as they do in the paper.
TWO_CLASS_LOAD = 0.6
#: Tuples that wait for an operator of Storm before it tells those upstream to stop.
STORM_QUEUE = 1024
#: One tuple of a topology takes from half to one and a half times the mean of its operator; the paper does not say.
COST_SPREAD = 0.5


# --- who decides ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """One line of a figure: how the operators get their turns."""

    label: str
    loop: DispatchModel | RoundsModel | ThreadsModel
    policy: str | None = None
    placement: str = "anywhere"


def threads(label: str = "threads", **settings: float) -> Variant:
    """The baseline: a thread for each operator, scheduled by the operating system."""
    usual = {"switch_cost": KERNEL_SWITCH + CACHE_REFILL, "sleeper_credit": SLEEPER_CREDIT}
    return Variant(label, ThreadsModel(**(usual | settings)))


def pool(policy: str, consumption: str = "at-most-50", label: str | None = None) -> Variant:
    """EdgeWise's worker pool, under any policy."""
    loop = DispatchModel(consumption_from(consumption), decision_cost=DECISION, switch_cost=CACHE_REFILL)
    return Variant(label or policy, loop, policy)


def haren(policy: str) -> Variant:
    """Haren's workers: P = 100 ms, b = 10 tuples, operators dealt out by chance (section 7.2)."""
    loop = RoundsModel(
        period=0.1,
        batch=10,
        feature_cost=FEATURE_READ,
        place_cost=PLACE_NODE,
        rank_cost=RANK_NODE,
        switch_cost=CACHE_REFILL,
    )
    return Variant(policy, loop, policy, "random")


# --- points of a figure -----------------------------------------------------------------------------------------


def simulate(queries: Sequence[QueryModel], variant: Variant, seed: int, **settings: Any) -> OperatorResult:
    """Run queries on four cores; ``settings`` are those of the scenario, such as its horizon."""
    scenario = OperatorScenario(tuple(queries), CORES, variant.loop, **settings)
    if variant.policy is None:
        return simulate_operators(scenario, seed=seed)
    return simulate_operators(scenario, policy_from(variant.policy), placement_from(variant.placement), seed)


def measure_topology(topology: str, variant: Variant, share: float, seconds: float, seed: int) -> Row:
    """A RIoTBench topology at a share of the rate that saturates four cores; costs are known, as EdgeWise profiles."""
    rate = share * SATURATION[topology]
    query = riot(topology, rate, capacity=STORM_QUEUE)
    varied = replace(query, operators=tuple(replace(each, spread=COST_SPREAD) for each in query.operators))
    result = simulate([varied], variant, seed, horizon=seconds, measure_from=seconds / 3, known=True)
    return {
        "topology": topology,
        "variant": variant.label,
        "rate": rate,
        "point": f"{topology} {rate:g}/s",
        "seed": seed,
        "throughput": result.overall.throughput_out,
        "mean latency": result.overall.latency.mean * 1e3,
        "rho variation": result.rho_variation,
        "scheduling": result.scheduling.share,
        "switching": result.scheduling.switch_share,
    }


def sweep_rates(
    context: Context,
    topologies: Sequence[str],
    variants: Sequence[Variant],
    shares: Sequence[float],
    seconds: float = 10.0,
) -> list[Row]:
    """Every topology under every variant at every rate; in smoke mode for a moment, at the ends of the range."""
    arguments = [
        {"topology": topology, "variant": variant, "share": share, "seconds": seconds, "seed": seed}
        for topology in topologies
        for variant in variants
        for share in shares
        for seed in context.seeds
    ]
    if context.smoke:
        ends = (shares[0], shares[-1])
        arguments = [{**point, "seconds": 0.3} for point in arguments if point["share"] in ends]
    return context.points(measure_topology, arguments)


# --- from points to claims --------------------------------------------------------------------------------------


def means(rows: Sequence[Row], by: Sequence[str], value: str) -> dict[Any, float]:
    """{the cell, or the tuple of cells, of the columns ``by``: mean of ``value`` over repetitions}."""
    averages = average(rows, by, value)
    return {tuple(row[c] for c in by) if len(by) > 1 else row[by[0]]: row["mean"] for row in averages}


def carried_rate(rows: Sequence[Row], topology: str, variant: str, limit: float) -> float:
    """The rate at which the mean latency crosses ``limit`` ms, on a straight line between the two points around it."""
    mine = [row for row in rows if row["topology"] == topology and row["variant"] == variant]
    latency: list[tuple[float, float]] = sorted(means(mine, ("rate",), "mean latency").items())
    if latency[0][1] > limit:
        return 0.0
    for (rate, below), (next_rate, above) in pairwise(latency):
        if above > limit:
            return rate + (next_rate - rate) * (limit - below) / (above - below)
    return latency[-1][0]
