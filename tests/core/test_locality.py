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
from headgate.core.locality import (
    FifoStealScheduler,
    FifoStep,
    GroupLoad,
    Instruction,
    LocalityScheduler,
    MoveQuery,
    NodeState,
    PlaceQuery,
    SchedulerMisuseError,
    SearchStep,
    ShareQuery,
    TaskStart,
    Wake,
    choose_group,
    plan_balance,
)
from tests.core.locality_invariants import validate

NOTHING = NodeState.NOTHING
SCHEDULED = NodeState.SCHEDULED
RUNNING = NodeState.RUNNING
RUNNING_AND_SCHEDULED = NodeState.RUNNING_AND_SCHEDULED

Scheduler = LocalityScheduler | FifoStealScheduler


def woken(instructions: Iterable[Instruction]) -> list[int]:
    return [instruction.worker for instruction in instructions if isinstance(instruction, Wake)]


def chosen(choice: TaskStart | None) -> tuple[str, object] | None:
    """(step, node), the part of a choice that most tests are about."""
    return None if choice is None else (choice.step.name, choice.node)


def scheduler_running(node: str, *others: str, workers: int = 1) -> LocalityScheduler:
    """One group, one query; its node `node` runs on worker 0."""
    scheduler = LocalityScheduler([workers])
    scheduler.add_query("query", [node, *others])
    scheduler.note_ready(node)
    assert chosen(scheduler.next_start(0)) == ("OLDEST_QUERY", node)
    return scheduler


# --- the five steps ---------------------------------------------------------------------------------------------------


def test_step_1_takes_the_newest_immediate_task_of_the_worker() -> None:
    scheduler = scheduler_running("scan", "older", "newer")
    scheduler.packet_received("older", by_worker=0)
    scheduler.packet_received("newer", by_worker=0)
    scheduler.note_ready("scan")
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == ("OWN_NEWEST", "newer")
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == ("OWN_NEWEST", "older")


def test_step_2_takes_the_oldest_deferred_task_of_the_query_evaluated_last_although_an_older_query_waits() -> None:
    scheduler = LocalityScheduler([1])
    scheduler.add_query("old", ["waits"])
    scheduler.add_query("new", ["first", "older", "newer"])
    scheduler.note_ready("first")
    scheduler.next_start(0)
    for node in ("waits", "older", "newer"):
        scheduler.note_ready(node)
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == ("LAST_QUERY", "older")


def test_step_3_takes_the_oldest_deferred_task_of_the_oldest_query() -> None:
    scheduler = LocalityScheduler([1])
    scheduler.add_query("old", ["old 1", "old 2"])
    scheduler.add_query("new", ["new 1"])
    for node in ("new 1", "old 1", "old 2"):
        scheduler.note_ready(node)
    assert chosen(scheduler.next_start(0)) == ("OLDEST_QUERY", "old 1")


def test_step_3_passes_over_old_queries_that_have_no_task() -> None:
    scheduler = LocalityScheduler([1])
    for query in ("oldest", "middle", "newest"):
        scheduler.add_query(query, [f"{query} scan"])
    scheduler.note_ready("newest scan")
    scheduler.note_ready("middle scan")
    assert chosen(scheduler.next_start(0)) == ("OLDEST_QUERY", "middle scan")


def test_step_4_steals_the_oldest_immediate_task_of_another_worker_of_the_group() -> None:
    scheduler = scheduler_running("scan", "older", "newer", workers=2)
    scheduler.packet_received("older", by_worker=0)
    scheduler.packet_received("newer", by_worker=0)
    assert chosen(scheduler.next_start(1)) == ("STEAL", "older")
    assert scheduler.statistics().steals == 1


def test_step_5_sleeps_rather_than_steal_from_another_group() -> None:
    scheduler = LocalityScheduler([1, 1])
    scheduler.add_query("query", ["scan", "filter"])
    scheduler.note_ready("scan")
    scheduler.next_start(0)
    assert scheduler.packet_received("filter", by_worker=0) == ()
    assert scheduler.next_start(1) is None
    assert scheduler.statistics().steps[SearchStep.SLEEP] == 1


def test_steps_are_tried_in_their_order_and_each_choice_says_which_step_made_it() -> None:
    scheduler = LocalityScheduler([2])
    scheduler.add_query("old", ["old source"])
    scheduler.add_query("new", ["scan", "mine", "again"])
    scheduler.note_ready("scan")
    scheduler.next_start(0)
    scheduler.packet_received("mine", by_worker=0)
    scheduler.note_ready("again")
    scheduler.note_ready("old source")
    scheduler.finished(0)
    steps = []
    while (start := scheduler.next_start(0)) is not None:
        steps.append(chosen(start))
        scheduler.finished(0)
    assert steps == [("OWN_NEWEST", "mine"), ("LAST_QUERY", "again"), ("OLDEST_QUERY", "old source")]


