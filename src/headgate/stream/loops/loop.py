"""What all loops have in common: queries are added and removed while worker threads run their operators.

Operators run when something arrives for them. Sources may also wait for a point in time: a timer wakes them.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from headgate.core import DeclarationError, HeadgateError, InvariantError, Loop, Placement, Policy, user_error
from headgate.stream.errors import EngineStoppedError
from headgate.stream.operators import Operator, SourceOperator
from headgate.stream.operators.operator import Clock
from headgate.stream.query_run import QueryRun

#: seconds that a stop waits for turns under way
PATIENCE = 30.0


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


class EngineLoop(ABC):
    """Runs operators of queries on threads.

    A query that has ended is closed by the last worker that leaves it, so that no file is closed while a worker uses
    it: ``_inside`` counts the workers in each query, and ``_ending`` are the queries to be closed when that is 0.
    """

    def __init__(self, clock: Clock, workers: int) -> None:
        if workers < 1:
            raise DeclarationError(f"an engine needs at least 1 worker; got {workers}")
        self.clock = clock
        self.workers = workers
        self.lock = threading.Lock()
        self.queries: dict[str, QueryRun] = {}
        #: seconds of workers spent on scheduling, by part
        self.overhead: dict[str, float] = defaultdict(float)
        self.busy = 0.0
        self.started = False
        self.stopping = False
        #: a policy or placement that failed; every query ends with it
        self.failure: HeadgateError | None = None
        self._timer = Timer(clock, self.wake)
        self._threads: list[threading.Thread] = []
        self._inside: Counter[str] = Counter()
        self._ending: dict[str, QueryRun] = {}

    # --- queries --------------------------------------------------------------------------------------------

    def add(self, query: QueryRun) -> None:
        """Take up a query; its operators may run from now on."""
        query.on_input = self.wake
        query.on_end = self._query_ended
        try:
            with self.lock:
                if self.stopping:
                    raise EngineStoppedError(f"query {query.name!r} came after the engine was stopped")
                self._adopt(query)
                self.queries[query.name] = query
        except BaseException:
            self.fail_if_broken()
            raise
        for operator in query.operators.values():
            if isinstance(operator, SourceOperator):
                self.wake(operator)

    def _query_ended(self, query: QueryRun) -> None:
        """A query has ended. Called by the thread that ended it: a worker, or any other."""
        with self.lock:
            if self.queries.pop(query.name, None) is None:
                return
            self._ending[query.name] = query
            broken_before = self.failure is not None
            try:
                self._let_go(query)
            except BaseException as error:  # a placement of the user's is asked anew
                self.failure = self.failure or self._as_failure(error)
        self._close_if_left(query.name)
        if not broken_before:
            self.fail_if_broken()

    def _enter(self, operator: Operator) -> None:
        """A worker goes into an operator; with the lock held."""
        self._inside[operator.query.name] += 1

    def _leave(self, operator: Operator) -> None:
        """A worker has come out of an operator; with the lock held. ``_close_if_left`` must follow without it."""
        self._inside[operator.query.name] -= 1

    def _close_if_left(self, name: str) -> None:
        if name not in self._ending:
            return
        with self.lock:
            query = None if self._inside[name] else self._ending.pop(name, None)
            if query is not None:
                del self._inside[name]
        if query is not None:
            query.close()

    def _as_failure(self, error: BaseException) -> HeadgateError:
        """What the policy raised, or whatever else ended the scheduling, as the error of all queries."""
        if isinstance(error, HeadgateError):
            return error
        failure = user_error(f"the {self.name} loop cannot go on, so all queries have stopped", error)
        failure.__cause__ = error
        return failure

    def fail_if_broken(self) -> None:
        """If the policy has failed, nothing can be scheduled any more: end every query with that error."""
        if self.failure is not None:
            for query in list(self.queries.values()):
                query.fail(self.failure)

    # --- threads --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to run operators."""
        with self.lock:
            self.started = True
            self._begin()

    def stop(self) -> None:
        """End all threads; turns under way end first. Queries that have not ended are stopped."""
        with self.lock:
            self.stopping = True
        for query in list(self.queries.values()):
            query.stop()
        self._timer.stop()
        self._wake_all()
        for thread in list(self._threads):
            thread.join(PATIENCE)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            raise TimeoutError(
                f"{', '.join(alive)} did not end within {PATIENCE:g} s: an operator's function does not return"
            )

    def _spawn(self, name: str, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=self._run_guarded, args=(target, *arguments), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _run_guarded(self, target: Callable[..., None], *arguments: object) -> None:
        """Run a thread. What operators raise ends their query; what gets as far as here ends all of them, for without
        this thread they would wait for ever."""
        try:
            target(*arguments)
        except BaseException as error:
            self.failure = self.failure or self._as_failure(error)
            self.fail_if_broken()
            self._wake_all()
            with self.lock:
                ended = list(self._ending.values())
                self._ending.clear()
            for query in ended:
                query.close()

    def _await_sources(self, operators: Iterable[Operator], now: float) -> None:
        """Have sources called when they are due. ``now`` must not be later than the last check whether they can run:
        a source that becomes due in between would be missed."""
        for operator in operators:
            if isinstance(operator, SourceOperator):
                due = operator.ready_at(now)
                if now < due < math.inf:
                    self._timer.at(due, operator)

    # --- each loop's own ------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self) -> None:
        """Start the threads; with the lock held."""

    @abstractmethod
    def _adopt(self, query: QueryRun) -> None:
        """Start to schedule the operators; with the lock held."""

    @abstractmethod
    def _let_go(self, query: QueryRun) -> None:
        """Stop scheduling the operators; with the lock held. Workers may still be in some of them."""

    @abstractmethod
    def wake(self, operator: Operator) -> None:
        """An operator may have something to do. Called from any thread, without the lock."""

    @abstractmethod
    def _wake_all(self) -> None:
        """Wake every thread, so that it checks whether it should stop."""

    # --- change while running -------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        raise DeclarationError(f"the {self.name} loop ranks by no policy, so it cannot be replaced by {policy}")

    def replace_placement(self, placement: Placement) -> None:
        raise DeclarationError(f"the {self.name} loop has no placement, so it cannot be replaced by {placement}")

    def set_workers(self, count: int) -> None:
        raise DeclarationError(f"the {self.name} loop has as many threads as operators; {count} cannot be set")

    def validate(self) -> None:
        """Check what must hold at any moment; for tests and debugging."""
        self._timer.validate()
        with self.lock:
            if lost := [name for name, count in self._inside.items() if count < 0]:
                raise InvariantError(f"more workers have left the queries {lost} than came in")

    # --- reports --------------------------------------------------------------------------------------------

    name = "?"

    @property
    def core(self) -> Loop | None:
        """The loop of the core that decides here; None before there is anything to decide, or if none does."""
        return None

    @property
    def decisions(self) -> int:
        """Choices of what runs next, or reschedulings."""
        return 0 if self.core is None else self.core.statistics().decisions

    def scheduling(self) -> Mapping[str, float]:
        """Seconds of workers spent on scheduling, by part."""
        return MappingProxyType(dict(self.overhead))

    def explain(self, operator: Operator) -> str:
        """Why an operator runs or does not run at this moment, in words."""
        with self.lock:
            if self.core is not None:
                return str(self.core.explain(operator.index, self.clock()))
        raise DeclarationError(f"the {self.name} loop leaves the choice to the operating system; nothing to explain")
