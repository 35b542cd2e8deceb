"""Whether a table can be kept by merging: an aggregate whose groups keep a state that new rows are merged into.

The plan must be an aggregate (or distinct rows) over a query that is linear in one growing source, with nothing but
projections above it, and every aggregate function must have a state that can be merged (``STATES``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.core import HeadgateError
from headgate.warehouse.declare.linear import why_not_linear
from headgate.warehouse.declare.plan_tree import PlanTree, plan_of, sources_in_subqueries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: {Spark's aggregate function: how its state is merged}; see ``updates.states``
STATES: Mapping[str, str] = {
    **{"Count": "count", "CountIf": "count", "Sum": "sum", "Min": "min", "Max": "max", "Average": "average"},
    **{"BoolAnd": "min", "BoolOr": "max", "MaxBy": "max_by", "MinBy": "min_by"},
    **{"StddevSamp": "variance", "StddevPop": "variance", "VarianceSamp": "variance", "VariancePop": "variance"},
}
#: steps above the aggregate that keep its rows, one for one
_KEEPING_ROWS = {"Project", "SubqueryAlias", "View", "Sort", "ResolvedHint", "Repartition", "RepartitionByExpression"}
#: {what an aggregate must not hold: why}
_REFUSED: Mapping[str, str] = {
    "catalyst.expressions.ScalarSubquery": "it has a subquery",
    "PythonUDAF": "it has an aggregate function in Python",
}
_STATE_TYPES = {
    *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary"),
    *("date", "timestamp"),
}
_KEY_TYPES = (_STATE_TYPES - {"float", "double", "binary"}) | {"struct"}


@dataclass(frozen=True, slots=True)
class AggregateState:
    """An aggregate function in a plan: where it is, and how its state is merged.

    ``path``: which of the aggregate's output expressions, then which child, and so on.
    """

    path: tuple[int, ...]
    function: str
    merged_as: str
    has_filter: bool


@dataclass(frozen=True, slots=True)
class MergePlan:
    """How a table is kept by merging. ``depth`` is how many steps there are above the aggregate.

    ``states`` are those of the groups. ``shown_keys[i]`` is the table's column that is just key i of the groups, if
    there is one, and ``shown_states[i]`` the column that is just function i; what is not shown is kept in a hidden
    column.
    """

    depth: int
    states: tuple[AggregateState, ...]
    shown_keys: tuple[str | None, ...]
    shown_states: tuple[str | None, ...]
    is_distinct: bool


class _NotMergedError(HeadgateError):
    """The table cannot be kept by merging; the text says why."""


def plan_merge(result: DataFrame, growing: str) -> MergePlan | str:
    """How the table of this analysed query is kept by merging, or why it cannot be."""
    try:
        return _plan_merge(result, growing)
    except _NotMergedError as reason:
        return str(reason)


def _plan_merge(result: DataFrame, growing: str) -> MergePlan:
    plan = plan_of(result)
    step, depth = plan, 0
    while step.name in _KEEPING_ROWS:
        if sources_in_subqueries(step):
            raise _NotMergedError("it has a subquery")
        step, depth = step.children[0], depth + 1
    if step.name not in ("Aggregate", "Distinct"):
        raise _NotMergedError(f"{step.name} is not an aggregate")
    if reason := why_not_linear(step.children[0], growing):
        raise _NotMergedError(reason)
    if step.name == "Distinct":
        keys, outputs = _columns_of_project(step.children[0]), []
    else:
        keys, outputs = step.expressions("groupingExpressions"), step.expressions("aggregateExpressions")
    for text, refused in _REFUSED.items():
        if any(text in _text(each.fields) for tree in (*keys, *outputs) for each in tree.walk()):
            raise _NotMergedError(refused)
    states = _states(outputs)
    shown = _shown(plan, step, outputs or keys)
    merge = MergePlan(
        depth,
        tuple(_state(path, each) for path, each in states),
        tuple(shown.get(canonical(key)) for key in keys),
        tuple(shown.get(canonical(each)) for _, each in states),
        is_distinct=step.name == "Distinct",
    )
    _check_types(result, merge)
    return merge


def _columns_of_project(step: PlanTree) -> list[PlanTree]:
    if step.name != "Project":
        raise _NotMergedError(f"{step.name} below distinct is not understood")
    return [PlanTree("AttributeReference", each.fields, ()) for each in step.expressions("projectList")]


def _state(path: tuple[int, ...], expression: PlanTree) -> AggregateState:
    function = expression.children[0].name
    if function not in STATES or expression.fields.get("isDistinct"):
        of_what = " of distinct values" if expression.fields.get("isDistinct") else ""
        raise _NotMergedError(f"{function}{of_what} has no state that can be merged")
    return AggregateState(path, function, STATES[function], len(expression.children) > 1)


def _check_types(result: DataFrame, merge: MergePlan) -> None:
    step = aggregate_step(result, merge)
    for key in key_expressions(step, merge):
        if _type_of(key) not in _KEY_TYPES:
            raise _NotMergedError(f"a key of type {_type_of(key)} cannot be looked up")
        # Spark joins the sessions of rows when it aggregates them; in its plan only a mark of the column says so.
        if key.getClass().getSimpleName() == "AttributeReference" and "sessionWindow" in key.metadata().json():
            raise _NotMergedError("new rows can join two sessions into one")
    for state in merge.states:
        function = at_path(step, state.path).children().apply(0)
        # What is compared, in max_by and min_by, is the second argument.
        compared = function.children().apply(1) if state.merged_as in ("max_by", "min_by") else function
        if _type_of(compared) not in _STATE_TYPES:
            raise _NotMergedError(f"the state of {state.function} of type {_type_of(compared)} cannot be merged")
        if state.merged_as == "average" and _type_of(function) != "double":
            raise _NotMergedError(f"an average of type {_type_of(function)} has no state that can be merged exactly")


def _type_of(expression: Any) -> str:
    return str(expression.dataType().typeName()).partition("(")[0]


# --- the same places in Spark's own plan --------------------------------------------------------------------


def aggregate_step(frame: DataFrame, merge: MergePlan) -> Any:
    """The aggregate in Spark's analysed plan of a frame."""
    step = frame._jdf.queryExecution().analyzed()
    for _ in range(merge.depth):
        step = step.children().apply(0)
    return step


