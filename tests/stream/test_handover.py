"""Rounds without a barrier: whoever leads goes on, the others take over, and never two workers in one node."""

from __future__ import annotations

import math

import pytest

from headgate.core import worklist
from headgate.core.errors import InvariantError
from headgate.core.graph import Graph
from headgate.core.loop import Start
from headgate.core.placement import Placement, Workers
from headgate.core.policies import RandomChoice
from headgate.core.worklist import Reschedule, RoundsConfig
from headgate.stream.loops import handover
from headgate.stream.loops.handover import HandoverRounds
from headgate.testing import Measuring, OnWorker, Wandering
from tests.core.virtual_rounds import (
    ANYWHERE,
    PERIOD,
    Machine,
    add_nodes,
    assert_that_no_node_waits_longer_than_the_bound,
    chain,
    endless,
    remove_nodes,
    worker_of,
)
from tests.stream.interleave import Blocks, CooperativeLock, Randomly, Script, Until, point, run


class HandoverMachine(Machine):
    """Virtual workers that take over their new lists, and go to the barrier only if they must."""

    loop = HandoverRounds
    rounds: HandoverRounds

    def reschedule(self, worker: int) -> None:
        rounds = self.rounds
        if rounds.has_offer(worker) and not rounds.gathering:
            rounds.take_over(worker)
        elif rounds.may_lead:
            self.new_rounds.append(rounds.lead(worker, self.now, self.read))
        else:
            super().reschedule(worker)
            return
        rounds.sort_own(worker)
        rounds.validate()
        self._ask(worker)


def opened(machine: HandoverMachine) -> None:
    """The first round, with a single worker, in which nothing runs."""
    rounds = machine.rounds
    assert not isinstance(rounds.next_step(0, 0.0, lambda node: False), Start)
    assert isinstance(rounds.next_step(0, PERIOD, lambda node: False), Reschedule)
    assert rounds.arrive(0)
    rounds.coordinate(PERIOD, machine.read)
    rounds.sort_own(0)


