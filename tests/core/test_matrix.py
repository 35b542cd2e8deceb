"""The feature matrix reads again exactly what can have changed (Haren, section 6), and keeps what it knows by name.

The oracle is written from the definitions 3.1 to 3.4: for every pair of node and feature it asks whether something
that happened since the last refresh can have changed that feature of that node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError, HeadgateError, MissingFeatureError, UnknownNameError
from headgate.core.features import FEATURES, ChangedBy, Feature, features_named
from headgate.core.graph import Graph, Ints
from headgate.core.matrix import FeatureMatrix, RefreshCount
from tests.core.oracles import dags, few_examples

STATIC = Feature("static", "never changes")
INDEPENDENT = Feature("independent", "by its own runs", ChangedBy.ITSELF)
INTRINSIC = Feature("intrinsic", "by its own runs, and not to be had otherwise", ChangedBy.ITSELF, intrinsic=True)
FROM_ABOVE = Feature("from-above", "by runs of what feeds it", ChangedBy.ITSELF | ChangedBy.UPSTREAM)
FROM_BELOW = Feature("from-below", "by runs of what it feeds", ChangedBy.ITSELF | ChangedBy.DOWNSTREAM)
FROM_BOTH = Feature("from-both", "both", ChangedBy.ITSELF | ChangedBy.UPSTREAM | ChangedBy.DOWNSTREAM)
ARRIVING = Feature("arriving", "by data from outside", ChangedBy.ARRIVAL)
QUEUE = Feature("queue", "by data and runs", ChangedBy.ITSELF | ChangedBy.UPSTREAM | ChangedBy.ARRIVAL)
KEPT_BY_LOOP = Feature("kept-by-loop", "the loop writes it", ChangedBy.LOOP, default=7.0)
KINDS = (STATIC, INDEPENDENT, INTRINSIC, FROM_ABOVE, FROM_BELOW, FROM_BOTH, ARRIVING, QUEUE, KEPT_BY_LOOP)


@dataclass
class CountingReader:
    """An engine whose every reading is another number; remembers who was asked for what."""

    asked: list[tuple[int, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    value: float = 0.0

    def __call__(self, name: str, nodes: Ints) -> list[float]:
        self.calls.append(name)
        values = []
        for node in nodes.tolist():
            self.asked.append((node, name))
            self.value += 1.0
            values.append(self.value)
        return values


def pairs_read(matrix: FeatureMatrix) -> list[tuple[int, str]]:
    reader = CountingReader()
    count = matrix.refresh(reader)
    assert count.read == len(reader.asked)
    return sorted(reader.asked)


def can_have_changed(
    feature: Feature, node: str, edges: set[tuple[str, str]], ran: set[str], arrived: set[str]
) -> bool:
    """By definitions 3.1-3.4: the feature of ``node`` changes upon execution of the nodes it depends on."""
    depends_on: set[str] = set()
    if ChangedBy.ITSELF in feature.changed_by:
        depends_on.add(node)
    if ChangedBy.UPSTREAM in feature.changed_by:
        depends_on |= {a for a, b in edges if b == node}
    if ChangedBy.DOWNSTREAM in feature.changed_by:
        depends_on |= {b for a, b in edges if a == node}
    return bool(depends_on & ran) or (ChangedBy.ARRIVAL in feature.changed_by and node in arrived)


def names_of(graph: Graph, subset: set[int]) -> set[str]:
    return {graph.names[i] for i in subset}


def some_nodes(graph: Graph) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, len(graph) - 1))


# --- selective refresh --------------------------------------------------------------------------------------


@few_examples
@given(dags(), st.data())
def test_a_refresh_reads_exactly_the_pairs_that_can_have_changed(graph: Graph, data: st.DataObject) -> None:
    matrix = FeatureMatrix(graph, KINDS)
    matrix.refresh(CountingReader())
    ran, arrived = data.draw(some_nodes(graph)), data.draw(some_nodes(graph))
    matrix.note_ran(ran)
    matrix.note_arrival(arrived)
    assert pairs_read(matrix) == sorted(
        (i, feature.name)
        for i, node in enumerate(graph.names)
        for feature in KINDS
        if can_have_changed(feature, node, set(graph.edges), names_of(graph, ran), names_of(graph, arrived))
    )


@few_examples
@given(dags(), st.data())
def test_what_happened_between_two_refreshes_adds_up_and_is_then_forgotten(graph: Graph, data: st.DataObject) -> None:
    matrix, at_once = FeatureMatrix(graph, KINDS), FeatureMatrix(graph, KINDS)
    for each in (matrix, at_once):
        each.refresh(CountingReader())
    first, second = data.draw(some_nodes(graph)), data.draw(some_nodes(graph))
    matrix.note_ran(first)
    matrix.note_ran(second)
    at_once.note_ran(first | second)
    assert pairs_read(matrix) == pairs_read(at_once)
    assert pairs_read(matrix) == []


def test_the_first_refresh_reads_everything_but_what_the_loop_keeps() -> None:
    matrix = FeatureMatrix(Graph("ab"), KINDS)
    expected = [(i, feature.name) for i in (0, 1) for feature in KINDS if feature is not KEPT_BY_LOOP]
    assert pairs_read(matrix) == sorted(expected)


@few_examples
@given(dags(), st.data())
def test_a_static_feature_is_read_once(graph: Graph, data: st.DataObject) -> None:
    matrix = FeatureMatrix(graph, [STATIC])
    assert len(pairs_read(matrix)) == len(graph)
    matrix.note_ran(data.draw(some_nodes(graph)))
    matrix.note_arrival(data.draw(some_nodes(graph)))
    assert pairs_read(matrix) == []


def test_each_feature_is_asked_for_in_one_call_and_only_if_anybody_needs_it() -> None:
    matrix = FeatureMatrix(Graph("abc", [("a", "b"), ("b", "c")]), KINDS)
    matrix.refresh(CountingReader())
    matrix.note_ran([1])
    reader = CountingReader()
    matrix.refresh(reader)
    assert reader.calls == ["independent", "intrinsic", "from-above", "from-below", "from-both", "queue"]


def test_what_is_read_lands_in_the_rows_that_were_asked_for_and_nowhere_else() -> None:
    matrix = FeatureMatrix(Graph("abc", [("a", "b"), ("b", "c")]), [FROM_ABOVE])
    matrix.refresh(lambda name, nodes: nodes * 10.0)
    assert matrix.columns["from-above"].tolist() == [0.0, 10.0, 20.0]
    matrix.note_ran([1])
    matrix.refresh(lambda name, nodes: nodes + 100.0)
    assert matrix.columns["from-above"].tolist() == [0.0, 101.0, 102.0]


def test_a_reading_may_be_any_iterable() -> None:
    matrix = FeatureMatrix(Graph("ab"), [STATIC])
    matrix.refresh(lambda name, nodes: (5.0 for _ in nodes))
    assert matrix.columns["static"].tolist() == [5.0, 5.0]


def test_a_reading_that_failed_is_asked_for_again() -> None:
    matrix = FeatureMatrix(Graph("ab", [("a", "b")]), [INDEPENDENT, FROM_ABOVE])
    matrix.refresh(CountingReader())
    matrix.note_ran([0])

    def broken(name: str, nodes: Ints) -> list[float]:
        raise OSError("the engine is away")

    with pytest.raises(OSError, match="away"):
        matrix.refresh(broken)
    assert pairs_read(matrix) == [(0, "from-above"), (0, "independent"), (1, "from-above")]


def test_the_count_compares_with_reading_everything_that_can_be_read() -> None:
    matrix = FeatureMatrix(Graph("ab", [("a", "b")]), [STATIC, INDEPENDENT, FROM_ABOVE, KEPT_BY_LOOP])
    assert matrix.refresh(CountingReader()) == RefreshCount(read=6, full=6)
    matrix.note_ran([0])
    assert matrix.refresh(CountingReader()) == RefreshCount(read=3, full=6)


# --- change of the graph ------------------------------------------------------------------------------------


def relatives(graph: Graph, data: st.DataObject) -> Graph:
    """Another graph that shares some of the nodes, in another order."""
    kept = data.draw(st.sets(st.sampled_from(graph.names)))
    names = data.draw(st.permutations([*sorted(kept), "new", "newer"]))
    pairs = [(a, b) for j, b in enumerate(names) for a in names[:j]]
    return Graph(names, data.draw(st.lists(st.sampled_from(pairs), unique=True)))


@few_examples
@given(dags(), st.data())
def test_a_new_graph_keeps_the_rows_of_nodes_known_by_name(graph: Graph, data: st.DataObject) -> None:
    matrix = FeatureMatrix(graph, KINDS)
    matrix.refresh(CountingReader())
    before = {(name, f.name): matrix.columns[f.name][i] for i, name in enumerate(graph.names) for f in KINDS}
    other = relatives(graph, data)
    old = matrix.regraph(other)
    assert old.tolist() == [graph.index.get(name, -1) for name in other.names]
    for i, name in enumerate(other.names):
        for feature in KINDS:
            assert matrix.columns[feature.name][i] == before.get((name, feature.name), feature.default)


@few_examples
@given(dags(), st.data())
def test_after_a_new_graph_new_nodes_are_read_fully_and_known_ones_only_if_changed(
    graph: Graph, data: st.DataObject
) -> None:
    matrix = FeatureMatrix(graph, KINDS)
    matrix.refresh(CountingReader())
    arrived = data.draw(some_nodes(graph))
    matrix.note_arrival(arrived)
    other = relatives(graph, data)
    matrix.regraph(other)
    assert pairs_read(matrix) == sorted(
        (i, feature.name)
        for i, node in enumerate(other.names)
        for feature in KINDS
        if feature is not KEPT_BY_LOOP
        and (node not in graph.index or can_have_changed(feature, node, set(), set(), names_of(graph, arrived)))
    )


def test_a_node_that_ran_still_counts_after_the_indices_moved() -> None:
    matrix = FeatureMatrix(Graph("abc", [("b", "c")]), [FROM_ABOVE])
    matrix.refresh(CountingReader())
    matrix.note_ran([1])
    matrix.regraph(matrix.graph.removing("a"))
    assert pairs_read(matrix) == [(0, "from-above"), (1, "from-above")]


def test_a_node_that_ran_and_was_then_removed_has_still_changed_those_it_fed() -> None:
    matrix = FeatureMatrix(Graph("ab", [("a", "b")]), [FROM_ABOVE])
    matrix.refresh(CountingReader())
    matrix.note_ran([0])
    matrix.regraph(matrix.graph.removing("a"))
    assert pairs_read(matrix) == [(0, "from-above")]


def test_a_node_that_was_removed_and_comes_back_is_new() -> None:
    graph = Graph("ab")
    matrix = FeatureMatrix(graph, [STATIC, INDEPENDENT])
    matrix.refresh(CountingReader())
    matrix.regraph(graph.removing("a"))
    matrix.regraph(graph)
    assert matrix.columns["static"][0] == STATIC.default
    assert pairs_read(matrix) == [(0, "independent"), (0, "static")]


# --- columns and views --------------------------------------------------------------------------------------


def test_before_any_reading_every_value_is_the_default() -> None:
    matrix = FeatureMatrix(Graph("ab"), features_named(["priority", "head_time", "last_turn"]))
    assert {name: column.tolist() for name, column in matrix.columns.items()} == {
        "priority": [1.0, 1.0],
        "head_time": [np.inf, np.inf],
        "last_turn": [-1.0, -1.0],
    }


def test_filling_a_column_keeps_the_array_that_others_hold() -> None:
    matrix = FeatureMatrix(Graph("ab"), [STATIC])
    column = matrix.columns["static"]
    matrix.fill("static", (float(i) for i in range(2)))
    assert column.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda matrix: None, id="at first"),
        pytest.param(lambda matrix: matrix.extend([INDEPENDENT]), id="after another feature"),
        pytest.param(lambda matrix: matrix.regraph(Graph("bc")), id="after other nodes"),
        pytest.param(lambda matrix: matrix.regraph(Graph([])), id="with no nodes"),
    ],
)
def test_a_view_shows_what_the_columns_hold_and_cannot_be_written(change: Callable[[FeatureMatrix], object]) -> None:
    matrix = FeatureMatrix(Graph("ab"), [STATIC])
    change(matrix)
    view = matrix.view()
    for number, (name, column) in enumerate(matrix.columns.items()):
        column[:] = float(number)
        assert view[name].tolist() == column.tolist()
        with pytest.raises(ValueError, match="read-only"):
            view[name][:] = 7.0
        with pytest.raises(ValueError, match="WRITEABLE"):
            view[name].flags.writeable = True


@pytest.mark.parametrize(
    "values",
    [pytest.param([1.0], id="too few"), pytest.param([1.0, 2.0, 3.0], id="too many")],
)
def test_a_column_of_the_wrong_length_is_refused(values: list[float]) -> None:
    matrix = FeatureMatrix(Graph("ab"), [STATIC])
    with pytest.raises((ValueError, HeadgateError)):
        matrix.fill("static", values)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda name, nodes: [1.0] * (len(nodes) - 1), id="too few"),
        pytest.param(lambda name, nodes: [1.0] * (len(nodes) + 1), id="too many"),
    ],
)
def test_a_reader_that_answers_for_the_wrong_number_of_nodes_is_refused(
    wrong: Callable[[str, Ints], list[float]],
) -> None:
    with pytest.raises((ValueError, HeadgateError)):
        FeatureMatrix(Graph("ab"), [STATIC]).refresh(wrong)


def test_a_view_shows_all_nodes_or_just_some_rows() -> None:
    matrix = FeatureMatrix(Graph("abc"), [STATIC])
    matrix.fill("static", [1.0, 2.0, 3.0])
    view = matrix.view(now=4.0, turn=5, seed=6, memory="m")
    assert (len(view), view["static"].tolist()) == (3, [1.0, 2.0, 3.0])
    assert (view.now, view.turn, view.seed, view.memory) == (4.0, 5, 6, "m")
    view.rows = np.array([2, 0])
    assert (len(view), view["static"].tolist()) == (2, [3.0, 1.0])
    assert "static" in view
    assert "other" not in view


def test_a_policy_that_needs_a_feature_nobody_has_is_refused_by_name() -> None:
    matrix = FeatureMatrix(Graph("a"), [STATIC])
    with pytest.raises(MissingFeatureError, match=r"policy 'p' needs the feature 'cost'.*it provides: static"):
        matrix.require(["static", "cost"], "policy 'p'")


# --- kinds of features --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feature", "kind"),
    [
        pytest.param(STATIC, "static", id="static"),
        pytest.param(INDEPENDENT, "dynamic, independent", id="definition 3.1"),
        pytest.param(FROM_ABOVE, "dynamic, dependent", id="definition 3.3, on upstream"),
        pytest.param(FROM_BELOW, "dynamic, dependent", id="definition 3.3, on downstream"),
        pytest.param(INTRINSIC, "dynamic, independent, execution-intrinsic", id="definition 3.4"),
        pytest.param(FEATURES["cost"], "dynamic, independent, execution-intrinsic", id="table 1, cost"),
        pytest.param(FEATURES["selectivity"], "dynamic, independent, execution-intrinsic", id="table 1, selectivity"),
        pytest.param(FEATURES["head_time"], "dynamic, dependent", id="table 1, head clock time"),
    ],
)
def test_a_feature_has_the_kind_that_haren_gives_it(feature: Feature, kind: str) -> None:
    assert feature.kind == kind
    assert feature.static == (kind == "static")
    assert feature.dependent == ("dependent" in kind.replace("independent", ""))
    assert feature.independent == ("independent" in kind)


def test_an_execution_intrinsic_feature_that_others_can_change_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"'x' is execution-intrinsic.*ChangedBy\.ITSELF"):
        Feature("x", "", ChangedBy.ITSELF | ChangedBy.UPSTREAM, intrinsic=True)


def test_features_are_found_by_name_once_each_and_an_unknown_one_is_refused() -> None:
    own = Feature("temperature", "of the disk")
    found = features_named(["cost", "temperature", "cost"], {"temperature": own})
    assert found == (FEATURES["cost"], own)
    with pytest.raises(UnknownNameError, match=r"no feature called 'costs'. Did you mean 'cost'"):
        features_named(["costs"])
