"""Loads made of Haren's synthetic queries: when rows arrive, and costs such that two cores are as busy as asked.

Rows arrive in ticks of 100 ms, as from a rate limiter; each query has a phase of its own, so that they do not all come
at once. The work of a row is known from the plan. What the engine itself spends on a packet is measured first, and
then how long work really takes while two workers are busy: more than on an idle machine, by a third or so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from benchmarks.stream.watching import begin_measuring, demand_running
from headgate.stream import Engine, Paced, QueryRun, QuerySpec, QueryStatistics, Replay, to_function
from workloads.chains import Burner, ChainPlan, chain_query, tuples

TICK = 0.1
PACKET_ROWS = 25
#: as many as Liebre's queues hold: 10,000 tuples
CAPACITY = 10_000 // PACKET_ROWS
#: seconds of rows beyond the end of a run, so that no source ends before
SPARE = 60.0


@dataclass(frozen=True)
class Feed:
    """Rows a second while it is on: all the time, or ``on`` seconds of every ``cycle``."""

    rate: float
    on: float = 1.0
    cycle: float = 1.0

    def arrivals(self, seconds: float, phase: float) -> NDArray[np.float64]:
        """When rows are due; the first one at once, since a replay begins with its first row."""
        ticks = np.arange(0.0, seconds, TICK)
        ticks = ticks[ticks % self.cycle < self.on - TICK / 2] + phase * TICK
        return np.concatenate([[0.0], np.repeat(ticks, round(self.rate * TICK))])


@dataclass(frozen=True)
class FedChain:
    """A chain with its costs and what it is fed."""

    plan: ChainPlan
    feed: Feed

    def query(self, burner: Burner, seconds: float, phase: float) -> QuerySpec:
        due = self.feed.arrivals(seconds + SPARE, phase)
        rows = pa.Table.from_batches([tuples(0, len(due))]).append_column("due", pa.array(due))
        return chain_query(self.plan, Paced(rows, Replay("due")), to_function(_drop), burner)

    @property
    def cores(self) -> float:
        """Cores that its operators' own work takes while it is fed."""
        return self.feed.rate * _work(self.plan) / 1e6

    @property
    def packets(self) -> float:
        """Packets a second at all its operators together."""
        return self.feed.rate / PACKET_ROWS * (len(self.plan.filters) + 2)


def _drop(batch: pa.RecordBatch) -> None:
    """What a sink of these experiments does, after its work."""


def _work(plan: ChainPlan) -> float:
    """Microseconds of work for one row of the source, down to the sink."""
    arriving, total = 1.0, 0.0
    for each in plan.filters:
        total += arriving * each.cost
        arriving *= min(each.selectivity, 1.0)
    return total + arriving * plan.sink_cost


def fed(plans: Sequence[ChainPlan], feed: Feed, cores: float, per_packet: float) -> list[FedChain]:
    """The plans with their costs changed by one factor, so that with what packets cost they take so many cores."""
    chains = [FedChain(plan, feed) for plan in plans]
    for_work = cores - per_packet * sum(chain.packets for chain in chains)
    if for_work <= 0:
        raise ValueError(f"packets alone take more than {cores} cores; feed fewer rows or make larger packets")
    factor = for_work / sum(chain.cores for chain in chains)
    return [replace(chain, plan=_times(chain.plan, factor)) for chain in chains]


def _times(plan: ChainPlan, factor: float) -> ChainPlan:
    filters = tuple(replace(each, cost=each.cost * factor) for each in plan.filters)
    return replace(plan, filters=filters, sink_cost=plan.sink_cost * factor)


def _measured(
    chains: Sequence[FedChain], burner: Burner, seconds: float
) -> tuple[list[QueryRun], tuple[QueryStatistics, ...]]:
    """Runs chains for so long, and what they did after the first quarter of it."""
    with Engine(loop="rounds", workers=2, packet_rows=PACKET_ROWS, batch=PACKET_ROWS, capacity=CAPACITY) as engine:
        runs = [engine.add(chain.query(burner, seconds, n / len(chains))) for n, chain in enumerate(chains)]
        time.sleep(seconds / 4)
        begin_measuring(runs)
        time.sleep(seconds * 3 / 4)
        demand_running(runs)
    return runs, engine.statistics().queries


def packet_cost(plans: Sequence[ChainPlan], feed: Feed, burner: Burner, seconds: float) -> float:
    """Seconds of a core that the engine spends on a packet at an operator: chains that do no work at all."""
    chains = [FedChain(_times(plan, 0.0), feed) for plan in plans]
    _, queries = _measured(chains, burner, seconds)
    packets = sum(operator.packets for query in queries for operator in query.operators)
    return sum(query.processor for query in queries) / max(packets, 1)


def burner_at_work(chains: Sequence[FedChain], burner: Burner, per_packet: float, seconds: float) -> Burner:
    """A burner whose microseconds are those of busy workers: what operators took, held against what they should."""
    runs, queries = _measured(chains, burner, seconds)
    taken = sum(query.processor for query in queries)
    stated = {(run.name, each.name): each.cost or 0.0 for run in runs for each in run.spec.operators}
    found = [(stated[query.name, each.name], each) for query in queries for each in query.operators]
    for_packets = per_packet * sum(each.packets for _, each in found)
    meant = sum(cost * each.rows_in for cost, each in found)
    return replace(burner, rate=burner.rate / max((taken - for_packets) / meant, 0.1)) if meant else burner
