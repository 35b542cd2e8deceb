"""Target lags as arithmetic: cases by hand, what must hold of all, and that every help that is named does help."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import FeatureMatrix, Graph, features_named
from headgate.core.target_plan import TargetPlan, help_lines, plan_lines, plan_targets
from headgate.core.targets import (
    ROOM,
    TargetTables,
    blocking,
    demand,
    even_stretch,
    fill_targets,
    has_room,
    is_possible,
    kept_targets,
)

INF = math.inf


def tables_of(
    costs: Mapping[str, tuple[float, float, float]],
    targets: Mapping[str, float],
    edges: tuple[tuple[str, str], ...] = (),
    priority: Mapping[str, float] | None = None,
) -> TargetTables:
    """``costs`` is {table: (period, setup_time, time_per_unit)}."""
    period, alpha, beta = (np.array(column) for column in zip(*costs.values(), strict=True))
    return TargetTables(
        Graph(costs, edges),
        np.array([targets.get(name, INF) for name in costs]),
        period,
        alpha,
        beta,
        np.array([(priority or {}).get(name, 1.0) for name in costs]),
    )


# --- by hand ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "share"),
    [
        # every k periods of 10 s, an update takes 1 + 0.1 * 10 k seconds, and the oldest data has waited 10 (k - 1)
        pytest.param(2.0, 1 / 10 + 0.1, id="just the update of one period: every period"),
        pytest.param(12.9, 1 / 10 + 0.1, id="a little too short for two periods"),
        pytest.param(13.0, 1 / 20 + 0.1, id="10 s for the second period, 3 s for the update of both"),
        pytest.param(24.0, 1 / 30 + 0.1, id="three periods"),
        pytest.param(1e6, 0.1, id="as good as never: what is left is the work for the data itself"),
    ],
)
def test_a_table_takes_less_of_a_track_the_coarser_its_target(target: float, share: float) -> None:
    asked = demand(tables_of({"t": (10.0, 1.0, 0.1)}, {"t": target}))
    assert asked.share.tolist() == pytest.approx([share], rel=1e-4)
    assert asked.least.tolist() == [2.0]


def test_a_source_must_be_done_in_time_for_what_is_built_on_it() -> None:
    chain = tables_of(
        {"s": (10.0, 1.0, 0.1), "d": (10.0, 0.5, 0.1), "e": (10.0, 0.25, 0.0), "other": (10.0, 1.0, 0.1)},
        {"s": 100.0, "e": 5.0},
        (("s", "d"), ("d", "e")),
    )
    asked = demand(chain)
    # an update of one period takes 2, 1.5 and 0.25 s
    assert asked.within.tolist() == [5.0 - 0.25 - 1.5, 5.0 - 0.25, 5.0, INF]
    assert asked.least.tolist() == pytest.approx([2.0, 3.5, 3.75, 2.0])
    assert asked.share[3] == 0


def test_a_join_waits_for_its_slower_source() -> None:
    join = tables_of(
        {"fast": (10.0, 1.0, 0.0), "slow": (10.0, 4.0, 0.0), "both": (10.0, 1.0, 0.0)},
        {"both": 20.0},
        (("fast", "both"), ("slow", "both")),
    )
    assert demand(join).least.tolist() == [1.0, 4.0, 5.0]
    assert demand(join).within.tolist() == [19.0, 19.0, 20.0]


@pytest.mark.parametrize(
    ("cost", "least"),
    [
        pytest.param((10.0, 15.0, 0.0), 10.0 + 15.0, id="longer than a period: two periods have to be taken together"),
        pytest.param((10.0, 15.0, 0.5), 20.0 + 15.0 + 15.0, id="three periods of 10 s, in 15 + 15 s"),
        pytest.param((10.0, 1.0, 1.0), INF, id="a second of data takes a second: it never catches up"),
    ],
)
def test_a_table_that_is_slower_than_its_data_has_a_lag_of_its_own(
    cost: tuple[float, float, float], least: float
) -> None:
    slow = tables_of({"t": cost}, {"t": 20.0})
    assert demand(slow).least.tolist() == [least]
    assert not is_possible(slow, tracks=100)


def test_what_is_not_known_is_not_held_against_anybody() -> None:
    unknown = tables_of({"t": (10.0, math.nan, 0.1), "u": (0.0, 5.0, 0.1)}, {"t": 0.1, "u": 0.1})
    assert is_possible(unknown, tracks=1)
    assert plan_targets(unknown, 1).unknown == ("t", "u")


def test_an_update_may_have_to_wait_until_the_shortest_of_the_longest_is_done() -> None:
    tables = tables_of({"a": (10.0, 7.0, 0.0), "b": (10.0, 5.0, 0.0), "c": (10.0, 1.0, 0.0)}, {})
    assert [blocking(tables, tracks) for tracks in (1, 2, 3)] == [7.0, 5.0, 0.0]


# --- the plan -----------------------------------------------------------------------------------------------------


def alike(count: int, target: float, alpha: float = 1.0) -> TargetTables:
    names = [f"t{i:02}" for i in range(count)]
    return tables_of(dict.fromkeys(names, (10.0, alpha, 0.0)), dict.fromkeys(names, target))


@pytest.mark.parametrize(
    ("tables", "tracks", "verdict", "words"),
    [
        pytest.param(alike(5, 9.0), 1, "kept", [], id="half of a track"),
        pytest.param(
            alike(8, 9.5, 1.2), 1, "tight", ["may be missed now and then", "0.96 of 1 track"], id="nearly all"
        ),
        pytest.param(
            alike(24, 9.0), 2, "impossible", ["they take 2.40 tracks at least, and there are 2"], id="too many"
        ),
        pytest.param(
            alike(2, 0.5),
            8,
            "impossible",
            ["t00: its target lag of 0.5 s cannot be met", "takes 1 s at least"],
            id="low",
        ),
    ],
)
def test_verdicts(tables: TargetTables, tracks: int, verdict: str, words: list[str]) -> None:
    plan = plan_targets(tables, tracks)
    said = "\n".join(plan_lines(plan))
    assert plan.verdict == verdict
    assert all(part in said for part in words), said
    assert bool(said) == bool(words)


def test_what_would_help_is_said_in_words() -> None:
    plan = plan_targets(alike(24, 9.0), 2)
    assert plan.help.tracks == 3
    lines = help_lines(plan)
    assert lines[0] == "3 tracks"
    assert lines[1].startswith("a target_lag of ") and "for t00" in lines[1]
    assert lines[2] == "to leave out " + ", ".join(f"t{i:02}" for i in range(len(plan.help.without)))
    assert len(plan.help.without) == 6  # 18 tables take 1.8 of 2 tracks


@pytest.mark.parametrize("tracks", [1, 2, 8])
def test_what_would_help_is_searched_once_somebody_asks_for_it(tracks: int) -> None:
    plan = plan_targets(alike(24, 9.0), tracks)
    assert "help" not in vars(plan)
    assert plan.help is plan.help


def test_more_tracks_than_the_targets_take_are_said_to_be_for_what_has_to_wait() -> None:
    """Two quick tables with low targets, and eight slow ones: one of these may have begun on each track."""
    costs = {f"slow{i}": (60.0, 12.0, 0.0) for i in range(8)} | {f"quick{i}": (1.0, 0.1, 0.0) for i in range(2)}
    targets = {name: 60.0 if name.startswith("slow") else 3.0 for name in costs}
    plan = plan_targets(tables_of(costs, targets), 1)
    assert (plan.verdict, plan.help.tracks, plan.help.tracks_at_least) == ("impossible", 9, 2)
    assert help_lines(plan)[0] == (
        "9 tracks; or 2, if targets may be missed now and then: on 2, an update may have to wait 12 s for a track"
    )


@pytest.mark.parametrize(
    ("late", "target", "said"),
    [
        pytest.param(
            (10.0, 8.0, 0.0), 5.0, "late: its target lag of 5 s cannot be met: with its sources", id="too low"
        ),
        pytest.param((10.0, 12.0, 0.0), 5.0, "takes 22 s at least", id="longer than a period"),
        pytest.param((10.0, 1.0, 1.2), 50.0, "its updates take longer than the time whose data", id="never keeps up"),
    ],
)
def test_a_target_that_cannot_be_reached_is_named_apart_and_asks_for_no_tracks(
    late: tuple[float, float, float], target: float, said: str
) -> None:
    names = [f"t{i:02}" for i in range(24)]
    costs, targets = dict.fromkeys(names, (10.0, 1.0, 0.0)), dict.fromkeys(names, 30.0)
    without = plan_targets(tables_of(costs | {"late": late}, targets | {"t00": 1.5}), 1)
    plan = plan_targets(tables_of(costs | {"late": late}, targets | {"t00": 1.5, "late": target}), 1)
    assert [table.name for table in plan.impossible] == ["late"]
    assert (plan.busy, plan.given_up) == (without.busy, without.given_up)
    assert (plan.help.tracks, plan.help.tracks_at_least) == (without.help.tracks, without.help.tracks_at_least)
    lines = plan_lines(plan)
    assert said in lines[0]
    assert "they take" not in lines[0]


def test_more_tracks_are_said_to_be_for_the_targets_that_can_be_reached() -> None:
    tables = alike(24, 9.0)
    low = tables.with_target(np.array([0.5, *tables.target[1:]]))
    lines = plan_lines(plan_targets(low, 2))
    assert "the other target lags cannot all be met: they take 2.30 tracks at least, and there are 2 tracks" in lines
    assert "it would help: for the other targets, 3 tracks" in lines
    assert plan_targets(low, 3).help.tracks is None, "there are enough for the others"


def test_a_target_that_cannot_be_reached_makes_nobody_else_give_up_its_own() -> None:
    costs = {"low": (10.0, 4.0, 0.0), "other": (10.0, 4.0, 0.0), "more": (10.0, 0.9, 0.0)}
    tables = tables_of(costs, {"low": 3.0, "other": 9.5, "more": 9.5}, priority={"low": 100.0})
    assert kept_targets(tables, 1).tolist() == [INF, 9.5, 9.5]
    assert plan_targets(tables, 1).given_up == ()


def test_the_tables_to_leave_out_are_those_of_low_priority() -> None:
    tables = tables_of(
        {name: (10.0, 4.0, 0.0) for name in ("low", "high", "mid")},
        {name: 9.5 for name in ("low", "high", "mid")},
        priority={"low": 1.0, "mid": 5.0, "high": 100.0},
    )
    assert plan_targets(tables, 1).help.without == ("low",)
    assert plan_targets(tables, 1).given_up == ("low",)


def test_a_table_that_is_left_out_keeps_nobody_waiting() -> None:
    """An update of big takes 8 s, during which small, which is updated within 3 s, has to wait."""
    tables = tables_of(
        {"small": (10.0, 1.0, 0.0), "big": (100.0, 8.0, 0.0)}, {"small": 3.0, "big": 50.0}, priority={"small": 10.0}
    )
    plan = plan_targets(tables, 1)
    assert (plan.verdict, plan.help.without) == ("tight", ("big",))


def test_one_coarser_target_is_named_if_one_is_enough() -> None:
    tables = tables_of(
        {"quick": (1.0, 0.5, 0.0), "slow": (10.0, 1.0, 0.0), "other": (10.0, 1.0, 0.0), "more": (10.0, 1.0, 0.0)},
        {"quick": 1.0, "slow": 30.0, "other": 30.0, "more": 30.0},
    )
    plan = plan_targets(tables, 1)
    assert plan.verdict == "tight"  # an update of quick may have to wait for one that takes as long as its target
    assert plan.help.coarser is not None and list(plan.help.coarser) == ["quick"]


def test_only_the_targets_that_take_most_become_coarser_if_one_is_not_enough() -> None:
    quick = {f"quick {i}": (1.0, 0.5, 0.0) for i in range(3)}
    slow = {f"slow {i}": (10.0, 0.1, 0.0) for i in range(7)}
    plan = plan_targets(tables_of(quick | slow, dict.fromkeys(quick, 0.9) | dict.fromkeys(slow, 30.0)), 1)
    assert plan.verdict == "impossible"
    assert plan.help.coarser is not None and set(plan.help.coarser) == set(quick)


# --- what must hold of all ----------------------------------------------------------------------------------------

SECONDS = st.floats(0.05, 20.0)


@st.composite
def random_tables(draw: st.DrawFn) -> TargetTables:
    count = draw(st.integers(1, 7))
    names = [f"t{i}" for i in range(count)]
    edges = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, count) if draw(st.booleans())]
    graph = Graph(names, edges)
    period = np.array([draw(st.floats(1.0, 30.0)) for _ in names])
    for level in graph.from_sources[1:]:
        period[level.nodes] = np.maximum.reduceat(period[level.neighbours], level.starts)
    return TargetTables(
        graph,
        np.array([draw(st.one_of(st.just(INF), st.floats(0.1, 100.0))) for _ in names]),
        period,
        np.array([draw(SECONDS) for _ in names]),
        np.array([draw(st.floats(0.0, 0.6)) for _ in names]),
        np.array([draw(st.sampled_from([1.0, 10.0, 100.0])) for _ in names]),
    )


@given(random_tables(), st.floats(1.0, 5.0))
@settings(max_examples=100)
def test_coarser_targets_never_take_more_of_the_tracks(tables: TargetTables, factor: float) -> None:
    coarser = demand(tables.with_target(tables.target * factor))
    assert coarser.tracks <= demand(tables).tracks + 1e-9
    assert (coarser.within >= demand(tables).within - 1e-9).all()


@given(random_tables(), st.integers(1, 4))
@settings(max_examples=100)
def test_what_has_room_is_possible_and_more_tracks_never_hurt(tables: TargetTables, tracks: int) -> None:
    if has_room(tables, tracks):
        assert is_possible(tables, tracks)
        assert has_room(tables, tracks + 1)
    if is_possible(tables, tracks):
        assert is_possible(tables, tracks + 1)


@given(random_tables(), st.integers(1, 3))
@settings(max_examples=150)
def test_every_help_that_is_named_helps(tables: TargetTables, tracks: int) -> None:
    plan = plan_targets(tables, tracks)
    if plan.verdict == "kept":
        assert plan_lines(plan) == []
        return
    if plan.help.tracks is not None:
        assert plan.help.tracks > tracks
        target = tables.target.copy()
        target[[tables.graph.index[table.name] for table in plan.impossible]] = INF
        assert plan_targets(tables.with_target(target), plan.help.tracks).verdict == "kept"
    if plan.help.coarser is not None:
        target = tables.target.copy()
        for name, seconds in plan.help.coarser.items():
            assert seconds > target[tables.graph.index[name]]
            target[tables.graph.index[name]] = seconds
        assert plan_targets(tables.with_target(target), tracks).verdict == "kept"
    if plan.help.without:
        assert plan_without(tables, plan, tracks).verdict == "kept"


def plan_without(tables: TargetTables, plan: TargetPlan, tracks: int) -> TargetPlan:
    """The plan of the warehouse in which the tables to leave out were never declared."""
    gone = set(plan.help.without)
    keep = [i for i, name in enumerate(tables.graph.names) if name not in gone]
    return plan_targets(
        TargetTables(
            tables.graph.removing(gone),
            tables.target[keep],
            tables.period[keep],
            tables.setup_time[keep],
            tables.time_per_unit[keep],
            tables.priority[keep],
        ),
        tracks,
    )


@given(random_tables(), st.integers(1, 3))
@settings(max_examples=100)
def test_targets_are_given_up_only_if_not_all_can_be_kept(tables: TargetTables, tracks: int) -> None:
    kept = kept_targets(tables, tracks)
    assert ((kept == tables.target) | np.isinf(kept)).all()
    if has_room(tables, tracks):
        assert (kept == tables.target).all()
    assert demand(tables.with_target(kept)).tracks <= ROOM * tracks + 1e-9


def test_a_target_that_does_not_fit_does_not_keep_others_from_being_kept() -> None:
    """Shares of 0.8, 0.15 and 0.05 of a track: the second is too much beside the first, the third is not."""
    tables = TargetTables(
        graph=Graph(["high", "middle", "low"]),
        target=np.full(3, 1.0),
        period=np.full(3, 1.0),
        setup_time=np.zeros(3),
        time_per_unit=np.array([0.8, 0.15, 0.05]),
        priority=np.array([100.0, 1.0, 0.1]),
    )
    assert kept_targets(tables, 1).tolist() == [1.0, math.inf, 1.0]


@given(random_tables(), st.integers(1, 3))
@settings(max_examples=60)
def test_all_targets_are_stretched_alike_and_no_more_than_needed(tables: TargetTables, tracks: int) -> None:
    factor = even_stretch(tables, tracks)
    assert factor >= 1
    if demand(tables).tracks <= ROOM * tracks:
        assert factor == 1
    elif factor > 1.02:
        assert demand(tables.with_target(tables.target * factor)).tracks <= ROOM * tracks
        assert demand(tables.with_target(tables.target * factor / 1.02)).tracks > ROOM * tracks


def test_a_table_that_cannot_keep_up_leaves_the_other_targets_stretched() -> None:
    costs, targets = {f"t{i}": (10.0, 2.0, 0.05) for i in range(8)}, {f"t{i}": 12.0 for i in range(8)}
    without = even_stretch(tables_of(costs, targets), 1)
    late = tables_of(costs | {"late": (10.0, 1.0, 1.2)}, targets | {"late": 50.0})
    assert even_stretch(late, 1) == without > 1.5


@pytest.mark.parametrize(
    ("per_second", "is_stretched"), [pytest.param(0.44, True, id="enough"), pytest.param(0.46, False, id="not enough")]
)
def test_targets_stay_as_they_are_where_no_factor_helps(per_second: float, is_stretched: bool) -> None:
    """Two tables on one track, each of which takes nearly half of it however seldom it is updated."""
    tables = tables_of(dict.fromkeys("ab", (10.0, 2.0, per_second)), dict.fromkeys("ab", 12.0))
    assert (even_stretch(tables, 1) > 1) == is_stretched


def test_a_target_below_its_lowest_lag_takes_of_the_tracks_what_that_lag_takes() -> None:
    """The policy keeps it as low as it can be, so the others have less."""
    costs, targets = {f"t{i}": (10.0, 2.0, 0.05) for i in range(8)}, {f"t{i}": 12.0 for i in range(8)}
    low = tables_of(costs | {"low": (10.0, 3.0, 0.0)}, targets | {"low": 2.0})
    assert even_stretch(low, 1) > 1.2 * even_stretch(tables_of(costs, targets), 1)


def test_the_features_are_filled_for_the_policy() -> None:
    names = ("period", "setup_time", "time_per_unit", "target_lag", "kept_target_lag")
    matrix = FeatureMatrix(Graph("sd", [("s", "d")]), features_named(names))
    matrix.fill("period", [10.0, 10.0])
    matrix.fill("setup_time", [1.0, 2.0])
    fill_targets(matrix, np.array([INF, 30.0]), np.ones(2), tracks=1)
    assert matrix.columns["target_lag"].tolist() == [28.0, 30.0]
    assert matrix.columns["kept_target_lag"].tolist() == [28.0, 30.0]
    fill_targets(matrix, np.array([INF, INF]), np.ones(2), tracks=1)
    assert matrix.columns["target_lag"].tolist() == [INF, INF]
