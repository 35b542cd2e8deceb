"""The *threads* loop, the baseline: one thread per operator, and the operating system decides who runs.

Queues are bounded: a thread whose readers have no room waits for them. This is what most stream processors do, and
what the other loops are compared with.
"""

from __future__ import annotations

import math
import threading

from headgate.stream.loops.loop import EngineLoop
from headgate.stream.operators import Operator, SourceOperator
from headgate.stream.operators.operator import Clock
from headgate.stream.query_run import QueryRun


class OperatorThreads(EngineLoop):
    """A thread for every operator, which sleeps while there is nothing to do or no room for the result.

    Invariants:
    1. An operator's bell has rung since anything but time changed that could let it run. Its thread clears the bell
       before it looks, so no change is missed. For time it sleeps no longer than until its source is due.
    """

    name = "threads"

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, 1)
        self._bells: dict[Operator, threading.Event] = {}

    def _adopt(self, query: QueryRun) -> None:
        for operator in query.operators.values():
            self._bells[operator] = threading.Event()
            if self.started:
                self._enter(operator)
                self._spawn(f"headgate-{operator.name}", self._run_operator, operator)

    def _let_go(self, query: QueryRun) -> None:
        for operator in query.operators.values():
            self._bells[operator].set()

    def _begin(self) -> None:
        for operator in self._bells:
            self._enter(operator)
            self._spawn(f"headgate-{operator.name}", self._run_operator, operator)

    def _run_operator(self, operator: Operator) -> None:
        bell = self._bells[operator]
        busy = 0.0
        while True:
            bell.clear()
            if operator.query.stopped or self.stopping:
                break
            if operator.can_run():
                before = self.clock()
                operator.work(1)
                busy += self.clock() - before
                for feeder in operator.upstream:
                    self.wake(feeder)
            else:
                bell.wait(self._until_due(operator))
        with self.lock:
            self.busy += busy
            self._leave(operator)
        self._close_if_left(operator.query.name)

    def _until_due(self, operator: Operator) -> float | None:
        """Seconds to sleep; None until the bell rings. What became due since ``can_run`` looked rings no bell."""
        if not isinstance(operator, SourceOperator):
            return None
        now = self.clock()
        due = operator.ready_at(now)
        if due <= now:
            return 0.0 if operator.can_run() else None
        return None if due == math.inf else due - now

    def wake(self, operator: Operator) -> None:
        bell = self._bells.get(operator)
        if bell is not None:
            bell.set()

    def _close_if_left(self, name: str) -> None:
        super()._close_if_left(name)
        with self.lock:
            if name not in self.queries and not self._inside[name]:
                self._bells = {each: bell for each, bell in self._bells.items() if each.query.name != name}

    def _wake_all(self) -> None:
        for bell in list(self._bells.values()):
            bell.set()