# --- the four states --------------------------------------------------------------------------------------------------


def with_node_in(state: NodeState) -> LocalityScheduler:
    """Two workers; "op" is in `state`, on worker 0 if it runs; "sender" runs on worker 1."""
    scheduler = LocalityScheduler([2])
    scheduler.add_query("query", ["op", "sender"])
    scheduler.note_ready("sender")
    scheduler.next_start(1)
    if state is not NOTHING:
        scheduler.note_ready("op")
    if state in (RUNNING, RUNNING_AND_SCHEDULED):
        scheduler.next_start(0)
    if state is RUNNING_AND_SCHEDULED:
        scheduler.note_ready("op")
    assert scheduler.state_of("op") is state
    return scheduler


EVENTS: dict[str, Callable[[LocalityScheduler], object]] = {
    "packet": lambda scheduler: scheduler.packet_received("op", by_worker=1),
    "self": lambda scheduler: scheduler.note_ready("op"),
    "start": lambda scheduler: scheduler.next_start(0),
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
def test_node_states(state: NodeState, event: str, expected: NodeState, new_tasks: int) -> None:
    scheduler = with_node_in(state)
    before = scheduler.statistics().tasks_created
    EVENTS[event](scheduler)
    assert scheduler.state_of("op") is expected
    assert scheduler.statistics().tasks_created - before == new_tasks
    validate(scheduler)


def test_an_node_scheduled_while_running_is_not_given_to_a_second_worker() -> None:
    scheduler = with_node_in(RUNNING)
    scheduler.packet_received("op", by_worker=1)
    scheduler.finished(1)
    assert scheduler.next_start(1) is None


@pytest.mark.parametrize(
    ("reasons", "step"),
    [
        pytest.param(["packet"], "OWN_NEWEST", id="a packet makes it immediate"),
        pytest.param(["self"], "LAST_QUERY", id="scheduling itself makes it deferred"),
        pytest.param(["self", "packet"], "OWN_NEWEST", id="a packet among the reasons makes it immediate"),
        pytest.param(["packet", "self"], "OWN_NEWEST", id="whichever came first"),
    ],
)
def test_the_task_created_at_the_end_of_a_run_belongs_to_the_worker_that_ran_it(reasons: list[str], step: str) -> None:
    scheduler = with_node_in(RUNNING)
    for reason in reasons:
        EVENTS[reason](scheduler)
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == (step, "op")


# --- sleeping and waking ----------------------------------------------------------------------------------------------


def test_a_new_query_wakes_one_worker_of_its_group() -> None:
    scheduler = LocalityScheduler([2, 2])
    placed, *rest = scheduler.add_query("query")
    assert placed == PlaceQuery("query", group=0)
    assert woken(rest) == [1]


def test_a_task_wakes_nobody_while_a_worker_is_already_on_its_way() -> None:
    scheduler = LocalityScheduler([3])
    scheduler.add_query("query", ["a", "b"])
    assert woken(scheduler.note_ready("a")) == []
    assert woken(scheduler.note_ready("b")) == [1]


def test_the_worker_that_fell_asleep_last_is_woken_first() -> None:
    scheduler = LocalityScheduler([3])
    scheduler.add_query("query", ["a"])
    scheduler.next_start(2)
    for worker in (1, 2):
        scheduler.note_ready("a")
        scheduler.next_start(worker)
        scheduler.finished(worker)
        scheduler.next_start(worker)
    assert woken(scheduler.note_ready("a")) == [2]


def test_a_fully_loaded_group_needs_no_semaphore_operation() -> None:
    scheduler = scheduler_running("scan", "filter")
    before = scheduler.semaphore_operations
    for _ in range(10):
        scheduler.packet_received("filter", by_worker=0)
        scheduler.note_ready("scan")
        scheduler.finished(0)
        assert chosen(scheduler.next_start(0)) == ("OWN_NEWEST", "filter")
        scheduler.finished(0)
        assert chosen(scheduler.next_start(0)) == ("LAST_QUERY", "scan")
    assert scheduler.semaphore_operations == before


@pytest.mark.parametrize(
    "make", [lambda: LocalityScheduler([3]), lambda: FifoStealScheduler(3)], ids=["locality", "fifo"]
)
def test_a_worker_that_asks_without_having_been_woken_is_served_and_counts_as_awake(
    make: Callable[[], Scheduler],
) -> None:
    scheduler = make()
    scheduler.add_query("query", ["scan"])
    scheduler.note_ready("scan")
    asleep = scheduler.statistics().sleeping_workers
    choice = scheduler.next_start(1)
    assert choice is not None
    assert choice.node == "scan"
    assert scheduler.statistics().sleeping_workers == asleep - 1
    validate(scheduler)


def shared_by_two_groups() -> LocalityScheduler:
    """Two groups of two workers share "query": "s0" and "s1" run on group 0, which also owes "s2" and "s3".

    Of group 1, worker 3 has just been woken and worker 2 sleeps.
    """
    scheduler = LocalityScheduler([2, 2])
    scheduler.add_query("query", [f"s{number}" for number in range(8)])
    for number in range(4):
        scheduler.note_ready(f"s{number}")
    scheduler.next_start(0)
    scheduler.next_start(1)
    assert scheduler.balance() == (ShareQuery("query", source=0, target=1), Wake(3))
    return scheduler


def test_a_worker_that_takes_another_groups_task_wakes_a_substitute_for_its_own() -> None:
    scheduler = shared_by_two_groups()
    assert scheduler.note_ready("s4") == ()  # group 1's duty, and worker 3 is on its way
    assert scheduler.next_start(3) == TaskStart(SearchStep.OLDEST_QUERY, "s2", "query", wakes=(Wake(2),))
    validate(scheduler)


# --- load balancing ---------------------------------------------------------------------------------------------------


def load(group: int, *queries: str, idle: int = 0, waiting: int = 0, searching: int = 0) -> GroupLoad:
    return GroupLoad(group, idle=idle, searching=searching, waiting=waiting, queries=queries)


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        pytest.param([load(0, "new", "old", waiting=3), load(1, idle=1)], MoveQuery("new", 0, 1), id="move the newest"),
        pytest.param([load(0, "only", waiting=3), load(1, idle=1)], ShareQuery("only", 0, 1), id="share the only one"),
        pytest.param([load(0, "a", "b", waiting=3), load(1, "c", waiting=1)], None, id="nobody idle: nothing"),
        pytest.param([load(0, "a", "b"), load(1, idle=2)], None, id="nobody overloaded: nothing"),
        pytest.param(
            [load(0, "a", "b", waiting=2, searching=2), load(1, idle=2)], None, id="tasks about to be taken: nothing"
        ),
        pytest.param([load(0, waiting=2), load(1, idle=2)], None, id="overloaded by leftovers of a moved query"),
        pytest.param(
            [load(0, "both", waiting=3), load(1, "both", idle=1)], None, id="already shared with the idle one: nothing"
        ),
        pytest.param(
            [load(0, "both", waiting=3), load(1, "both", idle=3), load(2, idle=1)],
            ShareQuery("both", 0, 2),
            id="share with a third group",
        ),
        pytest.param(
            [load(0, "both", "mine", waiting=3), load(1, "both", idle=1)],
            MoveQuery("mine", 0, 1),
            id="move the newest that the idle group lacks",
        ),
        pytest.param(
            [load(0, "a", "b", waiting=1), load(1, "c", "d", waiting=5), load(2, idle=1), load(3, idle=4)],
            MoveQuery("c", 1, 3),
            id="most overloaded gives, idlest takes",
        ),
        pytest.param(
            [load(0, idle=2), load(1, "a", "b", waiting=5), load(2, "c", "d", waiting=5), load(3, idle=2)],
            MoveQuery("a", 1, 0),
            id="ties go to the lower group",
        ),
        pytest.param([load(0, "a", "b", waiting=9)], None, id="a machine without NUMA never balances"),
    ],
)
def test_balancing(loads: list[GroupLoad], expected: MoveQuery | ShareQuery | None) -> None:
    assert plan_balance(loads) == expected


