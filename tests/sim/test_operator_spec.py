"""Scenarios of operators: what is refused, and in what words; arrival patterns; offered load."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from random import Random

import pytest

from headgate.core.errors import DeclarationError, ScenarioError
from headgate.core.policies import FirstCome
from headgate.sim import (
    AddQuery,
    ArrivalPattern,
    BatchArrivals,
    BurstyArrivals,
    ConstantArrivals,
    DispatchModel,
    OperatorModel,
    OperatorScenario,
    PoissonArrivals,
    QueryModel,
    RecordedArrivals,
    RemoveQuery,
    ReplacePolicy,
    RoundsModel,
    ThreadsModel,
    chain,
)

ONCE = RecordedArrivals((0.0,))
SOURCE = OperatorModel("s", 1.0, arrivals=ONCE)
QUERY = QueryModel("q", (SOURCE,))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        pytest.param(
            lambda: OperatorModel("o", 0.0), "operator 'o' needs a cost of more than 0 seconds; got 0.0", id="no cost"
        ),
        pytest.param(
            lambda: OperatorModel("o", 1, -1),
            "operator 'o' needs a selectivity of at least 0; got -1",
            id="selectivity",
        ),
        pytest.param(
            lambda: OperatorModel("o", 1, spread=2), "operator 'o' needs a spread between 0 and 1; got 2", id="spread"
        ),
        pytest.param(lambda: OperatorModel("o", 1, capacity=0), "capacity of at least 1 tuple; got 0", id="capacity"),
        pytest.param(
            lambda: OperatorModel("o", 1, max_workers=0), "max_workers of at least 1; got 0", id="max_workers"
        ),
        pytest.param(
            lambda: OperatorModel("o", 1, patience=0), "patience of more than 0 seconds; got 0", id="patience"
        ),
        pytest.param(lambda: OperatorModel("o", 1, inputs=("a", "a")), "needs each input once", id="input twice"),
        pytest.param(lambda: OperatorModel("", 1), "an operator needs a name", id="no name"),
        pytest.param(lambda: QueryModel("q", ()), "query 'q' needs at least one operator", id="no operators"),
        pytest.param(
            lambda: QueryModel("q", (OperatorModel("o", 1),)),
            "query 'q': operator 'o' has no inputs, so it is a source and needs arrivals",
            id="no arrivals",
        ),
        pytest.param(
            lambda: QueryModel("q", (SOURCE, OperatorModel("o", 1, inputs=("s",), arrivals=ONCE))),
            "query 'q': operator 'o' has inputs and arrivals",
            id="inputs and arrivals",
        ),
        pytest.param(
            lambda: QueryModel("q", (SOURCE, OperatorModel("o", 1, inputs=("x",)))),
            "query 'q': the edge of 'x' leads",
            id="edge",
        ),
        pytest.param(
            lambda: QueryModel("q", (SOURCE, SOURCE)), "query 'q': two nodes are called 's'", id="operator twice"
        ),
        pytest.param(
            lambda: chain("q", [OperatorModel("a", 1, 2.5), OperatorModel("b", 1, capacity=2)], ONCE),
            "one tuple of operator 'a' can become 3, but the queue of operator 'b' holds 2",
            id="never fits",
        ),
        pytest.param(lambda: OperatorScenario(()), "at least one query", id="no queries"),
        pytest.param(lambda: OperatorScenario((QUERY, QUERY)), "two queries", id="query twice"),
        pytest.param(lambda: OperatorScenario((QUERY,), 0), "from 1 to 1000 workers; got 0", id="no workers"),
        pytest.param(
            lambda: OperatorScenario((QUERY,), 10**9), "from 1 to 1000 workers; got 1000000000", id="a billion"
        ),
        pytest.param(lambda: OperatorScenario((QUERY,), 2, groups=3), "each of its groups; got 3", id="groups"),
        pytest.param(lambda: OperatorScenario((QUERY,), horizon=0), "horizon of more than 0", id="horizon"),
        pytest.param(lambda: OperatorScenario((QUERY,), events=0), "at least 1 event", id="events"),
        pytest.param(
            lambda: OperatorScenario((QUERY,), horizon=2, measure_from=2), "measure_from before", id="warm-up"
        ),
        pytest.param(lambda: OperatorScenario((QUERY,), learning=0), "a learning weight above 0", id="learning"),
        pytest.param(lambda: OperatorScenario((QUERY,), hand_over=0), "hand_over of at least 1", id="hand-over"),
        pytest.param(lambda: OperatorScenario((QUERY,), sample_every=0), "sample_every of more than 0", id="samples"),
        pytest.param(
            lambda: OperatorScenario((chain("q", [OperatorModel("o", 1)], PoissonArrivals(1)),)),
            "would never end: tuples of operator 'o' of query 'q' never stop coming",
            id="never ends",
        ),
        pytest.param(
            lambda: OperatorScenario((QUERY,), changes=(RemoveQuery(1, "x"),)),
            "no query 'x' to remove at 1 s",
            id="gone",
        ),
        pytest.param(
            lambda: OperatorScenario((QUERY,), changes=(AddQuery(1, QUERY),)),
            "two queries are called 'q'",
            id="added twice",
        ),
        pytest.param(
            lambda: OperatorScenario((QUERY,), changes=(AddQuery(-1, QUERY),)), "time of at least 0", id="in the past"
        ),
        pytest.param(
            lambda: OperatorScenario((QUERY,), loop=ThreadsModel(), changes=(ReplacePolicy(1, FirstCome()),)),
            "the threads loop has no policy",
            id="policy of threads",
        ),
        pytest.param(lambda: DispatchModel(decision_cost=-1), "decision_cost of the dispatch loop", id="dispatch cost"),
        pytest.param(lambda: DispatchModel(place_every=0), "place_every of the dispatch loop", id="place every"),
        pytest.param(
            lambda: RoundsModel(rank_cost=-1), "rank_cost of the rounds loop must be at least 0", id="rank cost"
        ),
        pytest.param(lambda: RoundsModel(period=0), "period of the rounds loop", id="period"),
        pytest.param(lambda: ThreadsModel(quantum=0), "quantum of the threads loop must be more than 0", id="quantum"),
        pytest.param(lambda: ConstantArrivals(0), "constant arrivals take a rate of more than 0; got 0", id="rate"),
        pytest.param(lambda: ConstantArrivals(1, offset=-1), "an offset of at least 0", id="offset"),
        pytest.param(lambda: BatchArrivals(1, every=0), "arrivals in batches take a every", id="every"),
        pytest.param(lambda: PoissonArrivals(1, batch=0), "Poisson arrivals take a batch", id="batch"),
        pytest.param(lambda: BurstyArrivals(1, on=0, off=1), "bursty arrivals take a on", id="on"),
        pytest.param(lambda: BurstyArrivals(1, 1, 1, base=-1), "a base rate of at least 0; got -1", id="base"),
        pytest.param(lambda: RecordedArrivals(()), "at least one entry", id="no times"),
        pytest.param(lambda: RecordedArrivals((2.0, 1.0)), "in order of time", id="unordered"),
    ],
)
def test_an_impossible_scenario_is_refused_with_the_place_and_the_reason(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(DeclarationError) as refusal:
        make()
    assert complaint in str(refusal.value)


def test_mistakes_of_a_scenario_are_scenario_errors() -> None:
    with pytest.raises(ScenarioError):
        OperatorScenario(())


def test_a_chain_feeds_each_operator_from_the_one_before() -> None:
    query = chain("q", [OperatorModel("a", 1), OperatorModel("b", 1), OperatorModel("c", 1)], ONCE, importance_class=2)
    assert query.node_edges() == (("q/a", "q/b"), ("q/b", "q/c"))
    assert (query.operators[0].arrivals, query.importance_class) == (ONCE, 2)


def test_the_offered_load_follows_rates_and_selectivities_through_the_graph() -> None:
    operators = (
        OperatorModel("s", 0.001, 2.0, arrivals=ConstantArrivals(100)),
        OperatorModel("l", 0.002, 0.5, inputs=("s",)),
        OperatorModel("r", 0.001, inputs=("s",)),
        OperatorModel("m", 0.001, inputs=("l", "r")),
    )
    query = QueryModel("q", operators)
    assert query.rates() == (100.0, 200.0, 200.0, 300.0)
    assert query.load() == pytest.approx(0.1 + 0.4 + 0.2 + 0.3)
    assert (
        OperatorScenario(
            (query, chain("p", [OperatorModel("o", 0.5)], ConstantArrivals(2))), 4, horizon=1
        ).utilisation()
        == 0.5
    )


def test_workers_are_dealt_to_groups_evenly() -> None:
    assert OperatorScenario((QUERY,), 5, groups=2).machine().group == (0, 0, 0, 1, 1)


# --- arrivals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "first"),
    [
        pytest.param(ConstantArrivals(4, offset=0.0), [(0.0, 1), (0.25, 1), (0.5, 1)], id="constant"),
        pytest.param(
            ConstantArrivals(4, batch=2, offset=1.0), [(1.0, 2), (1.5, 2), (2.0, 2)], id="constant, two at a time"
        ),
        pytest.param(BatchArrivals(20, offset=0.0), [(0.0, 2), (0.1, 2), (0.2, 2)], id="batches"),
        pytest.param(BatchArrivals(15, offset=0.0), [(0.0, 1), (0.1, 2), (0.2, 1)], id="batches of unequal size"),
        pytest.param(BatchArrivals(5, offset=0.0), [(0.1, 1), (0.3, 1), (0.5, 1)], id="batches, some empty"),
        pytest.param(BurstyArrivals(2, on=1, off=3), [(0.0, 1), (0.5, 1), (4.0, 1), (4.5, 1)], id="bursty"),
        pytest.param(
            BurstyArrivals(2, 1, 3, base=0.5),
            [(0, 1), (0.5, 1), (1.0, 1), (3.0, 1), (4.0, 1)],
            id="bursty, never still",
        ),
        pytest.param(RecordedArrivals((0.0, 0.0, 2.0)), [(0.0, 1), (0.0, 1), (2.0, 1)], id="replay"),
    ],
)
def test_tuples_come_when_the_pattern_says(arrivals: ArrivalPattern, first: list[tuple[float, int]]) -> None:
    moments = list(islice(arrivals.moments(Random(0)), len(first)))
    assert [count for _, count in moments] == [count for _, count in first]
    assert [time for time, _ in moments] == pytest.approx([time for time, _ in first])


@pytest.mark.parametrize(
    "arrivals",
    [
        ConstantArrivals(30),
        ConstantArrivals(30, batch=4),
        BatchArrivals(33),
        PoissonArrivals(30),
        PoissonArrivals(30, 3),
        BurstyArrivals(60, 2, 2),
    ],
    ids=str,
)
def test_the_mean_rate_and_the_period_are_those_of_the_tuples_that_come(arrivals: ArrivalPattern) -> None:
    moments = list(islice(arrivals.moments(Random(5)), 20_000))
    span = moments[-1][0]
    assert sum(count for _, count in moments) / span == pytest.approx(arrivals.mean_rate, rel=0.02)
    assert span / len(moments) == pytest.approx(arrivals.period, rel=0.02)
    assert arrivals.endless


def test_the_rate_holds_over_many_tuples_without_drift() -> None:
    moments = ConstantArrivals(1000, offset=0.0).moments(Random(0))
    assert next(islice(moments, 50_000, None)) == (50.0, 1)


def test_an_unstated_offset_is_a_random_moment_of_the_first_gap() -> None:
    starts = {next(ConstantArrivals(10).moments(Random(seed)))[0] for seed in range(20)}
    assert len(starts) == 20
    assert all(0 <= start < 0.1 for start in starts)


def test_replayed_arrivals_end_and_have_a_rate_all_the_same() -> None:
    replay = RecordedArrivals((0.0, 0.5, 1.0))
    assert not replay.endless
    assert (replay.period, replay.mean_rate) == (0.5, 2.0)
    assert math.isfinite(RecordedArrivals((3.0,)).mean_rate)
