"""Many workers in virtual time: who gets what, what a rescheduling reads, what may change, and that nobody starves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from headgate.core.errors import GraphError, InvariantError, MissingFeatureError, UserCodeError
from headgate.core.features import ChangedBy, features_named
from headgate.core.graph import Graph
from headgate.core.loop import Start
from headgate.core.matrix import FeatureMatrix
from headgate.core.placement import Placement, Workers
from headgate.core.placements import Anywhere
from headgate.core.policies import RandomChoice
from headgate.core.policy import Policy
from headgate.core.rounds import Rounds
from headgate.core.worklist import Reschedule, RoundsConfig
from headgate.testing import Favourites, Measuring, OnWorker, Wandering
from tests.core.virtual_rounds import (
    ANYWHERE,
    PERIOD,
    STATED,
    USED,
    Broken,
    Counting,
    Forgetful,
    Lost,
    Machine,
    add_nodes,
    assert_that_no_node_waits_longer_than_the_bound,
    chain,
    endless,
    longest_round,
    patience,
    remove_nodes,
    worker_of,
)

#: what is read at all; the rest is kept by the loop
READ = [feature for feature in features_named(USED) if feature.changed_by != ChangedBy.LOOP]

# --- before the first rescheduling --------------------------------------------------------------------------

LETTERS = "abcdefghijklmnop"


def fresh_rounds(names: Sequence[str], seed: int = 0) -> Rounds:
    matrix = FeatureMatrix(Graph(names), features_named(USED))
    return Rounds(matrix, STATED, ANYWHERE, Workers.of(3), RoundsConfig(seed=seed))


def test_chance_deals_the_nodes_before_the_first_rescheduling_and_depends_on_seed_and_names_alone() -> None:
    first = worker_of(fresh_rounds(LETTERS))
    assert set(first.values()) == {0, 1, 2}
    assert worker_of(fresh_rounds(LETTERS)) == first
    assert worker_of(fresh_rounds(LETTERS[::-1])) == first
    assert worker_of(fresh_rounds(LETTERS, seed=1)) != first


def test_before_the_first_rescheduling_all_nodes_share() -> None:
    machine = Machine(Graph("abc"), queues=endless("abc"), stated={("priority", "c"): 9.0}).until(0.065)
    assert machine.ran() == ["a", "b", "c", "a", "b", "c", "a"]
    assert machine.until(PERIOD + 0.05).ran()[-3:] == ["c", "c", "c"], "after it the policy decides"


# --- what a rescheduling reads ------------------------------------------------------------------------------


def rescheduled(machine: Machine, ran: str, *, in_parallel: bool = True) -> set[tuple[str, str]]:
    """Let exactly the nodes ``ran`` run in one round, and return what the rescheduling after it reads."""
    rounds = machine.rounds
    now = machine.now
    while not isinstance(step := rounds.next_step(0, now, lambda i: machine.names[i] in ran), Reschedule):
        if isinstance(step, Start):
            now += PERIOD / (2 * len(ran))
            rounds.finished(0, now)
        else:
            now += step.seconds
    machine.reads.clear()
    if in_parallel:
        rounds.refresh_own(0, machine.read)
    assert rounds.arrive(0)
    rounds.coordinate(now, machine.read)
    rounds.sort_own(0)
    machine.now = now
    assert len(set(machine.reads)) == len(machine.reads), "no value is read twice"
    return set(machine.reads)


def test_the_first_rescheduling_reads_everything_but_what_the_loop_keeps_itself() -> None:
    read = rescheduled(Machine(chain("abcd")), "b")
    asked = ("priority", "patience", "cost", "pending", "output_pending")
    assert read == {(feature, name) for feature in asked for name in "abcd"}


# Haren's code declares that output queues depend on downstream nodes only by way of their input; it misses that a
# node that runs also empties the output queue of the node before it.
@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        pytest.param("", set(), id="nobody ran: nothing"),
        pytest.param(
            "b",
            {("cost", "b"), ("pending", "b"), ("pending", "c"), ("output_pending", "b"), ("output_pending", "a")},
            id="one ran: itself, the input after it, the output before it",
        ),
        pytest.param(
            "a",
            {("cost", "a"), ("pending", "a"), ("pending", "b"), ("output_pending", "a")},
            id="a source ran: nobody is before it",
        ),
        pytest.param(
            "d",
            {("cost", "d"), ("pending", "d"), ("output_pending", "d"), ("output_pending", "c")},
            id="a sink ran: nobody is after it",
        ),
    ],
)
@pytest.mark.parametrize("in_parallel", [True, False], ids=["in parallel", "by the last worker"])
def test_a_rescheduling_reads_what_can_have_changed(
    ran: str, expected: set[tuple[str, str]], in_parallel: bool
) -> None:
    machine = Machine(chain("abcd"))
    rescheduled(machine, "")
    before = machine.rounds.statistics()
    assert rescheduled(machine, ran, in_parallel=in_parallel) == expected
    after = machine.rounds.statistics()
    assert after.values_read - before.values_read == len(expected)
    assert after.values_full - before.values_full == len(READ) * 4


def test_workers_read_the_independent_features_of_what_they_ran_and_the_last_one_reads_the_rest() -> None:
    machine = Machine(chain("abcd"), stated={("cost", "b"): 7.0})
    rescheduled(machine, "")
    step = machine.rounds.next_step(0, 1.0, lambda i: i == 1)
    assert isinstance(step, Start)
    machine.rounds.finished(0, 2.0)
    machine.reads.clear()
    machine.rounds.refresh_own(0, machine.read)
    assert machine.reads == [("cost", "b")]
    assert machine.rounds.matrix.columns["cost"].tolist() == [0.0, 7.0, 0.0, 0.0]


def test_data_from_outside_makes_the_nodes_it_came_to_be_read() -> None:
    machine = Machine(chain("abc"))
    rescheduled(machine, "")
    machine.rounds.next_step(0, 1.0, machine.can_run)
    machine.rounds.arrive(0)
    machine.reads.clear()
    machine.rounds.coordinate(2.0, machine.read, fed=[0])
    assert machine.reads == [("pending", "a")]


def test_a_node_that_gains_or_loses_a_neighbour_is_read_again() -> None:
    machine = Machine(chain("abcd"))
    rescheduled(machine, "")
    remove_nodes(machine.rounds, ["c"])
    machine.queues["d"] = 5.0
    read = rescheduled(machine, "c")
    assert {("output_pending", "b"), ("pending", "d")} <= read
    assert machine.rounds.matrix.columns["pending"].tolist() == [0.0, 0.0, 5.0]


def test_values_read_in_parallel_follow_their_nodes_when_indices_change() -> None:
    machine = Machine(Graph("abcd"), stated={("cost", "d"): 1.0})
    rescheduled(machine, "")
    machine.stated["cost", "d"] = 2.0
    remove_nodes(machine.rounds, ["a"])
    add_nodes(machine.rounds, ["e"])
    read = rescheduled(machine, "d")
    assert {(feature, name) for feature, name in read if name != "e"} == {
        ("cost", "d"),
        ("pending", "d"),
        ("output_pending", "d"),
    }
    assert machine.rounds.matrix.columns["cost"].tolist() == [0.0, 0.0, 2.0, 0.0]


def test_a_value_read_in_parallel_is_not_taken_for_fresh_at_the_rescheduling_after() -> None:
    machine = Machine(Graph("ab"))
    rescheduled(machine, "b", in_parallel=True)
    assert ("cost", "b") in rescheduled(machine, "b", in_parallel=False)


def test_the_features_of_the_loop_are_kept() -> None:
    machine = Machine(Graph("abc"), policy=STATED, stated={("priority", "b"): 5.0})
    rescheduled(machine, "ac")
    columns = machine.rounds.matrix.columns
    assert columns["last_turn"].tolist() == [0.0, -1.0, 0.0]
    assert columns["window_time"][1] == 0.0
    assert columns["window_time"][0] == columns["window_time"][2] == pytest.approx(PERIOD / 2, rel=0.5)
    assert (columns["ready"].tolist(), columns["workers"].tolist()) == ([1.0] * 3, [0.0] * 3)
    rescheduled(machine, "b")
    assert columns["last_turn"].tolist() == [0.0, 1.0, 0.0]
    assert columns["window_time"][0] == 0.0


def test_a_policy_with_memory_is_shown_every_node_that_ran_once_a_round() -> None:
    machine = Machine(Graph("abc"), policy=Counting())
    rescheduled(machine, "ac")
    rescheduled(machine, "abc")
    assert machine.rounds.explain(0, 0.0).priority == (5.0,)


def test_a_new_policy_starts_without_memory() -> None:
    machine = Machine(Graph("abc"), policy=Counting())
    rescheduled(machine, "ac")
    machine.rounds.replace_policy(Counting())
    rescheduled(machine, "abc")
    assert machine.rounds.explain(0, 0.0).priority == (0.0,)


# --- delayed nodes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "delay", "expected"),
    [
        pytest.param(Measuring(), 1.0, {"policy", "tie", "forced"}, id="a policy that reads what only runs measure"),
        pytest.param(STATED, 1.0, {"policy", "tie"}, id="a policy that reads nothing of the kind"),
        pytest.param(Measuring(), math.inf, {"policy", "tie"}, id="no delay is too long"),
    ],
)
def test_delayed_nodes_are_forced_for(policy: Policy, delay: float, expected: set[str]) -> None:
    machine = Machine(
        Graph("ab"),
        policy=policy,
        config=RoundsConfig(period=PERIOD, delay=delay),
        queues=endless("ab"),
        stated={("priority", "a"): 9.0},
    ).until(5.0)
    assert {reason for *_, reason in machine.trace} == expected
    forced = [when for when, _, name, reason in machine.trace if reason == "forced"]
    # after the first round b runs only when it is forced: at the first rescheduling later than the delay
    gaps = np.diff(forced)
    assert all(delay < gap <= delay + PERIOD + 0.03 for gap in gaps)


# --- nobody waits for ever ----------------------------------------------------------------------------------


def test_without_patience_a_policy_can_starve_a_node() -> None:
    machine = Machine(Graph("ab"), policy=Favourites("a"), queues=endless("ab")).until(10.0)
    assert "b" not in [name for when, _, name, _ in machine.trace if when > PERIOD + 0.01]


def test_with_patience_the_same_node_runs_each_time_its_patience_is_over() -> None:
    machine = Machine(Graph("ab"), policy=Favourites("a"), queues=endless("ab"), stated=patience(1.0, "b")).until(10.0)
    guarded = [when for when, _, name, reason in machine.trace if (name, reason) == ("b", "guard")]
    gaps = np.diff(guarded)
    assert len(guarded) == 9
    assert all(1.0 <= gap <= 1.0 + PERIOD + 0.03 for gap in gaps), "one round until it is seen again, two short runs"


@pytest.mark.parametrize("placement", [ANYWHERE, Wandering()], ids=["settled", "wandering"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("run", [0.005, 0.05, 0.5], ids=["short runs", "long runs", "runs longer than the period"])
@pytest.mark.parametrize("delay", [math.inf, 0.0], ids=["never forced", "forced all the time"])
def test_no_node_waits_longer_than_the_bound(placement: Placement, workers: int, run: float, delay: float) -> None:
    assert_that_no_node_waits_longer_than_the_bound(Machine, placement, workers, run, delay)


@pytest.mark.parametrize("run", [0.01, 0.5], ids=["short runs", "runs longer than the period"])
def test_the_policy_still_decides_half_of_the_runs_when_everybody_is_overdue(run: float) -> None:
    machine = Machine(
        Graph("abcd"),
        policy=Favourites("a"),
        queues=endless("abcd"),
        stated=patience(0.0, "bcd"),
        seconds=lambda name: run,
    ).until(100 * run)
    after = [reason for when, *_, reason in machine.trace if when > longest_round(run, 0.0)]
    assert after.count("guard") > 5
    assert after.count("guard") <= after.count("policy") + 1
    assert all(pair != ("guard", "guard") for pair in pairwise(after))


# --- change while running -----------------------------------------------------------------------------------


def test_a_new_policy_takes_over_at_the_next_rescheduling() -> None:
    machine = Machine(Graph("ab"), policy=Favourites("a"), queues=endless("ab")).until(0.2)
    machine.rounds.replace_policy(Favourites("b"))
    changed = len(machine.trace)
    machine.until(0.25)
    assert set(machine.ran()[changed:]) == {"a"}
    done = len(machine.new_rounds)
    machine.until(0.6)
    assert len(machine.new_rounds) > done
    assert machine.ran()[-5:] == ["b"] * 5


def test_a_policy_or_placement_that_reads_what_nobody_provides_is_refused_at_once() -> None:
    matrix = FeatureMatrix(Graph("ab"), features_named(["priority"]))
    rounds = Rounds(matrix, STATED, ANYWHERE, Workers.of(1))
    with pytest.raises(MissingFeatureError, match="policy 'measuring' needs the feature 'cost'"):
        rounds.replace_policy(Measuring())

    class Weighing(Anywhere):
        name = "weighing"
        needs = ("cost",)

    with pytest.raises(MissingFeatureError, match="placement 'weighing' needs the feature 'cost'"):
        rounds.replace_placement(Weighing())
    with pytest.raises(MissingFeatureError):
        Rounds(matrix, Measuring(), ANYWHERE, Workers.of(1))


def test_a_new_placement_and_a_new_configuration_take_over_at_the_next_rescheduling() -> None:
    machine = Machine(Graph("abcd"), workers=2, queues=endless("abcd")).until(0.2)
    machine.rounds.replace_placement(OnWorker(1))
    machine.rounds.replace_config(RoundsConfig(period=0.5, batch=3))
    machine.until(0.3)
    assert set(worker_of(machine.rounds).values()) == {1}
    started = machine.new_rounds[-1].round
    machine.until(0.3 + 0.4)
    assert machine.new_rounds[-1].round == started, "the longer period is in force"


def test_nodes_come_and_go_at_reschedulings_and_a_removed_node_that_runs_finishes_first() -> None:
    machine = Machine(
        chain("abc"), workers=2, queues=endless("a"), seconds=lambda name: 1.0 if name == "a" else 0.01
    ).until(0.5)
    rounds = machine.rounds
    assert "a" in machine.running.values()
    remove_nodes(rounds, ["a"])
    add_nodes(rounds, ["d", "e"], [("d", "e"), ("d", "c")])
    machine.stated["pending", "d"] = math.inf
    machine.until(0.9)
    assert rounds.graph.names == ("a", "b", "c"), "nothing changes before the rescheduling"
    machine.until(2.0)
    change = next(opened for opened in machine.new_rounds if opened.added)
    assert (change.added, change.removed) == (("d", "e"), ("a",))
    assert rounds.graph.names == ("b", "c", "d", "e")
    after = {name for when, _, name, _ in machine.trace if when > 1.1}
    assert after >= {"d", "e", "c"}
    assert "a" not in after


def test_a_name_removed_and_added_again_is_a_new_node() -> None:
    machine = Machine(chain("ab"), stated={("cost", "b"): 3.0})
    rescheduled(machine, "b")
    remove_nodes(machine.rounds, ["b"])
    add_nodes(machine.rounds, ["b"], [("a", "b")])
    machine.stated["cost", "b"] = 4.0
    assert {("cost", "b"), ("priority", "b")} <= rescheduled(machine, "")
    assert machine.rounds.matrix.columns["cost"].tolist() == [0.0, 4.0]


def test_a_name_removed_and_added_again_is_reported_as_both() -> None:
    machine = Machine(Graph("ab"))
    remove_nodes(machine.rounds, ["b"])
    add_nodes(machine.rounds, ["b", "c"])
    remove_nodes(machine.rounds, ["c"])
    machine.until(0.2)
    assert (machine.new_rounds[0].added, machine.new_rounds[0].removed) == (("b",), ("b",))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda rounds: add_nodes(rounds, ["b"]), "two nodes are called 'b'", id="a name twice"),
        pytest.param(lambda rounds: add_nodes(rounds, [], [("c", "a")]), "cycle", id="a cycle"),
        pytest.param(lambda rounds: remove_nodes(rounds, ["x"]), "no node has that name", id="an unknown node"),
    ],
)
def test_an_impossible_change_is_refused_at_once_and_leaves_no_trace(
    change: Callable[[Rounds], None], said: str
) -> None:
    machine = Machine(chain("abc"))
    with pytest.raises(GraphError, match=said):
        change(machine.rounds)
    machine.until(0.2)
    assert machine.rounds.graph.names == ("a", "b", "c")


def test_workers_come_and_go_at_reschedulings() -> None:
    machine = Machine(Graph("abcdef"), workers=2, queues=endless("abcdef"), placement=Wandering()).until(0.2)
    machine.rounds.set_workers(Workers.of(4))
    machine.until(0.22)
    assert machine.rounds.statistics().workers == 2
    machine.until(1.0)
    assert {worker for when, worker, *_ in machine.trace if when > 0.5} == {0, 1, 2, 3}
    machine.rounds.set_workers(Workers.of(1))
    machine.until(2.0)
    assert {worker for when, worker, *_ in machine.trace if when > 1.5} == {0}
    assert sum(machine.rounds.statistics().starts.values()) == len(machine.trace), "the runs of those who left count"
    with pytest.raises(InvariantError, match="worker 3 has left: there are 1 now"):
        machine.rounds.sort_own(3)


def test_all_nodes_may_go_and_others_come() -> None:
    machine = Machine(Graph("ab"), workers=2, queues=endless("ab")).until(0.2)
    remove_nodes(machine.rounds, "ab")
    machine.until(0.6)
    assert (machine.rounds.statistics().nodes, machine.running) == (0, {})
    add_nodes(machine.rounds, "xy")
    machine.stated["pending", "y"] = math.inf
    machine.until(1.2)
    assert machine.ran()[-1] == "y"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            Broken(),
            "policy 'broken' failed at the rescheduling after round 1: ZeroDivisionError: by nought; correct it",
        ),
        (Broken(fails=False), r"policy 'broken' must return an array .* each of 3 nodes; got an array of shape \(1,\)"),
        (Lost(), "placement 'lost' failed at the rescheduling after round 1: KeyError: 'no map'; correct it"),
    ],
    ids=["the policy raises", "the policy returns too little", "the placement raises"],
)
def test_a_rescheduling_that_user_code_made_fail_can_be_held_again(broken: Policy | Placement, said: str) -> None:
    machine = Machine(Graph("ab"), queues=endless("ab"))
    rescheduled(machine, "a")
    rounds = machine.rounds
    add_nodes(rounds, "c")
    if isinstance(broken, Policy):
        rounds.replace_policy(broken)
    else:
        rounds.replace_placement(broken)
    with pytest.raises(UserCodeError, match=said):
        rescheduled(machine, "b")
    rounds.replace_policy(STATED)
    rounds.replace_placement(ANYWHERE)
    machine.reads.clear()
    opened = rounds.coordinate(9.0, machine.read)
    assert (opened.round, opened.added) == (2, ("c",))
    assert machine.reads == [], "everything had been read"
    rounds.sort_own(0)
    rounds.validate()


def test_a_policy_that_fails_to_remember_can_be_replaced_at_the_same_rescheduling() -> None:
    machine = Machine(Graph("ab"), policy=Forgetful())
    with pytest.raises(UserCodeError, match=r"policy 'forgetful' failed .* LookupError: what was it"):
        rescheduled(machine, "b")
    machine.rounds.replace_policy(STATED)
    assert machine.rounds.coordinate(9.0, machine.read).round == 1


def test_a_rescheduling_before_everybody_has_come_is_refused() -> None:
    machine = Machine(Graph("ab"), workers=2)
    machine.rounds.next_step(0, 0.0, machine.can_run)
    assert not machine.rounds.arrive(0)
    with pytest.raises(InvariantError, match="only 1 of 2 workers have arrived"):
        machine.rounds.coordinate(1.0, machine.read)
    with pytest.raises(InvariantError, match="worker 0 cannot sort its nodes: it has arrived at the barrier"):
        machine.rounds.sort_own(0)


# --- reports ------------------------------------------------------------------------------------------------


def test_explain_says_where_a_node_stands_and_what_could_bring_it_forward() -> None:
    machine = Machine(
        Graph("abcd"),
        policy=Measuring(),
        config=RoundsConfig(period=PERIOD, delay=2.0),
        queues=endless("abcd"),
        stated={("priority", "a"): 9.0, ("priority", "b"): 5.0, ("patience", "c"): 1.5},
    ).until(1.0)
    rounds = machine.rounds
    explanation = rounds.explain(2, machine.now)
    assert (explanation.worker, explanation.place, explanation.of, explanation.priority) == (0, 3, 4, (1.0,))
    assert (explanation.ahead, explanation.equal, explanation.running_on) == (("a", "b"), ("d",), ())
    assert (explanation.overdue, explanation.forced_next) == (False, False)
    later = rounds.explain(2, machine.now + 5.0)
    assert (later.overdue, later.forced_next) == (True, True)
    assert explanation.guard_deadline == explanation.runnable_since + 1.5
    assert str(later).splitlines()[:2] == [
        "c: waiting on worker 0, place 3 of 4 by measuring, priority (1)",
        "  ahead of it: a, b; equal to it: d",
    ]
    assert "it is forced in the next round" in str(later)
    assert "the guard puts it in front" in str(later)
    first = str(rounds.explain(0, machine.now))
    assert first.startswith("a: running on worker 0, place 1 of 4")
    assert "ahead of it: nobody; equal to it: nobody" in first


@pytest.mark.parametrize(
    ("policy", "stated", "said"),
    [
        pytest.param(STATED, {}, "never forced", id="nothing to measure"),
        pytest.param(Measuring(), {}, "forced in a round that begins more than", id="forced later"),
        pytest.param(STATED, {}, "the guard has not seen it waiting", id="not seen waiting"),
        pytest.param(STATED, patience(5.0, "b"), "the guard puts it in front in", id="guarded later"),
    ],
)
def test_the_text_of_an_explanation_says(policy: Policy, stated: dict[tuple[str, str], float], said: str) -> None:
    machine = Machine(Graph("ab"), policy=policy, queues=endless("ab"), config=RoundsConfig(period=PERIOD))
    machine.stated = {("priority", "a"): 9.0, **stated}
    assert said in str(machine.until(0.2).rounds.explain(1, 0.2))


def test_statistics_count_runs_by_reason_back_offs_and_values() -> None:
    machine = Machine(
        Graph("abc"),
        policy=Measuring(),
        config=RoundsConfig(period=PERIOD),
        queues={"a": 200.0, "b": 200.0, "c": 400.0},
        stated={("priority", "c"): 5.0} | patience(0.1, "a"),
    ).until(3.0)
    statistics = machine.rounds.statistics()
    reasons = [reason for *_, reason in machine.trace]
    assert statistics.starts == {reason: reasons.count(reason) for reason in ("policy", "tie", "forced", "guard")}
    assert min(statistics.starts.values()) > 0
    assert statistics.backoffs > 0
    assert statistics.decisions == len(machine.new_rounds)
    assert statistics.values_read == len(machine.reads) < statistics.values_full == len(READ) * 3 * statistics.decisions


@pytest.mark.parametrize(
    ("damage", "number"),
    [
        pytest.param(lambda rounds: rounds._lists[0].nodes.append(0), 1, id="a node in two lists"),
        pytest.param(lambda rounds: setattr(rounds._lists[0], "running", 99), 2, id="a list in disorder"),
        pytest.param(lambda rounds: rounds._records.last_run.pop(), 3, id="a node without a record"),
        pytest.param(lambda rounds: setattr(rounds, "_arrived", 1), 4, id="a worker counted that has not arrived"),
    ],
)
def test_validate_notices(damage: Callable[[Rounds], None], number: int) -> None:
    rounds = fresh_rounds(LETTERS)
    rounds.validate()
    damage(rounds)
    with pytest.raises(InvariantError, match=f"inv{number}:"):
        rounds.validate()


# --- random schedules ---------------------------------------------------------------------------------------


def random_machine(seed: int) -> Machine:
    """A random graph with random queues, run times, priorities, policy and placement; patience for everybody."""
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(chance.randint(2, 9))]
    edges = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if chance.random() < 0.3]
    seconds = {name: chance.choice([0.003, 0.02, 0.2]) for name in names}
    machine = Machine(
        Graph(names, edges),
        policy=chance.choice([STATED, Measuring(), Favourites((names[0],)), RandomChoice()]),
        placement=chance.choice([ANYWHERE, Wandering(), OnWorker(0)]),
        workers=chance.randint(1, 4),
        config=RoundsConfig(period=PERIOD, delay=chance.choice([None, math.inf, 0.05]), seed=seed),
        queues={name: chance.choice([0.0, 30.0, math.inf]) for name in names},
        stated={("priority", name): float(chance.randint(1, 3)) for name in names} | patience(0.5, names),
        seconds=lambda name: seconds.get(name, 0.01),
        rescheduling_time=chance.choice([0.0, 0.01]),
    )
    return machine


def shaken(machine: Machine, seed: int, end: float) -> Machine:
    """Change something at random every so often while the machine runs."""
    chance = random.Random(-seed)
    changed_at = 0
    while machine.now < end:
        machine.until(machine.now + chance.uniform(0.05, 0.6))
        rounds = machine.rounds
        kind = chance.choice(["policy", "placement", "workers", "add", "remove"])
        if kind == "policy":
            rounds.replace_policy(chance.choice([STATED, Measuring(), Favourites((machine.names[0],)), RandomChoice()]))
        elif kind == "placement":
            rounds.replace_placement(chance.choice([ANYWHERE, Wandering()]))
        elif kind == "workers":
            rounds.set_workers(Workers.of(chance.randint(1, 4)))
        elif len(machine.new_rounds) > changed_at:  # the last change of the graph has taken effect
            changed_at = len(machine.new_rounds)
            if kind == "add":
                name = f"m{changed_at}"
                machine.stated |= {("pending", name): chance.choice([0.0, 50.0])} | patience(0.5, [name])
                add_nodes(rounds, [name], [(chance.choice(machine.names), name)])
            elif len(machine.names) > 2:
                remove_nodes(rounds, [chance.choice(machine.names)])
        rounds.validate()
    return machine


@pytest.mark.parametrize("seed", range(12))
def test_under_random_loads_every_runnable_node_runs_within_the_bound(seed: int) -> None:
    machine = random_machine(seed).until(6.0)
    bound = 0.5 + (len(machine.names) - 1 + 2) * longest_round(0.2, machine.rescheduling_time)
    assert machine.trace or not any(machine.queues.values())
    assert max(machine.longest_wait.values(), default=0.0) <= bound


@pytest.mark.parametrize("seed", range(12))
def test_under_random_changes_each_node_stays_with_one_worker_and_nothing_runs_twice_at_once(seed: int) -> None:
    machine = shaken(random_machine(seed), seed, 4.0)  # the machine itself asserts it at every step
    assert len(machine.new_rounds) > 5
    assert machine.rounds.statistics().values_read == len(machine.reads)


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    assert shaken(random_machine(3), 3, 3.0).trace == shaken(random_machine(3), 3, 3.0).trace
    assert random_machine(3).until(3.0).trace != random_machine(4).until(3.0).trace
