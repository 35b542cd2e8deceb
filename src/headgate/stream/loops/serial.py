"""One query in the calling thread: no workers, no scheduler, one packet after the other from end to end.

This is the serial run that every other way to run a query must agree with, and the cheapest way to run one where there
is a process for each core anyway.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from headgate.stream.operators import Operator, SourceOperator
from headgate.stream.query_run import QueryRun

#: without a bound: a turn takes all there is
_EVERYTHING = 1 << 62


def run_serially(query: QueryRun) -> QueryRun:
    """Run a query until it has ended; raises its error if it fails."""
    query.on_end = QueryRun.close
    operators = list(query.operators.values())
    while not query.stopped:
        if not cycle(operators):
            _wait_for_sources(query)
    return query.result()


def cycle(operators: Iterable[Operator]) -> int:
    """A turn for each operator that can run, in the order of the query; how many could."""
    return sum([_turn(operator) for operator in operators])


def _turn(operator: Operator) -> bool:
    """Runs an operator if it can; sources send one packet, so that little waits anywhere."""
    if not operator.can_run():
        return False
    operator.work(1 if isinstance(operator, SourceOperator) else _EVERYTHING)
    return True


def _wait_for_sources(query: QueryRun) -> None:
    now = query.clock()
    due = min(o.ready_at(now) for o in query.operators.values() if isinstance(o, SourceOperator))
    # A source that cannot tell when rows will come is asked again after a moment.
    time.sleep(max(0.0, min(due - now, 0.001 if due == math.inf else due - now)))
