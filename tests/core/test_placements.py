"""Placements: who may run where, checked against the papers' own examples and by hand.

One long file, because all share a few builders and the last tests go over every placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core.errors import ParameterError
from headgate.core.features import features_named
from headgate.core.graph import Graph
from headgate.core.matrix import FeatureMatrix, FeatureView
from headgate.core.placement import Lane, Placement, Workers
from headgate.core.placement import lanes_of as checked_lanes_of
from headgate.core.placements import (
    SHIPPED,
    Anywhere,
    ByNode,
    Cluster,
    ClusterShare,
    EdfPartitioned,
    LayeredPlacement,
    LeastLoaded,
    Proportional,
    RandomWorker,
    RoundRobinQueries,
    Track,
)
from headgate.core.placements.proportional import Allocate
from headgate.core.policies.classes import BACKFILL, LIVE, MAINTENANCE

JOB_FEATURES = ("period", "setup_time", "time_per_unit")

#: {job: (period, execution time)}
Jobs = Mapping[str, tuple[float, float]]


def view_of(graph: Graph, features: Mapping[str, Sequence[float]], **more: int) -> FeatureView:
    matrix = FeatureMatrix(graph, features_named(features))
    for name, values in features.items():
        matrix.fill(name, values)
    return matrix.view(**more)


def jobs_view(jobs: Jobs) -> FeatureView:
    """Jobs whose execution time is all set-up, so that E(P) is exactly what the test says."""
    period, execution = zip(*jobs.values(), strict=True)
    columns = (period, execution, [0.0] * len(jobs), [1.0] * len(jobs))
    return view_of(Graph(jobs), dict(zip((*JOB_FEATURES, "priority"), columns, strict=True)))


def lanes_of(placement: Placement, view: FeatureView, workers: Workers) -> dict[str, Lane]:
    placed = checked_lanes_of(placement, view, workers)
    names = view.graph.names if view.rows is None else [view.graph.names[i] for i in view.rows]
    return {name: placed.lanes[lane] for name, lane in zip(names, placed.of, strict=True)}


def homes_of(placement: Placement, view: FeatureView, workers: Workers) -> dict[str, tuple[int, ...]]:
    return {name: lane.home for name, lane in lanes_of(placement, view, workers).items()}


def alike(count: int, period: float, execution: float, prefix: str = "job") -> dict[str, tuple[float, float]]:
    return {f"{prefix}{i:02}": (period, execution) for i in range(count)}


# --- the shipped placements ---------------------------------------------------------------------------------


def test_every_placement_of_the_design_is_shipped_once_and_introduces_itself() -> None:
    assert [placement.name for placement in SHIPPED] == [
        *("anywhere", "random", "round-robin-queries", "least-loaded", "by-node", "edf-partitioned", "proportional"),
        "by-length",
    ]
    for placement in SHIPPED:
        assert str(placement()) == placement.name
        assert placement.summary and placement.paper and placement.__doc__
        features_named(placement.needs)


@pytest.mark.parametrize("placement", SHIPPED, ids=lambda placement: placement.name)
def test_an_empty_graph_is_placed(placement: type[Placement]) -> None:
    view = view_of(Graph(()), dict.fromkeys((*JOB_FEATURES, "priority"), ()))
    assert lanes_of(placement(), view, Workers.of(2)) == {}


@pytest.mark.parametrize("placement", SHIPPED, ids=lambda placement: placement.name)
def test_one_worker_is_home_to_everybody_and_spare_to_nobody(placement: type[Placement]) -> None:
    view = jobs_view({"a": (1, 0.9), "b": (10, 9), "c": (100, 70), "idle": (5, 0), "unknown": (0, 1)})
    assert set(lanes_of(placement(), view, Workers.of(1)).values()) <= {Lane((0,)), Lane((0,), aggressive=True)}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        pytest.param(lambda: EdfPartitioned(own="mine"), "own must be one of counted, printed; got 'mine'", id="own"),
        pytest.param(lambda: EdfPartitioned(overflow="x"), "overflow must be one of share, refuse", id="overflow"),
        pytest.param(lambda: Proportional(allocate="some"), "allocate must be one of basic, all", id="allocate"),
        pytest.param(lambda: Proportional(compare="x"), "compare must be one of execution, period", id="compare"),
        pytest.param(lambda: Proportional(k=0), "k must be greater than 0; got 0", id="k of zero"),
        pytest.param(lambda: Proportional(k=math.nan), "k must be greater than 0; got nan", id="k not a number"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(make, complaint) -> None:
    with pytest.raises(ParameterError, match=complaint):
        make()


# --- anywhere, random ---------------------------------------------------------------------------------------


def test_anywhere_is_one_lane_of_all_workers() -> None:
    placed = Anywhere().lanes(view_of(Graph("abc"), {}), Workers.of(3))
    assert placed.lanes == (Lane((0, 1, 2)),)
    assert placed.of.tolist() == [0, 0, 0]


def test_random_draws_again_at_every_turn_and_for_every_seed_and_the_same_for_the_same() -> None:
    graph = Graph(f"node{i}" for i in range(40))

    def draw(**more: int) -> dict[str, tuple[int, ...]]:
        return homes_of(RandomWorker(), view_of(graph, {}, **more), Workers.of(4))

    assert draw(seed=1, turn=1) == draw(seed=1, turn=1)
    assert draw(seed=1, turn=1) != draw(seed=1, turn=2)
    assert draw(seed=1, turn=1) != draw(seed=2, turn=1)


def test_random_uses_all_workers_alike() -> None:
    placed = RandomWorker().lanes(view_of(Graph(f"node{i}" for i in range(3_000)), {}), Workers.of(3))
    # 1000 expected, standard deviation 26
    assert all(900 < count < 1100 for count in np.bincount(placed.of))


# --- round-robin-queries, least-loaded, by-node -------------------------------------------------------------


def test_round_robin_deals_whole_queries_in_the_order_of_their_smallest_names() -> None:
    graph = Graph(["z", "c", "b", "a", "d"], [("z", "a"), ("c", "d")])  # queries {a, z}, {b}, {c, d}
    homes = homes_of(RoundRobinQueries(), view_of(graph, {}), Workers.of(2))
    assert homes == {"a": (0,), "z": (0,), "b": (1,), "c": (0,), "d": (0,)}


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        pytest.param(
            {"cost": [1, 2, 3, 1, 1], "pending": [5, 2, 1, 3, 3]},  # loads 5 4 3 3 3
            {"a": 0, "b": 1, "c": 1, "d": 0, "e": 1},
            id="cost times pending",
        ),
        pytest.param(
            {"period": [10] * 5, "setup_time": [1, 1, 1, 1, 4], "time_per_unit": [0, 0, 0.3, 0, 0]},  # .1 .1 .4 .1 .4
            {"a": 0, "b": 1, "c": 0, "d": 0, "e": 1},
            id="utilisation if there is no cost",
        ),
        pytest.param({"pending": [9, 1, 1, 1, 1]}, {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0}, id="number of nodes"),
        pytest.param(
            {"cost": [1, 1, 1, 1, 1], "pending": [3, 1, 0, 0, 0]},
            {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0},
            id="nodes without load by number and not all to the emptiest",
        ),
    ],
)
def test_least_loaded_takes_the_heaviest_first_and_measures_load_by_what_there_is(features, expected) -> None:
    homes = homes_of(LeastLoaded(), view_of(Graph("abcde"), features), Workers.of(2))
    assert homes == {name: (worker,) for name, worker in expected.items()}


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(1, 4))
def test_least_loaded_keeps_grahams_bound(loads: list[int], count: int) -> None:
    view = view_of(Graph(f"n{i}" for i in range(len(loads))), {"cost": [1.0] * len(loads), "pending": loads})
    total = [0.0] * count
    for load, (worker,) in zip(loads, homes_of(LeastLoaded(), view, Workers.of(count)).values(), strict=True):
        total[worker] += load
    assert max(total) <= sum(loads) / count + (1 - 1 / count) * max(loads) + 1e-9


def test_by_node_keeps_queries_together_on_groups_in_proportion_to_their_workers() -> None:
    graph = Graph(["a1", "a2", "b1", "c1"], [("a1", "a2")])
    view = view_of(graph, {"cost": [1, 3, 2, 2], "pending": [1, 1, 1, 1]})  # query a 4, b 2, c 2
    one, two = Lane((1,), (0, 2)), Lane((0, 2), (1,))
    assert lanes_of(ByNode(), view, Workers((7, 3, 7))) == {"a1": two, "a2": two, "b1": one, "c1": two}


def test_by_node_passes_on_whether_help_is_aggressive() -> None:
    lanes = lanes_of(ByNode(aggressive=True), view_of(Graph("ab"), {}), Workers((0, 1)))
    assert lanes == {"a": Lane((0,), (1,), True), "b": Lane((1,), (0,), True)}


def test_by_node_on_a_single_node_is_anywhere() -> None:
    view = view_of(Graph("ab"), {})
    assert lanes_of(ByNode(), view, Workers.of(3)) == lanes_of(Anywhere(), view, Workers.of(3))


# --- edf-partitioned ----------------------------------------------------------------------------------------

#: Golab et al., section 3.2.4
EXAMPLE = {"J1": (4, 1), "J2": (4, 1), "J3": (8, 2), "J4": (10, 1.25)}


def test_edf_cuts_the_papers_example_into_two_tracks() -> None:
    assert EdfPartitioned().tracks(jobs_view(EXAMPLE)) == (
        Track(("J1", "J2"), utilisation=0.5, longest_execution=1, shortest_period=4),
        Track(("J3", "J4"), utilisation=0.375, longest_execution=2, shortest_period=8),
    )


@pytest.mark.parametrize(
    ("placement", "workers", "expected"),
    [
        pytest.param(
            EdfPartitioned(),
            2,
            {"J1": Lane((0,)), "J2": Lane((0,)), "J3": Lane((1,)), "J4": Lane((1,), (0,))},
            id="only J4 may be promoted, as the paper says",
        ),
        pytest.param(
            # J1: 0.375 <= 1 - 2/4; J3: 0.5 <= 1 - 2/4; J4: 0.5 <= 1 - 1.25/4
            EdfPartitioned(own="printed"),
            2,
            {"J1": Lane((0,), (1,)), "J2": Lane((0,), (1,)), "J3": Lane((1,), (0,)), "J4": Lane((1,), (0,))},
            id="everybody may be promoted by the condition as printed",
        ),
        pytest.param(
            EdfPartitioned(aggressive=True),
            4,
            {
                "J1": Lane((0, 2, 3), (), True),
                "J2": Lane((0, 2, 3), (), True),
                "J3": Lane((1, 2, 3), (), True),
                "J4": Lane((1, 2, 3), (0,), True),
            },
            id="tracks left over come after home, and help is aggressive",
        ),
        pytest.param(EdfPartitioned(), 1, dict.fromkeys(EXAMPLE, Lane((0,))), id="one track is shared by all"),
    ],
)
def test_edf_places_the_papers_example(placement, workers, expected) -> None:
    assert lanes_of(placement, jobs_view(EXAMPLE), Workers.of(workers)) == expected


#: six of them fill a track (0.78 <= 1 - 0.13, 0.91 is more), so thirty need five tracks at a utilisation of 3.9
THIRTY_ALIKE = alike(30, period=100, execution=13)


def test_edf_refuses_too_few_tracks_and_says_how_many_it_needs() -> None:
    placement = EdfPartitioned(overflow="refuse")
    with pytest.raises(ParameterError, match=r"needs 5 tracks .* 30 jobs; there are 4.* overflow=share"):
        placement.lanes(jobs_view(THIRTY_ALIKE), Workers.of(4))
    assert len(placement.tracks(jobs_view(THIRTY_ALIKE), Workers.of(5))) == 5


def test_edf_shares_what_does_not_fit_among_the_least_utilised_tracks() -> None:
    tracks = EdfPartitioned().tracks(jobs_view(THIRTY_ALIKE), Workers.of(4))
    assert [len(track.nodes) for track in tracks] == [8, 8, 7, 7]
    assert not any(track.schedulable for track in tracks)


def test_edf_knows_what_a_track_holds_when_it_shares() -> None:
    jobs = EXAMPLE | {"J5": (20, 11)}  # too long for either track; they are utilised 0.5 and 0.375
    tracks = EdfPartitioned().tracks(jobs_view(jobs), Workers.of(2))
    assert [track.nodes for track in tracks] == [("J1", "J2"), ("J3", "J4", "J5")]


def test_edf_allows_no_promotion_among_alike_jobs() -> None:
    lanes = lanes_of(EdfPartitioned(), jobs_view(THIRTY_ALIKE), Workers.of(5))
    assert set(lanes.values()) == {Lane((track,)) for track in range(5)}


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param(
            {"c": (20, 1), "a": (10, 8), "b": (10, 1)},
            [("b",), ("a",), ("c",)],
            id="a job too heavy for any track gets one to itself",
        ),
        pytest.param({"b": (10, 2), "a": (10, 2), "c": (10, 1)}, [("c", "a", "b")], id="ties by execution, then name"),
        pytest.param(alike(9, 9, 1), [tuple(alike(8, 9, 1)), ("job08",)], id="an exactly full track is not overfull"),
        pytest.param({"a": (5, 0), "b": (5, 0)}, [("a", "b")], id="nothing to do"),
        pytest.param({"new": (0, 3), "a": (8, 2)}, [("a", "new")], id="a period not known counts as the longest"),
    ],
)
def test_edf_packs_by_period(jobs: Jobs, expected) -> None:
    assert [track.nodes for track in EdfPartitioned().tracks(jobs_view(jobs))] == expected


JOBS = st.dictionaries(
    st.sampled_from([f"j{i}" for i in range(9)]),
    st.tuples(st.sampled_from([0.0, 3.0, 7.0, 10.0, 1000.0]), st.sampled_from([0.0, 0.1, 0.3, 0.7, 4.0, 30.0])),
    min_size=1,
)


@given(JOBS)
def test_edf_tracks_of_several_jobs_are_schedulable(jobs: Jobs) -> None:
    tracks = EdfPartitioned().tracks(jobs_view(jobs))
    assert sorted(name for track in tracks for name in track.nodes) == sorted(jobs)
    assert all(track.schedulable for track in tracks if len(track.nodes) > 1)


@given(JOBS, st.integers(1, 4))
def test_edf_promotes_exactly_where_the_track_stays_schedulable_with_the_job(jobs: Jobs, count: int) -> None:
    placement, view, workers = EdfPartitioned(), jobs_view(jobs), Workers.of(count)
    tracks = placement.tracks(view, workers)
    for name, lane in lanes_of(placement, view, workers).items():
        period, execution = jobs[name][0] or math.inf, jobs[name][1]
        with_job = [
            Track(
                track.nodes,
                track.utilisation + execution / period,
                max(track.longest_execution, execution),
                min(track.shortest_period, period),
            )
            for track in tracks
        ]
        assert name in tracks[lane.home[0]].nodes
        assert lane.spare == tuple(r for r, t in enumerate(with_job) if t.schedulable and r != lane.home[0])


# --- proportional -------------------------------------------------------------------------------------------


def test_proportional_cuts_the_papers_example_comparing_periods() -> None:
    placement, view = Proportional(k=2, compare="period"), jobs_view(EXAMPLE)
    assert placement.clusters(view) == (Cluster(("J1", "J2"), 0.5, 4), Cluster(("J4", "J3"), 0.375, 8))
    boundary = pytest.approx(2 * 0.375 / 0.875)
    assert placement.shares(view, Workers.of(2)) == (ClusterShare(boundary, 2), ClusterShare(0, boundary))
    # the paper's tracks 1 and 2 are workers 1 and 0; both clusters share the latter
    short, long = Lane((1, 0), (), True), Lane((0,), (), True)
    assert lanes_of(placement, view, Workers.of(2)) == {"J1": short, "J2": short, "J3": long, "J4": long}


def test_proportional_leaves_the_papers_example_whole_comparing_execution_times() -> None:
    placement, view = Proportional(k=2), jobs_view(EXAMPLE)  # 2 < 2 * 4: even J3 joins
    assert placement.clusters(view) == (Cluster(("J1", "J2", "J4", "J3"), 0.875, 4),)
    assert set(homes_of(placement, view, Workers.of(2)).values()) == {(1, 0)}


@pytest.mark.parametrize(
    ("allocate", "short", "long"),
    [
        # utilisation 1.1 + 1.001: three tracks, cut at 3 * 1.001 / 2.101 = 1.43, and one left over
        pytest.param("basic", Lane((2, 1, 3), (0,), True), Lane((1, 0, 3), (), True), id="basic"),
        # four tracks, cut at 1.91
        pytest.param("all", Lane((2, 3, 1), (0,), True), Lane((1, 0), (), True), id="all"),
    ],
)
def test_proportional_keeps_the_two_classes_of_experiment_4_6_apart(allocate, short, long) -> None:
    graph = Graph([*(f"short{i}" for i in range(10)), *(f"long{i}" for i in range(10))])
    view = view_of(graph, {"period": [100] * 10 + [10_000] * 10, "setup_time": [1] * 20, "time_per_unit": [0.1] * 20})
    placement = Proportional(k=1, allocate=allocate)
    assert [cluster.utilisation for cluster in placement.clusters(view)] == pytest.approx([1.1, 1.001])
    lanes = lanes_of(placement, view, Workers.of(4))
    assert lanes == {name: short if name.startswith("short") else long for name in graph.names}


def one_job_clusters(*utilisation: float) -> Jobs:
    """One job per cluster, C_0 first: each takes longer than the period of the one before."""
    return {f"C{i}": (1000.0**i, u * 1000.0**i) for i, u in enumerate(utilisation)}


ALL, BASIC = Proportional(), Proportional(allocate="basic")


@pytest.mark.parametrize(
    ("placement", "jobs", "workers", "expected"),
    [
        pytest.param(ALL, one_job_clusters(1, 1), 2, [((1,), 1), ((0,), 0)], id="a whole track each"),
        pytest.param(ALL, one_job_clusters(1, 1), 4, [((3, 2), 2), ((1, 0), 0)], id="two whole tracks each"),
        pytest.param(ALL, one_job_clusters(1, 2), 2, [((1,), 1), ((1, 0), 0)], id="the shared track is last"),
        pytest.param(
            ALL, one_job_clusters(0.1, 0.3, 0.4), 2, [((1,), 1), ((1,), 1), ((0,), 0)], id="cut at 1.0000000000000002"
        ),
        pytest.param(ALL, one_job_clusters(1, 1, 1), 1, [((0,), 0)] * 3, id="one track"),
        pytest.param(
            ALL, one_job_clusters(1, 1, 1, 1), 2, [((1,), 1), ((1,), 1), ((0,), 0), ((0,), 0)], id="more clusters"
        ),
        pytest.param(ALL, one_job_clusters(9, 3), 2, [((1, 0), 0), ((0,), 0)], id="more utilisation than tracks"),
        pytest.param(BASIC, one_job_clusters(2, 2), 2, [((1,), 1), ((0,), 0)], id="basic with too few tracks"),
        pytest.param(BASIC, one_job_clusters(0.5, 0.5), 3, [((0, 1, 2), 0)] * 2, id="basic leaves tracks free"),
        pytest.param(BASIC, one_job_clusters(1, 1), 3, [((1, 2), 1), ((0, 2), 0)], id="basic with whole tracks"),
        pytest.param(
            ALL, {"idle": (1, 0), "busy": (100, 50)}, 2, [((1,), 1), ((1, 0), 0)], id="a cluster without utilisation"
        ),
        pytest.param(ALL, {"a": (1, 0), "b": (9, 0)}, 3, [((1, 2, 0), 0)] * 2, id="no utilisation at all"),
        pytest.param(BASIC, {"a": (0, 5), "b": (0, 9)}, 3, [((1, 2, 0), 0)] * 2, id="no period known"),
    ],
)
def test_proportional_hands_out_tracks(placement, jobs: Jobs, workers: int, expected) -> None:
    lanes = lanes_of(placement, jobs_view(jobs), Workers.of(workers))
    assert lanes == {
        job: Lane(home, tuple(range(lowest)), True) for job, (home, lowest) in zip(jobs, expected, strict=True)
    }


def test_proportional_does_not_take_a_track_more_for_a_rounding_error() -> None:
    jobs = alike(10, 1, 1.1, "heavy") | alike(10, 1, 0.1, "light")
    assert math.fsum(execution for _, execution in jobs.values()) > 12  # by one rounding error
    placement = Proportional(k=10, allocate="basic")
    assert placement.shares(jobs_view(jobs), Workers.of(20)) == (ClusterShare(0, 12),)


@pytest.mark.parametrize(
    ("placement", "jobs", "expected"),
    [
        pytest.param(Proportional(), {"b": (5, 1), "a": (9, 5)}, [("b",), ("a",)], id="equal is not less"),
        pytest.param(
            Proportional(), {"a": (9, 1), "b": (3, 2), "c": (9, 4)}, [("a", "b"), ("c",)], id="least period, not first"
        ),
        pytest.param(
            Proportional(k=10, compare="period"),
            {"5min": (300, 3), "hour": (3600, 40), "day": (86400, 900), "hour2": (7200, 50)},
            [("5min",), ("hour", "hour2"), ("day",)],
            id="the paper's minutes, hours and days with k=10",
        ),
        pytest.param(
            Proportional(),
            {"a": (9, 2), "b": (2, 2)},
            [("b",), ("a",)],
            id="of equally long jobs the shorter period first",
        ),
        pytest.param(Proportional(k=math.inf), one_job_clusters(1, 1, 1), [("C0", "C1", "C2")], id="endless k"),
        pytest.param(
            Proportional(k=2, compare="period"),
            {"new1": (0, 0), "new2": (0, 0), "a": (4, 1)},
            [("new1", "new2", "a")],
            id="a period not known tells nobody apart",
        ),
    ],
)
def test_proportional_clusters_by_k(placement: Proportional, jobs: Jobs, expected) -> None:
    assert [cluster.nodes for cluster in placement.clusters(jobs_view(jobs))] == expected


@given(JOBS, st.integers(1, 5), st.sampled_from(["basic", "all"]), st.sampled_from([0.01, 1.0, 2.0]))
def test_shares_lie_end_to_end_and_homes_cover_every_track(jobs: Jobs, count: int, allocate, k: float) -> None:
    placement, view, workers = Proportional(k=k, allocate=allocate), jobs_view(jobs), Workers.of(count)
    clusters, shares = placement.clusters(view), placement.shares(view, workers)
    assert len(clusters) == len(shares)
    if any(cluster.utilisation for cluster in clusters):
        assert [share.low for share in shares] == [*(share.high for share in shares[1:]), 0]
    assert shares[0].high == int(shares[0].high) <= count
    assert {worker for home in homes_of(placement, view, workers).values() for worker in home} == set(range(count))


# --- layered ------------------------------------------------------------------------------------------------

#: six tables of a minute, one with long updates; a backfill and maintenance with the periods that they wait by
A_MINUTE: Jobs = {
    **{f"t{number}": (60.0, 0.3) for number in range(5)},
    "long": (60.0, 4.0),
    "t0 (backfill)": (3.0, 0.3),
    "t0 (maintenance)": (30.0, 0.3),
}


def layered_view(jobs: Jobs) -> FeatureView:
    period, execution = zip(*jobs.values(), strict=True)
    layer = [{"(backfill)": BACKFILL, "(maintenance)": MAINTENANCE}.get(name.split()[-1], LIVE) for name in jobs]
    columns = (period, execution, [0.0] * len(jobs), layer)
    return view_of(Graph(jobs), dict(zip((*JOB_FEATURES, "layer"), columns, strict=True)))


def test_backfills_and_maintenance_do_not_confine_live_tables() -> None:
    plain = lanes_of(Proportional(), layered_view(A_MINUTE), Workers.of(4))
    assert set(plain["long"].home) < set(range(4)), "taken for jobs, they do"
    placed = lanes_of(LayeredPlacement(Proportional()), layered_view(A_MINUTE), Workers.of(4))
    for name in A_MINUTE:
        if " " not in name:
            assert set(placed[name].home) == {0, 1, 2, 3}, name
    assert placed["t0 (backfill)"] == placed["t0 (maintenance)"] == Lane(home=(3,), spare=(0, 1, 2))


@pytest.mark.parametrize("inner", [Proportional(), Proportional(k=0.01), EdfPartitioned(), LeastLoaded()])
def test_live_nodes_are_placed_as_if_there_were_no_others(inner: Placement) -> None:
    live = {name: job for name, job in A_MINUTE.items() if " " not in name}
    alone = lanes_of(inner, layered_view(live), Workers.of(3))
    placed = lanes_of(LayeredPlacement(inner), layered_view(A_MINUTE), Workers.of(3))
    assert (
        {name: placed[name] for name in live}
        == alone
        == lanes_of(LayeredPlacement(inner), layered_view(live), Workers.of(3))
    )


@pytest.mark.parametrize("allocate", ["basic", "all"])
def test_nobody_borrows_the_track_on_which_backfills_are_at_home(allocate: Allocate) -> None:
    """Else a backfill would be preferred there to a live node that is not aggressive."""
    inner = Proportional(k=0.01, allocate=allocate, aggressive=False)
    placed = lanes_of(LayeredPlacement(inner), layered_view(A_MINUTE), Workers.of(3))
    assert not [name for name, lane in placed.items() if 2 in lane.spare]


def test_a_layered_placement_has_the_name_of_the_one_inside() -> None:
    placement = LayeredPlacement(Proportional(k=2.0))
    assert (placement.name, str(placement)) == ("proportional", "proportional:k=2.0")
    assert placement.needs == ("layer", *JOB_FEATURES)


# --- what is not known --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "setup_time", "time_per_unit"),
    [
        pytest.param(0, 5, 1, id="no period"),
        pytest.param(-1, 5, 1, id="negative period"),
        pytest.param(math.inf, 5, 1, id="endless period"),
        pytest.param(math.nan, 5, 1, id="period not a number"),
        pytest.param(10, -5, 0.1, id="fit below zero"),
        pytest.param(10, math.nan, 0, id="fit not a number"),
    ],
)
def test_a_job_of_which_nothing_is_known_takes_no_share(period, setup_time, time_per_unit) -> None:
    features = {"period": [4, period], "setup_time": [1, setup_time], "time_per_unit": [0, time_per_unit]}
    view = view_of(Graph(["known", "new"]), features)
    assert sum(track.utilisation for track in EdfPartitioned().tracks(view)) == 0.25
    assert sum(cluster.utilisation for cluster in Proportional().clusters(view)) == 0.25
    for placement in (EdfPartitioned(), Proportional(), LeastLoaded(), ByNode()):
        assert lanes_of(placement, view, Workers((0, 1))).keys() == {"known", "new"}


@pytest.mark.parametrize("cost", [-1, math.nan], ids=["negative", "not a number"])
def test_a_cost_that_cannot_be_counts_as_no_load(cost: float) -> None:
    view = view_of(Graph("abcd"), {"cost": [cost, 1, 1, 1], "pending": [9, 1, 1, 0]})
    assert homes_of(LeastLoaded(), view, Workers.of(2)) == {"b": (0,), "c": (1,), "a": (0,), "d": (1,)}


# --- what holds for all -------------------------------------------------------------------------------------

VARIANTS = (
    *(placement() for placement in SHIPPED),
    ByNode(aggressive=True),
    EdfPartitioned(own="printed"),
    Proportional(k=0.05, allocate="basic"),
    Proportional(k=2, compare="period", aggressive=False),
)

#: chosen so that sums depend on the order of their terms and ties are frequent
TENTHS = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7])
ROW = st.tuples(
    st.sampled_from([0.0, 1.0, 3.0, 10.0]), TENTHS, TENTHS, TENTHS, TENTHS, st.sampled_from([0.0, 1.0, 3.0])
)
ALWAYS = (*JOB_FEATURES, "priority")
ROW_FEATURES = (*ALWAYS, "cost", "pending")


def view_in_order(
    order: Iterable[int], rows: Sequence[tuple[float, ...]], edges: Iterable[tuple[int, int]], with_cost: bool
) -> FeatureView:
    order = list(order)
    graph = Graph((f"n{i}" for i in order), ((f"n{a}", f"n{b}") for a, b in edges))
    features = ROW_FEATURES if with_cost else ALWAYS
    return view_of(graph, {name: [rows[i][k] for i in order] for k, name in enumerate(features)}, seed=3)


@st.composite
def permuted_graphs(draw: st.DrawFn) -> tuple[FeatureView, FeatureView]:
    """The same nodes and edges, declared in two orders."""
    rows = draw(st.lists(ROW, min_size=1, max_size=8))
    numbers = range(len(rows))
    edges = draw(st.sets(st.sampled_from([(a, b) for a in numbers for b in numbers if a <= b]), max_size=5))
    edges = sorted((a, b) for a, b in edges if a < b)
    with_cost = draw(st.booleans())
    shuffled = view_in_order(draw(st.permutations(numbers)), rows, draw(st.permutations(edges)), with_cost)
    return view_in_order(numbers, rows, edges, with_cost), shuffled


#: 0.1 + 0.2 + 0.3 is more than 0.6 and 0.3 + 0.2 + 0.1 is not
ROUNDING = [(0.0, 0.0, 0.0, 1.0, cost, 1.0) for cost in (0.6, 0.1, 0.2, 0.3)], [(1, 2), (2, 3)], True


@pytest.mark.parametrize("placement", VARIANTS, ids=str)
@example((view_in_order(range(4), *ROUNDING), view_in_order([0, 3, 2, 1], *ROUNDING)), [0, 1])
@settings(max_examples=settings.default.max_examples // 2)
@given(permuted_graphs(), st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_lanes_do_not_depend_on_the_order_of_declaration(placement: Placement, views, group: list[int]) -> None:
    workers = Workers(tuple(group))
    lanes, shuffled = (lanes_of(placement, view, workers) for view in views)
    assert lanes == shuffled
    for lane in lanes.values():
        assert len({*lane.home, *lane.spare}) == len(lane.home) + len(lane.spare)


@pytest.mark.parametrize("placement", VARIANTS, ids=str)
def test_a_view_of_some_nodes_is_placed_like_a_graph_of_just_these(placement: Placement) -> None:
    rows = [
        (10.0, 1.0, 0.1, 1.0, 0.2, 3.0),
        (1.0, 0.3, 0.3, 9.0, 0.1, 1.0),
        (10.0, 7.0, 0.2, 1.0, 0.7, 2.0),
        (3.0, 2.0, 0.1, 2.0, 0.3, 0.0),
    ]
    whole = view_in_order(range(4), rows, (), True)
    columns = {name: whole[name] for name in ROW_FEATURES}
    some = FeatureView(columns, whole.graph, seed=3, rows=np.array([3, 1, 2]))
    just_these = view_in_order([1, 2, 3], rows, (), True)
    workers = Workers((0, 0, 1))
    assert lanes_of(placement, some, workers) == lanes_of(placement, just_these, workers)
