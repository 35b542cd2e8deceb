"""The graph: mistakes are named, and what it works out agrees with the plainest recursion."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import GraphError
from headgate.core.graph import Graph, Level
from tests.core.oracles import dags, fewer_examples

# --- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "edges", "named"),
    [
        pytest.param(["a", "b", "a"], [], "two nodes are called 'a'", id="two nodes of one name"),
        pytest.param(["a"], [("a", "x")], "'x'", id="edge to nowhere"),
        pytest.param(["a"], [("x", "a")], "'x'", id="edge from nowhere"),
        pytest.param(["a"], [("a", "a")], "a -> a", id="a node that feeds itself"),
        pytest.param(["a", "b"], [("a", "b"), ("b", "a")], "a -> b -> a", id="two nodes in a circle"),
        pytest.param(
            ["in", "a", "b", "c", "out"],
            [("in", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "out")],
            "a -> b -> c -> a",
            id="a circle with a way in and a way out",
        ),
    ],
)
def test_a_mistake_is_refused_and_named(names: list[str], edges: list[tuple[str, str]], named: str) -> None:
    with pytest.raises(GraphError) as refusal:
        Graph(names, edges)
    assert named in str(refusal.value)


def test_an_edge_to_nowhere_lists_some_of_the_nodes_there_are() -> None:
    with pytest.raises(GraphError, match=r"n0, n1, .* and 12 more"):
        Graph([f"n{i}" for i in range(20)], [("n0", "x")])


def test_a_query_of_a_node_that_does_not_exist_is_refused() -> None:
    with pytest.raises(GraphError, match="'b'"):
        Graph(["a"], queries={"b": "q"})


def test_the_same_edge_twice_is_refused() -> None:
    with pytest.raises(GraphError, match=r"'a'.*'b'"):
        Graph(["a", "b"], [("a", "b"), ("a", "b")])


@fewer_examples
@given(dags(), st.data())
def test_a_cycle_that_is_named_is_really_there(graph: Graph, data: st.DataObject) -> None:
    closing = data.draw(st.sampled_from([(b, a) for a, b in graph.edges] + [(n, n) for n in graph.names]))
    edges = [*graph.edges, closing]
    with pytest.raises(GraphError) as refusal:
        Graph(graph.names, edges)
    circle = re.search(r"cycle: ([\w >-]+);", str(refusal.value))
    assert circle is not None
    walked = circle[1].split(" -> ")
    assert walked[0] == walked[-1]
    assert set(pairwise(walked)) <= set(edges)


# --- what it works out --------------------------------------------------------------------------------------


def longest_way(graph: Graph, node: int, neighbours: tuple[tuple[int, ...], ...]) -> int:
    return max((1 + longest_way(graph, n, neighbours) for n in neighbours[node]), default=0)


def everything_reached(node: int, neighbours: tuple[tuple[int, ...], ...]) -> set[int]:
    return {j for n in neighbours[node] for j in ({n} | everything_reached(n, neighbours))}


@fewer_examples
@given(dags())
def test_neighbours_are_all_and_only_the_declared_edges(graph: Graph) -> None:
    declared = {(graph.index[a], graph.index[b]) for a, b in graph.edges}
    assert {(i, j) for i, down in enumerate(graph.downstream) for j in down} == declared
    assert {(i, j) for j, up in enumerate(graph.upstream) for i in up} == declared


@fewer_examples
@given(dags())
def test_neighbours_come_in_the_order_declared(graph: Graph) -> None:
    for name, i in graph.index.items():
        assert [graph.names[j] for j in graph.upstream[i]] == [a for a, b in graph.edges if b == name]
        assert [graph.names[j] for j in graph.downstream[i]] == [b for a, b in graph.edges if a == name]


@fewer_examples
@given(dags())
def test_the_order_puts_every_node_after_all_that_feed_it(graph: Graph) -> None:
    assert sorted(graph.order) == list(range(len(graph)))
    place = {node: k for k, node in enumerate(graph.order)}
    assert all(place[graph.index[a]] < place[graph.index[b]] for a, b in graph.edges)


@fewer_examples
@given(dags())
def test_position_is_a_topological_order_too(graph: Graph) -> None:
    assert sorted(graph.position) == list(range(len(graph)))
    assert all(graph.position[graph.index[a]] < graph.position[graph.index[b]] for a, b in graph.edges)


def test_position_goes_by_name_between_equals_whatever_order_nodes_came_in() -> None:
    forward, backward = Graph(["a", "b", "c"], [("a", "c")]), Graph(["c", "b", "a"], [("a", "c")])
    assert forward.position.tolist() == [0, 1, 2]
    assert backward.position.tolist() == [2, 1, 0]


@fewer_examples
@given(dags())
def test_depth_and_height_are_the_longest_ways(graph: Graph) -> None:
    nodes = range(len(graph))
    assert graph.depth.tolist() == [longest_way(graph, i, graph.upstream) for i in nodes]
    assert graph.height.tolist() == [longest_way(graph, i, graph.downstream) for i in nodes]


@fewer_examples
@given(dags())
def test_ancestors_and_dependents_are_everything_reached(graph: Graph) -> None:
    for i in range(len(graph)):
        assert graph.ancestors(i) == everything_reached(i, graph.upstream)
        assert graph.dependents(i) == everything_reached(i, graph.downstream)


@fewer_examples
@given(dags())
def test_sources_and_sinks_are_the_ends(graph: Graph) -> None:
    fed, feeding = {b for _, b in graph.edges}, {a for a, _ in graph.edges}
    assert {graph.names[i] for i in graph.sources} == set(graph.names) - fed
    assert {graph.names[i] for i in graph.sinks} == set(graph.names) - feeding
    assert graph.is_sink.tolist() == [name not in feeding for name in graph.names]


def unpacked(level: Level) -> dict[int, list[int]]:
    ends = [*level.starts[1:].tolist(), len(level.neighbours)]
    spans = zip(level.nodes.tolist(), level.starts.tolist(), ends, strict=True)
    return {node: level.neighbours[start:end].tolist() for node, start, end in spans}


@fewer_examples
@given(dags())
def test_levels_hold_every_node_at_its_distance_with_its_neighbours(graph: Graph) -> None:
    for levels, distance, neighbours in (
        (graph.from_sinks, graph.height, graph.downstream),
        (graph.from_sources, graph.depth, graph.upstream),
    ):
        for d, level in enumerate(levels):
            assert unpacked(level) == {i: list(neighbours[i]) for i in range(len(graph)) if distance[i] == d}
        assert sum(len(level.nodes) for level in levels) == len(graph)


@fewer_examples
@given(dags())
def test_a_reduceat_over_a_level_sums_the_neighbours_of_each_node(graph: Graph) -> None:
    values = np.arange(1.0, len(graph) + 1)
    for level in graph.from_sinks[1:]:
        sums = np.add.reduceat(values[level.neighbours], level.starts)
        assert sums.tolist() == [sum(values[j] for j in graph.downstream[i]) for i in level.nodes]


@fewer_examples
@given(dags())
def test_paths_cut_the_graph_at_every_second_choice(graph: Graph) -> None:
    assert sorted(i for path in graph.paths for i in path) == list(range(len(graph)))

    def first_choices(i: int, j: int) -> bool:
        return graph.downstream[i][:1] == (j,) and graph.upstream[j][:1] == (i,)

    joined = {pair for path in graph.paths for pair in pairwise(path)}
    assert joined == {(i, j) for i in range(len(graph)) for j in range(len(graph)) if first_choices(i, j)}


def test_a_chain_is_one_path() -> None:
    assert Graph("cab", [("a", "b"), ("b", "c")]).paths == ((1, 2, 0),)


@fewer_examples
@given(dags())
def test_the_path_table_is_the_paths_padded(graph: Graph) -> None:
    table, real = graph.path_table
    assert [tuple(row[mask].tolist()) for row, mask in zip(table, real, strict=True)] == list(graph.paths)
    assert all(mask.tolist() == sorted(mask.tolist(), reverse=True) for mask in real)


@fewer_examples
@given(dags())
def test_tie_is_the_place_of_the_name_in_sorted_order(graph: Graph) -> None:
    assert [sorted(graph.names)[place] for place in graph.tie] == list(graph.names)


@fewer_examples
@given(dags())
def test_fingerprints_belong_to_names_and_not_to_indices(graph: Graph) -> None:
    reversed_graph = Graph(reversed(graph.names))
    assert graph.fingerprint.tolist() == reversed_graph.fingerprint[::-1].tolist()
    assert len(set(graph.fingerprint.tolist())) == len(graph)


# --- queries ------------------------------------------------------------------------------------------------


def connected_to(graph: Graph, node: int) -> set[int]:
    group = {node}
    while more := {j for i in group for j in (*graph.upstream[i], *graph.downstream[i])} - group:
        group |= more
    return group


@fewer_examples
@given(dags())
def test_without_declared_queries_each_connected_group_is_one_named_after_its_first_node(graph: Graph) -> None:
    for i in range(len(graph)):
        group = connected_to(graph, i)
        assert {j for j in range(len(graph)) if graph.query[j] == graph.query[i]} == group
        assert graph.query_names[graph.query[i]] == graph.names[min(group)]


def test_declared_queries_hold_whatever_is_connected() -> None:
    graph = Graph(["a", "b", "c"], [("a", "b")], queries={"a": "left", "b": "right", "c": "left"})
    assert [graph.query_names[q] for q in graph.query] == ["left", "right", "left"]


# --- change -------------------------------------------------------------------------------------------------


@fewer_examples
@given(dags(), st.data())
def test_adding_keeps_the_indices_and_edges_of_the_nodes_there_were(graph: Graph, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(graph.names))
    larger = graph.adding(["new"], [(source, "new")])
    assert larger.names == (*graph.names, "new")
    assert larger.upstream[: len(graph)] == graph.upstream
    assert larger.upstream[larger.index["new"]] == (graph.index[source],)


@fewer_examples
@given(dags(), st.data())
def test_removing_leaves_the_others_and_the_edges_among_them(graph: Graph, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(graph.names)))
    smaller = graph.removing(gone)
    assert smaller.names == tuple(name for name in graph.names if name not in gone)
    assert smaller.edges == tuple((a, b) for a, b in graph.edges if not {a, b} & gone)


@fewer_examples
@given(dags())
def test_removing_what_was_added_gives_back_the_graph(graph: Graph) -> None:
    again = graph.adding(["new"], [("new", graph.names[0])], {"new": "q"}).removing(["new"])
    assert (again.names, again.edges, again.query_names) == (graph.names, graph.edges, graph.query_names)


def test_declared_queries_survive_adding_and_removing() -> None:
    graph = Graph(["a", "b"], queries={"a": "one", "b": "two"}).adding(["c"], queries={"c": "one"}).removing(["b"])
    assert [graph.query_names[q] for q in graph.query] == ["one", "one"]


def test_what_cannot_be_added_or_removed_is_refused() -> None:
    graph = Graph(["a", "b"], [("a", "b")])
    with pytest.raises(GraphError, match="'x'"):
        graph.removing(["x"])
    with pytest.raises(GraphError, match="two nodes are called 'a'"):
        graph.adding(["a"])
    with pytest.raises(GraphError, match="cycle: a -> b -> a"):
        graph.adding([], [("b", "a")])


def test_a_graph_without_nodes_is_a_graph() -> None:
    nothing = Graph(["a"]).removing(["a"])
    assert len(nothing) == 0
    assert (nothing.order, nothing.paths, nothing.from_sinks, nothing.query_names) == ((), (), (), ())
    assert nothing.fingerprint.size == nothing.tie.size == nothing.depth.size == 0
