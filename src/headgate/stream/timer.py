"""Wakes operators when a time has come: a thread that sleeps until the next of these times."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from headgate.core import InvariantError
from headgate.stream.operators import Operator
from headgate.stream.operators.operator import Clock


class Timer:
    """Wakes operators at given times. Its thread starts with the first of them.

    Invariants:
    1. ``_due`` is a heap of (time, number, operator); an operator is in it at most once: an earlier time replaces a
       later one, which is skipped when it comes up.
    """

    def __init__(self, clock: Clock, wake: Callable[[Operator], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Operator]] = []
        self._time_of: dict[Operator, float] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def at(self, time: float, operator: Operator) -> None:
        """Wake ``operator`` at ``time``, unless it is to be woken earlier anyway."""
        with self._changed:
            if self._stopping or self._time_of.get(operator, float("inf")) <= time:
                return
            self._time_of[operator] = time
            heapq.heappush(self._due, (time, next(self._numbers), operator))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headgate-timer", daemon=True)
                self._thread.start()
            elif self._due[0][2] is operator:
                self._changed.notify()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            due = self._next()
            if due is None:
                return
            self._wake(due)

    def _next(self) -> Operator | None:
        """The next operator, when its time has come; None after ``stop``."""
        with self._changed:
            while not self._stopping:
                if not self._due:
                    self._changed.wait()
                    continue
                time, _, operator = self._due[0]
                if self._time_of.get(operator) != time:
                    heapq.heappop(self._due)
                    continue
                seconds = time - self._clock()
                if seconds > 0:
                    self._changed.wait(seconds)
                    continue
                heapq.heappop(self._due)
                del self._time_of[operator]
                return operator
            return None

    def validate(self) -> None:
        """Check the invariants in the docstring of the class."""
        with self._changed:
            for place, entry in enumerate(self._due):
                if place and entry[:2] < self._due[(place - 1) // 2][:2]:
                    raise InvariantError(f"inv1: the time {entry[0]} stands below a later one in the heap")
            listed = {(operator, time) for time, _, operator in self._due}
            if missing := [each for each in self._time_of.items() if each not in listed]:
                raise InvariantError(f"inv1: {missing} are to be woken and not in the heap")
