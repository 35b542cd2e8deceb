"""Queries of operators in virtual time.

The clock and the workers are modelled; policies, placements, the guard and the decisions of the dispatch and rounds
loops are those of the core. Everything that happens at one moment happens before anybody decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from headgate.core import InvariantError, Placement, Policy, ScenarioError
from headgate.sim.kernel import EventQueue, Moment, Rank
from headgate.sim.operators.dispatch_run import DispatchRun
from headgate.sim.operators.executor import Executor
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.results import (
    OperatorResult,
    Sampler,
    flow_results,
    node_result,
    scheduling_result,
    variation,
)
from headgate.sim.operators.rounds_run import RoundsRun
from headgate.sim.operators.scenario import (
    AddQuery,
    DispatchModel,
    OperatorScenario,
    RemoveQuery,
    ReplacePlacement,
    ReplacePolicy,
    RoundsModel,
    ScenarioChange,
    ThreadsModel,
)
from headgate.sim.operators.threads_run import ThreadsRun


def simulate_operators(
    scenario: OperatorScenario, policy: Policy | None = None, placement: Placement | None = None, seed: int = 0
) -> OperatorResult:
    """Run a scenario. The *threads* loop takes neither policy nor placement; the others need both."""
    return OperatorSimulation(scenario, policy, placement, seed).run()


class _Feed:
    """The tuples still to come to one source."""

    __slots__ = ("count", "moments", "node", "start")

    def __init__(self, node: SimulatedNode, moments: Iterator[Moment], start: float) -> None:
        self.node = node
        self.moments = moments
        self.start = start
        self.count = 0


class OperatorSimulation:
    """One run. Make it, ``run`` it once."""

    def __init__(
        self, scenario: OperatorScenario, policy: Policy | None, placement: Placement | None, seed: int = 0
    ) -> None:
        self.scenario = scenario
        self.policy = policy
        self.placement = placement
        self.seed = seed
        self.events: EventQueue[float] = EventQueue(0.0)
        self.executor = _executor(scenario, policy, placement, self.events, seed)
        self.network = self.executor.network
        self.sampler = Sampler(self.network)
        self._still_to_come = math.inf if scenario.events is None else scenario.events
        #: sources that tuples still come to
        self._feeds = 0
        self._completed_before: dict[str, int] = {}
        self._stops_when_empty = scenario.events is not None or scenario.horizon == math.inf
        self._feed(list(self.network.nodes.values()))
        for change in scenario.changes:
            self.events.at(change.at, Rank.CHANGE, self._change, change)
        if scenario.measure_from > 0:
            self.events.at(scenario.measure_from, Rank.CHANGE, self._begin_measuring)
        if scenario.sample_every is not None:
            self.events.at(scenario.sample_every, Rank.SAMPLE, self._sample, 1)

    def run(self) -> OperatorResult:
        while self.advance():
            pass
        return self.result()

    def advance(self) -> bool:
        """Go to the next moment at which something happens; False, with the clock at the end, if there is none."""
        events = self.events
        next_time = events.next_time()
        if next_time > self.scenario.horizon:
            events.now = self.scenario.horizon
            return False
        if next_time == math.inf:
            raise InvariantError(
                f"at {events.now} s nothing more happens, though {self.network.present} tuples are left"
            )
        self.executor.settle(events.run_moment())
        return not (self._stops_when_empty and not self.network.present and self._nothing_will_come())

    def result(self) -> OperatorResult:
        """What the run came to, once it has ended."""
        now = self.events.now
        self.executor.close(now)
        self.network.settle(now)
        return self._result(now)

    # --- what happens ---------------------------------------------------------------------------------------

    def _feed(self, nodes: list[SimulatedNode]) -> None:
        """Let tuples come to the sources among ``nodes`` from now on."""
        for node in nodes:
            if node.operator.arrivals is not None:
                moments = node.operator.arrivals.moments(Random(f"{self.seed} arrivals {node.name}"))
                self._feeds += 1
                self._await(_Feed(node, moments, self.events.now))

    def _await(self, feed: _Feed) -> None:
        moment = next(feed.moments, None)
        if moment is None or feed.node.removed or not self._still_to_come:
            self._feeds -= 1
            return
        feed.count = moment[1]
        self.events.at(feed.start + moment[0], Rank.ARRIVAL, self._arrive, feed)

    def _arrive(self, feed: _Feed, now: float) -> None:
        if not feed.node.removed:
            count = int(min(feed.count, self._still_to_come))
            self._still_to_come -= count
            if count:
                self.network.arrive(feed.node, count, now)
                self.executor.arrived(feed.node)
        self._await(feed)

    def _nothing_will_come(self) -> bool:
        later = any(isinstance(change, AddQuery) and change.at > self.events.now for change in self.scenario.changes)
        return not self._still_to_come or not (self._feeds or later)

    def _change(self, change: ScenarioChange, now: float) -> None:
        match change:
            case ReplacePolicy():
                self.executor.replace_policy(change.policy)
            case ReplacePlacement():
                self.executor.replace_placement(change.placement)
            case AddQuery():
                self._feed(self.executor.add_query(change.query))
            case RemoveQuery():
                tally = self.network.queries[change.name]
                self.executor.remove_query([node for node in self.network.nodes.values() if node.tally is tally])

    def _begin_measuring(self, _: None, now: float) -> None:
        self.executor.forget(now)
        self.sampler.forget(now)
        self._completed_before = {name: node.completed for name, node in self.network.nodes.items()}

    def _sample(self, number: int, now: float) -> None:
        self.sampler.take(now)
        every = self.scenario.sample_every
        assert every is not None
        self.events.at((number + 1) * every, Rank.SAMPLE, self._sample, number + 1)

    # --- the result -----------------------------------------------------------------------------------------

    def _result(self, now: float) -> OperatorResult:
        window = max(0.0, now - self.scenario.measure_from)
        overall, queries, classes = flow_results(self.network, window)
        nodes = tuple(
            node_result(node, window, node.completed - self._completed_before.get(node.name, 0))
            for node in self.network.nodes.values()
        )
        has_policy = not isinstance(self.scenario.loop, ThreadsModel)
        return OperatorResult(
            scenario=self.scenario.name,
            loop=self.scenario.loop.kind,
            policy=str(self.policy) if has_policy else "operating-system",
            placement=str(self.placement) if has_policy else "operating-system",
            seed=self.seed,
            seconds=now,
            window=window,
            arrived=self.network.arrived,
            discarded=self.network.discarded,
            runs=self.network.runs,
            overall=overall,
            queries=queries,
            classes=classes,
            nodes=nodes,
            rho_variation=variation([node.rho for node in nodes]),
            worker_utilisation=tuple(seconds / window if window else 0.0 for seconds in self.executor.computed),
            scheduling=scheduling_result(self.executor, window),
            samples=tuple(self.sampler.samples),
        )


def _executor(
    scenario: OperatorScenario, policy: Policy | None, placement: Placement | None, events: EventQueue[float], seed: int
) -> Executor:
    loop = scenario.loop
    if isinstance(loop, ThreadsModel):
        return ThreadsRun(scenario, loop, events, seed)
    if policy is None or placement is None:
        raise ScenarioError(
            f"scenario {scenario.name!r} runs the {loop.kind} loop, which needs "
            f"a policy and a placement; got policy={policy}, placement={placement}: name both, or run the threads loop"
        )
    if isinstance(loop, DispatchModel):
        return DispatchRun(scenario, loop, policy, placement, events, seed)
    assert isinstance(loop, RoundsModel)
    return RoundsRun(scenario, loop, policy, placement, events, seed)
