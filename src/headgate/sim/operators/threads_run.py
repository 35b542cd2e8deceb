"""The *threads* loop in virtual time: one thread per node, and the operating system decides. The baseline.

The scheduler modelled is Linux's CFS in its main lines: the runnable thread with the least *virtual runtime*, that is
processor time received, goes next. Threads sleep while their node has no input or no room for its output, and wake up
with at most ``sleeper_credit`` seconds of credit. Simpler than the real one: all processors share one queue, so there
is nothing to balance, and all threads have the same weight. Queues are waited for asleep, never by spinning.

It does not use the core: there is no policy here, only the operating system.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from headgate.sim.kernel import EventQueue, Rank
from headgate.sim.operators.executor import Executor
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.queues import TupleBatch
from headgate.sim.operators.scenario import OperatorScenario, QueryModel, ThreadsModel

#: seconds; what is left of a batch or quantum below this is rounding
_NO_TIME = 1e-12


class _OsThread:
    """A thread of a node. It is asleep, in the run queue, or on a processor, and nowhere else."""

    __slots__ = ("asleep", "batch", "core", "home", "left", "node", "number", "runtime")

    def __init__(self, node: SimulatedNode, number: int, home: int) -> None:
        self.node = node
        #: the last word between equals, and the same in every run
        self.number = number
        self.runtime = 0.0
        self.asleep = True
        self.core: _Core | None = None
        #: the processor that it ran on last
        self.home = home
        self.batch: TupleBatch | None = None
        #: processor seconds that the batch still needs
        self.left = 0.0


class _Core:
    """A processor: its thread, the stretch that it runs now, and what is left of the quantum after it."""

    __slots__ = ("begin", "last", "number", "quantum", "stretch", "thread")

    def __init__(self, number: int) -> None:
        self.number = number
        self.thread: _OsThread | None = None
        self.last: _OsThread | None = None
        self.begin = 0.0
        self.quantum = 0.0
        #: number of the stretch under way; an event of another stretch is void
        self.stretch = 0


class ThreadsRun(Executor):
    """Threads on processors.

    Invariants:
    1. A thread is asleep, in ``_queue``, or on exactly one core.
    2. ``_least`` never falls; a thread that wakes up has at least that runtime, less the sleeper's credit.
    """

    def __init__(self, scenario: OperatorScenario, loop: ThreadsModel, events: EventQueue[float], seed: int) -> None:
        self._threads: dict[SimulatedNode, list[_OsThread]] = {}
        super().__init__(scenario, events, seed)
        self.loop = loop
        self._cores = [_Core(number) for number in range(scenario.workers)]
        self._queue: list[tuple[float, int, _OsThread]] = []
        self._woken: list[_OsThread] = []
        self._least = 0.0
        self._picks = 0
        self._thread_count = 0
        self._employ(list(self.network.nodes.values()))

    def _employ(self, nodes: Sequence[SimulatedNode]) -> None:
        for node in nodes:
            numbers = range(self._thread_count, self._thread_count + node.max_workers)
            self._threads[node] = [_OsThread(node, number, number % len(self._cores)) for number in numbers]
            self._thread_count += node.max_workers

    # --- sleeping and waking --------------------------------------------------------------------------------

    def changed(self, node: SimulatedNode) -> None:
        if node.length and not node.blocked:
            for thread in self._threads[node]:
                if thread.asleep:
                    self._wake(thread)
                    return

    def _wake(self, thread: _OsThread) -> None:
        thread.asleep = False
        thread.runtime = max(thread.runtime, self._least_runtime() - self.loop.sleeper_credit)
        heapq.heappush(self._queue, (thread.runtime, thread.number, thread))
        self._woken.append(thread)

    def _least_runtime(self) -> float:
        """The runtime of whoever is furthest behind among those who are not asleep."""
        runtimes = [self._runtime_on(core) for core in self._cores if core.thread is not None]
        if self._queue:
            runtimes.append(self._queue[0][0])
        if runtimes:
            self._least = max(self._least, min(runtimes))
        return self._least

    def _runtime_on(self, core: _Core) -> float:
        """The runtime, at this moment, of the thread that a core has."""
        assert core.thread is not None
        return core.thread.runtime + max(0.0, self.events.now - core.begin)

    # --- on the processors ----------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        self._fill(now)
        for thread in self._woken:
            if not thread.asleep and thread.core is None and not thread.node.removed:
                self._preempt_for(thread, now)
        self._woken.clear()
        self._fill(now)

    def _fill(self, now: float) -> None:
        for core in self._cores:
            if not self._queue:
                return
            if core.thread is None:
                self._pick(core, now)

    def _preempt_for(self, woken: _OsThread, now: float) -> None:
        """A thread that woke up far behind the one that has the processor it ran on last takes it away from that."""
        core = self._cores[woken.home]
        if core.thread is None or core.begin >= now:
            return
        if self._runtime_on(core) - woken.runtime > self.loop.wakeup_granularity:
            self._stop(core, now)
            self._yield(core, now)

    def _yield(self, core: _Core, now: float) -> None:
        """Give another thread the processor; the one that had it comes after all that are not ahead of it."""
        thread = core.thread
        assert thread is not None
        core.thread = thread.core = None
        self._pick(core, now)
        heapq.heappush(self._queue, (thread.runtime, thread.number, thread))
        if core.thread is None:
            self._pick(core, now)

    def _pick(self, core: _Core, now: float) -> None:
        """Give the processor to the thread with the least runtime that finds something to do."""
        while self._queue:
            _, _, thread = heapq.heappop(self._queue)
            if thread.node.removed:
                if thread.batch is not None:
                    self.network.deliver(thread.batch, now)
                continue
            self._picks += 1
            thread.core, core.thread = core, thread
            thread.home = core.number
            core.quantum = self.loop.quantum
            if self._go_on(core, now):
                return

    def _go_on(self, core: _Core, now: float) -> bool:
        """Let the thread of a core run a stretch; False if it has nothing to do and falls asleep."""
        thread = core.thread
        assert thread is not None
        node = thread.node
        if thread.batch is None:
            if node.removed or node.blocked or not node.length:
                core.thread = thread.core = None
                thread.asleep = True
                return False
            thread.batch = self.network.take(node, self.scenario.hand_over, now)
            thread.left = node.work(thread.batch.input_count)
        core.begin = now
        if core.last is not thread:
            core.last = thread
            core.begin = now + self.loop.switch_cost
            self._count_overhead("switch", now, core.begin)
        core.stretch += 1
        length = min(thread.left, core.quantum)
        self.events.at(core.begin + length, Rank.WORK, self._end, (core, core.stretch))
        return True

    def _end(self, entry: tuple[_Core, int], now: float) -> None:
        """A stretch is over: the batch is done, or the quantum is used up."""
        core, stretch = entry
        if stretch != core.stretch:
            return
        thread = core.thread
        assert thread is not None
        self._stop(core, now)
        if thread.left <= _NO_TIME:
            batch, thread.batch = thread.batch, None
            assert batch is not None
            self.network.deliver(batch, now)
            self.network.count_run(thread.node)
        if core.quantum <= _NO_TIME:
            core.quantum = self.loop.quantum
            if self._queue and self._queue[0][0] <= thread.runtime + _NO_TIME:
                self._yield(core, now)
                return
        if not self._go_on(core, now):
            self._pick(core, now)

    def _stop(self, core: _Core, now: float) -> None:
        """Count what the thread of a core has run of its stretch."""
        thread = core.thread
        assert thread is not None
        ran = now - core.begin
        thread.runtime += ran
        thread.left -= ran
        core.quantum -= ran
        core.stretch += 1
        self._count_compute(core.number, thread.node, core.begin, now)
        core.begin = now

    # --- change while running, and what is counted ----------------------------------------------------------

    def add_query(self, query: QueryModel) -> list[SimulatedNode]:
        nodes = self._join(query)
        self._employ(nodes)
        return nodes

    def remove_query(self, nodes: Sequence[SimulatedNode]) -> None:
        """Their threads end with the batch that they have in hand."""
        self.network.remove(nodes, self.events.now)

    def close(self, now: float) -> None:
        for core in self._cores:
            if core.thread is not None and now > core.begin:
                self._stop(core, now)

    @property
    def decisions(self) -> int:
        return self._picks
