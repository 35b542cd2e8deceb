"""Sources whose rows come with time: no moment at which a row may become due is slept through, in any loop."""

from __future__ import annotations

import itertools

import pytest

from headgate.stream import Paced
from headgate.stream.engine import LOOPS, Engine, LoopName
from headgate.stream.query import Query
from tests.stream.queries import ToList, rows

TIMEOUT = 300.0
TABLE = rows(100)


class StepClock:
    """Goes on by one step whenever anybody looks at it, so that time passes between any two looks: whoever asks twice
    gets two answers, which on a real clock happens now and then."""

    def __init__(self, step: float) -> None:
        self._looks = itertools.count()
        self._step = step

    def __call__(self) -> float:
        return next(self._looks) * self._step


@pytest.mark.parametrize("step", [0.000_1, 0.000_3, 0.001, 0.003], ids="{}s".format)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_row_that_becomes_due_while_somebody_looks_is_not_slept_through(loop: LoopName, step: float) -> None:
    sink = ToList()
    with Engine(workers=2, loop=loop, clock=StepClock(step), period=0.01) as engine:
        engine.add(Query("paced").source(Paced(TABLE, rate=1000, rows=TABLE.num_rows)).to(sink)).result(TIMEOUT)
    assert sum(batch.num_rows for batch in sink.batches) == TABLE.num_rows
