"""What the executors of the three loops have in common: the network they work on, and the books of worker time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence

from headgate.core.errors import ScenarioError
from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.sim.operators.agenda import Agenda
from headgate.sim.operators.node import Node
from headgate.sim.operators.queues import Network
from headgate.sim.operators.spec import OperatorScenario, Query


class Executor(ABC):
    """Runs nodes on workers, in virtual time, as one of the loops says.

    Worker time is booked when a stretch of it ends: computing in ``computed[worker]``, what scheduling takes in
    ``overhead[part]``. Only what lies after the moment measuring began counts.
    """

    def __init__(self, scenario: OperatorScenario, agenda: Agenda, seed: int) -> None:
        self.scenario = scenario
        self.agenda = agenda
        self.seed = seed
        self.network = Network(self.changed)
        self.computed = [0.0] * scenario.workers
        #: {part of scheduling: worker seconds}
        self.overhead: defaultdict[str, float] = defaultdict(float)
        self._measured_from = 0.0
        for query in scenario.queries:
            self._join(query)

    def _join(self, query: Query) -> list[Node]:
        nodes = self.network.add(query, self.seed, self.agenda.now)
        if self.scenario.known:
            for node in nodes:
                node.reveal()
        return nodes

    # --- what happens ---------------------------------------------------------------------------------------

    @abstractmethod
    def changed(self, node: Node) -> None:
        """The queue of a node, or its right to run, may have changed."""

    def arrived(self, node: Node) -> None:  # noqa: B027 - most loops learn all they need from ``changed``
        """Tuples came to a source from outside."""

    @abstractmethod
    def settle(self, now: float) -> None:
        """Everything that happens at this moment has happened: put idle workers to work."""

    @abstractmethod
    def add_query(self, query: Query) -> list[Node]:
        """A query comes while the others run; returns its nodes."""

    @abstractmethod
    def remove_query(self, nodes: Sequence[Node]) -> None:
        """The query of these nodes goes."""

    def replace_policy(self, policy: Policy) -> None:
        raise ScenarioError(f"this loop ranks by no policy, so it cannot be replaced by {policy}")

    def replace_placement(self, placement: Placement) -> None:
        raise ScenarioError(f"this loop has no placement, so it cannot be replaced by {placement}")

    # --- the books ------------------------------------------------------------------------------------------

    def forget(self, now: float) -> None:
        """Measuring begins now."""
        self._measured_from = now
        self.computed = [0.0] * len(self.computed)
        self.overhead.clear()
        self.network.forget(now)

    @abstractmethod
    def close(self, now: float) -> None:
        """The run ends: book what is still under way."""

    @property
    @abstractmethod
    def decisions(self) -> int:
        """Choices of what runs next, or meetings, from the very beginning."""

    @property
    def guard_strikes(self) -> int:
        """How often a node that had waited for longer than its patience was put in front, from the very beginning."""
        return 0

    def _book_compute(self, worker: int, node: Node, begin: float, end: float) -> None:
        seconds = self._measured(begin, end)
        self.computed[worker] += seconds
        node.compute_time += seconds

    def _book_overhead(self, part: str, begin: float, end: float) -> None:
        self.overhead[part] += self._measured(begin, end)

    def _measured(self, begin: float, end: float) -> float:
        if begin >= self._measured_from:
            return end - begin
        return max(0.0, end - self._measured_from)
