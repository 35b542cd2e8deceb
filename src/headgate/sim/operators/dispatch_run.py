"""The *dispatch* loop in virtual time: ``headgate.core.dispatch`` decides, modelled workers carry it out.

Outputs of a batch are handed on together when it ends. A decision holds the one lock of the scheduler for
``decision_cost``, so with many workers and small batches they queue for it; ``Dispatch`` hands out work to all free
workers in one go, and they get the lock one after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.core.dispatch import Dispatch
from headgate.core.features import ChangedBy
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureMatrix
from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.sim.operators.agenda import Agenda, Rank
from headgate.sim.operators.executor import Executor
from headgate.sim.operators.loops import DispatchLoop
from headgate.sim.operators.node import Node
from headgate.sim.operators.queues import Batch
from headgate.sim.operators.readings import READINGS, Reading, features_for
from headgate.sim.operators.spec import OperatorScenario, Query, ReplacePlacement, ReplacePolicy

_QUEUE = ChangedBy.UPSTREAM | ChangedBy.ARRIVAL


@dataclass(slots=True)
class _Turn:
    """A worker with a batch: it ``asked`` for work, got the lock at ``locked``, computes from ``work`` to ``end``."""

    worker: int
    batch: Batch
    asked: float
    locked: float
    work: float
    end: float


class DispatchRun(Executor):
    """Workers that ask one ``Dispatch`` for their next node."""

    def __init__(
        self,
        scenario: OperatorScenario,
        loop: DispatchLoop,
        policy: Policy,
        placement: Placement,
        agenda: Agenda,
        seed: int,
    ) -> None:
        super().__init__(scenario, agenda, seed)
        self.loop = loop
        policies = [policy, *(change.policy for change in scenario.changes if isinstance(change, ReplacePolicy))]
        placements = [placement, *(c.placement for c in scenario.changes if isinstance(c, ReplacePlacement))]
        self.matrix = FeatureMatrix(scenario.graph(), features_for(policies, placements))
        self._turns: dict[int, _Turn] = {}
        #: the node each worker ran last
        self._last: list[Node | None] = [None] * scenario.workers
        #: when each worker last ended a turn
        self._freed = [0.0] * scenario.workers
        self._lock_free = 0.0
        #: since when a decision has been due that waits for the lock; infinity if none does
        self._due_since = math.inf
        self._consumption = loop.consumption
        self._learning = 0.0 if scenario.known else scenario.learning
        self._adopt_graph()
        self._read_all()
        self.dispatch = Dispatch(self.matrix, policy, placement, scenario.machine(), seed=seed, window=loop.window)
        if loop.place_every is not None:
            agenda.at(loop.place_every, Rank.CHANGE, self._place_again)

    # --- features -------------------------------------------------------------------------------------------

    def _adopt_graph(self) -> None:
        """Number the nodes as the graph does, and get hold of the columns that its matrix has now."""
        self._nodes = [self.network.nodes[name] for name in self.matrix.graph.names]
        for index, node in enumerate(self._nodes):
            node.index = index
        features = self.matrix.features.values()
        self._queue_columns = self._columns(f.name for f in features if f.changed_by & _QUEUE)
        self._own_columns = self._columns(f.name for f in features if f.intrinsic or f.name == "execution_time")
        self._output_column = self.matrix.columns.get("output_pending")

    def _columns(self, names: Iterable[str]) -> list[tuple[Floats, Reading]]:
        return [(self.matrix.columns[name], READINGS[name]) for name in names]

    def _read_all(self) -> None:
        for name, column in self.matrix.columns.items():
            if name in READINGS:
                column[:] = [READINGS[name](node) for node in self._nodes]

    def changed(self, node: Node) -> None:
        index = node.index
        for column, read in self._queue_columns:
            column[index] = read(node)
        if self._output_column is not None:
            self._output_changed(node, self._output_column)
        ready = node.length > 0 and not node.blocked
        if ready != node.ready:
            node.ready = ready
            self.dispatch.set_ready(index, ready, self.agenda.now)
        elif ready and self._queue_columns:
            self.dispatch.note_change(index)

    def _output_changed(self, node: Node, column: Floats) -> None:
        read = READINGS["output_pending"]
        for feeding in node.upstream:
            column[feeding.index] = read(feeding)
            self.dispatch.note_change(feeding.index)

    # --- turns ----------------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        if len(self._turns) == self.scenario.workers:
            return
        if now < self._lock_free:
            if self._due_since == math.inf:
                self._due_since = now
                self.agenda.at(self._lock_free, Rank.WORK, _nothing)
            return
        while True:
            starts = self.dispatch.decide(now)
            if not starts:
                self._due_since = math.inf
                return
            idle = [start.worker for start in starts if not self._begin(self._nodes[start.node], start.worker, now)]
            if not idle:
                self._due_since = math.inf
                return
            # What one worker took was all there was for another that was sent to the same node, or to the same
            # room downstream. Those who found nothing ask again; the loop now knows better.
            for worker in idle:
                self.dispatch.finished(worker, now)

    def _begin(self, node: Node, worker: int, now: float) -> bool:
        if node.blocked or not node.length:
            return False
        loop = self.loop
        batch = self.network.take(node, self._consumption.take(node.length, node.seen_cost), now)
        locked = max(self._lock_free, now)
        self._lock_free = decided = locked + loop.decision_cost
        work = decided if self._last[worker] is node else decided + loop.switch_cost
        end = work + node.work(batch.taken)
        self._last[worker] = node
        asked = now if self._due_since == math.inf else max(self._due_since, self._freed[worker])
        self._turns[worker] = turn = _Turn(worker, batch, asked, locked, work, end)
        self.agenda.at(end, Rank.WORK, self._end, turn)
        return True

    def _end(self, turn: _Turn) -> None:
        now = self.agenda.now
        node, batch = turn.batch.node, turn.batch
        del self._turns[turn.worker]
        self._freed[turn.worker] = now
        self._book(turn, now)
        self.network.deliver(batch, now)
        if not node.removed and self._learning:
            node.learn(turn.end - turn.work, batch.taken, batch.made, self._learning)
            for column, read in self._own_columns:
                column[node.index] = read(node)
        self.dispatch.finished(turn.worker, now)

    def _book(self, turn: _Turn, now: float) -> None:
        self._book_compute(turn.worker, turn.batch.node, min(turn.work, now), now)
        if turn.work > turn.asked:
            decided = min(turn.locked + self.loop.decision_cost, now)
            self._book_overhead("lock", turn.asked, min(turn.locked, now))
            self._book_overhead("decide", min(turn.locked, now), decided)
            self._book_overhead("switch", decided, min(turn.work, now))

    def close(self, now: float) -> None:
        for turn in self._turns.values():
            self._book(turn, now)

    # --- change while running -------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        self.dispatch.replace_policy(policy)

    def replace_placement(self, placement: Placement) -> None:
        self.dispatch.replace_placement(placement)

    def _place_again(self, _: None) -> None:
        self.dispatch.place_again()
        assert self.loop.place_every is not None
        self.agenda.at(self.agenda.now + self.loop.place_every, Rank.CHANGE, self._place_again)

    def add_query(self, query: Query) -> list[Node]:
        nodes = self._join(query)
        names = query.node_names()
        graph = self.matrix.graph.adding(names, query.node_edges(), dict.fromkeys(names, query.name))
        self.dispatch.regraph(graph)
        self._adopt_graph()
        self._read_all()
        # the loop and the placement saw the new nodes before anything about them was known
        self.dispatch.refresh_patience()
        self.dispatch.place_again()
        return nodes

    def remove_query(self, nodes: Sequence[Node]) -> None:
        self.network.remove(nodes, self.agenda.now)
        self.dispatch.regraph(self.matrix.graph.removing(node.name for node in nodes))
        self._adopt_graph()

    @property
    def decisions(self) -> int:
        return self.dispatch.statistics().turns

    @property
    def guard_strikes(self) -> int:
        return self.dispatch.statistics().guard_strikes


def _nothing(_: None) -> None:
    """An entry that is there so that ``settle`` is called at its moment."""