@pytest.mark.parametrize(
    ("loads", "free_memory", "expected"),
    [
        pytest.param([load(0, idle=1), load(1, idle=2)], None, 1, id="most idle workers"),
        pytest.param([load(0, idle=1), load(1, idle=2)], [8, 1], 1, id="workers before memory"),
        pytest.param([load(0, idle=2), load(1, idle=2)], [1, 8], 1, id="then most free memory"),
        pytest.param([load(0, "a", "b"), load(1, "c")], [4, 4], 1, id="then fewest queries"),
        pytest.param([load(0), load(1)], None, 0, id="then the lowest number"),
    ],
)
def test_a_new_query_goes_to_the_group_with_most_free_resources(
    loads: list[GroupLoad], free_memory: list[float] | None, expected: int
) -> None:
    assert choose_group(loads, free_memory) == expected


def two_queries_on_group_0() -> LocalityScheduler:
    """Groups of one worker. "new source" of the newer query runs on group 0 and has sent a packet to "new filter";
    "new 1" and "new 2" wait, deferred; group 1 has nothing to do."""
    scheduler = LocalityScheduler([1, 1])
    scheduler.add_query("old", ["old source"])
    scheduler.add_query("elsewhere")
    scheduler.add_query("new", ["new source", "new filter", "new 1", "new 2"])
    assert [scheduler.groups_of(query) for query in ("old", "elsewhere", "new")] == [(0,), (1,), (0,)]
    assert scheduler.next_start(1) is None
    scheduler.note_ready("new source")
    scheduler.next_start(0)
    scheduler.packet_received("new filter", by_worker=0)
    scheduler.note_ready("new 1")
    scheduler.note_ready("new 2")
    return scheduler


