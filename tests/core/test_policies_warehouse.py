"""Golab et al., section 3.1: edf, edf-p, max-benefit and its lookahead, with the paper's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.graph import Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import (
    EarliestDeadline,
    Lookahead,
    MaxBenefit,
    MaxBenefitLookahead,
    PriorityDeadline,
    look_ahead,
)
from headgate.core.policy import Policy
from headgate.testing import ranking

NOW = 100.0


def view_of(graph: Graph, **features: Sequence[float]) -> FeatureView:
    return FeatureView({name: np.array(values, dtype=float) for name, values in features.items()}, graph, NOW)


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        # deadlines: 10 + 60, 30 + 10, 20 + 60
        pytest.param(EarliestDeadline(), "bac", id="edf: nearest deadline"),
        pytest.param(PriorityDeadline(), "acb", id="edf-p: priority, then deadline"),
    ],
)
def test_deadlines(policy: Policy, order: str) -> None:
    view = view_of(Graph("abc"), release_time=[10, 30, 20], period=[60, 10, 60], priority=[5, 1, 5])
    assert ranking(policy, view) == list(order)


@pytest.mark.parametrize("policy", [EarliestDeadline(), PriorityDeadline()], ids=str)
def test_a_table_without_an_update_has_no_deadline(policy: Policy) -> None:
    view = view_of(Graph("ab"), release_time=[float("inf"), 5], period=[1, 1000], priority=[1, 1])
    assert ranking(policy, view) == ["b", "a"]


@dataclass(frozen=True)
class Job:
    """A table's update: released, or expected in ``due`` seconds with the data of one period."""

    gain: float  # dF: the freshness that it brings
    time: float  # E: how long it takes
    due: float | None = None
    priority: float = 1.0


def jobs_view(jobs: Mapping[str, Job]) -> FeatureView:
    listed = list(jobs.values())
    return view_of(
        Graph(jobs),
        priority=[job.priority for job in listed],
        ready=[job.due is None for job in listed],
        freshness_delta=[job.gain if job.due is None else 0 for job in listed],
        execution_time=[job.time if job.due is None else 0 for job in listed],
        next_release=[float("inf") if job.due is None else NOW + job.due for job in listed],
        period=[job.gain for job in listed],
        # E(P) = alpha + beta P, here half of it set-up
        setup_time=[job.time / 2 for job in listed],
        time_per_unit=[job.time / 2 / job.gain for job in listed],
    )


#: the example of section 3.1, without and with the job that is about to come
PAPER = {"J1": Job(gain=10, time=3), "J2": Job(gain=5, time=2)}
WITH_J3 = {**PAPER, "J3": Job(gain=50, time=3, due=1, priority=10)}


def test_max_benefit_runs_j1_in_the_papers_example() -> None:
    assert MaxBenefit().priorities(jobs_view(PAPER)).tolist() == pytest.approx([10 / 3, 5 / 2])
    assert ranking(MaxBenefit(), jobs_view(PAPER)) == ["J1", "J2"]


def test_max_benefit_weighs_by_priority() -> None:
    jobs = {"J1": Job(gain=10, time=3), "J2": Job(gain=5, time=2, priority=2)}
    assert ranking(MaxBenefit(), jobs_view(jobs)) == ["J2", "J1"]


def test_lookahead_runs_j2_in_the_papers_example() -> None:
    """J3 comes in 1 s and is worth 500 / 3. J2 takes 2 s, which is neither below 1 nor above the 3 s of J1, and
    B[{J2}] = (5 + 500) / (2 + 3) = 101 is above the 10 / 3 of J1."""
    view = jobs_view(WITH_J3)
    ahead = look_ahead(view)
    assert ahead == Lookahead(instead_of=0, future=2, jobs=(1,), benefit=101.0)
    assert ahead.chosen == 1
    assert ranking(MaxBenefitLookahead(), view)[:2] == ["J2", "J1"]


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param(PAPER, id="nothing is expected"),
        pytest.param({**PAPER, "J3": Job(50, 3, due=3.5, priority=10)}, id="J3 comes after J1 would be done"),
        pytest.param({**PAPER, "J3": Job(50, 3, due=2.5, priority=10)}, id="J2 would leave the worker idle"),
        pytest.param({**PAPER, "J3": Job(50, 3, due=-1.0, priority=10)}, id="J3 is overdue: not waited for"),
        pytest.param({**PAPER, "J3": Job(9, 3, due=1)}, id="J3 is worth less than J1"),
        pytest.param({**WITH_J3, "J2": Job(gain=5, time=3)}, id="J2 takes as long as J1"),
        # B[{J2}] = (0.001 + 11) / (2 + 3) = 2.2, below 10 / 3
        pytest.param({**PAPER, "J2": Job(0.001, 2), "J3": Job(11, 3, due=1)}, id="J2 spoils what J3 is worth"),
        pytest.param(
            {**PAPER, "J2": Job(1, 0.5), "J4": Job(5, 2.5), "J3": Job(50, 3, due=2.75, priority=10)},
            id="J2 and J4 together last until J3 comes, but as long as J1",
        ),
        pytest.param({"J3": Job(50, 3, due=1, priority=10)}, id="nothing is released"),
    ],
)
def test_lookahead_otherwise_does_what_max_benefit_does(jobs: Mapping[str, Job]) -> None:
    view = jobs_view(jobs)
    assert look_ahead(view) is None
    assert ranking(MaxBenefitLookahead(), view) == ranking(MaxBenefit(), view)


