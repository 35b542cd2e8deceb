"""The *rounds* loop in virtual time: ``headgate.core.rounds`` says what each worker does, modelled workers do it.

The scheduling task T_S of Haren takes worker time: reading features, placing, ranking, and waiting for each other at
the barrier, which is counted part by part as in Haren's figures 5 and 6. Ranking and sorting takes every worker its
even share of the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headgate.core import Ints, Placement, Policy, Rounds, Start, Wait
from headgate.sim.kernel import EventQueue, Rank
from headgate.sim.operators.executor import READINGS, Turn, TurnExecutor, matrix_for
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.scenario import OperatorScenario, QueryModel, RoundsModel


class RoundsRun(TurnExecutor):
    """Workers that follow one ``Rounds``."""

    def __init__(
        self,
        scenario: OperatorScenario,
        loop: RoundsModel,
        policy: Policy,
        placement: Placement,
        events: EventQueue[float],
        seed: int,
    ) -> None:
        super().__init__(scenario, events, seed)
        self.loop = loop
        matrix = matrix_for(scenario, policy, placement)
        self.rounds = Rounds(matrix, policy, placement, scenario.machine(), loop.config(seed))
        self.core = self.rounds
        #: {worker: (part of scheduling, since when)}; all and only the workers that are at a rescheduling
        self._rescheduling: dict[int, tuple[str, float]] = {}
        self._fed: set[SimulatedNode] = set()
        self._values_read = 0
        self._adopt_graph()
        for worker in range(scenario.workers):
            events.at(0.0, Rank.SAMPLE, self._step, worker)

    def _adopt_graph(self) -> None:
        """Number the nodes as the graph does now."""
        self._graph = self.rounds.graph
        self._nodes = self._numbered(self._graph)
        #: can_run of all nodes, by index
        self._runnable = [node.can_run for node in self._nodes]
        self._can_run = self._runnable.__getitem__

    def changed(self, node: SimulatedNode) -> None:
        if node.index >= 0:
            self._runnable[node.index] = node.length > 0 and not node.blocked

    def arrived(self, node: SimulatedNode) -> None:
        self._fed.add(node)

    def settle(self, now: float) -> None:
        """Nothing to do: workers of this loop look for work by themselves."""

    # --- in a round ----------------------------------------------------------------------------------------

    def _step(self, worker: int, now: float) -> None:
        if worker in self._rescheduling:
            self._leave(worker, now)
        step = self.rounds.next_step(worker, now, self._can_run)
        if isinstance(step, Start):
            self._begin(worker, self._nodes[step.node], step.batch, now)
        elif isinstance(step, Wait):
            # a pause that is too short for the clock to move would be asked for over and over again
            self.events.at(max(now + step.seconds, math.nextafter(now, math.inf)), Rank.WORK, self._step, worker)
        else:
            self._reschedule(worker, now)

    def _begin(self, worker: int, node: SimulatedNode, most: int, now: float) -> None:
        begin = now if self._last[worker] is node else now + self.loop.switch_cost
        if begin > now:
            self._count_overhead("switch", now, begin)
        self._begin_turn(worker, node, most, now, begin)

    def _turn_over(self, turn: Turn, now: float) -> None:
        self.rounds.finished(turn.worker, now)
        self._step(turn.worker, now)

    # --- the rescheduling -----------------------------------------------------------------------------------

    def _reschedule(self, worker: int, now: float) -> None:
        self._rescheduling[worker] = ("update", now)
        self.rounds.refresh_own(worker, self._read)
        self.events.at(now + self._reading_time(), Rank.WORK, self._arrive, worker)

    def _arrive(self, worker: int, now: float) -> None:
        self._turn_to(worker, "wait", now)
        if not self.rounds.arrive(worker):
            return
        self._turn_to(worker, "read", now)
        self.rounds.coordinate(now, self._read, [node.index for node in self._fed if node.index >= 0])
        self._fed.clear()
        if self.rounds.graph is not self._graph:
            self._adopt_graph()
        self.events.at(now + self._reading_time(), Rank.WORK, self._place, worker)

    def _place(self, worker: int, now: float) -> None:
        self._turn_to(worker, "place", now)
        self.events.at(now + self.loop.place_cost * len(self._graph), Rank.WORK, self._open_round)

    def _open_round(self, _: None, now: float) -> None:
        ranked = now + self.loop.rank_cost * len(self._graph) / self.scenario.workers
        for worker in range(self.scenario.workers):
            self._turn_to(worker, "rank", now)
            self.rounds.sort_own(worker)
            self.events.at(ranked, Rank.WORK, self._step, worker)

    def _read(self, name: str, rows: Ints) -> list[float]:
        if self.rounds.graph is not self._graph:
            self._adopt_graph()
        self._values_read += len(rows)
        read, nodes = READINGS[name], self._nodes
        return [read(nodes[row]) for row in rows.tolist()]

    def _reading_time(self) -> float:
        """What reading has cost since this was last asked."""
        seconds = self._values_read * self.loop.feature_cost
        self._values_read = 0
        return seconds

    def _turn_to(self, worker: int, part: str, now: float) -> None:
        self._leave(worker, now)
        self._rescheduling[worker] = (part, now)

    def _leave(self, worker: int, now: float) -> None:
        part, since = self._rescheduling.pop(worker)
        self._count_overhead(part, since, now)

    # --- change while running -------------------------------------------------------------------------------

    def add_query(self, query: QueryModel) -> list[SimulatedNode]:
        names = query.node_names()
        coming = self.rounds.next_graph.adding(names, query.node_edges(), dict.fromkeys(names, query.name))
        self.rounds.regraph(coming)
        return self._join(query)

    def remove_query(self, nodes: Sequence[SimulatedNode]) -> None:
        """Their tuples go now, they themselves at the next rescheduling; until then, without input, they cannot run."""
        self.network.remove(nodes, self.events.now)
        self.rounds.regraph(self.rounds.next_graph.removing(node.name for node in nodes))
        for node in nodes:
            if node.index >= 0:
                self._runnable[node.index] = False

    # --- what is counted ------------------------------------------------------------------------------------

    def close(self, now: float) -> None:
        super().close(now)
        for worker in list(self._rescheduling):
            self._leave(worker, now)
