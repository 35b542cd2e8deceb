"""by-length: the lanes of proportional where they save more waiting than they cost, else anywhere; and no flapping."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from headgate.core import LOOP_FEATURES, Dispatch, FeatureMatrix, Graph, Lane, Lanes, Workers, features_named
from headgate.core.errors import ParameterError
from headgate.core.matrix import FeatureView
from headgate.core.placements import Anywhere, ByLength, LayeredPlacement, Proportional
from headgate.core.placements.by_length import saved_by_lanes
from headgate.core.placements.loads import JOB_FEATURES
from headgate.core.policies import MaxBenefit
from headgate.core.policies.classes import BACKFILL, LIVE

#: {job: (period, execution time, priority)}
Jobs = Mapping[str, tuple[float, float, float]]

SHORT = {f"short{i}": (100.0, 11.0, 100.0) for i in range(4)}
LONG = {f"long{i}": (10_000.0, 1001.0, 1.0) for i in range(4)}
TRACKS = Workers.of(4)


def matrix_of(jobs: Jobs, *more: str) -> FeatureMatrix:
    matrix = FeatureMatrix(Graph(jobs), features_named((*JOB_FEATURES, "priority", *more)))
    period, execution, priority = zip(*jobs.values(), strict=True)
    matrix.fill("period", period)
    matrix.fill("setup_time", execution)
    matrix.fill("priority", priority)
    return matrix


def view_of(jobs: Jobs, memory: object = None) -> FeatureView:
    return matrix_of(jobs).view(memory=memory)


def same(one: Lanes, other: Lanes) -> bool:
    return [one.lanes[i] for i in one.of] == [other.lanes[i] for i in other.of]


def with_priority(jobs: Jobs, priority: float) -> Jobs:
    return {name: (period, execution, priority) for name, (period, execution, _) in jobs.items()}


@pytest.mark.parametrize(
    ("jobs", "parted"),
    [
        pytest.param(SHORT, False, id="alike"),
        pytest.param(SHORT | LONG, True, id="figure 9: a hundred times longer, and a hundredth of the priority"),
        pytest.param(
            with_priority(SHORT, 1.0) | with_priority(LONG, 100.0), False, id="the long ones are those that matter"
        ),
        pytest.param(
            {f"t{i}": (1.0 + i / 10, 5.0, 1.0) for i in range(6)}, False, id="alike at overload: longer than a period"
        ),
        pytest.param({"a": (0.0, 1.0, 1.0), "b": (0.0, 900.0, 1.0)}, False, id="no period is known"),
        pytest.param({"a": (10.0, 0.0, 1.0), "b": (10.0, 0.0, 1.0)}, False, id="no cost is known"),
        pytest.param(with_priority(SHORT | LONG, 0.0), False, id="nobody matters"),
        pytest.param({"a": (10.0, math.nan, 1.0), "b": (10.0, 20.0, 1.0)}, False, id="a fit that is no number"),
    ],
)
def test_it_parts_jobs_where_that_pays_and_no_others(jobs: Jobs, parted: bool) -> None:
    view = view_of(jobs)
    chosen = Proportional() if parted else Anywhere()
    assert same(ByLength().lanes(view, TRACKS), chosen.lanes(view, TRACKS))


def test_at_overload_proportional_parts_jobs_that_are_alike() -> None:
    """Without this, the case above would show nothing."""
    view = view_of({f"t{i}": (1.0 + i / 10, 5.0, 1.0) for i in range(6)})
    assert len(Proportional().lanes(view, TRACKS).lanes) > 1


def test_what_lanes_save_worked_out_by_hand() -> None:
    """Two tracks. The short job may use both, the long one only the first; each takes 0.2 of a track.

    Without lanes, a mix of 2 and 20 s runs on both tracks: 5.5 s are left, and the first is free after 2.75 s. With
    lanes, the second track has the short job only, 0.1 of it, and the first 0.1 of it and all of the long one: 7 s are
    left there and 1 s here. The short job waits 1 / (1 / 7 + 1) = 0.875 s, the long one 7 s.
    """
    view = view_of({"short": (10.0, 2.0, 9.0), "long": (100.0, 20.0, 1.0)})
    lanes = Lanes((Lane((1,), (0,), True), Lane((0,))), np.array([0, 1]))
    least = 9 * (5 + 2) + 1 * (50 + 20)
    assert saved_by_lanes(view, lanes, 2) == pytest.approx((9 * (2.75 - 0.875) + (2.75 - 7.0)) / least)


def between() -> Iterator[tuple[float, bool]]:
    """Jobs between alike and figure 9: the priority of the long ones, and whether they are parted."""
    for priority in np.geomspace(1.0, 10_000.0, 60).tolist():
        view = view_of(SHORT | with_priority(LONG, priority))
        yield priority, len(ByLength(gain=0.02).lanes(view, TRACKS).lanes) > 1


def test_lanes_in_use_stay_while_costs_and_priorities_move_a_little() -> None:
    limit = max(priority for priority, parted in between() if parted)
    beyond = SHORT | with_priority(LONG, limit * 1.3)
    assert len(ByLength(gain=0.02).lanes(view_of(beyond), TRACKS).lanes) == 1
    before = ByLength(gain=0.02).lanes(view_of(SHORT | LONG), TRACKS)
    assert len(ByLength(gain=0.02).lanes(view_of(beyond, memory=before), TRACKS).lanes) == 2
    far = SHORT | with_priority(LONG, 10_000.0)
    assert len(ByLength(gain=0.02).lanes(view_of(far, memory=before), TRACKS).lanes) == 1


def test_the_loop_shows_a_placement_what_was_placed_before() -> None:
    """Priorities that go up and down around the limit change the lanes once."""
    limit = max(priority for priority, parted in between() if parted)
    matrix = matrix_of(SHORT | LONG, *LOOP_FEATURES, *MaxBenefit.needs)
    matrix.columns["priority"][4:] = 10_000.0
    loop = Dispatch(matrix, MaxBenefit(), ByLength(gain=0.02), TRACKS)
    changes, parted = 0, False
    for number in range(20):
        matrix.columns["priority"][4:] = limit * (1.3 if number % 2 else 0.9)
        loop.place_again()
        lanes = len(set(loop._lane_of))
        changes, parted = changes + ((lanes > 1) != parted), lanes > 1
    assert parted and changes == 1


def test_lanes_in_use_stay_when_a_node_is_added_or_removed() -> None:
    limit = max(priority for priority, parted in between() if parted)
    matrix = matrix_of(SHORT | LONG, *LOOP_FEATURES, *MaxBenefit.needs)
    loop = Dispatch(matrix, MaxBenefit(), ByLength(gain=0.02), TRACKS)
    for names in ([*matrix.graph.names, "new"], [*matrix.graph.names]):
        matrix.columns["priority"][4:] = limit * 1.3
        loop.regraph(Graph(names))
        assert len(set(loop._lane_of)) > 1
    again = Dispatch(matrix, MaxBenefit(), ByLength(gain=0.02), TRACKS)
    assert len(set(again._lane_of)) == 1, "without a memory there would be no lanes"


def test_a_new_node_does_not_look_like_a_partition() -> None:
    limit = max(priority for priority, parted in between() if parted)
    matrix = matrix_of(SHORT | with_priority(LONG, limit * 1.3), *LOOP_FEATURES, *MaxBenefit.needs)
    loop = Dispatch(matrix, MaxBenefit(), ByLength(gain=0.02), TRACKS)
    loop.regraph(Graph([*matrix.graph.names, "new"]))
    assert len(set(loop._lane_of)) == 1


def test_the_lanes_of_another_placement_are_none_that_it_has_in_use() -> None:
    limit = max(priority for priority, parted in between() if parted)
    matrix = matrix_of(SHORT | with_priority(LONG, limit * 1.3), *LOOP_FEATURES, *MaxBenefit.needs)
    loop = Dispatch(matrix, MaxBenefit(), Proportional(), TRACKS)
    assert len(set(loop._lane_of)) > 1
    loop.replace_placement(ByLength(gain=0.02))
    assert len(set(loop._lane_of)) == 1
    matrix.columns["priority"][4:] = limit * 0.9
    loop.place_again()
    matrix.columns["priority"][4:] = limit * 1.3
    loop.replace_placement(ByLength(gain=0.02))
    assert len(set(loop._lane_of)) > 1, "the same one again goes on with its own"


def test_backfills_do_not_look_like_a_partition() -> None:
    matrix = matrix_of({**SHORT, "backfill": (3.0, 50.0, 0.0)}, "layer")
    matrix.fill("layer", [LIVE] * 4 + [BACKFILL])
    placement = LayeredPlacement(ByLength())
    first = placement.lanes(matrix.view(), TRACKS)
    assert first.lanes[first.of[0]] == Lane((0, 1, 2, 3))
    again = placement.lanes(matrix.view(memory=first), TRACKS)
    assert np.array_equal(first.of, again.of) and first.lanes == again.lanes


@pytest.mark.parametrize("gain", [-0.1, math.nan, math.inf])
def test_a_bad_parameter_is_refused_by_name(gain: float) -> None:
    with pytest.raises(ParameterError, match=f"gain is a share of at least 0; got {gain}"):
        ByLength(gain=gain)