def key_expressions(step: Any, merge: MergePlan) -> list[Any]:
    """The keys of an aggregate step, as Spark's expressions."""
    keys = step.child().output() if merge.is_distinct else step.groupingExpressions()
    return [keys.apply(i) for i in range(len(merge.shown_keys))]


def at_path(step: Any, path: Sequence[int]) -> Any:
    """The expression of an aggregate step at a path."""
    expression = step.aggregateExpressions().apply(path[0])
    for place in path[1:]:
        expression = expression.children().apply(place)
    return expression


# --- expressions --------------------------------------------------------------------------------------------


def _states(outputs: Sequence[PlanTree]) -> list[tuple[tuple[int, ...], PlanTree]]:
    """The aggregate functions in expressions, each once, with their paths."""
    found: dict[str, tuple[tuple[int, ...], PlanTree]] = {}

    def walk(expression: PlanTree, path: tuple[int, ...]) -> None:
        if expression.name == "AggregateExpression":
            found.setdefault(canonical(expression), (path, expression))
            return
        for place, child in enumerate(expression.children):
            walk(child, (*path, place))

    for place, output in enumerate(outputs):
        walk(output, (place,))
    return list(found.values())


def _shown(plan: PlanTree, aggregate: PlanTree, outputs: Sequence[PlanTree]) -> dict[str, str]:
    """{expression of the aggregate: the table's column that is just that expression}."""
    # From the top down: which column of the step below each column of the table is.
    step = plan
    names: dict[int, str] | None = None
    while step is not aggregate:
        if step.name == "Project":
            listed = step.expressions("projectList")
            below: dict[int, str] = {}
            for each in listed:
                inner = each.children[0] if each.name == "Alias" else each
                name = each.fields["name"] if names is None else names.get(each.id)
                if inner.name == "AttributeReference" and name is not None:
                    below.setdefault(inner.id, str(name))
            names = below
        step = step.children[0]
    shown: dict[str, str] = {}
    for each in outputs:
        name = each.fields.get("name") if names is None else names.get(each.id)
        if name is not None:
            shown.setdefault(canonical(each.children[0] if each.name == "Alias" else each), str(name))
    return shown


def canonical(expression: PlanTree) -> str:
    """The same for expressions that are the same but for the numbers Spark gives to their results."""
    if expression.name == "AttributeReference":
        return f"#{expression.id}"
    ignored = {"exprId", "num-children"}
    if expression.name != "PythonUDF":  # of two Python functions, only the number tells whether they are the same
        ignored.add("resultId")
    fields = {key: value for key, value in expression.fields.items() if key not in ignored}
    return f"{_text(fields)}({', '.join(map(canonical, expression.children))})"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