def test_a_moved_query_takes_its_deferred_tasks_along_and_wakes_the_new_group() -> None:
    scheduler = two_queries_on_group_0()
    assert scheduler.balance() == (MoveQuery("new", source=0, target=1), Wake(1))
    assert scheduler.groups_of("new") == (1,)
    assert [group.waiting for group in scheduler.group_loads()] == [1, 2]
    assert chosen(scheduler.next_start(1)) == ("OLDEST_QUERY", "new 1")
    validate(scheduler)


def test_a_moved_query_leaves_its_immediate_tasks_beside_their_packets() -> None:
    scheduler = two_queries_on_group_0()
    scheduler.balance()
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == ("OWN_NEWEST", "new filter")
    scheduler.note_ready("new filter")
    scheduler.finished(0)
    assert scheduler.next_start(0) is None
    assert [group.waiting for group in scheduler.group_loads()] == [0, 3]


def test_duties_for_new_deferred_tasks_of_a_shared_query_go_round() -> None:
    scheduler = shared_by_two_groups()
    waiting = []
    for node in ("s4", "s5", "s6", "s7"):
        scheduler.note_ready(node)
        waiting.append([group.waiting for group in scheduler.group_loads()])
    assert waiting == [[2, 1], [3, 1], [3, 2], [4, 2]]


def test_a_query_can_be_shared_by_more_than_two_groups() -> None:
    scheduler = LocalityScheduler([1, 1, 1])
    scheduler.add_query("query", [f"s{number}" for number in range(9)])
    for number in range(4):
        scheduler.note_ready(f"s{number}")
    scheduler.next_start(0)
    assert scheduler.balance() == (ShareQuery("query", 0, 1), Wake(1))
    scheduler.next_start(1)
    assert scheduler.balance() == (ShareQuery("query", 0, 2), Wake(2))
    scheduler.next_start(2)
    assert scheduler.groups_of("query") == (0, 1, 2)
    before = [group.waiting for group in scheduler.group_loads()]
    for number in range(4, 7):
        scheduler.note_ready(f"s{number}")
    assert [group.waiting - old for group, old in zip(scheduler.group_loads(), before, strict=True)] == [1, 1, 1]
    assert (scheduler.statistics().shares, scheduler.statistics().moves) == (2, 0)


def test_a_group_that_moves_its_part_of_a_shared_query_hands_over_only_its_own_duties() -> None:
    scheduler = LocalityScheduler([1, 1, 1])
    scheduler.add_query("older", ["o1", "o2"])
    scheduler.add_query("query", [f"s{number}" for number in range(5)])
    assert scheduler.next_start(0) is None
    for node in ("s0", "s1", "s2"):
        scheduler.note_ready(node)
    scheduler.next_start(1)
    assert scheduler.balance() == (ShareQuery("query", source=1, target=0), Wake(0))
    scheduler.next_start(0)
    for node in ("s3", "s4", "o1", "o2"):
        scheduler.note_ready(node)
    assert [group.waiting for group in scheduler.group_loads()] == [3, 2, 0]
    assert scheduler.balance() == (MoveQuery("query", source=0, target=2), Wake(2))
    assert scheduler.groups_of("query") == (1, 2)
    assert [group.waiting for group in scheduler.group_loads()] == [2, 2, 1]
    validate(scheduler)


# --- queries and nodes come and go -------------------------------------------------------------------------------


def test_a_removed_nodes_waiting_task_is_dropped() -> None:
    scheduler = scheduler_running("scan", "left", "removed", "right")
    for node in ("left", "removed", "right"):
        scheduler.packet_received(node, by_worker=0)
    scheduler.remove_node("removed")
    validate(scheduler)
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == ("OWN_NEWEST", "right")
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == ("OWN_NEWEST", "left")


