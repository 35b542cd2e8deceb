"""What the executors of the three loops have in common: the network they work on, counted worker time, and turns.

A turn is what a worker does with a node that a loop gave it. It is made of *slices* of ``hand_over`` tuples. After each
slice its outputs are in the queues downstream, where other workers may take them up while the turn goes on. The turn is
over when the worker has taken as many tuples as it may, or finds no more input or no room for the outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence

from headgate.core import Placement, Policy, ScenarioError
from headgate.sim.kernel import EventQueue, Rank
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.queues import Network, TupleBatch
from headgate.sim.operators.scenario import OperatorScenario, QueryModel


class Executor(ABC):
    """Runs nodes on workers, in virtual time, as one of the loops says.

    Worker time is counted when a stretch of it ends: computing in ``computed[worker]``, what scheduling takes in
    ``overhead[part]``. Only what lies after the moment measuring began counts.
    """

    def __init__(self, scenario: OperatorScenario, events: EventQueue[float], seed: int) -> None:
        self.scenario = scenario
        self.events = events
        self.seed = seed
        self.network = Network(self.changed)
        self.computed = [0.0] * scenario.workers
        #: {part of scheduling: worker seconds}
        self.overhead: defaultdict[str, float] = defaultdict(float)
        self._measured_from = 0.0
        for query in scenario.queries:
            self._join(query)

    def _join(self, query: QueryModel) -> list[SimulatedNode]:
        nodes = self.network.add(query, self.seed, self.events.now)
        if self.scenario.known:
            for node in nodes:
                node.reveal()
        return nodes

    # --- what happens ---------------------------------------------------------------------------------------

    @abstractmethod
    def changed(self, node: SimulatedNode) -> None:
        """The queue of a node, or its right to run, may have changed."""

    def arrived(self, node: SimulatedNode) -> None:  # noqa: B027 - most loops learn all they need from ``changed``
        """Tuples came to a source from outside."""

    @abstractmethod
    def settle(self, now: float) -> None:
        """Everything that happens at this moment has happened: put idle workers to work."""

    @abstractmethod
    def add_query(self, query: QueryModel) -> list[SimulatedNode]:
        """A query comes while the others run; returns its nodes."""

    @abstractmethod
    def remove_query(self, nodes: Sequence[SimulatedNode]) -> None:
        """The query of these nodes goes."""

    def replace_policy(self, policy: Policy) -> None:
        raise ScenarioError(f"this loop ranks by no policy, so it cannot be replaced by {policy}")

    def replace_placement(self, placement: Placement) -> None:
        raise ScenarioError(f"this loop has no placement, so it cannot be replaced by {placement}")

    # --- what is counted ------------------------------------------------------------------------------------

    def forget(self, now: float) -> None:
        """Measuring begins now."""
        self._measured_from = now
        self.computed = [0.0] * len(self.computed)
        self.overhead.clear()
        self.network.forget(now)

    @abstractmethod
    def close(self, now: float) -> None:
        """The run ends: count what is still under way."""

    @property
    @abstractmethod
    def decisions(self) -> int:
        """Decisions of the dispatch loop, or reschedulings, from the very beginning."""

    @property
    def guard_strikes(self) -> int:
        """How often a node that had waited for longer than its patience was put in front, from the very beginning."""
        return 0

    def _count_compute(self, worker: int, node: SimulatedNode, begin: float, end: float) -> None:
        seconds = self._measured(begin, end)
        self.computed[worker] += seconds
        node.compute_time += seconds

    def _count_overhead(self, part: str, begin: float, end: float) -> None:
        self.overhead[part] += self._measured(begin, end)

    def _measured(self, begin: float, end: float) -> float:
        if begin >= self._measured_from:
            return end - begin
        return max(0.0, end - self._measured_from)


class Turn:
    """A worker at a node. ``left`` tuples may be taken after the present slice, ``batch``, which began at ``begin``."""

    __slots__ = ("batch", "begin", "input_count", "left", "node", "output_count", "seconds", "worker")

    def __init__(self, worker: int, node: SimulatedNode, left: int, batch: TupleBatch, begin: float) -> None:
        self.worker = worker
        self.node = node
        self.left = left
        self.batch = batch
        self.begin = begin
        # of the slices that are over
        self.input_count = 0
        self.output_count = 0
        self.seconds = 0.0


class TurnExecutor(Executor):
    """An executor whose workers take turns at nodes, without being interrupted.

    Invariant: ``_turns`` has all and only the workers that are at a node, and ``_last`` the node each was at last.
    """

    def __init__(self, scenario: OperatorScenario, events: EventQueue[float], seed: int) -> None:
        super().__init__(scenario, events, seed)
        self._turns: dict[int, Turn] = {}
        self._last: list[SimulatedNode | None] = [None] * scenario.workers
        self._hand_over = scenario.hand_over
        self._learning = 0.0 if scenario.known else scenario.learning

    @abstractmethod
    def _turn_over(self, turn: Turn, now: float) -> None:
        """A worker is done with its node."""

    def _begin_turn(self, worker: int, node: SimulatedNode, most: int, now: float, begin: float) -> None:
        """The worker takes up to ``most`` tuples now, and computes from ``begin`` on. The node must be able to run."""
        self._last[worker] = node
        batch = self.network.take(node, min(most, self._hand_over), now)
        self._turns[worker] = turn = Turn(worker, node, most - batch.input_count, batch, begin)
        self.events.at(begin + node.work(batch.input_count), Rank.WORK, self._end_slice, turn)

    def _end_slice(self, turn: Turn, now: float) -> None:
        node, batch = turn.node, turn.batch
        self._count_compute(turn.worker, node, turn.begin, now)
        turn.input_count += batch.input_count
        turn.output_count += batch.output_count
        turn.seconds += now - turn.begin
        self.network.deliver(batch, now)
        if turn.left and node.length and not node.blocked:
            turn.batch = batch = self.network.take(node, min(turn.left, self._hand_over), now)
            turn.left -= batch.input_count
            turn.begin = now
            self.events.at(now + node.work(batch.input_count), Rank.WORK, self._end_slice, turn)
            return
        del self._turns[turn.worker]
        self.network.count_run(node)
        if self._learning:
            node.learn(turn.seconds, turn.input_count, turn.output_count, self._learning)
        self._turn_over(turn, now)

    def close(self, now: float) -> None:
        for turn in self._turns.values():
            if turn.begin < now:
                self._count_compute(turn.worker, turn.node, turn.begin, now)