@pytest.mark.parametrize("placement", [ANYWHERE, Wandering()], ids=["settled", "wandering"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("run", [0.005, 0.05, 0.5], ids=["short runs", "long runs", "runs longer than the period"])
@pytest.mark.parametrize("delay", [math.inf, 0.0], ids=["never forced", "forced all the time"])
def test_no_node_waits_longer_than_the_bound(placement: Placement, workers: int, run: float, delay: float) -> None:
    assert_that_no_node_waits_longer_than_the_bound(HandoverMachine, placement, workers, run, delay)


def begun(placement: Placement) -> tuple[HandoverMachine, int]:
    """A machine both of whose workers are in their first run, and what worker 1 runs."""
    machine = HandoverMachine(Graph("abcd"), workers=2, placement=placement, queues=endless("abcd"))
    steps = [machine.rounds.next_step(worker, 0.0, machine.can_run) for worker in range(2)]
    assert isinstance(steps[1], Start)
    return machine, steps[1].node


def test_whoever_leads_goes_on_at_once_and_the_others_before_their_next_run() -> None:
    machine, _ = begun(Wandering())
    rounds = machine.rounds
    rounds.finished(0, PERIOD)
    assert isinstance(rounds.next_step(0, PERIOD, machine.can_run), Reschedule)
    assert rounds.lead(0, PERIOD, machine.read).round == 1
    rounds.sort_own(0)
    rounds.validate()
    assert isinstance(rounds.next_step(0, PERIOD, machine.can_run), Start)
    rounds.finished(1, PERIOD + 0.01)
    assert isinstance(rounds.next_step(1, PERIOD + 0.01, machine.can_run), Reschedule), (
        "long before its own period is over"
    )
    rounds.take_over(1)
    rounds.sort_own(1)
    rounds.validate()
    assert isinstance(rounds.next_step(1, PERIOD + 0.01, machine.can_run), Start)


def test_a_node_that_somebody_is_still_in_cannot_be_run_by_whom_it_was_dealt_to() -> None:
    machine, others = begun(OnWorker(0))
    rounds = machine.rounds
    rounds.finished(0, PERIOD)
    rounds.lead(0, PERIOD, machine.read)
    rounds.sort_own(0)
    assert set(worker_of(rounds).values()) == {0}, "all nodes were dealt to it"
    taken = set()
    for turn in range(8):
        step = rounds.next_step(0, PERIOD + 0.001 * turn, machine.can_run)
        assert isinstance(step, Start)
        taken.add(step.node)
        rounds.finished(0, PERIOD + 0.001 * turn)
    assert taken == {0, 1, 2, 3} - {others}
    rounds.finished(1, PERIOD + 0.01)
    step = rounds.next_step(0, PERIOD + 0.011, lambda node: node == others)
    assert isinstance(step, Start)
    assert step.node == others


def test_runs_that_were_under_way_are_read_at_the_rescheduling_after() -> None:
    machine, others = begun(Wandering())
    rounds = machine.rounds
    rounds.finished(0, PERIOD)
    rounds.lead(0, PERIOD, machine.read)
    rounds.sort_own(0)
    rounds.finished(1, PERIOD + 0.01)
    rounds.take_over(1)
    rounds.sort_own(1)
    for worker in (0, 1):
        rounds.next_step(worker, PERIOD + 0.02, lambda node: False)
    machine.reads.clear()
    rounds.lead(0, 3 * PERIOD, machine.read)
    assert {name for feature, name in machine.reads if feature == "cost"} == {machine.names[others]}
    assert rounds.matrix.columns["window_time"][others] == pytest.approx(PERIOD + 0.01)


def test_everybody_comes_together_when_somebody_waits_or_the_graph_changes() -> None:
    machine, _ = begun(Wandering())
    rounds = machine.rounds
    rounds.finished(0, PERIOD)
    assert rounds.may_lead
    add_nodes(rounds, "e")
    assert not rounds.may_lead
    with pytest.raises(InvariantError, match="worker 0 cannot lead: others must arrive"):
        rounds.lead(0, PERIOD, machine.read)
    rounds.arrive(0)
    assert rounds.gathering
    rounds.finished(1, PERIOD)
    assert rounds.arrive(1)
    rounds.coordinate(PERIOD, machine.read)
    assert (rounds.gathering, len(rounds.graph)) == (False, 5)


def test_nobody_leads_while_a_list_is_still_on_offer() -> None:
    machine, _ = begun(Wandering())
    rounds = machine.rounds
    rounds.finished(0, PERIOD)
    rounds.lead(0, PERIOD, machine.read)
    rounds.sort_own(0)
    rounds.next_step(0, PERIOD, lambda node: False)
    assert rounds.has_offer(1)
    assert not rounds.may_lead
    with pytest.raises(InvariantError, match="worker 0 has no list to take over"):
        rounds.take_over(0)


def test_a_round_of_forced_runs_that_was_cut_short_owes_the_policy_a_look() -> None:
    machine = HandoverMachine(
        Graph("ab"), policy=Measuring(), config=RoundsConfig(period=PERIOD, delay=0.0), queues=endless("ab")
    )
    rounds = machine.rounds
    opened(machine)
    reasons = []
    for now in (1.0, 2.0, 3.0):
        step = rounds.next_step(0, now, machine.can_run)
        assert isinstance(step, Start)
        reasons.append(step.reason)
        rounds.finished(0, now + 0.01)
        rounds.lead(0, now + 0.01, machine.read)
        rounds.sort_own(0)
    assert reasons == ["forced", "policy", "forced"]


@pytest.mark.parametrize("run", [0.01, 0.1, 0.4], ids=["short runs", "long runs", "runs longer than the period"])
@pytest.mark.parametrize("workers", [2, 5])
def test_no_node_is_ever_run_by_two_workers_whatever_comes_and_goes(run: float, workers: int) -> None:
    """The machine itself asserts it at every step."""
    names = "abcdefgh"
    machine = HandoverMachine(
        chain(names),
        workers=workers,
        policy=RandomChoice(),
        placement=Wandering(),
        queues={"a": math.inf, "d": math.inf},
        seconds=lambda name: run * (0.3 + names.find(name) % 4),
    ).until(20 * PERIOD)
    remove_nodes(machine.rounds, "h")
    add_nodes(machine.rounds, "x", [("g", "x")])
    machine.until(60 * PERIOD)
    machine.rounds.set_workers(Workers.of(workers - 1))
    machine.until(140 * PERIOD)
    assert [opened.added for opened in machine.new_rounds if opened.added] == [("x",)]
    assert machine.new_rounds[-1].workers == workers - 1
    after = {name for when, _, name, _ in machine.trace if when > 60 * PERIOD}
    assert after
    assert "h" not in after


# --- on threads, one step at a time -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_order_of_steps_no_node_is_run_by_two_workers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that go on line by line in a random order; one leads while the others are anywhere in a step or a run."""
    monkeypatch.setattr(handover, "Lock", CooperativeLock)
    names, workers, rounds_wanted = "abc", 3, 8
    machine = HandoverMachine(Graph(names), workers=workers, placement=Wandering(), policy=RandomChoice())
    rounds, engine_lock = machine.rounds, CooperativeLock()
    inside: list[int] = []

    def work(worker: int) -> None:
        now = 0.0
        while rounds.round < rounds_wanted:
            # for worker 0 a period is soon over, so that it leads while the others are in the middle of theirs
            now += PERIOD / (2 if worker == 0 else 200)
            step = rounds.next_step(worker, now, lambda node: True)
            if isinstance(step, Start):
                assert step.node not in inside, f"{names[step.node]} is run by two workers at once"
                inside.append(step.node)
                for _ in range(worker * 60):
                    point("in a run")
                inside.remove(step.node)
                rounds.finished(worker, now)
            elif isinstance(step, Reschedule):
                with engine_lock:
                    if rounds.has_offer(worker):
                        rounds.take_over(worker)
                    elif rounds.may_lead:
                        rounds.lead(worker, now, machine.read)
                    else:
                        continue
                rounds.sort_own(worker)

    players = {
        "fast": lambda: work(0),
        "slow": lambda: work(1),
        "slowest": lambda: work(2),
    }
    run(players, Randomly(seed), [handover, worklist])
    rounds.validate()


def test_a_worker_that_has_chosen_a_node_gives_it_back_if_an_offer_is_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "Lock", CooperativeLock)
    machine, _ = begun(Wandering())
    rounds = machine.rounds
    for worker in range(2):
        rounds.finished(worker, 0.01)
    steps: list[object] = []
    run(
        {
            "leader": lambda: rounds.lead(0, PERIOD, machine.read),
            "other": lambda: steps.append(rounds.next_step(1, 0.02, machine.can_run)),
        },
        Script(Until("other", "lock.acquire()"), Until("leader", "self._held[worker] ="), Blocks("other")),
        [handover],
    )
    assert steps == [Reschedule()]
    assert rounds.statistics().starts == {"policy": 2, "tie": 0, "forced": 0, "guard": 0}, "what was begun before"
    rounds.sort_own(0)
    rounds.validate()