def test_an_node_removed_while_running_ends_its_run_and_does_not_come_back() -> None:
    scheduler = scheduler_running("scan")
    scheduler.note_ready("scan")
    scheduler.remove_node("scan")
    validate(scheduler)
    with pytest.raises(SchedulerMisuseError, match="removed while running"):
        scheduler.add_node("scan", "query")
    scheduler.finished(0)
    assert scheduler.next_start(0) is None
    scheduler.add_node("scan", "query")
    assert scheduler.state_of("scan") is NOTHING


def test_an_node_added_to_a_running_query_is_scheduled_like_any_other() -> None:
    scheduler = scheduler_running("scan")
    scheduler.add_node("late", "query")
    scheduler.packet_received("late", by_worker=0)
    scheduler.finished(0)
    assert chosen(scheduler.next_start(0)) == ("OWN_NEWEST", "late")


def test_a_removed_query_leaves_nothing_behind() -> None:
    scheduler = shared_by_two_groups()
    scheduler.packet_received("s6", by_worker=0)
    scheduler.remove_query("query")
    validate(scheduler)
    report = scheduler.statistics()
    assert (report.queries, report.nodes, report.waiting_tasks) == (0, 0, 0)
    for worker in (0, 1):
        scheduler.finished(worker)
        assert scheduler.next_start(worker) is None
    scheduler.add_query("query", ["s0"])
    validate(scheduler)


def test_queries_that_come_and_go_leave_no_trace_behind_an_old_busy_one() -> None:
    scheduler = LocalityScheduler([1])
    scheduler.add_query("old", ["old source"])
    scheduler.note_ready("old source")
    for number in range(50):
        scheduler.add_query(number, [f"source {number}"])
        scheduler.note_ready(f"source {number}")
        scheduler.remove_query(number)
    assert [query.id for _, query in scheduler._groups[0].ready] == ["old"]


# --- explaining, misuse, validating -----------------------------------------------------------------------------------


def test_explain_names_every_candidate_and_the_step_that_decides() -> None:
    scheduler = LocalityScheduler([2])
    scheduler.add_query("old", ["old source"])
    scheduler.add_query("new", ["scan", "filter", "again"])
    scheduler.note_ready("scan")
    scheduler.next_start(0)
    scheduler.packet_received("filter", by_worker=0)
    scheduler.note_ready("again")
    scheduler.note_ready("old source")
    explanation = scheduler.explain(0)
    assert [(report.step.value, report.node, report.decides) for report in explanation.steps] == [
        (1, "filter", True),
        (2, "again", False),
        (3, "old source", False),
        (4, None, False),
        (5, None, False),
    ]
    first, second, *_ = str(explanation).splitlines()[1:]
    assert first.startswith("-> 1 own_newest: node 'filter' of query 'new': newest immediate task of this worker")
    assert second.endswith("but step 1 comes first")
    thief = scheduler.explain(1)
    assert thief.choice == TaskStart(SearchStep.OLDEST_QUERY, "old source", "old")
    assert "(from worker 0)" in thief.steps[3].why


@pytest.mark.parametrize(
    ("situation", "step", "reason"),
    [
        pytest.param(lambda: LocalityScheduler([1]), 1, "no immediate task", id="no immediate task"),
        pytest.param(lambda: LocalityScheduler([1]), 2, "has not evaluated any query yet", id="no last query"),
        pytest.param(
            lambda: scheduler_running("scan"), 2, "'query', evaluated last, has no deferred", id="it is empty"
        ),
        pytest.param(two_queries_on_group_0, 4, "immediate tasks of its own", id="no need to steal"),
        pytest.param(lambda: LocalityScheduler([1]), 3, "none of the 0 queries of group 0", id="no query"),
        pytest.param(lambda: LocalityScheduler([1]), 5, "nothing waits", id="sleep"),
    ],
)
def test_explain_says_why_a_step_finds_nothing(
    situation: Callable[[], LocalityScheduler], step: int, reason: str
) -> None:
    assert reason in situation().explain(0).steps[step - 1].why


def test_explain_says_where_the_last_query_has_gone() -> None:
    scheduler = two_queries_on_group_0()
    scheduler.balance()
    assert "has moved to group 1" in scheduler.explain(0).steps[1].why
    scheduler.remove_query("new")
    assert "was removed" in scheduler.explain(0).steps[1].why


