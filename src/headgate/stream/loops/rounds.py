"""The *rounds* loop on threads (Haren): workers run their own sorted lists and reschedule at the end of every period.

In a round a worker uses no lock that others wait for. Most reschedulings need no barrier (see ``handover``): the first
worker whose period is over reads what can have changed and assigns the operators. The others finish their current run,
then take over and sort their new lists.

All workers wait at a barrier, outside of any operator, only when queries or workers are added or removed, a policy is
replaced or has failed, or a worker is still in a run that began before the last rescheduling.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headgate.core import (
    FeatureMatrix,
    Graph,
    Ints,
    Placement,
    Policy,
    Rounds,
    RoundsConfig,
    Start,
    Wait,
    Workers,
)
from headgate.stream.loops.handover import HandoverRounds
from headgate.stream.loops.loop import EngineLoop
from headgate.stream.operators import Operator, SourceOperator
from headgate.stream.operators.operator import Clock
from headgate.stream.query_run import QueryRun
from headgate.stream.readings import READINGS, features_for, graph_of

#: rows of a turn unless said otherwise: packets have thousands, and a turn takes at least one of them
BATCH = 16_384


class RoundsThreads(EngineLoop):
    """Workers that follow one ``Rounds``.

    Invariants:
    1. ``_nodes`` are the operators in the order of the graph that the rounds have now, ``_sources`` the numbers of
       sources among them; they change only while every worker stands still.
    2. ``_names`` are the operators that will be in the graph after the next rescheduling.
    """

    name = "rounds"

    def __init__(
        self, clock: Clock, workers: int, policy: Policy, placement: Placement, *, config: RoundsConfig | None = None
    ) -> None:
        super().__init__(clock, workers)
        self.policy, self.placement = policy, placement
        self._config = config or RoundsConfig(batch=BATCH)
        self._rounds: HandoverRounds | None = None
        self._names: dict[str, Operator] = {}
        self._nodes: list[Operator] = []
        self._sources: list[int] = []
        self._numbered: Graph | None = None
        #: the last to arrive lets the others go on; counted, so that nobody misses one
        self._barrier = threading.Condition(self.lock)
        self._barriers = 0
        #: threads there are
        self._crew = 0
        #: what was asked for since the last barrier, to be done at the next
        self._changes: list[Callable[[Rounds], None]] = []
        self._idle_wait = threading.Event()

    # --- queries --------------------------------------------------------------------------------------------

    def _adopt(self, query: QueryRun) -> None:
        operators = {operator.name: operator for operator in query.operators.values()}
        self._names.update(operators)
        if self._rounds is None:
            if self.started:
                self._build()
            return
        graph = graph_of(operators.values())
        edges = dict.fromkeys((node.name, target.name) for node in operators.values() for target, _ in node.targets)
        coming = self._rounds.next_graph.adding(graph.names, edges, dict.fromkeys(graph.names, query.name))
        self._rounds.regraph(coming)

    def _let_go(self, query: QueryRun) -> None:
        names = [operator.name for operator in query.operators.values()]
        if self._rounds is not None:
            self._rounds.regraph(self._rounds.next_graph.removing(names))
        for name in names:
            del self._names[name]

    def _build(self) -> None:
        graph = graph_of(self._names.values())
        matrix = FeatureMatrix(graph, features_for(self.policy, self.placement))
        workers = Workers.of(self.workers)
        self._rounds = HandoverRounds(matrix, self.policy, self.placement, workers, self._config, now=self.clock())
        self._renumber()
        self._crew = self.workers
        for worker in range(self.workers):
            self._hire(worker, dealt=False)

    def _renumber(self) -> None:
        assert self._rounds is not None
        self._numbered = self._rounds.graph
        known = {operator.name: operator for operator in self._nodes} | self._names
        self._nodes = [known[name] for name in self._numbered.names]
        for index, node in enumerate(self._nodes):
            node.index = index
        self._sources = [index for index, node in enumerate(self._nodes) if isinstance(node, SourceOperator)]

    # --- workers --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._names:
            self._build()

    def _hire(self, worker: int, dealt: bool) -> None:
        self._spawn(f"headgate-worker-{worker}", self._run_worker, worker, dealt)

    def _can_run(self, node: int) -> bool:
        return self._nodes[node].can_run()

    def _run_worker(self, worker: int, dealt: bool) -> None:
        rounds = self._rounds
        assert rounds is not None
        if dealt:
            rounds.sort_own(worker)
        busy = 0.0
        while not self.stopping:
            step = rounds.next_step(worker, self.clock(), self._can_run)
            if isinstance(step, Start):
                before = self.clock()
                # No lock here: queries that have ended are closed at a barrier, when nobody is in any operator.
                self._nodes[step.node].work(step.batch)
                now = self.clock()
                busy += now - before
                rounds.finished(worker, now)
            elif isinstance(step, Wait):
                self._idle_wait.wait(step.seconds)
            elif self._reschedule(worker, rounds, busy):
                busy = 0.0
            else:
                return

    # --- the rescheduling -----------------------------------------------------------------------------------

    def _reschedule(self, worker: int, rounds: HandoverRounds, busy: float) -> bool:
        """One rescheduling; False if this worker is not needed any more."""
        asked = self.clock()
        ended: list[QueryRun] = []
        with self._barrier:
            self.busy += busy
            self.overhead["wait"] += self.clock() - asked
            if not self._take_over_or_lead(worker, rounds):
                ended = self._wait_at_barrier(worker, rounds)
            stays = worker < len(rounds.workers) and not self.stopping
        for query in ended:
            query.close()
        if self.failure is not None:
            self._give_up()
            return False
        if not stays:
            return False
        dealt = self.clock()
        rounds.sort_own(worker)
        with self.lock:
            self.overhead["rank"] += self.clock() - dealt
        return True

    def _take_over_or_lead(self, worker: int, rounds: HandoverRounds) -> bool:
        """Take over what somebody has dealt, or deal for all; False if a barrier is needed. With the lock."""
        if rounds.has_offer(worker) and not rounds.gathering:
            rounds.take_over(worker)
            return True
        if self._changes or self._ending or not rounds.may_lead:
            return False
        began = self.clock()
        try:
            rounds.lead(worker, began, self._read, self._sources)
        except BaseException:
            # It will fail again when all have come together, and then nobody is in an operator of a query that ends.
            return False
        self.overhead["coordinate"] += self.clock() - began
        return True

    def _wait_at_barrier(self, worker: int, rounds: HandoverRounds) -> list[QueryRun]:
        """Wait until all have come and the last has dealt out; with the lock. Returns queries that nobody is in."""
        came, barrier = self.clock(), self._barriers
        if rounds.arrive(worker):
            return self._coordinate(rounds)
        while self._barriers == barrier and not self.stopping and self.failure is None:
            self._barrier.wait()
        self.overhead["wait"] += self.clock() - came
        return []

    def _give_up(self) -> None:
        """The policy has failed and nobody is in any operator: end every query."""
        self.fail_if_broken()
        with self.lock:
            ended = list(self._ending.values())
            self._ending.clear()
        for query in ended:
            query.close()

    def _coordinate(self, rounds: HandoverRounds) -> list[QueryRun]:
        """Everybody has arrived: read, deal out, and let the others go on. Returns queries that nobody is in."""
        began = self.clock()
        try:
            for change in self._changes:
                change(rounds)
            self._changes.clear()
            rounds.coordinate(began, self._read, self._sources)
            if rounds.graph is not self._numbered:
                self._renumber()
        except BaseException as error:
            self.failure = self._as_failure(error)
        else:
            for worker in range(self._crew, len(rounds.workers)):
                self._hire(worker, dealt=True)
            self._crew = len(rounds.workers)
        ended = list(self._ending.values())
        self._ending.clear()
        self._barriers += 1
        self._barrier.notify_all()
        self.overhead["coordinate"] += self.clock() - began
        return ended

    def _read(self, name: str, rows: Ints) -> list[float]:
        rounds = self._rounds
        assert rounds is not None
        if rounds.graph is not self._numbered:
            self._renumber()
        read, nodes = READINGS[name], self._nodes
        return [read(nodes[row]) for row in rows.tolist()]

    def _close_if_left(self, name: str) -> None:
        """Not before the next barrier: then no worker is in any operator. Without workers, at once."""
        if self._rounds is None or not self._threads:
            super()._close_if_left(name)

    def wake(self, operator: Operator) -> None:
        """Nothing to do: workers of this loop look for work by themselves. If they have left, queries end here."""
        if self.failure is not None:
            self._give_up()

    def _wake_all(self) -> None:
        with self._barrier:
            self._idle_wait.set()
            self._barrier.notify_all()

    def stop(self) -> None:
        super().stop()
        self._threads.clear()  # from here on whoever ends a query closes it
        for name in list(self._ending):
            super()._close_if_left(name)

    # --- change while running -------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        def change(rounds: Rounds) -> None:
            rounds.matrix.extend(features_for(policy, rounds.placement))
            rounds.replace_policy(policy)

        self._change(change)
        self.policy = policy

    def replace_placement(self, placement: Placement) -> None:
        def change(rounds: Rounds) -> None:
            rounds.matrix.extend(features_for(rounds.policy, placement))
            rounds.replace_placement(placement)

        self._change(change)
        self.placement = placement

    def set_workers(self, count: int) -> None:
        self._change(lambda rounds: rounds.set_workers(Workers.of(count)))
        self.workers = count

    def _change(self, change: Callable[[Rounds], None]) -> None:
        with self.lock:
            if self._rounds is not None:
                self._changes.append(change)

    # --- reports --------------------------------------------------------------------------------------------

    @property
    def core(self) -> HandoverRounds | None:
        return self._rounds
