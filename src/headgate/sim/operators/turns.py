"""Turns: what a worker does with a node that a loop gave it.

A turn is made of *slices* of ``hand_over`` tuples. After each slice its outputs are in the queues downstream, where
other workers may take them up while the turn goes on. The turn is over when the worker has taken as many tuples as it
may, or finds no more input or no room for the outputs.
"""

from __future__ import annotations

from abc import abstractmethod

from headgate.sim.operators.agenda import Agenda, Rank
from headgate.sim.operators.executor import Executor
from headgate.sim.operators.node import Node
from headgate.sim.operators.queues import Batch
from headgate.sim.operators.spec import OperatorScenario


class Turn:
    """A worker at a node. ``left`` tuples may be taken after the present slice, ``batch``, which began at ``begin``."""

    __slots__ = ("batch", "begin", "left", "made", "node", "seconds", "taken", "worker")

    def __init__(self, worker: int, node: Node, left: int, batch: Batch, begin: float) -> None:
        self.worker = worker
        self.node = node
        self.left = left
        self.batch = batch
        self.begin = begin
        # of the slices that are over
        self.taken = 0
        self.made = 0
        self.seconds = 0.0


class TurnExecutor(Executor):
    """An executor whose workers take turns at nodes, without being interrupted.

    Invariant: ``_turns`` has all and only the workers that are at a node, and ``_last`` the node each was at last.
    """

    def __init__(self, scenario: OperatorScenario, agenda: Agenda, seed: int) -> None:
        super().__init__(scenario, agenda, seed)
        self._turns: dict[int, Turn] = {}
        self._last: list[Node | None] = [None] * scenario.workers
        self._hand_over = scenario.hand_over
        self._learning = 0.0 if scenario.known else scenario.learning

    @abstractmethod
    def _turn_over(self, turn: Turn, now: float) -> None:
        """A worker is done with its node."""

    def _begin_turn(self, worker: int, node: Node, most: int, now: float, begin: float) -> None:
        """The worker takes up to ``most`` tuples now, and computes from ``begin`` on. The node must be able to run."""
        self._last[worker] = node
        batch = self.network.take(node, min(most, self._hand_over), now)
        self._turns[worker] = turn = Turn(worker, node, most - batch.taken, batch, begin)
        self.agenda.at(begin + node.work(batch.taken), Rank.WORK, self._end_slice, turn)

    def _end_slice(self, turn: Turn) -> None:
        now = self.agenda.now
        node, batch = turn.node, turn.batch
        self._book_compute(turn.worker, node, turn.begin, now)
        turn.taken += batch.taken
        turn.made += batch.made
        turn.seconds += now - turn.begin
        self.network.deliver(batch, now)
        if turn.left and node.length and not node.blocked:
            turn.batch = batch = self.network.take(node, min(turn.left, self._hand_over), now)
            turn.left -= batch.taken
            turn.begin = now
            self.agenda.at(now + node.work(batch.taken), Rank.WORK, self._end_slice, turn)
            return
        del self._turns[turn.worker]
        self.network.count_run(node)
        if self._learning:
            node.learn(turn.seconds, turn.taken, turn.made, self._learning)
        self._turn_over(turn, now)

    def close(self, now: float) -> None:
        for turn in self._turns.values():
            if turn.begin < now:
                self._book_compute(turn.worker, turn.node, turn.begin, now)