@pytest.mark.parametrize(
    "make", [lambda: LocalityScheduler([2]), lambda: FifoStealScheduler(2)], ids=["locality", "fifo"]
)
@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        pytest.param(lambda s: s.note_ready("gone"), "node 'gone' is unknown", id="unknown node"),
        pytest.param(lambda s: s.remove_query("gone"), "query 'gone' is unknown", id="unknown query"),
        pytest.param(lambda s: s.add_node("op", "gone"), "query 'gone' is unknown", id="no such query"),
        pytest.param(lambda s: s.next_start(2), "worker 2 is unknown; expected 0 to 1", id="unknown worker"),
        pytest.param(lambda s: s.next_start(-1), "worker -1 is unknown", id="negative worker"),
        pytest.param(lambda s: s.next_start(0), "still runs node 'scan'", id="asks while running"),
        pytest.param(lambda s: s.finished(1), "runs nothing that could finish", id="finishes without running"),
        pytest.param(lambda s: s.packet_received("scan", 1), "cannot have sent a packet", id="sends without running"),
        pytest.param(lambda s: s.add_query("query"), "already being evaluated", id="query twice"),
        pytest.param(lambda s: s.add_node("scan", "query"), "already belongs to query 'query'", id="same node"),
        pytest.param(lambda s: s.add_query("q2", ["a", "scan"]), "already belongs", id="node of another"),
        pytest.param(lambda s: s.add_query("q2", ["a", "a"]), "lists node 'a' twice", id="node twice"),
    ],
)
def test_misuse_is_refused_with_a_reason_and_changes_nothing(
    make: Callable[[], Scheduler], mistake: Callable[[Scheduler], object], message: str
) -> None:
    scheduler = make()
    scheduler.add_query("query", ["scan"])
    scheduler.note_ready("scan")
    scheduler.next_start(0)
    before = scheduler.statistics()
    with pytest.raises(SchedulerMisuseError, match=message):
        mistake(scheduler)
    assert scheduler.statistics() == before
    validate(scheduler)


@pytest.mark.parametrize(
    "workers_per_group", [[], [0], [2, 0]], ids=["no group", "no worker", "a group without worker"]
)
def test_a_scheduler_needs_groups_and_workers(workers_per_group: list[int]) -> None:
    with pytest.raises(SchedulerMisuseError, match="at least one group and one worker in each"):
        LocalityScheduler(workers_per_group)


def test_free_memory_must_have_one_number_per_group() -> None:
    with pytest.raises(SchedulerMisuseError, match="expected 2, got 1"):
        LocalityScheduler([1, 1]).add_query("query", free_memory=[1.0])


def clear_running(scheduler: LocalityScheduler) -> None:
    scheduler._workers[0].node = None


def list_a_task_twice(scheduler: LocalityScheduler) -> None:
    task = next(iter(scheduler._table.query("new").deferred))
    scheduler._workers[0].immediate[task] = None


def miscount_waiting(scheduler: LocalityScheduler) -> None:
    scheduler._groups[0].waiting += 1


def oversleep(scheduler: LocalityScheduler) -> None:
    scheduler.balance()
    worker = scheduler._workers[1]
    worker.asleep = True
    worker.group.searching -= 1
    worker.group.sleeping[worker] = None


def forget_a_query(scheduler: LocalityScheduler) -> None:
    del scheduler._groups[1].queries["elsewhere"]


def hide_ready_queries(scheduler: LocalityScheduler) -> None:
    scheduler._groups[0].ready.clear()


def lose_the_mirror(scheduler: LocalityScheduler) -> None:
    scheduler._groups[0].immediate.clear()


def sleep_unlisted(scheduler: LocalityScheduler) -> None:
    scheduler._groups[1].sleeping.clear()


@pytest.mark.parametrize(
    ("number", "damage"),
    [
        (1, clear_running),
        (2, list_a_task_twice),
        (3, miscount_waiting),
        (4, oversleep),
        (5, forget_a_query),
        (6, hide_ready_queries),
        (7, lose_the_mirror),
        (8, sleep_unlisted),
    ],
    ids=lambda value: value.__name__ if callable(value) else f"inv{value}",
)
def test_validate_notices_each_broken_invariant(number: int, damage: Callable[[LocalityScheduler], None]) -> None:
    scheduler = two_queries_on_group_0()
    validate(scheduler)
    damage(scheduler)
    with pytest.raises(InvariantError, match=f"inv{number}:"):
        validate(scheduler)


def test_the_example_in_the_docstring_runs() -> None:
    failed, tried = doctest.testmod(headgate.core.locality.scheduler)
    assert failed == 0 < tried


# --- the simple scheduler ---------------------------------------------------------------------------------------------


def fifo_running(*nodes: str, workers: int) -> FifoStealScheduler:
    """The first node runs on worker 0."""
    scheduler = FifoStealScheduler(workers)
    scheduler.add_query("query", nodes)
    scheduler.note_ready(nodes[0])
    scheduler.next_start(0)
    return scheduler


