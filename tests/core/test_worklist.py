"""One worker in a round: whom it runs, when it waits, when it reschedules with the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from headgate.core.errors import InvariantError, ParameterError
from headgate.core.loop import Start
from headgate.core.worklist import Counts, NodeRecords, Reschedule, RoundsConfig, Step, Wait, Worklist

CONFIG = RoundsConfig(period=1.0, batch=10, delay=math.inf, backoff_min=0.01)
ALL = range(100)


def sorted_list(
    priorities: Sequence[float | tuple[float, ...]],
    *,
    config: RoundsConfig = CONFIG,
    patience: Sequence[float] | None = None,
    records: NodeRecords | None = None,
    forces: bool = False,
) -> Worklist:
    """A list of nodes 0, 1, ... with these priorities, whose names sort like their numbers."""
    count = len(priorities)
    own = Worklist(0, records or NodeRecords(count, 0.0), config)
    sort_again(own, priorities, patience=patience, forces=forces)
    return own


def sort_again(
    own: Worklist,
    priorities: Sequence[float | tuple[float, ...]],
    *,
    patience: Sequence[float] | None = None,
    forces: bool = False,
) -> None:
    count = len(priorities)
    table = np.array(priorities, dtype=np.float64).reshape(count, -1 if count else 1)
    own.deal(np.arange(count), own.config)
    own.sort(table, (np.arange(count),), np.array(patience or [math.inf] * count), forces=forces)
    own.validate()


def run_one(own: Worklist, now: float, runnable: Iterable[int], lasts: float = 0.0) -> Step:
    """Ask for a step and, if it is a run, make it."""
    step = own.next_step(now, set(runnable).__contains__)
    if isinstance(step, Start):
        own.finished(now + lasts)
    return step


def picks(own: Worklist, runnable: Sequence[Iterable[int]]) -> list[tuple[int, str]]:
    """What is run when these nodes can run at the first step, these at the second, and so on."""
    steps = [run_one(own, 0.001 * k, nodes) for k, nodes in enumerate(runnable)]
    return [(step.node, step.reason) for step in steps if isinstance(step, Start)]


# --- the policy's order (algorithm 1, lines 5-13) -----------------------------------------------------------


@pytest.mark.parametrize(
    ("priorities", "runnable", "expected"),
    [
        pytest.param([1, 3, 2], [ALL] * 3, [(1, "policy")] * 3, id="the best node runs for as long as it can"),
        pytest.param(
            [1, 3, 2],
            [{0, 2}, {0}],
            [(2, "policy"), (0, "policy")],
            id="nodes that cannot run are passed over",
        ),
        pytest.param(
            [1, 3],
            [{0}, {0, 1}, {0}],
            [(0, "policy"), (1, "policy"), (0, "policy")],
            id="back to the top after each run",
        ),
        pytest.param(
            [5, 5, 5],
            [ALL] * 4,
            [(0, "policy"), (1, "tie"), (2, "tie"), (0, "policy")],
            id="equals take turns",
        ),
        pytest.param(
            [5, 5, 5, 1],
            [{0, 2, 3}] * 3,
            [(0, "policy"), (2, "tie"), (0, "policy")],
            id="an equal that cannot run is passed over, a lesser node is not reached",
        ),
        pytest.param(
            [9, 5, 5],
            [{1, 2}, ALL, ALL],
            [(1, "policy"), (2, "tie"), (0, "policy")],
            id="a better node waits until the walk along the equals is over",
        ),
        pytest.param(
            [(1, 9), (2, 0), (2, 5)],
            [{0, 1, 2}, {0, 1}, {0}],
            [(2, "policy"), (1, "policy"), (0, "policy")],
            id="vectors are compared from left to right",
        ),
        pytest.param(
            [(1, 2), (1, 2), (1, 1)],
            [ALL] * 3,
            [(0, "policy"), (1, "tie"), (0, "policy")],
            id="vectors are equal if all numbers are",
        ),
        pytest.param([0.0, -0.0], [ALL] * 2, [(0, "policy"), (1, "tie")], id="minus zero equals zero"),
    ],
)
def test_a_step_runs(priorities: list[float], runnable: list[set[int]], expected: list[tuple[int, str]]) -> None:
    assert picks(sorted_list(priorities), runnable) == expected


def test_a_run_is_limited_to_the_batch() -> None:
    assert run_one(sorted_list([1]), 0.0, {0}) == Start(node=0, worker=0, reason="policy", batch=10)


def test_equals_that_ran_longest_ago_go_first_so_that_short_rounds_still_serve_all() -> None:
    own = sorted_list([5, 5, 5])
    ran = []
    for number in range(6):
        step = run_one(own, 2.0 * number, ALL, lasts=1.5)  # one run fills the period
        assert isinstance(step, Start)
        ran.append(step.node)
        assert run_one(own, 2.0 * number + 1.5, ALL) == Reschedule()
        own.arrive()
        sort_again(own, [5, 5, 5])
    assert ran == [0, 1, 2, 0, 1, 2]


# --- waiting and rescheduling (lines 14-17) -----------------------------------------------------------------


def test_back_off_starts_small_doubles_and_never_goes_beyond_the_round() -> None:
    own = sorted_list([1], config=RoundsConfig(period=1.0, backoff_min=0.125))
    now, waits = 5.0, []
    while isinstance(step := run_one(own, now, ()), Wait):
        waits.append(step.seconds)
        now += step.seconds
    assert waits == [0.125, 0.25, 0.5, 0.125]
    assert (step, now) == (Reschedule(), 6.0)
    assert own.counts.backoffs == 4


def test_back_off_starts_anew_in_each_round_and_not_before() -> None:
    own = sorted_list([1], config=RoundsConfig(period=1.0, backoff_min=0.125))
    assert [run_one(own, t, ()) for t in (0.0, 0.125)] == [Wait(0.125), Wait(0.25)]
    run_one(own, 0.375, {0})
    assert run_one(own, 0.4, ()) == Wait(0.5)
    run_one(own, 1.0, ())
    own.arrive()
    sort_again(own, [1])
    assert run_one(own, 1.0, ()) == Wait(0.125)


def test_a_worker_without_nodes_waits_for_the_rescheduling() -> None:
    own = sorted_list([])
    assert isinstance(run_one(own, 0.0, ()), Wait)
    assert run_one(own, 1.0, ()) == Reschedule()


def test_the_period_counts_from_the_first_step_so_that_a_slow_rescheduling_leaves_time_to_run() -> None:
    own = sorted_list([1])
    assert isinstance(run_one(own, 100.0, {0}), Start)
    assert isinstance(run_one(own, 100.999, {0}), Start)
    assert run_one(own, 101.0, {0}) == Reschedule()
    assert run_one(own, 101.0, {0}) == Reschedule(), "asking again changes nothing"


# --- delayed nodes (lines 19-23) ----------------------------------------------------------------------------

DELAY = RoundsConfig(period=1.0, delay=3.0)


def delayed(last_run: Sequence[float], priorities: Sequence[float], *, forces: bool = True) -> Worklist:
    records = NodeRecords(len(last_run), 0.0)
    records.last_run[:] = last_run
    return sorted_list(priorities, config=DELAY, records=records, forces=forces)


def test_delayed_nodes_run_first_although_the_policy_puts_them_last_and_the_longest_neglected_leads() -> None:
    own = delayed([9, 6, 5, 8], [9, 2, 1, 3])
    runs = [run_one(own, t, ALL) for t in (10.0, 10.1, 10.2)]
    assert runs == [Start(2, 0, "forced", 10), Start(1, 0, "forced", 10), Start(0, 0, "policy", 10)]


def test_a_node_is_delayed_only_beyond_the_delay() -> None:
    assert run_one(delayed([7.0, 10.0], [1, 2]), 10.0, ALL) == Start(1, 0, "policy", 10)


def test_a_delayed_node_that_cannot_run_is_not_forced() -> None:
    assert run_one(delayed([0, 0, 10], [1, 2, 3]), 10.0, {1, 2}) == Start(1, 0, "forced", 10)


def test_delayed_nodes_are_left_alone_if_nobody_reads_what_running_them_measures() -> None:
    assert run_one(delayed([0, 10], [1, 2], forces=False), 10.0, ALL) == Start(1, 0, "policy", 10)


def test_forced_runs_end_with_the_period_but_the_policy_still_has_one_look() -> None:
    own = delayed([0, 1, 2, 10], [1, 2, 3, 4])
    assert run_one(own, 10.0, ALL) == Start(0, 0, "forced", 10)
    assert run_one(own, 10.9, ALL) == Start(1, 0, "forced", 10)
    assert run_one(own, 11.5, ALL) == Start(3, 0, "policy", 10), "node 2 is delayed too, but the period is over"
    assert run_one(own, 12.0, ALL) == Reschedule()


# --- the guard ----------------------------------------------------------------------------------------------


def test_a_node_runnable_for_longer_than_its_patience_goes_first() -> None:
    own = sorted_list([9, 1], patience=[math.inf, 0.5])
    reasons = [run_one(own, t, ALL) for t in (0.0, 0.25, 0.5, 0.75)]
    assert reasons == [
        Start(0, 0, "policy", 10),
        Start(0, 0, "policy", 10),
        Start(1, 0, "guard", 10),
        Start(0, 0, "policy", 10),
    ]


def test_the_guard_strikes_once_and_then_the_policy_has_a_look() -> None:
    own = sorted_list([9, 1, 1, 1], patience=[math.inf, 0.3, 0.1, 0.2])
    run_one(own, 0.0, ALL)
    steps = [run_one(own, t, ALL) for t in (0.5, 0.6, 0.7, 0.8, 0.9)]
    assert [(step.node, step.reason) for step in steps if isinstance(step, Start)] == [
        (2, "guard"),
        (0, "policy"),
        (3, "guard"),
        (0, "policy"),
        (1, "guard"),
    ]


def test_after_a_guard_run_the_policy_has_its_look_even_if_the_period_is_over() -> None:
    own = sorted_list([9, 1], patience=[math.inf, 0.0])
    assert run_one(own, 0.0, ALL) == Start(1, 0, "guard", 10)
    assert run_one(own, 7.0, ALL) == Start(0, 0, "policy", 10)
    assert run_one(own, 8.0, ALL) == Reschedule()


def test_a_node_that_ran_is_patient_again() -> None:
    own = sorted_list([1, 9], patience=[0.5, math.inf])
    assert run_one(own, 0.0, {0}) == Start(0, 0, "policy", 10)
    assert run_one(own, 0.6, ALL) == Start(1, 0, "policy", 10)


def test_an_overdue_node_that_cannot_run_any_more_is_passed_over() -> None:
    own = sorted_list([9, 1], patience=[math.inf, 0.5])
    run_one(own, 0.0, ALL)
    assert run_one(own, 0.6, {0}) == Start(0, 0, "policy", 10)


def test_waiting_counts_on_from_round_to_round_unless_the_node_was_seen_idle() -> None:
    records = NodeRecords(2, 0.0)
    patience = [math.inf, 2.5]
    seen = []
    own = sorted_list([9, 1], patience=patience, records=records)
    for start, runnable in ((0.0, {0, 1}), (1.0, {0}), (2.0, {0, 1}), (3.0, {0, 1})):
        run_one(own, start, runnable)
        seen.append(records.runnable_since[1])
        run_one(own, start + 1.0, runnable)
        own.arrive()
        sort_again(own, [9, 1], patience=patience)
    assert seen == [0.0, math.inf, 2.0, 2.0]


def test_nodes_without_a_limit_to_their_patience_are_not_looked_at() -> None:
    own = sorted_list([3, 2, 1], patience=[math.inf, math.inf, 5.0])
    asked: list[int] = []

    def can_run(node: int) -> bool:
        asked.append(node)
        return True

    own.next_step(0.0, can_run)
    assert asked == [2, 0], "node 2 for the guard, node 0 to run it"


def test_an_overdue_node_goes_before_a_delayed_one_and_is_not_forced_as_well() -> None:
    own = sorted_list([9, 1, 1], config=DELAY, patience=[math.inf, math.inf, 0.0], forces=True)
    steps = [run_one(own, t, ALL) for t in (10.0, 10.1, 10.2, 10.3)]
    assert [(step.node, step.reason) for step in steps if isinstance(step, Start)] == [
        (2, "guard"),
        (0, "forced"),
        (1, "forced"),
        (0, "policy"),
    ]


# --- records and checks -------------------------------------------------------------------------------------


def test_what_ran_is_recorded_with_the_seconds_it_took() -> None:
    records = NodeRecords(2, 0.0)
    own = sorted_list([2, 1], records=records)
    run_one(own, 0.25, ALL, lasts=0.125)
    run_one(own, 0.5, ALL, lasts=0.25)
    assert own.executed == {0: 0.375}
    assert records.last_run == [0.75, 0.0]


def test_records_follow_their_nodes_to_another_graph() -> None:
    records = NodeRecords(3, 0.0)
    records.last_run[:] = [1.0, 2.0, 3.0]
    records.runnable_since[:] = [4.0, 5.0, 6.0]
    records.follow(np.array([2, -1, 0]), 9.0)
    assert (records.last_run, records.runnable_since) == ([3.0, 9.0, 1.0], [6.0, math.inf, 4.0])


def test_counts_add_up() -> None:
    own = sorted_list([5, 5])
    picks(own, [ALL] * 3)
    total = own.counts.plus([own.counts, Counts(backoffs=3)])
    assert total.starts == {"policy": 4, "tie": 2, "forced": 0, "guard": 0}
    assert (total.backoffs, own.counts.starts["policy"]) == (3, 2)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"period": 0.0}, "period of the rounds loop must be a finite number of seconds above 0; got 0.0"),
        ({"period": math.inf}, "period"),
        ({"batch": 0}, "batch of the rounds loop must be at least 1 tuple; got 0"),
        ({"delay": -1.0}, "delay"),
        ({"delay": math.nan}, "delay"),
        ({"backoff_min": 0.0}, "backoff_min"),
    ],
    ids=["period zero", "period endless", "batch zero", "delay negative", "delay not a number", "back-off zero"],
)
def test_impossible_settings_are_refused(parameters: dict[str, float], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        RoundsConfig(**parameters)  # type: ignore[arg-type]


def test_the_delay_left_out_is_two_periods() -> None:
    assert RoundsConfig(period=0.25).longest_delay == 0.5
    assert RoundsConfig(period=0.25, delay=3.0).longest_delay == 3.0


def test_calls_in_the_wrong_order_are_refused() -> None:
    own = Worklist(3, NodeRecords(1, 0.0), CONFIG)
    with pytest.raises(InvariantError, match="worker 3 cannot run anything now: it has been given its nodes"):
        own.next_step(0.0, bool)
    with pytest.raises(InvariantError, match="worker 3 cannot arrive at the barrier"):
        own.arrive()
    own = sorted_list([1])
    own.next_step(0.0, lambda node: True)
    with pytest.raises(InvariantError, match="asks for a step while it runs node 0"):
        own.next_step(0.1, lambda node: True)
    with pytest.raises(InvariantError, match="cannot arrive at the barrier: it is in the round and runs node 0"):
        own.arrive()
    own.finished(0.2)
    with pytest.raises(InvariantError, match="worker 0 is said to be done, but was given nothing to do"):
        own.finished(0.3)


@pytest.mark.parametrize(
    ("damage", "number"),
    [
        pytest.param(lambda own: own.nodes.reverse() or setattr(own, "table", own.table[::-1]), 1, id="wrong order"),
        pytest.param(lambda own: setattr(own, "groups", [0, 0, 0, -1]), 1, id="different nodes in one tie group"),
        pytest.param(lambda own: own.nodes.pop(), 1, id="priorities without a node"),
        pytest.param(lambda own: setattr(own, "running", 7), 2, id="runs somebody else's node"),
        pytest.param(lambda own: own.executed.update({7: 0.1}), 3, id="ran somebody else's node"),
    ],
)
def test_validate_notices(damage: object, number: int) -> None:
    own = sorted_list([3, 2, 1])
    assert callable(damage)
    damage(own)
    with pytest.raises(InvariantError, match=f"inv{number}:"):
        own.validate()
