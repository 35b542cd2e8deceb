"""The statistics of an engine, its queries and their operators: frozen numbers, taken at one moment."""

from __future__ import annotations

import statistics as stats
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.core import LatencySummary
from headgate.stream.counters import MiddleOfRun
from headgate.stream.operators import Operator
from headgate.stream.query_run import QueryRun


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """One operator since its start. Times are seconds; ``in_queue``, ``for_a_turn`` and ``computing`` are means
    per row: in the middle of the queue, at its head, and with a worker (EdgeWise's T_Q, T_S and T_C)."""

    name: str
    kind: str
    rows_in: int
    rows_out: int
    packets: int
    turns: int
    rejected: int
    cost: float
    selectivity: float
    rows_waiting: int
    bytes_waiting: int
    peak_rows_waiting: int
    in_queue: float
    for_a_turn: float
    computing: float
    utilisation: float
    processor: float


@dataclass(frozen=True, slots=True)
class QueryStatistics:
    """One query. ``rows_per_second`` counts rows of its sources; ``latency`` is from arrival to sink, by row."""

    name: str
    ending: str
    seconds: float
    rows_in: int
    rows_out: int
    rejected: int
    rows_per_second: float
    latency: LatencySummary
    middle: MiddleOfRun
    processor: float
    bytes_waiting: int
    #: coefficient of variation of the utilisations of its operators
    utilisation_variation: float
    operators: tuple[OperatorStatistics, ...]


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """All queries, and what scheduling has cost: seconds of workers by kind of work, and as a share of their time."""

    loop: str
    policy: str
    workers: int
    decisions: int
    busy: float
    scheduling: Mapping[str, float]
    scheduling_share: float
    queries: tuple[QueryStatistics, ...]


def operator_statistics(operator: Operator, now: float) -> OperatorStatistics:
    counters = operator.counters
    with counters.lock:
        rows = max(counters.rows_in, 1)
        return OperatorStatistics(
            name=operator.spec.name,
            kind=operator.spec.kind.value,
            rows_in=counters.rows_in,
            rows_out=counters.rows_out,
            packets=counters.packets,
            turns=counters.turns,
            rejected=counters.rejected,
            cost=counters.cost or 0.0,
            selectivity=1.0 if counters.selectivity is None else counters.selectivity,
            rows_waiting=counters.rows_waiting,
            bytes_waiting=counters.bytes_waiting,
            peak_rows_waiting=counters.peak_rows,
            in_queue=counters.in_queue / rows,
            for_a_turn=counters.for_a_turn / rows,
            computing=counters.computed / rows,
            utilisation=counters.utilisation(now),
            processor=counters.processor,
        )


def query_statistics(query: QueryRun) -> QueryStatistics:
    now = query.ended_at if query.ended_at is not None else query.clock()
    operators = tuple(operator_statistics(operator, now) for operator in query.operators.values())
    sources = {spec.name for spec in query.spec.sources}
    sinks = {spec.name for spec in query.spec.sinks}
    rows_in = sum(each.rows_in for each in operators if each.name in sources)
    seconds = max(now - query.began, 1e-9)
    busy = [each.utilisation for each in operators if each.name not in sources]
    mean = stats.fmean(busy) if busy else 0.0
    latency, middle = query.flow()
    return QueryStatistics(
        name=query.name,
        ending=query.ending.value,
        seconds=seconds,
        rows_in=rows_in,
        rows_out=sum(each.rows_in for each in operators if each.name in sinks),
        rejected=sum(each.rejected for each in operators),
        rows_per_second=rows_in / seconds,
        latency=latency,
        middle=middle,
        processor=sum(each.processor for each in operators),
        bytes_waiting=sum(each.bytes_waiting for each in operators),
        utilisation_variation=stats.pstdev(busy) / mean if mean else 0.0,
        operators=operators,
    )
