"""The locality loop and the simple scheduler: five steps, four states, wake-ups, balancing, and random schedules."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate.core.locality.scheduler
from headgate.core.errors import InvariantError
from headgate.core.fifo_steal import FifoStealScheduler, FifoStep
from headgate.core.locality import (
    Choice,
    Instruction,
    LocalityScheduler,
    Move,
    NodeLoad,
    OperatorState,
    Place,
    SchedulerMisuseError,
    Share,
    Step,
    Wake,
    choose_node,
    plan_balance,
)

NOTHING = OperatorState.NOTHING
SCHEDULED = OperatorState.SCHEDULED
RUNNING = OperatorState.RUNNING
RUNNING_AND_SCHEDULED = OperatorState.RUNNING_AND_SCHEDULED

Scheduler = LocalityScheduler | FifoStealScheduler


def woken(instructions: Iterable[Instruction]) -> list[int]:
    return [instruction.thread for instruction in instructions if isinstance(instruction, Wake)]


def chosen(choice: Choice | None) -> tuple[str, object] | None:
    """(step, operator), the part of a choice that most tests are about."""
    return None if choice is None else (choice.step.name, choice.operator)


def scheduler_running(operator: str, *others: str, threads: int = 1) -> LocalityScheduler:
    """One node, one request; its operator `operator` runs on thread 0."""
    scheduler = LocalityScheduler([threads])
    scheduler.submit_request("query", [operator, *others])
    scheduler.schedule_self(operator)
    assert chosen(scheduler.next_task(0)) == ("OLDEST_REQUEST", operator)
    return scheduler


# --- the five steps ---------------------------------------------------------------------------------------------------


def test_step_1_takes_the_newest_immediate_task_of_the_thread() -> None:
    scheduler = scheduler_running("scan", "older", "newer")
    scheduler.packet_received("older", by_thread=0)
    scheduler.packet_received("newer", by_thread=0)
    scheduler.schedule_self("scan")
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == ("OWN_NEWEST", "newer")
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == ("OWN_NEWEST", "older")


def test_step_2_takes_the_oldest_deferred_task_of_the_request_evaluated_last_although_an_older_request_waits() -> None:
    scheduler = LocalityScheduler([1])
    scheduler.submit_request("old", ["waits"])
    scheduler.submit_request("new", ["first", "older", "newer"])
    scheduler.schedule_self("first")
    scheduler.next_task(0)
    for operator in ("waits", "older", "newer"):
        scheduler.schedule_self(operator)
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == ("LAST_REQUEST", "older")


def test_step_3_takes_the_oldest_deferred_task_of_the_oldest_request() -> None:
    scheduler = LocalityScheduler([1])
    scheduler.submit_request("old", ["old 1", "old 2"])
    scheduler.submit_request("new", ["new 1"])
    for operator in ("new 1", "old 1", "old 2"):
        scheduler.schedule_self(operator)
    assert chosen(scheduler.next_task(0)) == ("OLDEST_REQUEST", "old 1")


def test_step_3_passes_over_old_requests_that_have_no_task() -> None:
    scheduler = LocalityScheduler([1])
    for request in ("oldest", "middle", "newest"):
        scheduler.submit_request(request, [f"{request} scan"])
    scheduler.schedule_self("newest scan")
    scheduler.schedule_self("middle scan")
    assert chosen(scheduler.next_task(0)) == ("OLDEST_REQUEST", "middle scan")


def test_step_4_steals_the_oldest_immediate_task_of_another_thread_of_the_node() -> None:
    scheduler = scheduler_running("scan", "older", "newer", threads=2)
    scheduler.packet_received("older", by_thread=0)
    scheduler.packet_received("newer", by_thread=0)
    assert chosen(scheduler.next_task(1)) == ("STEAL", "older")
    assert scheduler.statistics().steals == 1


def test_step_5_sleeps_rather_than_steal_from_another_node() -> None:
    scheduler = LocalityScheduler([1, 1])
    scheduler.submit_request("query", ["scan", "filter"])
    scheduler.schedule_self("scan")
    scheduler.next_task(0)
    assert scheduler.packet_received("filter", by_thread=0) == ()
    assert scheduler.next_task(1) is None
    assert scheduler.statistics().choices[Step.SLEEP] == 1


def test_steps_are_tried_in_their_order_and_each_choice_says_which_step_made_it() -> None:
    scheduler = LocalityScheduler([2])
    scheduler.submit_request("old", ["old source"])
    scheduler.submit_request("new", ["scan", "mine", "again"])
    scheduler.schedule_self("scan")
    scheduler.next_task(0)
    scheduler.packet_received("mine", by_thread=0)
    scheduler.schedule_self("again")
    scheduler.schedule_self("old source")
    scheduler.finished(0)
    steps = []
    while (choice := scheduler.next_task(0)) is not None:
        steps.append(chosen(choice))
        scheduler.finished(0)
    assert steps == [("OWN_NEWEST", "mine"), ("LAST_REQUEST", "again"), ("OLDEST_REQUEST", "old source")]


# --- the four states --------------------------------------------------------------------------------------------------


def with_operator_in(state: OperatorState) -> LocalityScheduler:
    """Two threads; "op" is in `state`, on thread 0 if it runs; "sender" runs on thread 1."""
    scheduler = LocalityScheduler([2])
    scheduler.submit_request("query", ["op", "sender"])
    scheduler.schedule_self("sender")
    scheduler.next_task(1)
    if state is not NOTHING:
        scheduler.schedule_self("op")
    if state in (RUNNING, RUNNING_AND_SCHEDULED):
        scheduler.next_task(0)
    if state is RUNNING_AND_SCHEDULED:
        scheduler.schedule_self("op")
    assert scheduler.state_of("op") is state
    return scheduler


EVENTS: dict[str, Callable[[LocalityScheduler], object]] = {
    "packet": lambda scheduler: scheduler.packet_received("op", by_thread=1),
    "self": lambda scheduler: scheduler.schedule_self("op"),
    "start": lambda scheduler: scheduler.next_task(0),
    "finish": lambda scheduler: scheduler.finished(0),
}


@pytest.mark.parametrize(
    ("state", "event", "expected", "new_tasks"),
    [
        pytest.param(NOTHING, "packet", SCHEDULED, 1, id="nothing + packet -> scheduled, a task"),
        pytest.param(NOTHING, "self", SCHEDULED, 1, id="nothing + itself -> scheduled, a task"),
        pytest.param(SCHEDULED, "packet", SCHEDULED, 0, id="scheduled + packet -> no second task"),
        pytest.param(SCHEDULED, "self", SCHEDULED, 0, id="scheduled + itself -> no second task"),
        pytest.param(SCHEDULED, "start", RUNNING, 0, id="scheduled + start -> running"),
        pytest.param(RUNNING, "packet", RUNNING_AND_SCHEDULED, 0, id="running + packet -> remembered"),
        pytest.param(RUNNING, "self", RUNNING_AND_SCHEDULED, 0, id="running + itself -> remembered"),
        pytest.param(RUNNING, "finish", NOTHING, 0, id="running + finish -> nothing"),
        pytest.param(RUNNING_AND_SCHEDULED, "packet", RUNNING_AND_SCHEDULED, 0, id="both + packet -> unchanged"),
        pytest.param(RUNNING_AND_SCHEDULED, "self", RUNNING_AND_SCHEDULED, 0, id="both + itself -> unchanged"),
        pytest.param(RUNNING_AND_SCHEDULED, "finish", SCHEDULED, 1, id="both + finish -> scheduled, a task"),
    ],
)
def test_operator_states(state: OperatorState, event: str, expected: OperatorState, new_tasks: int) -> None:
    scheduler = with_operator_in(state)
    before = scheduler.statistics().tasks_created
    EVENTS[event](scheduler)
    assert scheduler.state_of("op") is expected
    assert scheduler.statistics().tasks_created - before == new_tasks
    scheduler.validate()


def test_an_operator_scheduled_while_running_is_not_given_to_a_second_thread() -> None:
    scheduler = with_operator_in(RUNNING)
    scheduler.packet_received("op", by_thread=1)
    scheduler.finished(1)
    assert scheduler.next_task(1) is None


@pytest.mark.parametrize(
    ("reasons", "step"),
    [
        pytest.param(["packet"], "OWN_NEWEST", id="a packet makes it immediate"),
        pytest.param(["self"], "LAST_REQUEST", id="scheduling itself makes it deferred"),
        pytest.param(["self", "packet"], "OWN_NEWEST", id="a packet among the reasons makes it immediate"),
        pytest.param(["packet", "self"], "OWN_NEWEST", id="whichever came first"),
    ],
)
def test_the_task_created_at_the_end_of_a_run_belongs_to_the_thread_that_ran_it(reasons: list[str], step: str) -> None:
    scheduler = with_operator_in(RUNNING)
    for reason in reasons:
        EVENTS[reason](scheduler)
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == (step, "op")


# --- sleeping and waking ----------------------------------------------------------------------------------------------


def test_a_new_request_wakes_one_thread_of_its_node() -> None:
    scheduler = LocalityScheduler([2, 2])
    placed, *rest = scheduler.submit_request("query")
    assert placed == Place("query", node=0)
    assert woken(rest) == [1]


def test_a_task_wakes_nobody_while_a_thread_is_already_on_its_way() -> None:
    scheduler = LocalityScheduler([3])
    scheduler.submit_request("query", ["a", "b"])
    assert woken(scheduler.schedule_self("a")) == []
    assert woken(scheduler.schedule_self("b")) == [1]


def test_the_thread_that_fell_asleep_last_is_woken_first() -> None:
    scheduler = LocalityScheduler([3])
    scheduler.submit_request("query", ["a"])
    scheduler.next_task(2)
    for thread in (1, 2):
        scheduler.schedule_self("a")
        scheduler.next_task(thread)
        scheduler.finished(thread)
        scheduler.next_task(thread)
    assert woken(scheduler.schedule_self("a")) == [2]


def test_a_fully_loaded_node_needs_no_semaphore_operation() -> None:
    scheduler = scheduler_running("scan", "filter")
    before = scheduler.semaphore_operations
    for _ in range(10):
        scheduler.packet_received("filter", by_thread=0)
        scheduler.schedule_self("scan")
        scheduler.finished(0)
        assert chosen(scheduler.next_task(0)) == ("OWN_NEWEST", "filter")
        scheduler.finished(0)
        assert chosen(scheduler.next_task(0)) == ("LAST_REQUEST", "scan")
    assert scheduler.semaphore_operations == before


@pytest.mark.parametrize(
    "make", [lambda: LocalityScheduler([3]), lambda: FifoStealScheduler(3)], ids=["locality", "fifo"]
)
def test_a_thread_that_asks_without_having_been_woken_is_served_and_counts_as_awake(
    make: Callable[[], Scheduler],
) -> None:
    scheduler = make()
    scheduler.submit_request("query", ["scan"])
    scheduler.schedule_self("scan")
    asleep = scheduler.statistics().sleeping_threads
    choice = scheduler.next_task(1)
    assert choice is not None
    assert choice.operator == "scan"
    assert scheduler.statistics().sleeping_threads == asleep - 1
    scheduler.validate()


def shared_by_two_nodes() -> LocalityScheduler:
    """Two nodes of two threads share "query": "s0" and "s1" run on node 0, which also owes "s2" and "s3".

    Of node 1, thread 3 has just been woken and thread 2 sleeps.
    """
    scheduler = LocalityScheduler([2, 2])
    scheduler.submit_request("query", [f"s{number}" for number in range(8)])
    for number in range(4):
        scheduler.schedule_self(f"s{number}")
    scheduler.next_task(0)
    scheduler.next_task(1)
    assert scheduler.balance() == (Share("query", source=0, target=1), Wake(3))
    return scheduler


def test_a_thread_that_takes_another_nodes_task_wakes_a_substitute_for_its_own() -> None:
    scheduler = shared_by_two_nodes()
    assert scheduler.schedule_self("s4") == ()  # node 1's duty, and thread 3 is on its way
    assert scheduler.next_task(3) == Choice(Step.OLDEST_REQUEST, "s2", "query", wakes=(Wake(2),))
    scheduler.validate()


# --- load balancing ---------------------------------------------------------------------------------------------------


def load(node: int, *requests: str, idle: int = 0, waiting: int = 0, searching: int = 0) -> NodeLoad:
    return NodeLoad(node, idle=idle, searching=searching, waiting=waiting, requests=requests)


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        pytest.param([load(0, "new", "old", waiting=3), load(1, idle=1)], Move("new", 0, 1), id="move the newest"),
        pytest.param([load(0, "only", waiting=3), load(1, idle=1)], Share("only", 0, 1), id="share the only one"),
        pytest.param([load(0, "a", "b", waiting=3), load(1, "c", waiting=1)], None, id="nobody idle: nothing"),
        pytest.param([load(0, "a", "b"), load(1, idle=2)], None, id="nobody overloaded: nothing"),
        pytest.param(
            [load(0, "a", "b", waiting=2, searching=2), load(1, idle=2)], None, id="tasks about to be taken: nothing"
        ),
        pytest.param([load(0, waiting=2), load(1, idle=2)], None, id="overloaded by leftovers of a moved request"),
        pytest.param(
            [load(0, "both", waiting=3), load(1, "both", idle=1)], None, id="already shared with the idle one: nothing"
        ),
        pytest.param(
            [load(0, "both", waiting=3), load(1, "both", idle=3), load(2, idle=1)],
            Share("both", 0, 2),
            id="share with a third node",
        ),
        pytest.param(
            [load(0, "both", "mine", waiting=3), load(1, "both", idle=1)],
            Move("mine", 0, 1),
            id="move the newest that the idle node lacks",
        ),
        pytest.param(
            [load(0, "a", "b", waiting=1), load(1, "c", "d", waiting=5), load(2, idle=1), load(3, idle=4)],
            Move("c", 1, 3),
            id="most overloaded gives, idlest takes",
        ),
        pytest.param(
            [load(0, idle=2), load(1, "a", "b", waiting=5), load(2, "c", "d", waiting=5), load(3, idle=2)],
            Move("a", 1, 0),
            id="ties go to the lower node",
        ),
        pytest.param([load(0, "a", "b", waiting=9)], None, id="a machine without NUMA never balances"),
    ],
)
def test_balancing(loads: list[NodeLoad], expected: Move | Share | None) -> None:
    assert plan_balance(loads) == expected


@pytest.mark.parametrize(
    ("loads", "free_memory", "expected"),
    [
        pytest.param([load(0, idle=1), load(1, idle=2)], None, 1, id="most idle threads"),
        pytest.param([load(0, idle=1), load(1, idle=2)], [8, 1], 1, id="threads before memory"),
        pytest.param([load(0, idle=2), load(1, idle=2)], [1, 8], 1, id="then most free memory"),
        pytest.param([load(0, "a", "b"), load(1, "c")], [4, 4], 1, id="then fewest requests"),
        pytest.param([load(0), load(1)], None, 0, id="then the lowest number"),
    ],
)
def test_a_new_request_goes_to_the_node_with_most_free_resources(
    loads: list[NodeLoad], free_memory: list[float] | None, expected: int
) -> None:
    assert choose_node(loads, free_memory) == expected


def two_requests_on_node_0() -> LocalityScheduler:
    """Nodes of one thread. "new source" of the newer request runs on node 0 and has sent a packet to "new filter";
    "new 1" and "new 2" wait, deferred; node 1 has nothing to do."""
    scheduler = LocalityScheduler([1, 1])
    scheduler.submit_request("old", ["old source"])
    scheduler.submit_request("elsewhere")
    scheduler.submit_request("new", ["new source", "new filter", "new 1", "new 2"])
    assert [scheduler.nodes_of(request) for request in ("old", "elsewhere", "new")] == [(0,), (1,), (0,)]
    assert scheduler.next_task(1) is None
    scheduler.schedule_self("new source")
    scheduler.next_task(0)
    scheduler.packet_received("new filter", by_thread=0)
    scheduler.schedule_self("new 1")
    scheduler.schedule_self("new 2")
    return scheduler


def test_a_moved_request_takes_its_deferred_tasks_along_and_wakes_the_new_node() -> None:
    scheduler = two_requests_on_node_0()
    assert scheduler.balance() == (Move("new", source=0, target=1), Wake(1))
    assert scheduler.nodes_of("new") == (1,)
    assert [node.waiting for node in scheduler.node_loads()] == [1, 2]
    assert chosen(scheduler.next_task(1)) == ("OLDEST_REQUEST", "new 1")
    scheduler.validate()


def test_a_moved_request_leaves_its_immediate_tasks_beside_their_packets() -> None:
    scheduler = two_requests_on_node_0()
    scheduler.balance()
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == ("OWN_NEWEST", "new filter")
    scheduler.schedule_self("new filter")
    scheduler.finished(0)
    assert scheduler.next_task(0) is None
    assert [node.waiting for node in scheduler.node_loads()] == [0, 3]


def test_duties_for_new_deferred_tasks_of_a_shared_request_go_round() -> None:
    scheduler = shared_by_two_nodes()
    waiting = []
    for operator in ("s4", "s5", "s6", "s7"):
        scheduler.schedule_self(operator)
        waiting.append([node.waiting for node in scheduler.node_loads()])
    assert waiting == [[2, 1], [3, 1], [3, 2], [4, 2]]


def test_a_request_can_be_shared_by_more_than_two_nodes() -> None:
    scheduler = LocalityScheduler([1, 1, 1])
    scheduler.submit_request("query", [f"s{number}" for number in range(9)])
    for number in range(4):
        scheduler.schedule_self(f"s{number}")
    scheduler.next_task(0)
    assert scheduler.balance() == (Share("query", 0, 1), Wake(1))
    scheduler.next_task(1)
    assert scheduler.balance() == (Share("query", 0, 2), Wake(2))
    scheduler.next_task(2)
    assert scheduler.nodes_of("query") == (0, 1, 2)
    before = [node.waiting for node in scheduler.node_loads()]
    for number in range(4, 7):
        scheduler.schedule_self(f"s{number}")
    assert [node.waiting - old for node, old in zip(scheduler.node_loads(), before, strict=True)] == [1, 1, 1]
    assert (scheduler.statistics().shares, scheduler.statistics().moves) == (2, 0)


def test_a_node_that_moves_its_part_of_a_shared_request_hands_over_only_its_own_duties() -> None:
    scheduler = LocalityScheduler([1, 1, 1])
    scheduler.submit_request("older", ["o1", "o2"])
    scheduler.submit_request("query", [f"s{number}" for number in range(5)])
    assert scheduler.next_task(0) is None
    for operator in ("s0", "s1", "s2"):
        scheduler.schedule_self(operator)
    scheduler.next_task(1)
    assert scheduler.balance() == (Share("query", source=1, target=0), Wake(0))
    scheduler.next_task(0)
    for operator in ("s3", "s4", "o1", "o2"):
        scheduler.schedule_self(operator)
    assert [node.waiting for node in scheduler.node_loads()] == [3, 2, 0]
    assert scheduler.balance() == (Move("query", source=0, target=2), Wake(2))
    assert scheduler.nodes_of("query") == (1, 2)
    assert [node.waiting for node in scheduler.node_loads()] == [2, 2, 1]
    scheduler.validate()


# --- requests and operators come and go -------------------------------------------------------------------------------


def test_a_removed_operators_waiting_task_is_dropped() -> None:
    scheduler = scheduler_running("scan", "left", "removed", "right")
    for operator in ("left", "removed", "right"):
        scheduler.packet_received(operator, by_thread=0)
    scheduler.remove_operator("removed")
    scheduler.validate()
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == ("OWN_NEWEST", "right")
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == ("OWN_NEWEST", "left")


def test_an_operator_removed_while_running_ends_its_run_and_does_not_come_back() -> None:
    scheduler = scheduler_running("scan")
    scheduler.schedule_self("scan")
    scheduler.remove_operator("scan")
    scheduler.validate()
    with pytest.raises(SchedulerMisuseError, match="removed while running"):
        scheduler.add_operator("scan", "query")
    scheduler.finished(0)
    assert scheduler.next_task(0) is None
    scheduler.add_operator("scan", "query")
    assert scheduler.state_of("scan") is NOTHING


def test_an_operator_added_to_a_running_request_is_scheduled_like_any_other() -> None:
    scheduler = scheduler_running("scan")
    scheduler.add_operator("late", "query")
    scheduler.packet_received("late", by_thread=0)
    scheduler.finished(0)
    assert chosen(scheduler.next_task(0)) == ("OWN_NEWEST", "late")


def test_a_removed_request_leaves_nothing_behind() -> None:
    scheduler = shared_by_two_nodes()
    scheduler.packet_received("s6", by_thread=0)
    scheduler.remove_request("query")
    scheduler.validate()
    report = scheduler.statistics()
    assert (report.requests, report.operators, report.waiting_tasks) == (0, 0, 0)
    for thread in (0, 1):
        scheduler.finished(thread)
        assert scheduler.next_task(thread) is None
    scheduler.submit_request("query", ["s0"])
    scheduler.validate()


def test_requests_that_come_and_go_leave_no_trace_behind_an_old_busy_one() -> None:
    scheduler = LocalityScheduler([1])
    scheduler.submit_request("old", ["old source"])
    scheduler.schedule_self("old source")
    for number in range(50):
        scheduler.submit_request(number, [f"source {number}"])
        scheduler.schedule_self(f"source {number}")
        scheduler.remove_request(number)
    assert [request.id for _, request in scheduler._nodes[0].ready] == ["old"]


# --- explaining, misuse, validating -----------------------------------------------------------------------------------


def test_explain_names_every_candidate_and_the_step_that_decides() -> None:
    scheduler = LocalityScheduler([2])
    scheduler.submit_request("old", ["old source"])
    scheduler.submit_request("new", ["scan", "filter", "again"])
    scheduler.schedule_self("scan")
    scheduler.next_task(0)
    scheduler.packet_received("filter", by_thread=0)
    scheduler.schedule_self("again")
    scheduler.schedule_self("old source")
    explanation = scheduler.explain(0)
    assert [(report.step.value, report.operator, report.decides) for report in explanation.steps] == [
        (1, "filter", True),
        (2, "again", False),
        (3, "old source", False),
        (4, None, False),
        (5, None, False),
    ]
    first, second, *_ = str(explanation).splitlines()[1:]
    assert first.startswith("-> 1 own_newest: operator 'filter' of request 'new': newest immediate task of this thread")
    assert second.endswith("but step 1 comes first")
    thief = scheduler.explain(1)
    assert thief.choice == Choice(Step.OLDEST_REQUEST, "old source", "old")
    assert "(from thread 0)" in thief.steps[3].why


@pytest.mark.parametrize(
    ("situation", "step", "reason"),
    [
        pytest.param(lambda: LocalityScheduler([1]), 1, "no immediate task", id="no immediate task"),
        pytest.param(lambda: LocalityScheduler([1]), 2, "has not evaluated any request yet", id="no last request"),
        pytest.param(
            lambda: scheduler_running("scan"), 2, "'query', evaluated last, has no deferred", id="it is empty"
        ),
        pytest.param(two_requests_on_node_0, 4, "immediate tasks of its own", id="no need to steal"),
        pytest.param(lambda: LocalityScheduler([1]), 3, "none of the 0 requests of node 0", id="no request"),
        pytest.param(lambda: LocalityScheduler([1]), 5, "nothing waits", id="sleep"),
    ],
)
def test_explain_says_why_a_step_finds_nothing(
    situation: Callable[[], LocalityScheduler], step: int, reason: str
) -> None:
    assert reason in situation().explain(0).steps[step - 1].why


def test_explain_says_where_the_last_request_has_gone() -> None:
    scheduler = two_requests_on_node_0()
    scheduler.balance()
    assert "has moved to node 1" in scheduler.explain(0).steps[1].why
    scheduler.remove_request("new")
    assert "was removed" in scheduler.explain(0).steps[1].why


@pytest.mark.parametrize(
    "make", [lambda: LocalityScheduler([2]), lambda: FifoStealScheduler(2)], ids=["locality", "fifo"]
)
@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        pytest.param(lambda s: s.schedule_self("gone"), "operator 'gone' is unknown", id="unknown operator"),
        pytest.param(lambda s: s.remove_request("gone"), "request 'gone' is unknown", id="unknown request"),
        pytest.param(lambda s: s.add_operator("op", "gone"), "request 'gone' is unknown", id="no such request"),
        pytest.param(lambda s: s.next_task(2), "thread 2 is unknown; expected 0 to 1", id="unknown thread"),
        pytest.param(lambda s: s.next_task(-1), "thread -1 is unknown", id="negative thread"),
        pytest.param(lambda s: s.next_task(0), "still runs operator 'scan'", id="asks while running"),
        pytest.param(lambda s: s.finished(1), "runs nothing that could finish", id="finishes without running"),
        pytest.param(lambda s: s.packet_received("scan", 1), "cannot have sent a packet", id="sends without running"),
        pytest.param(lambda s: s.submit_request("query"), "already being evaluated", id="request twice"),
        pytest.param(
            lambda s: s.add_operator("scan", "query"), "already belongs to request 'query'", id="same operator"
        ),
        pytest.param(lambda s: s.submit_request("q2", ["a", "scan"]), "already belongs", id="operator of another"),
        pytest.param(lambda s: s.submit_request("q2", ["a", "a"]), "lists operator 'a' twice", id="operator twice"),
    ],
)
def test_misuse_is_refused_with_a_reason_and_changes_nothing(
    make: Callable[[], Scheduler], mistake: Callable[[Scheduler], object], message: str
) -> None:
    scheduler = make()
    scheduler.submit_request("query", ["scan"])
    scheduler.schedule_self("scan")
    scheduler.next_task(0)
    before = scheduler.statistics()
    with pytest.raises(SchedulerMisuseError, match=message):
        mistake(scheduler)
    assert scheduler.statistics() == before
    scheduler.validate()


@pytest.mark.parametrize("threads_per_node", [[], [0], [2, 0]], ids=["no node", "no thread", "a node without thread"])
def test_a_scheduler_needs_nodes_and_threads(threads_per_node: list[int]) -> None:
    with pytest.raises(SchedulerMisuseError, match="at least one node and one thread in each"):
        LocalityScheduler(threads_per_node)


def test_free_memory_must_have_one_number_per_node() -> None:
    with pytest.raises(SchedulerMisuseError, match="expected 2, got 1"):
        LocalityScheduler([1, 1]).submit_request("query", free_memory=[1.0])


def clear_running(scheduler: LocalityScheduler) -> None:
    scheduler._threads[0].operator = None


def list_a_task_twice(scheduler: LocalityScheduler) -> None:
    task = next(iter(scheduler._table.request("new").deferred))
    scheduler._threads[0].immediate[task] = None


def miscount_waiting(scheduler: LocalityScheduler) -> None:
    scheduler._nodes[0].waiting += 1


def oversleep(scheduler: LocalityScheduler) -> None:
    scheduler.balance()
    thread = scheduler._threads[1]
    thread.asleep = True
    thread.node.searching -= 1
    thread.node.sleeping[thread] = None


def forget_a_request(scheduler: LocalityScheduler) -> None:
    del scheduler._nodes[1].requests["elsewhere"]


def hide_ready_requests(scheduler: LocalityScheduler) -> None:
    scheduler._nodes[0].ready.clear()


def lose_the_mirror(scheduler: LocalityScheduler) -> None:
    scheduler._nodes[0].immediate.clear()


def sleep_unlisted(scheduler: LocalityScheduler) -> None:
    scheduler._nodes[1].sleeping.clear()


@pytest.mark.parametrize(
    ("number", "damage"),
    [
        (1, clear_running),
        (2, list_a_task_twice),
        (3, miscount_waiting),
        (4, oversleep),
        (5, forget_a_request),
        (6, hide_ready_requests),
        (7, lose_the_mirror),
        (8, sleep_unlisted),
    ],
    ids=lambda value: value.__name__ if callable(value) else f"inv{value}",
)
def test_validate_notices_each_broken_invariant(number: int, damage: Callable[[LocalityScheduler], None]) -> None:
    scheduler = two_requests_on_node_0()
    scheduler.validate()
    damage(scheduler)
    with pytest.raises(InvariantError, match=f"inv{number}:"):
        scheduler.validate()


def test_the_example_in_the_docstring_runs() -> None:
    failed, tried = doctest.testmod(headgate.core.locality.scheduler)
    assert failed == 0 < tried


# --- the simple scheduler ---------------------------------------------------------------------------------------------


def fifo_running(*operators: str, threads: int) -> FifoStealScheduler:
    """The first operator runs on thread 0."""
    scheduler = FifoStealScheduler(threads)
    scheduler.submit_request("query", operators)
    scheduler.schedule_self(operators[0])
    scheduler.next_task(0)
    return scheduler


def test_fifo_runs_the_oldest_task_of_the_thread_whatever_its_kind() -> None:
    scheduler = fifo_running("scan", "first", "second", threads=1)
    scheduler.packet_received("first", by_thread=0)
    scheduler.schedule_self("scan", by_thread=0)
    scheduler.packet_received("second", by_thread=0)
    scheduler.finished(0)
    order = []
    while (choice := scheduler.next_task(0)) is not None:
        order.append(chosen(choice))
        scheduler.finished(0)
    assert order == [("OWN_OLDEST", "first"), ("OWN_OLDEST", "second"), ("OWN_OLDEST", "scan")]


def test_fifo_steals_from_the_next_thread_that_has_a_task() -> None:
    scheduler = FifoStealScheduler(4)
    scheduler.submit_request("query", ["a", "b", "a1", "a2", "b1"])
    for operator in ("a", "b"):
        scheduler.schedule_self(operator)
    assert chosen(scheduler.next_task(0)) == ("OWN_OLDEST", "a")
    assert chosen(scheduler.next_task(1)) == ("OWN_OLDEST", "b")
    for operator, thread in (("a1", 0), ("a2", 0), ("b1", 1)):
        scheduler.packet_received(operator, by_thread=thread)
    assert chosen(scheduler.next_task(3)) == ("STEAL", "a1")
    assert chosen(scheduler.next_task(2)) == ("STEAL", "a2")
    assert scheduler.statistics().steals == 2


def test_fifo_gives_tasks_from_outside_to_the_threads_in_turn() -> None:
    scheduler = FifoStealScheduler(2)
    scheduler.submit_request("query", ["a", "b"])
    scheduler.schedule_self("a")
    scheduler.schedule_self("b")
    assert chosen(scheduler.next_task(1)) == ("OWN_OLDEST", "b")


def test_fifo_wakes_a_sleeper_for_every_task_longest_asleep_first() -> None:
    scheduler = fifo_running("scan", "a", "b", "c", threads=3)
    assert [woken(scheduler.packet_received(operator, by_thread=0)) for operator in "abc"] == [[1], [2], []]


def test_fifo_changes_the_semaphore_for_every_task_created_and_every_task_sought() -> None:
    scheduler = fifo_running("scan", "filter", threads=1)
    before = scheduler.semaphore_operations
    for _ in range(10):
        scheduler.packet_received("filter", by_thread=0)
        scheduler.finished(0)
        scheduler.next_task(0)
    assert scheduler.semaphore_operations - before == 20


def test_fifo_takes_a_removed_operators_task_off_the_semaphore() -> None:
    scheduler = fifo_running("scan", "removed", threads=1)
    scheduler.packet_received("removed", by_thread=0)
    before = scheduler.semaphore_operations
    scheduler.remove_operator("removed")
    assert scheduler.semaphore_operations == before + 1
    scheduler.finished(0)
    assert scheduler.next_task(0) is None


def test_fifo_sleeps_when_the_semaphore_is_zero() -> None:
    scheduler = FifoStealScheduler(1)
    assert scheduler.next_task(0) is None
    assert scheduler.statistics().choices[FifoStep.SLEEP] == 1


# --- random schedules -------------------------------------------------------------------------------------------------


class World:
    """Threads that obey a scheduler, and a model of the operators that knows nothing of its lists.

    A thread here sleeps from the moment it is given nothing until a Wake names it, so a lost wake-up leaves tasks
    waiting when everybody sleeps.
    """

    def __init__(self, scheduler: Scheduler, threads: int, draw: Callable[[int], int]) -> None:
        self.scheduler = scheduler
        self.threads = threads
        self.draw = draw
        self.awake: set[int] = set()
        self.running: dict[int, int] = {}
        self.states: dict[int, OperatorState] = {}
        self.requests: dict[int, list[int]] = {}
        self.leaving: set[int] = set()
        self.names = 0
        self.created = self.dropped = self.started = 0

    def pick(self, population: Iterable[int]) -> int | None:
        choices = sorted(population)
        return choices[self.draw(len(choices))] if choices else None

    def new_name(self) -> int:
        self.names += 1
        return self.names

    def obey(self, instructions: Iterable[Instruction]) -> None:
        for thread in woken(instructions):
            assert thread not in self.awake, "only a sleeping thread is woken"
            self.awake.add(thread)

    def submit(self) -> None:
        request = self.new_name()
        operators = [self.new_name() for _ in range(1 + self.draw(4))]
        self.requests[request] = operators
        self.states.update(dict.fromkeys(operators, NOTHING))
        self.obey(self.scheduler.submit_request(request, operators))

    def note_scheduled(self, operator: int) -> None:
        if self.states[operator] is NOTHING:
            self.states[operator] = SCHEDULED
            self.created += 1
        elif self.states[operator] is RUNNING:
            self.states[operator] = RUNNING_AND_SCHEDULED

    def schedule(self) -> None:
        if (operator := self.pick(self.states)) is not None:
            self.note_scheduled(operator)
            self.obey(self.scheduler.schedule_self(operator))

    def send(self) -> None:
        operator, sender = self.pick(self.states), self.pick(self.running)
        if operator is not None and sender is not None:
            self.note_scheduled(operator)
            self.obey(self.scheduler.packet_received(operator, sender))

    def step_a_thread(self) -> None:
        thread = self.pick(self.awake)
        if thread is None:
            return
        if thread in self.running:
            self.finish(thread)
        else:
            self.seek(thread)

    def seek(self, thread: int) -> None:
        expected = self.scheduler.explain(thread).choice if isinstance(self.scheduler, LocalityScheduler) else None
        choice = self.scheduler.next_task(thread)
        if isinstance(self.scheduler, LocalityScheduler):
            assert expected == (None if choice is None else replace(choice, wakes=()))
        if choice is None:
            self.awake.discard(thread)
            return
        self.obey(choice.wakes)
        operator = choice.operator
        assert isinstance(operator, int)
        assert operator not in self.running.values(), "an operator runs on one thread at a time"
        assert self.states[operator] is SCHEDULED, "each task runs once"
        self.states[operator] = RUNNING
        self.running[thread] = operator
        self.started += 1

    def finish(self, thread: int) -> None:
        operator = self.running.pop(thread)
        if operator in self.leaving:
            self.leaving.discard(operator)
        elif self.states[operator] is RUNNING_AND_SCHEDULED:
            self.states[operator] = SCHEDULED
            self.created += 1
        else:
            self.states[operator] = NOTHING
        self.obey(self.scheduler.finished(thread))

    def balance(self) -> None:
        self.obey(self.scheduler.balance())

    def forget(self, operator: int) -> None:
        state = self.states.pop(operator)
        if state is SCHEDULED:
            self.dropped += 1
        elif state is not NOTHING:
            self.leaving.add(operator)

    def remove_operator(self) -> None:
        operator = self.pick(self.states)
        if operator is not None and len(self.states) > 4:
            self.forget(operator)
            for operators in self.requests.values():
                if operator in operators:
                    operators.remove(operator)
            self.scheduler.remove_operator(operator)

    def remove_request(self) -> None:
        request = self.pick(self.requests)
        if request is not None and len(self.requests) > 2:
            for operator in self.requests.pop(request):
                self.forget(operator)
            self.scheduler.remove_request(request)

    def add_operator(self) -> None:
        if (request := self.pick(self.requests)) is not None:
            operator = self.new_name()
            self.requests[request].append(operator)
            self.states[operator] = NOTHING
            self.scheduler.add_operator(operator, request)

    def act(self) -> None:
        frequent = [self.schedule, self.schedule, self.send, self.send, self.step_a_thread, self.step_a_thread]
        arrive_and_balance = [self.submit, self.submit, self.balance, self.balance]
        rare = [*arrive_and_balance, self.add_operator, self.remove_operator, self.remove_request]
        actions = rare if self.draw(6) == 0 else frequent
        actions[self.draw(len(actions))]()
        self.scheduler.validate()
        for operator, state in self.states.items():
            assert self.scheduler.state_of(operator) is state

    def drain(self) -> None:
        while self.awake:
            self.step_a_thread()
        self.scheduler.validate()

    def assert_nothing_was_lost(self) -> None:
        assert not [operator for operator, state in self.states.items() if state is not NOTHING]
        assert self.started == self.created - self.dropped
        report = self.scheduler.statistics()
        assert report.tasks_created == self.created
        assert (report.waiting_tasks, report.running_threads) == (0, 0)
        assert report.sleeping_threads == self.threads


WORLDS: dict[str, tuple[Callable[[], Scheduler], int]] = {
    "one node": (lambda: LocalityScheduler([3]), 3),
    "three nodes": (lambda: LocalityScheduler([2, 1, 2]), 5),
    "simple scheduler": (lambda: FifoStealScheduler(3), 3),
}


def live(kind: str, draw: Callable[[int], int], actions: int) -> World:
    make, threads = WORLDS[kind]
    world = World(make(), threads, draw)
    for _ in range(3):
        world.submit()
    for _ in range(actions):
        world.act()
    world.drain()
    return world


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", WORLDS)
def test_random_schedules_lose_no_wake_up_and_run_each_task_once(kind: str, seed: int) -> None:
    world = live(kind, Random(seed).randrange, actions=250)
    assert world.started > 20
    world.assert_nothing_was_lost()


def test_random_schedules_reach_every_step_and_both_kinds_of_balancing() -> None:
    reports = [live("three nodes", Random(seed).randrange, actions=150).scheduler.statistics() for seed in range(4)]
    assert all(sum(report.choices[step] for report in reports) > 0 for step in Step)
    assert sum(report.moves for report in reports) > 0
    assert sum(report.shares for report in reports) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@given(schedule=st.lists(st.integers(0, 11), max_size=200))
def test_no_schedule_loses_a_wake_up(kind: str, schedule: list[int]) -> None:
    rest = iter(schedule)
    world = live(kind, lambda choices: next(rest, 0) % choices, actions=len(schedule) // 3)
    world.assert_nothing_was_lost()
