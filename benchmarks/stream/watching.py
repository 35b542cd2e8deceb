"""How running queries are watched from outside: measuring begins after a warm-up, queues are looked at now and then.

Statistics of the engine are taken after it has stopped. While it runs, only numbers are read or set back, and no lock
of a scheduler is taken: a look at 300 operators takes some 0.1 ms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from headgate.core import LatencyRecorder
from headgate.stream import Ending, QueryRun, QueryStatistics
from headgate.stream.operators import Operator, SourceOperator

#: seconds between two looks at the queues
LOOK = 0.025


def begin_latency(runs: Sequence[QueryRun]) -> None:
    """Note latencies in a new recorder; whoever kept the old one still has it."""
    for run in runs:
        run.latency = LatencyRecorder()


def begin_measuring(runs: Sequence[QueryRun]) -> None:
    """Forget what the warm-up has left in the books."""
    begin_latency(runs)
    for run in runs:
        for operator in run.operators.values():
            with operator.counters.lock:
                operator.counters.reset(run.clock())


def demand_running(runs: Sequence[QueryRun]) -> None:
    """A query that has failed would look very quick: raise its error instead."""
    for run in runs:
        if run.error is not None:
            raise run.error
        if run.ending is not Ending.RUNNING:
            raise RuntimeError(
                f"query {run.name!r} has ended ({run.ending.value}) while it was measured; feed it longer"
            )


def rows_per_second(query: QueryStatistics) -> float:
    """Throughput in the middle of the run; of all of it if the run was too short to have a middle."""
    middle = query.middle.rows_per_second
    return query.rows_per_second if math.isnan(middle) else middle


@dataclass(frozen=True)
class Queues:
    """Means and greatest sums over all looks: rows in the queues of operators, and rows that sources have not read.

    ``seconds`` is how long it really took: beside hundreds of threads, whoever looks gets its turns late.
    """

    seconds: float
    waiting: float
    most_waiting: int
    unread: float


def watch(runs: Sequence[QueryRun], seconds: float, look: float = LOOK) -> Queues:
    """Look at the queues for so long."""
    sources: list[SourceOperator] = []
    others: list[Operator] = []
    for run in runs:
        for operator in run.operators.values():
            if isinstance(operator, SourceOperator):
                sources.append(operator)
            else:
                others.append(operator)
    began = time.perf_counter()
    until = began + seconds
    waiting, unread = [], []
    while time.perf_counter() < until:
        waiting.append(sum(operator.counters.rows_waiting for operator in others))
        # A source that has nothing says 1, since asking it again is work too.
        unread.append(sum(source.pending - 1 for source in sources))
        time.sleep(min(look, max(0.0, until - time.perf_counter())))
    taken = time.perf_counter() - began
    demand_running(runs)
    return Queues(taken, fmean(waiting), max(waiting), fmean(unread))
