"""The *dispatch* loop on threads: whenever a worker is free or work appears, the core says what runs next.

One lock guards the scheduler, as in EdgeWise; operators run without it. After a turn, a worker tells the core what has
changed (its queue, those it fed, those it made room for) and lets it decide for all free workers. It takes its own next
operator and wakes the other workers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from queue import SimpleQueue

from headgate.core import (
    Consumption,
    Dispatch,
    FeatureMatrix,
    InvariantError,
    OperatorColumns,
    Placement,
    Policy,
    Start,
    TimeSlice,
    Workers,
)
from headgate.stream.loops.loop import EngineLoop
from headgate.stream.operators import Operator, SourceOperator
from headgate.stream.operators.operator import Clock
from headgate.stream.query_run import QueryRun
from headgate.stream.readings import READINGS, cost, features_for, graph_of, output_pending

#: seconds a worker stays with an operator unless said otherwise, as the ordered paper's time slice
SLICE = TimeSlice(0.005)
#: seconds of the window in which ``window_time`` counts
WINDOW = 0.1


class _Mailbox:
    """Where a worker waits for its next operator, with the start that says how much of its queue it may take."""

    __slots__ = ("called", "operator", "start")

    def __init__(self) -> None:
        self.operator: Operator | None = None
        self.start: Start | None = None
        #: one item for every call; not a semaphore, which is made of Python and takes ten times as long
        self.called: SimpleQueue[None] = SimpleQueue()


class DispatchThreads(EngineLoop):
    """Workers that get their next operator from one ``Dispatch``.

    Invariants, with the lock held:
    1. ``_ready[i]`` is what the dispatch was last told of node i.
    2. A worker is in ``_idle`` exactly if it has a mailbox and no operator was put there.
    3. A thread whose mailbox is not in ``_mailboxes`` any more leaves at the end of its turn; its number may have been
       given to another thread by then, which gets nothing before the turn is over.
    """

    name = "dispatch"

    def __init__(
        self,
        clock: Clock,
        workers: int,
        policy: Policy,
        placement: Placement,
        *,
        consumption: Consumption = SLICE,
        seed: int = 0,
        history: int = 0,
    ) -> None:
        super().__init__(clock, workers)
        self.policy, self.placement = policy, placement
        self.consumption = consumption
        self._seed, self._history = seed, history
        self._dispatch: Dispatch | None = None
        self._nodes: list[Operator] = []
        self._ready: list[bool] = []
        #: by node: itself and its readers, whose queues its turn changes; and the sources among itself and its feeders
        self._filled: list[tuple[Operator, ...]] = []
        self._sources: list[tuple[Operator, ...]] = []
        self._mailboxes: dict[int, _Mailbox] = {}
        self._idle: set[int] = set()
        self._working: set[int] = set()

    # --- queries --------------------------------------------------------------------------------------------

    def _adopt(self, query: QueryRun) -> None:
        self._regraph([*self._nodes, *query.operators.values()])

    def _let_go(self, query: QueryRun) -> None:
        self._regraph([node for node in self._nodes if node.query is not query])

    def _regraph(self, nodes: Iterable[Operator]) -> None:
        by_name = {node.name: node for node in nodes}
        graph = graph_of(by_name.values())
        if self._dispatch is None:
            matrix = FeatureMatrix(graph, features_for(self.policy, self.placement))
            self._dispatch = Dispatch(
                matrix,
                self.policy,
                self.placement,
                Workers.of(self.workers),
                seed=self._seed,
                window=WINDOW,
                history=self._history,
            )
        else:
            try:
                self._dispatch.regraph(graph)
            except BaseException as error:  # the placement's; the dispatch has the new graph and no lanes for it
                self.failure = self.failure or self._as_failure(error)
                raise
        self._nodes = [by_name[name] for name in graph.names]
        for index, node in enumerate(self._nodes):
            node.index = index
        self._filled = [tuple(dict.fromkeys((node, *(target for target, _ in node.targets)))) for node in self._nodes]
        self._sources = [
            tuple(each for each in (node, *node.upstream) if isinstance(each, SourceOperator)) for node in self._nodes
        ]
        self._read_all()
        self._dispatch.refresh_patience()
        self._ready = [bool(value) for value in self._dispatch.matrix.columns["ready"]]

    def _read_all(self) -> None:
        assert self._dispatch is not None
        columns = OperatorColumns(self._dispatch.matrix, READINGS)
        columns.write_all(self._nodes)
        self._queue_columns, self._measured_columns, self._output_column = (
            columns.queue,
            columns.measured,
            columns.output,
        )

    # --- workers --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._hire(range(self.workers))

    def _hire(self, workers: Iterable[int]) -> None:
        # All have a mailbox before any runs: the first may decide for all, if there were queries before the start.
        mailboxes = {worker: self._open_mailbox(worker) for worker in workers}
        for worker, mailbox in mailboxes.items():
            self._spawn(f"headgate-worker-{worker}", self._run_worker, worker, mailbox)

    def _open_mailbox(self, worker: int) -> _Mailbox:
        mailbox = self._mailboxes[worker] = _Mailbox()
        if worker not in self._working:
            self._idle.add(worker)
        return mailbox

    def _run_worker(self, worker: int, mailbox: _Mailbox) -> None:
        self._decide_first()
        while True:
            mailbox.called.get()
            operator = mailbox.operator
            while operator is not None:
                before = self.clock()
                operator.work(self._most(operator, mailbox.start))
                after = self.clock()
                operator = self._next_after(operator, worker, mailbox, after - before)
            if self._may_leave(worker, mailbox):
                return

    def _may_leave(self, worker: int, mailbox: _Mailbox) -> bool:
        """Whether a worker is to end: not before it has run what another one gave it since its last turn."""
        with self.lock:
            return mailbox.operator is None and (self.stopping or self._mailboxes.get(worker) is not mailbox)

    def _decide_first(self) -> None:
        with self.lock:
            self._settle(self.clock(), None)
        self.fail_if_broken()

    def _most(self, operator: Operator, start: Start | None) -> int:
        most = self.consumption.take(max(operator.pending, 1), cost(operator))
        return most if start is None else start.at_most(most)

    def _next_after(self, operator: Operator, worker: int, mailbox: _Mailbox, seconds: float) -> Operator | None:
        """The worker's turn is over; returns its next start, None to wait."""
        asked = self.clock()
        name = operator.query.name
        with self.lock:
            locked = self.clock()
            self.busy += seconds
            self.overhead["lock"] += locked - asked
            assert self._dispatch is not None
            self._leave(operator)
            self._dispatch.finished(worker, locked)
            self._working.discard(worker)
            mailbox.operator = None
            if worker in self._mailboxes:
                self._idle.add(worker)
            self._turn_over(operator, locked)
            chosen = self._settle(locked, mailbox)
            self.overhead["decide"] += self.clock() - locked
        self._close_if_left(name)
        self.fail_if_broken()
        return chosen

    def _turn_over(self, operator: Operator, now: float) -> None:
        if operator.query.name not in self.queries:
            return
        for column, read in self._measured_columns:
            column[operator.index] = read(operator)
        for filled in self._filled[operator.index]:
            self._update(filled, now)
        for feeder in operator.upstream:
            # A turn makes room for a feeder and changes nothing else about it: one that could run still can.
            if self._output_column is not None or not self._ready[feeder.index]:
                self._update(feeder, now)
        self._await_sources(self._sources[operator.index], now)

    def _update(self, operator: Operator, now: float) -> None:
        """Tell the dispatch whether an operator can run, and its features."""
        index = operator.index
        assert self._dispatch is not None
        for column, read in self._queue_columns:
            column[index] = read(operator)
        if self._output_column is not None:
            self._output_column[index] = output_pending(operator)
        ready = operator.can_run()
        if ready != self._ready[index]:
            self._ready[index] = ready
            self._dispatch.set_ready(index, ready, now)
        elif ready and self._queue_columns:
            self._dispatch.note_change(index)

    def _settle(self, now: float, asking: _Mailbox | None) -> Operator | None:
        """Decide for all free workers; returns the start for the calling worker."""
        if self._dispatch is None or not self._idle or not self.started or self.stopping:
            return None
        chosen = None
        try:
            starts = self._dispatch.decide(now)
        except BaseException as error:
            self.failure = self._as_failure(error)
            return None
        for start in starts:
            operator = self._nodes[start.node]
            self._enter(operator)
            self._idle.discard(start.worker)
            self._working.add(start.worker)
            mailbox = self._mailboxes[start.worker]
            mailbox.operator, mailbox.start = operator, start
            if mailbox is asking:
                chosen = operator
            else:
                mailbox.called.put(None)
        return chosen

    def wake(self, operator: Operator) -> None:
        # A worker in the middle of a turn tells nobody if nobody is idle: it will tell at the end of the turn.
        # That holds for what the turn has fed; a source is told of by others, and nobody looks at it again.
        fed = not isinstance(operator, SourceOperator)
        if fed and threading.current_thread().name.startswith("headgate-worker") and not self._idle:
            return
        with self.lock:
            if operator.query.name not in self.queries:
                return
            now = self.clock()
            self._update(operator, now)
            self._await_sources((operator,), now)
            self._settle(now, None)
        self.fail_if_broken()

    def _wake_all(self) -> None:
        for mailbox in list(self._mailboxes.values()):
            mailbox.called.put(None)

    # --- change while running -------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        with self.lock:
            if self._dispatch is not None:
                self._provide(policy, self.placement)
                self._dispatch.replace_policy(policy)
            self.policy = policy

    def replace_placement(self, placement: Placement) -> None:
        with self.lock:
            if self._dispatch is not None:
                self._provide(self.policy, placement)
                self._dispatch.replace_placement(placement)
            self.placement = placement

    def _provide(self, policy: Policy, placement: Placement) -> None:
        """Read what these need and nobody has read so far."""
        assert self._dispatch is not None
        self._dispatch.matrix.extend(features_for(policy, placement))
        self._read_all()

    def set_workers(self, count: int) -> None:
        with self.lock:
            before, self.workers = self.workers, count
            if self._dispatch is not None:
                self._dispatch.set_workers(Workers.of(count))
            if not self.started:
                return
            gone = [worker for worker in self._mailboxes if worker >= count]
            self._idle.difference_update(gone)
            for worker in gone:
                self._mailboxes.pop(worker).called.put(None)
            self._hire(range(before, count))
            self._settle(self.clock(), None)

    # --- reports --------------------------------------------------------------------------------------------

    @property
    def core(self) -> Dispatch | None:
        return self._dispatch

    def validate(self) -> None:
        super().validate()
        with self.lock:
            if self._dispatch is None:
                return
            self._dispatch.validate()
            told = [bool(value) for value in self._dispatch.matrix.columns["ready"]]
            if told != self._ready:
                raise InvariantError(f"inv1: the dispatch was told {told}, remembered is {self._ready}")
            idle = {worker for worker, mailbox in self._mailboxes.items() if mailbox.operator is None} - self._working
            if idle != self._idle:
                raise InvariantError(f"inv2: workers {sorted(idle)} have nothing to do, {sorted(self._idle)} are idle")