def test_fifo_runs_the_oldest_task_of_the_worker_whatever_its_kind() -> None:
    scheduler = fifo_running("scan", "first", "second", workers=1)
    scheduler.packet_received("first", by_worker=0)
    scheduler.note_ready("scan", by_worker=0)
    scheduler.packet_received("second", by_worker=0)
    scheduler.finished(0)
    order = []
    while (start := scheduler.next_start(0)) is not None:
        order.append(chosen(start))
        scheduler.finished(0)
    assert order == [("OWN_OLDEST", "first"), ("OWN_OLDEST", "second"), ("OWN_OLDEST", "scan")]


def test_fifo_steals_from_the_next_worker_that_has_a_task() -> None:
    scheduler = FifoStealScheduler(4)
    scheduler.add_query("query", ["a", "b", "a1", "a2", "b1"])
    for node in ("a", "b"):
        scheduler.note_ready(node)
    assert chosen(scheduler.next_start(0)) == ("OWN_OLDEST", "a")
    assert chosen(scheduler.next_start(1)) == ("OWN_OLDEST", "b")
    for node, worker in (("a1", 0), ("a2", 0), ("b1", 1)):
        scheduler.packet_received(node, by_worker=worker)
    assert chosen(scheduler.next_start(3)) == ("STEAL", "a1")
    assert chosen(scheduler.next_start(2)) == ("STEAL", "a2")
    assert scheduler.statistics().steals == 2


def test_fifo_gives_tasks_from_outside_to_the_workers_in_turn() -> None:
    scheduler = FifoStealScheduler(2)
    scheduler.add_query("query", ["a", "b"])
    scheduler.note_ready("a")
    scheduler.note_ready("b")
    assert chosen(scheduler.next_start(1)) == ("OWN_OLDEST", "b")


def test_fifo_wakes_a_sleeper_for_every_task_longest_asleep_first() -> None:
    scheduler = fifo_running("scan", "a", "b", "c", workers=3)
    assert [woken(scheduler.packet_received(node, by_worker=0)) for node in "abc"] == [[1], [2], []]


def test_fifo_changes_the_semaphore_for_every_task_created_and_every_task_sought() -> None:
    scheduler = fifo_running("scan", "filter", workers=1)
    before = scheduler.semaphore_operations
    for _ in range(10):
        scheduler.packet_received("filter", by_worker=0)
        scheduler.finished(0)
        scheduler.next_start(0)
    assert scheduler.semaphore_operations - before == 20


def test_fifo_takes_a_removed_nodes_task_off_the_semaphore() -> None:
    scheduler = fifo_running("scan", "removed", workers=1)
    scheduler.packet_received("removed", by_worker=0)
    before = scheduler.semaphore_operations
    scheduler.remove_node("removed")
    assert scheduler.semaphore_operations == before + 1
    scheduler.finished(0)
    assert scheduler.next_start(0) is None


def test_fifo_sleeps_when_the_semaphore_is_zero() -> None:
    scheduler = FifoStealScheduler(1)
    assert scheduler.next_start(0) is None
    assert scheduler.statistics().steps[FifoStep.SLEEP] == 1


# --- random schedules -------------------------------------------------------------------------------------------------


