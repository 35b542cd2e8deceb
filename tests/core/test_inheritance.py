"""Inheritance: what a node takes over from its neighbours, by hand and against definitions written out naively."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import ParameterError
from headgate.core.graph import Floats, Graph
from headgate.core.inheritance import (
    MOST_INHERITED,
    MOST_K,
    MOST_PRIORITY,
    derive_periods,
    inherit_priorities,
    inheritance_from,
    work_per_second,
)

#: base -> daily -> report, base -> alerts, other -> daily; and one table that nobody reads
TABLES = ("base", "other", "daily", "alerts", "report", "alone")
WAREHOUSE = Graph(TABLES, [("base", "daily"), ("other", "daily"), ("daily", "report"), ("base", "alerts")])
STATED = {"base": 1, "other": 2, "daily": 3, "alerts": 10, "report": 5, "alone": 4}


def column(values: dict[str, float]) -> Floats:
    return np.array([values[name] for name in TABLES], dtype=np.float64)


def by_name(values: Floats) -> dict[str, float]:
    return dict(zip(TABLES, values.tolist(), strict=True))


# --- priorities ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param("none", STATED, id="none: as stated"),
        pytest.param("sum", STATED | {"base": 1 + 3 + 10 + 5, "other": 2 + 3 + 5, "daily": 3 + 5}, id="sum"),
        pytest.param("max", STATED | {"base": 10, "other": 5, "daily": 5}, id="max"),
        # base: 2 * 10 from alerts and 4 * 5 from the report; a step doubles
        pytest.param("max-plus", STATED | {"base": 20, "other": 20, "daily": 10}, id="max-plus: twice per step"),
    ],
)
def test_a_source_inherits_from_what_is_built_on_it(mode, expected) -> None:
    assert by_name(inherit_priorities(WAREHOUSE, column(STATED), mode)) == expected


def test_sum_counts_a_dependent_once_however_many_ways_lead_to_it() -> None:
    diamond = Graph("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    assert inherit_priorities(diamond, np.array([1.0, 10.0, 100.0, 1000.0]), "sum")[0] == 1111


def test_max_plus_lifts_base_tables_more_the_longer_the_chain_above_them() -> None:
    chain = Graph("abcd", [("a", "b"), ("b", "c"), ("c", "d")])
    assert inherit_priorities(chain, np.ones(4), "max-plus", k=3).tolist() == [27, 9, 3, 1]


def test_max_plus_leaves_a_source_alone_that_is_worth_more_than_its_dependents() -> None:
    pair = Graph("ab", [("a", "b")])
    assert inherit_priorities(pair, np.array([9.0, 2.0]), "max-plus", k=2).tolist() == [9, 2]


def test_the_priorities_given_are_left_as_they_are() -> None:
    stated = column(STATED)
    for mode in ("none", "sum", "max", "max-plus", "density"):
        assert inherit_priorities(WAREHOUSE, stated, mode) is not stated
    assert by_name(stated) == STATED


@pytest.mark.parametrize(
    ("edges", "priority", "work", "inherited"),
    [
        pytest.param("ab", [1, 10], [1, 1], [5.5, 10], id="source and dependent together: 11 for 2"),
        pytest.param("ab", [10, 1], [1, 1], [10, 1], id="a dependent that is worth less is left out"),
        pytest.param("ab", [1, 10], [1, 9], [1.1, 10], id="a dear dependent adds little: 11 for 10"),
        pytest.param("ab", [1, 10], [3, 1], [8.25, 10], id="a dear source costs itself: 11 for 4, times 3"),
        pytest.param("ab bc", [0, 0, 9], [1, 1, 1], [3, 4.5, 9], id="a chain: 9 for 3, then for 2"),
        pytest.param("ab ac", [0, 9, 2], [1, 1, 1], [4.5, 9, 2], id="only the dependents that raise it: 9 for 2"),
        pytest.param("ab ac", [0, 9, 8], [1, 1, 1], [17 / 3, 9, 8], id="two dependents: 17 for 3"),
        pytest.param("ab bc bd", [0, 0, 6, 6], [1, 1, 1, 1], [3, 4, 6, 6], id="branches behind a table of no worth"),
        pytest.param("ac bc", [0, 0, 8], [1, 1, 1], [4, 4, 8], id="the other source keeps up by itself"),
        pytest.param("ab ac bd cd", [0, 0, 0, 8], [1, 1, 1, 1], [2, 4, 4, 8], id="where ways meet, both are needed"),
    ],
)
def test_density_is_that_of_the_best_set_that_an_update_makes_possible(edges, priority, work, inherited) -> None:
    graph = Graph("abcd"[: len(priority)], [tuple(edge) for edge in edges.split()])
    found = inherit_priorities(graph, np.array(priority, float), "density", work=np.array(work, float))
    assert found.tolist() == pytest.approx(inherited)


def test_work_per_second_is_the_slope_and_a_set_up_for_each_period() -> None:
    setup, slope, period = np.array([2.0, 2.0]), np.array([0.1, 0.0]), np.array([10.0, 0.0])
    assert work_per_second(setup, slope, period).tolist() == pytest.approx([0.3, 2e6]), "a period that is not known"


def test_without_costs_all_nodes_cost_the_same_for_density() -> None:
    graph = Graph("ab", [("a", "b")])
    assert inherit_priorities(graph, np.array([1.0, 10.0]), "density").tolist() == [5.5, 10.0]


@given(st.integers(1, 7), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_on_trees_no_closed_set_is_denser_than_density_says(count: int, chance: random.Random) -> None:
    names = "abcdefg"[:count]
    parent = {i: chance.randrange(i) for i in range(1, count)}
    graph = Graph(names, [(names[above], names[i]) for i, above in parent.items()])
    priority = np.array([chance.choice([0.0, 1.0, 5.0, 20.0]) for _ in names])
    work = np.array([chance.choice([0.1, 1.0, 4.0]) for _ in names])
    found = inherit_priorities(graph, priority, "density", work=work) / work
    for root in range(count):
        below = sorted(graph.dependents(root))
        best = 0.0
        for size in range(len(below) + 1):
            for others in combinations(below, size):
                members = {root, *others}
                if all(parent[i] in members for i in others):
                    best = max(best, sum(priority[list(members)]) / sum(work[list(members)]))
        assert found[root] == pytest.approx(best)


def density_by_the_definition(graph: Graph, priority: np.ndarray, work: np.ndarray) -> list[float]:
    """From the sinks up: take in the densest of the best sets of dependents, each with all that it needs, while that
    makes the node denser. Every set is looked at again in every round."""
    best: dict[int, set[int]] = {}
    found = np.zeros(len(graph))
    for node in reversed(graph.order):
        taken, below = {node}, graph.dependents(node)

        def density(members: set[int]) -> float:
            those = sorted(members)
            return sum(priority[those]) / sum(work[those])

        while open_ := {child for member in taken for child in graph.downstream[member]} - taken:
            offers = {
                child: best[child].union(*(graph.ancestors(i) & below for i in best[child])) - taken for child in open_
            }
            chosen = max(offers, key=lambda child: (density(offers[child]), -graph.tie[child]))
            if density(offers[chosen]) <= density(taken):
                break
            taken |= offers[chosen]
        best[node] = taken
        found[node] = density(taken)
    return np.maximum(priority, found * work).tolist()


@given(st.integers(1, 9), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_density_equals_its_definition_where_ways_meet(count: int, chance: random.Random) -> None:
    names = "abcdefghi"[:count]
    edges = [(names[i], names[j]) for j in range(count) for i in range(j) if chance.random() < 0.35]
    graph = Graph(names, edges)
    priority = np.array([chance.uniform(0.0, 100.0) for _ in names])
    work = np.array([chance.uniform(0.1, 4.0) for _ in names])
    expected = density_by_the_definition(graph, priority, work)
    assert inherit_priorities(graph, priority, "density", work=work).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param({"mode": "most"}, "one of none, sum, max, max-plus, density; got 'most'", id="unknown mode"),
        pytest.param({"mode": "max-plus", "k": 1.0}, "above 1 and at most 1000; got 1.0", id="k of one"),
        pytest.param({"mode": "max-plus", "k": math.nan}, "at most 1000; got nan", id="k not a number"),
        pytest.param({"mode": "max-plus", "k": math.inf}, "at most 1000; got inf", id="k infinite"),
        pytest.param({"mode": "max-plus", "k": 1001.0}, "at most 1000; got 1001", id="k too large"),
        pytest.param({"mode": "sum", "k": 1001.0}, "at most 1000; got 1001", id="k too large, not used"),
    ],
)
def test_a_mode_that_cannot_be_is_refused(arguments, complaint) -> None:
    with pytest.raises(ParameterError, match=complaint):
        inherit_priorities(WAREHOUSE, column(STATED), **arguments)


@pytest.mark.parametrize(
    "text",
    ["max-plus:", "max:", "default:", "max-plus:k=1", "max-plus:k=inf", "max-plus:k=1e308", "max-plus:k=nan"],
)
def test_a_rule_that_is_written_wrongly_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ParameterError, match=f"a number above 1 and at most 1000; got '{text}'"):
        inheritance_from(text)


def test_max_plus_stays_finite_over_the_longest_chain() -> None:
    names = [f"t{i}" for i in range(300)]
    stated = np.full(300, MOST_PRIORITY)
    inherited = inherit_priorities(Graph(names, pairwise(names)), stated, "max-plus", k=MOST_K)
    assert (inherited[0], inherited[-1]) == (MOST_INHERITED, MOST_PRIORITY)


# --- periods ------------------------------------------------------------------------------------------------

#: what is stated for derived tables must not matter
PERIODS = {"base": 60, "other": 300, "daily": 1, "alerts": 99999, "report": 7, "alone": 20}
DERIVED = {"base": 60, "other": 300, "daily": 300, "alerts": 60, "report": 300, "alone": 20}


@pytest.mark.parametrize("reading", ["ancestors", "descendants"])
def test_a_derived_table_changes_as_seldom_as_the_slowest_table_it_is_built_from(reading) -> None:
    assert by_name(derive_periods(WAREHOUSE, column(PERIODS), reading)) == DERIVED


def test_the_second_reading_looks_at_what_is_built_on_a_table_but_not_for_sources() -> None:
    # fast -> middle -> joined <- slow
    graph = Graph(["fast", "slow", "middle", "joined"], [("fast", "middle"), ("middle", "joined"), ("slow", "joined")])
    periods = np.array([10.0, 1000.0, 0.0, 0.0])
    assert derive_periods(graph, periods).tolist() == [10, 1000, 10, 1000]
    assert derive_periods(graph, periods, "descendants").tolist() == [10, 1000, 1000, 1000]


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(ParameterError, match="one of ancestors, descendants; got 'siblings'"):
        derive_periods(WAREHOUSE, column(PERIODS), "siblings")


def test_an_empty_graph_has_nothing_to_inherit() -> None:
    empty = Graph(())
    assert all(len(inherit_priorities(empty, np.array([]), mode)) == 0 for mode in ("none", "sum", "max", "max-plus"))
    assert all(len(derive_periods(empty, np.array([]), reading)) == 0 for reading in ("ancestors", "descendants"))


# --- against the definitions --------------------------------------------------------------------------------


def ways(graph: Graph, node: int, length: int = 0) -> Iterator[tuple[int, int]]:
    """Where every way down from ``node`` can end, and its length; the way of no steps included."""
    yield node, length
    for below in graph.downstream[node]:
        yield from ways(graph, below, length + 1)


def slowest_source(graph: Graph, period: Floats, node: int) -> float:
    above = graph.upstream[node]
    return max(slowest_source(graph, period, a) for a in above) if above else float(period[node])


def slowest_dependent(graph: Graph, period: Floats, node: int) -> float:
    if not graph.upstream[node]:
        return float(period[node])
    dependents = {end for end, _ in ways(graph, node)} - {node}
    return max(slowest_source(graph, period, n) for n in dependents or {node})


NAIVE: dict[str, Callable[[Graph, Floats, int], float]] = {
    "sum": lambda graph, given, node: sum(given[end] for end in {end for end, _ in ways(graph, node)}),
    "max": lambda graph, given, node: max(given[end] for end, _ in ways(graph, node)),
    "max-plus": lambda graph, given, node: max(given[end] * 1.5**length for end, length in ways(graph, node)),
    "ancestors": slowest_source,
    "descendants": slowest_dependent,
}


@st.composite
def graphs_with_numbers(draw: st.DrawFn) -> tuple[Graph, Floats]:
    """A graph of up to eight nodes, declared in any order, and a number from 0 up for each."""
    size = draw(st.integers(1, 8))
    pairs = [(f"n{a}", f"n{b}") for b in range(size) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    graph = Graph(draw(st.permutations([f"n{i}" for i in range(size)])), edges)
    return graph, np.array(draw(st.lists(st.integers(0, 100), min_size=size, max_size=size)), dtype=np.float64)


@pytest.mark.parametrize("mode", ["sum", "max", "max-plus"])
@given(graphs_with_numbers())
def test_priorities_equal_the_definition_followed_way_by_way(mode, graph_and_priority) -> None:
    graph, priority = graph_and_priority
    naive = [NAIVE[mode](graph, priority, node) for node in range(len(graph))]
    assert inherit_priorities(graph, priority, mode, k=1.5).tolist() == pytest.approx(naive)


@pytest.mark.parametrize("reading", ["ancestors", "descendants"])
@given(graphs_with_numbers())
def test_periods_equal_the_definition_followed_table_by_table(reading, graph_and_period) -> None:
    graph, period = graph_and_period
    naive = [NAIVE[reading](graph, period, node) for node in range(len(graph))]
    assert derive_periods(graph, period, reading).tolist() == naive