def test_lookahead_can_choose_several_jobs_and_runs_the_best_of_them_first() -> None:
    """Until J3 comes in 2 s there is room for J2 and J4 together, but for neither alone:
    B = (3 + 2 + 500) / (1.5 + 1 + 3) = 91.8. J2 is worth 2 per second, and so is J4: the name decides."""
    jobs = {
        "J4": Job(gain=2, time=1),
        "J1": Job(gain=10, time=3),
        "J2": Job(gain=3, time=1.5),
        "J3": Job(gain=50, time=3, due=2, priority=10),
    }
    view = jobs_view(jobs)
    ahead = look_ahead(view)
    assert ahead is not None
    assert [view.graph.names[i] for i in ahead.jobs] == ["J2", "J4"]
    assert ahead.benefit == pytest.approx(505 / 5.5)
    assert ranking(MaxBenefitLookahead(), view)[0] == "J2"


def test_lookahead_accepts_a_set_that_ends_just_when_the_future_job_comes() -> None:
    ahead = look_ahead(jobs_view({**PAPER, "J3": Job(gain=50, time=3, due=2, priority=10)}))
    assert ahead is not None and ahead.jobs == (1,)


def test_a_job_that_is_released_is_not_waited_for() -> None:
    """J3 is released already, with little data, and so worth less than J1; that more comes soon does not count."""
    view = jobs_view({**PAPER, "J3": Job(gain=1, time=3, priority=9)})
    columns = {name: view[name] for name in MaxBenefitLookahead().requires()}
    columns["next_release"][2], columns["period"][2], columns["time_per_unit"][2] = NOW + 1, 500, 0
    assert look_ahead(FeatureView(columns, view.graph, NOW)) is None


def by_trying_all(jobs: Mapping[str, Job]) -> tuple[float, str] | None:
    """Golab's algorithm word by word: (B[S*], the job to run), or None if Max Benefit's job is to run."""
    worth = {name: job.priority * job.gain / job.time for name, job in jobs.items()}
    released = sorted((name for name, job in jobs.items() if job.due is None), key=lambda n: (-worth[n], n))
    if not released:
        return None
    first = released[0]
    best: tuple[float, str] | None = None
    for future in jobs.values():
        if future.due is None or not 0 <= future.due <= jobs[first].time:
            continue
        if future.priority * future.gain / future.time <= worth[first]:
            continue
        for size in range(1, len(released) + 1):
            for chosen in combinations(released, size):
                taken = sum(jobs[name].time for name in chosen)
                if future.due <= taken < jobs[first].time:
                    gained = sum(jobs[name].priority * jobs[name].gain for name in chosen)
                    value = (gained + future.priority * future.gain) / (taken + future.time)
                    if best is None or value > best[0]:
                        best = (value, chosen[0])
    return best if best is not None and best[0] > worth[first] else None


#: whole numbers, so that sums are exact and limits are met exactly; different sets can then be worth the same
whole = st.sampled_from([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0])
released_jobs = st.builds(Job, gain=whole, time=whole, priority=st.sampled_from([1.0, 10.0]))
future_jobs = st.builds(
    Job, gain=whole, time=whole, due=st.sampled_from([-1.0, 0.0, 1.0, 4.0, 9.0]), priority=st.sampled_from([1.0, 10.0])
)


@given(st.lists(released_jobs, max_size=6), st.lists(future_jobs, max_size=3))
@settings(max_examples=50)
def test_lookahead_finds_what_trying_all_sets_finds(released: list[Job], future: list[Job]) -> None:
    jobs = {f"J{i}": job for i, job in enumerate(released + future)}
    ahead, expected = look_ahead(jobs_view(jobs)), by_trying_all(jobs)
    assert (ahead is None) == (expected is None)
    if ahead is not None and expected is not None:
        assert ahead.benefit == pytest.approx(expected[0])


def test_lookahead_weighs_only_the_ten_best_jobs() -> None:
    """Ten short jobs are better than worst, the only one that lasts until future comes: it is not even tried."""
    short = {f"J{i:02}": Job(gain=1.0 - i / 100, time=0.01) for i in range(10)}
    jobs = {"first": Job(gain=1000, time=3), **short, "worst": Job(gain=0.001, time=2)}
    jobs["future"] = Job(gain=5000, time=3, due=1)
    assert look_ahead(jobs_view(jobs)) is None
    del jobs["J00"]  # and now it is among the ten
    view = jobs_view(jobs)
    ahead = look_ahead(view)
    assert ahead is not None
    assert [view.graph.names[i] for i in ahead.jobs] == ["worst"]