class World:
    """Workers that obey a scheduler, and a model of the nodes that knows nothing of its lists.

    A worker here sleeps from the moment it is given nothing until a Wake names it, so a lost wake-up leaves tasks
    waiting when everybody sleeps.
    """

    def __init__(self, scheduler: Scheduler, workers: int, draw: Callable[[int], int]) -> None:
        self.scheduler = scheduler
        self.workers = workers
        self.draw = draw
        self.awake: set[int] = set()
        self.running: dict[int, int] = {}
        self.states: dict[int, NodeState] = {}
        self.queries: dict[int, list[int]] = {}
        self.leaving: set[int] = set()
        self.names = 0
        self.created = self.dropped = self.started = 0

    def pick(self, population: Iterable[int]) -> int | None:
        steps = sorted(population)
        return steps[self.draw(len(steps))] if steps else None

    def new_name(self) -> int:
        self.names += 1
        return self.names

    def obey(self, instructions: Iterable[Instruction]) -> None:
        for worker in woken(instructions):
            assert worker not in self.awake, "only a sleeping worker is woken"
            self.awake.add(worker)

    def submit(self) -> None:
        query = self.new_name()
        nodes = [self.new_name() for _ in range(1 + self.draw(4))]
        self.queries[query] = nodes
        self.states.update(dict.fromkeys(nodes, NOTHING))
        self.obey(self.scheduler.add_query(query, nodes))

    def note_scheduled(self, node: int) -> None:
        if self.states[node] is NOTHING:
            self.states[node] = SCHEDULED
            self.created += 1
        elif self.states[node] is RUNNING:
            self.states[node] = RUNNING_AND_SCHEDULED

    def schedule(self) -> None:
        if (node := self.pick(self.states)) is not None:
            self.note_scheduled(node)
            self.obey(self.scheduler.note_ready(node))

    def send(self) -> None:
        node, sender = self.pick(self.states), self.pick(self.running)
        if node is not None and sender is not None:
            self.note_scheduled(node)
            self.obey(self.scheduler.packet_received(node, sender))

    def step_a_worker(self) -> None:
        worker = self.pick(self.awake)
        if worker is None:
            return
        if worker in self.running:
            self.finish(worker)
        else:
            self.seek(worker)

    def seek(self, worker: int) -> None:
        expected = self.scheduler.explain(worker).choice if isinstance(self.scheduler, LocalityScheduler) else None
        choice = self.scheduler.next_start(worker)
        if isinstance(self.scheduler, LocalityScheduler):
            assert expected == (None if choice is None else replace(choice, wakes=()))
        if choice is None:
            self.awake.discard(worker)
            return
        self.obey(choice.wakes)
        node = choice.node
        assert isinstance(node, int)
        assert node not in self.running.values(), "a node runs on one worker at a time"
        assert self.states[node] is SCHEDULED, "each task runs once"
        self.states[node] = RUNNING
        self.running[worker] = node
        self.started += 1

    def finish(self, worker: int) -> None:
        node = self.running.pop(worker)
        if node in self.leaving:
            self.leaving.discard(node)
        elif self.states[node] is RUNNING_AND_SCHEDULED:
            self.states[node] = SCHEDULED
            self.created += 1
        else:
            self.states[node] = NOTHING
        self.obey(self.scheduler.finished(worker))

    def balance(self) -> None:
        self.obey(self.scheduler.balance())

    def forget(self, node: int) -> None:
        state = self.states.pop(node)
        if state is SCHEDULED:
            self.dropped += 1
        elif state is not NOTHING:
            self.leaving.add(node)

    def remove_node(self) -> None:
        node = self.pick(self.states)
        if node is not None and len(self.states) > 4:
            self.forget(node)
            for nodes in self.queries.values():
                if node in nodes:
                    nodes.remove(node)
            self.scheduler.remove_node(node)

    def remove_query(self) -> None:
        query = self.pick(self.queries)
        if query is not None and len(self.queries) > 2:
            for node in self.queries.pop(query):
                self.forget(node)
            self.scheduler.remove_query(query)

    def add_node(self) -> None:
        if (query := self.pick(self.queries)) is not None:
            node = self.new_name()
            self.queries[query].append(node)
            self.states[node] = NOTHING
            self.scheduler.add_node(node, query)

    def act(self) -> None:
        frequent = [self.schedule, self.schedule, self.send, self.send, self.step_a_worker, self.step_a_worker]
        arrive_and_balance = [self.submit, self.submit, self.balance, self.balance]
        rare = [*arrive_and_balance, self.add_node, self.remove_node, self.remove_query]
        actions = rare if self.draw(6) == 0 else frequent
        actions[self.draw(len(actions))]()
        validate(self.scheduler)
        for node, state in self.states.items():
            assert self.scheduler.state_of(node) is state

    def drain(self) -> None:
        while self.awake:
            self.step_a_worker()
        validate(self.scheduler)

    def assert_nothing_was_lost(self) -> None:
        assert not [node for node, state in self.states.items() if state is not NOTHING]
        assert self.started == self.created - self.dropped
        report = self.scheduler.statistics()
        assert report.tasks_created == self.created
        assert (report.waiting_tasks, report.running_workers) == (0, 0)
        assert report.sleeping_workers == self.workers


WORLDS: dict[str, tuple[Callable[[], Scheduler], int]] = {
    "one group": (lambda: LocalityScheduler([3]), 3),
    "three groups": (lambda: LocalityScheduler([2, 1, 2]), 5),
    "simple scheduler": (lambda: FifoStealScheduler(3), 3),
}


def live(kind: str, draw: Callable[[int], int], actions: int) -> World:
    make, workers = WORLDS[kind]
    world = World(make(), workers, draw)
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
    reports = [live("three groups", Random(seed).randrange, actions=150).scheduler.statistics() for seed in range(4)]
    assert all(sum(report.steps[step] for report in reports) > 0 for step in SearchStep)
    assert sum(report.moves for report in reports) > 0
    assert sum(report.shares for report in reports) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@given(schedule=st.lists(st.integers(0, 11), max_size=200))
def test_no_schedule_loses_a_wake_up(kind: str, schedule: list[int]) -> None:
    rest = iter(schedule)
    world = live(kind, lambda steps: next(rest, 0) % steps, actions=len(schedule) // 3)
    world.assert_nothing_was_lost()
