"""The *dispatch* loop in virtual time: ``headgate.core.dispatch`` decides, modelled workers carry it out.

A decision holds the one lock of the scheduler for ``decision_cost``, so with many workers and short turns they queue
for it. ``Dispatch`` hands out work to all free workers in one go; they get the lock one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headgate.core import Dispatch, Floats, OperatorColumns, Placement, Policy, Start
from headgate.sim.kernel import EventQueue, Rank
from headgate.sim.operators.executor import READINGS, Turn, TurnExecutor, matrix_for
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.scenario import DispatchModel, OperatorScenario, QueryModel


class DispatchRun(TurnExecutor):
    """Workers that ask one ``Dispatch`` for their next node."""

    def __init__(
        self,
        scenario: OperatorScenario,
        loop: DispatchModel,
        policy: Policy,
        placement: Placement,
        events: EventQueue[float],
        seed: int,
    ) -> None:
        super().__init__(scenario, events, seed)
        self.loop = loop
        self.matrix = matrix_for(scenario, policy, placement)
        #: when each worker last ended a turn
        self._freed = [0.0] * scenario.workers
        self._deciding_costs = loop.decision_cost > 0 or loop.switch_cost > 0
        self._lock_free = 0.0
        #: since when a decision has been due that waits for the lock; infinity if none does
        self._due_since = math.inf
        self._consumption = loop.consumption
        self._adopt_graph()
        self._columns.write_all(self._nodes)
        self.dispatch = Dispatch(self.matrix, policy, placement, scenario.machine(), seed=seed, window=loop.window)
        self.core = self.dispatch
        if loop.place_every is not None:
            events.at(loop.place_every, Rank.CHANGE, self._place_again)

    # --- features -------------------------------------------------------------------------------------------

    def _adopt_graph(self) -> None:
        """Number the nodes as the graph does, and get hold of the columns that its matrix has now."""
        self._nodes = self._numbered(self.matrix.graph)
        self._columns = OperatorColumns(self.matrix, READINGS)
        self._queue_columns, self._output_column = self._columns.queue, self._columns.output

    def changed(self, node: SimulatedNode) -> None:
        index = node.index
        for column, read in self._queue_columns:
            column[index] = read(node)
        if self._output_column is not None:
            self._output_changed(node, self._output_column)
        ready = node.length > 0 and not node.blocked
        if ready != node.ready:
            node.ready = ready
            self.dispatch.set_ready(index, ready, self.events.now)
        elif ready and self._queue_columns:
            self.dispatch.note_change(index)

    def _output_changed(self, node: SimulatedNode, column: Floats) -> None:
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
                self.events.at(self._lock_free, Rank.WORK, _nothing)
            return
        while True:
            starts = self.dispatch.decide(now)
            if not starts:
                self._due_since = math.inf
                return
            idle = [start.worker for start in starts if not self._begin(start, now)]
            if not idle:
                self._due_since = math.inf
                return
            # What one worker took was all there was for another that was sent to the same node, or to the same
            # room downstream. Those who found nothing ask again; the loop now knows better.
            for worker in idle:
                self.dispatch.finished(worker, now)

    def _begin(self, start: Start, now: float) -> bool:
        node, worker = self._nodes[start.node], start.worker
        if node.blocked or not node.length:
            return False
        begin = now
        if self._deciding_costs:
            begin = self._decided(node, worker, now)
        most = start.at_most(self._consumption.take(node.length, node.seen_cost))
        self._begin_turn(worker, node, most, now, begin)
        return True

    def _decided(self, node: SimulatedNode, worker: int, now: float) -> float:
        """When the worker has had its decision and has switched to the node."""
        asked = now if self._due_since == math.inf else max(self._due_since, self._freed[worker])
        locked = max(self._lock_free, now)
        self._lock_free = decided = locked + self.loop.decision_cost
        begin = decided if self._last[worker] is node else decided + self.loop.switch_cost
        self._count_overhead("lock", asked, locked)
        self._count_overhead("decide", locked, decided)
        self._count_overhead("switch", decided, begin)
        return begin

    def _turn_over(self, turn: Turn, now: float) -> None:
        node = turn.node
        self._freed[turn.worker] = now
        if self._learning and not node.removed:
            for column, read in self._columns.measured:
                column[node.index] = read(node)
        self.dispatch.finished(turn.worker, now)

    # --- change while running -------------------------------------------------------------------------------

    def _place_again(self, _: None, now: float) -> None:
        self.dispatch.place_again()
        assert self.loop.place_every is not None
        self.events.at(now + self.loop.place_every, Rank.CHANGE, self._place_again)

    def add_query(self, query: QueryModel) -> list[SimulatedNode]:
        nodes = self._join(query)
        names = query.node_names()
        graph = self.matrix.graph.adding(names, query.node_edges(), dict.fromkeys(names, query.name))
        self.dispatch.regraph(graph)
        self._adopt_graph()
        self._columns.write_all(self._nodes)
        # the loop and the placement saw the new nodes before anything about them was known
        self.dispatch.refresh_patience()
        self.dispatch.place_again()
        return nodes

    def remove_query(self, nodes: Sequence[SimulatedNode]) -> None:
        self.network.remove(nodes, self.events.now)
        self.dispatch.regraph(self.matrix.graph.removing(node.name for node in nodes))
        self._adopt_graph()


def _nothing(_: None, __: float) -> None:
    """An event that is there so that ``settle`` is called at its moment."""
