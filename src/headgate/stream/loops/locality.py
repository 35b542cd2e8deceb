"""The *locality* loop on threads (Bobox): a packet is processed on the core that produced it, while it is in the cache.

The core's scheduler decides which task a thread runs; this module owns the threads, their semaphores and the lock
around it. With ``fifo=True`` it uses the simple scheduler of the paper's comparison: one list per thread, first in,
first out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from headgate.core import FifoStealScheduler, LocalityScheduler
from headgate.core.locality import BALANCE_PERIOD, Instruction, TaskScheduler, Wake
from headgate.stream.loops.loop import EngineLoop
from headgate.stream.operators import Operator, SourceOperator
from headgate.stream.operators.operator import Clock
from headgate.stream.query_run import QueryRun

#: rows of one run: a task is one packet
ONE_PACKET = 1


class LocalityThreads(EngineLoop):
    """Threads that follow a task scheduler of the core."""

    name = "locality"

    def __init__(
        self,
        clock: Clock,
        workers: int,
        *,
        nodes: Sequence[int] | None = None,
        fifo: bool = False,
        pin: bool = False,
    ) -> None:
        """``nodes`` are the threads on each NUMA node; found from the machine if left out."""
        super().__init__(clock, workers)
        self._per_node = list(nodes) if nodes is not None else threads_per_node(workers)
        self.workers = sum(self._per_node)
        self._pin = pin
        self._fifo = fifo
        self._operators: dict[str, Operator] = {}
        #: the number of the worker that this thread is
        self._here = threading.local()
        #: threads of an earlier crew leave
        self._crew = 0
        self._tasks_before = 0
        self._scheduler = self._new_scheduler()

    def _new_scheduler(self) -> TaskScheduler:
        self._calls = [threading.Semaphore(0) for _ in range(self.workers)]
        return FifoStealScheduler(self.workers) if self._fifo else LocalityScheduler(self._per_node)

    # --- queries --------------------------------------------------------------------------------------------

    def _adopt(self, query: QueryRun) -> None:
        operators = {operator.name: operator for operator in query.operators.values()}
        self._operators.update(operators)
        self._carry_out(self._scheduler.add_query(query.name, operators))

    def _let_go(self, query: QueryRun) -> None:
        self._scheduler.remove_query(query.name)
        for operator in query.operators.values():
            del self._operators[operator.name]

    # --- threads --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for worker in range(self.workers):
            self._spawn(f"headgate-worker-{worker}", self._run_worker, worker, self._crew)

    def _run_worker(self, worker: int, crew: int) -> None:
        self._here.worker = worker
        if self._pin:
            pin_to_core(worker)
        while not self.stopping and crew == self._crew:
            operator = self._next(worker)
            if operator is None:
                if not self._calls[worker].acquire(timeout=BALANCE_PERIOD):
                    self._balance()
                continue
            while operator is not None:
                operator = self._run(operator, worker, crew)

    def _next(self, worker: int) -> Operator | None:
        with self.lock:
            start = self._scheduler.next_start(worker)
            if start is None:
                return None
            self._carry_out(start.wakes)
            operator = self._operators[str(start.node)]
            self._enter(operator)
            return operator

    def _run(self, operator: Operator, worker: int, crew: int) -> Operator | None:
        before = self.clock()
        operator.work(ONE_PACKET)
        worked = self.clock()
        with self.lock:
            locked = self.clock()
            self.busy += worked - before
            self._leave(operator)
            if operator.query.name in self.queries:
                self._tell(operator, locked)
            self._carry_out(self._scheduler.finished(worker))
            decided = self.clock()
            self.overhead["lock"] += locked - worked
            self.overhead["decide"] += decided - locked
        self._close_if_left(operator.query.name)
        return self._next(worker) if crew == self._crew and not self.stopping else None

    def _tell(self, operator: Operator, now: float) -> None:
        """Tell the scheduler what a run has changed: for the operator itself, and for those that waited for room."""
        if operator.can_run():
            self._carry_out(self._scheduler.note_ready(operator.name))
        for feeder in operator.upstream:
            if feeder.can_run():
                self._carry_out(self._scheduler.note_ready(feeder.name))
        self._await_sources((operator, *operator.upstream), now)

    def _balance(self) -> None:
        with self.lock:
            self._carry_out(self._scheduler.balance())

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Wake):
                self._calls[instruction.worker].release()

    def wake(self, operator: Operator) -> None:
        worker = getattr(self._here, "worker", None)
        with self.lock:
            if operator.name not in self._operators:
                return
            now = self.clock()
            if isinstance(operator, SourceOperator):
                self._await_sources((operator,), now)
                if operator.can_run():
                    self._carry_out(self._scheduler.note_ready(operator.name))
            elif worker is not None:
                self._carry_out(self._scheduler.packet_received(operator.name, worker))
            else:
                self._carry_out(self._scheduler.note_ready(operator.name))

    def _wake_all(self) -> None:
        for call in self._calls:
            call.release()

    # --- change while running -------------------------------------------------------------------------------

    def set_workers(self, count: int) -> None:
        """Replace all threads: the old ones finish their runs, then the new ones start."""
        if not self.started:
            self._per_node, self.workers = threads_per_node(count), count
            self._renew()
            return
        leaving, self._threads = self._threads, []
        self._crew += 1
        self._wake_all()
        for thread in leaving:
            thread.join()
        self._per_node, self.workers = threads_per_node(count), count
        self._renew()
        self._begin()

    def _renew(self) -> None:
        with self.lock:
            self._tasks_before = self.decisions
            self._scheduler = self._new_scheduler()
            for query in self.queries.values():
                names = [operator.name for operator in query.operators.values()]
                self._carry_out(self._scheduler.add_query(query.name, names))
                for operator in query.operators.values():
                    if operator.can_run():
                        self._carry_out(self._scheduler.note_ready(operator.name))

    # --- reports --------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> int:
        return self._tasks_before + int(self._scheduler.statistics().tasks_created)


def threads_per_node(workers: int) -> list[int]:
    """Workers spread over the machine's NUMA nodes, as evenly as may be; none on a node that would have nothing."""
    count = max(1, min(workers, numa_nodes()))
    return [workers // count + (node < workers % count) for node in range(count)]


def numa_nodes() -> int:
    """How many NUMA nodes the machine has; 1 if it does not say."""
    found = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    return found or 1


def pin_to_core(worker: int) -> None:
    """Keep this thread on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[worker % len(cores)]})
