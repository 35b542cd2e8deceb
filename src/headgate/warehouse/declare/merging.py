"""Whether a table can be kept by merging: an aggregate whose groups keep a state that new rows are merged into.

The plan must be an aggregate (or distinct rows) over a query that is linear in one growing source, with nothing but
projections above it, and every aggregate function must have a state that can be merged (``STATES``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.core import HeadgateError
from headgate.warehouse.declare.linear import why_not_linear
from headgate.warehouse.declare.plan_tree import (
    PASSING,
    PlanTree,
    canonical,
    has_subquery,
    own_text,
    source_of,
    spark_plan,
    words_for,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: {Spark's aggregate function: how its state is merged}; see ``updates.states``
STATES: Mapping[str, str] = {
    "Average": "average",
    "BoolAnd": "min",
    "BoolOr": "max",
    "Count": "count",
    "CountIf": "count",
    "Max": "max",
    "MaxBy": "max_by",
    "Min": "min",
    "MinBy": "min_by",
    "StddevPop": "variance",
    "StddevSamp": "variance",
    "Sum": "sum",
    "VariancePop": "variance",
    "VarianceSamp": "variance",
}
NO_AGGREGATE = "it has no aggregate"
_AGGREGATES = ("Aggregate", "Distinct")
#: steps above the aggregate that keep its rows, one for one
_KEEPING_ROWS = PASSING | {"Project"}
_STATE_TYPES = {
    *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary"),
    *("date", "timestamp"),
}
#: struct, too, if its fields are of these types
_KEY_TYPES = _STATE_TYPES - {"float", "double", "binary"}


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

    @property
    def text(self) -> str:
        """What is kept, whatever version of Spark has planned it: states of another text cannot be merged with it."""
        states = [(state.function, state.merged_as, state.has_filter) for state in self.states]
        return repr((states, self.shown_keys, self.shown_states, self.is_distinct))


def has_aggregate(plan: PlanTree) -> bool:
    return any(step.name in _AGGREGATES for step in plan.walk())


class _NotMergedError(HeadgateError):
    """The table cannot be kept by merging; the text says why."""


def plan_merge(result: DataFrame, plan: PlanTree, growing: str) -> MergePlan | str:
    """How the table of this analysed query is kept by merging, or why it cannot be. ``plan`` is that of ``result``."""
    try:
        return _plan_merge(result, plan, growing)
    except _NotMergedError as reason:
        return str(reason)


def _plan_merge(result: DataFrame, plan: PlanTree, growing: str) -> MergePlan:
    step, depth = plan, 0
    while step.name in _KEEPING_ROWS:
        if source_of(step) is not None:
            raise _NotMergedError(NO_AGGREGATE)
        if has_subquery(step):
            raise _NotMergedError("it has a subquery")
        step, depth = step.children[0], depth + 1
    if step.name not in _AGGREGATES:
        raise _NotMergedError(
            f"above its aggregate there is {words_for(step)}" if has_aggregate(step) else NO_AGGREGATE
        )
    if reason := why_not_linear(step.children[0], growing):
        raise _NotMergedError(reason)
    if step.name == "Distinct":
        keys, outputs = _columns_of_project(step.children[0]), []
    else:
        keys, outputs = step.expressions("groupingExpressions"), step.expressions("aggregateExpressions")
    for each in (part for tree in (*keys, *outputs) for part in tree.walk()):
        if has_subquery(each):
            raise _NotMergedError("it has a subquery")
        if "PythonUDAF" in own_text(each):
            raise _NotMergedError("it has an aggregate function in Python")
    functions = _functions(outputs)
    # Each once.
    states = list({canonical(each): (path, each) for path, each in reversed(functions)}.values())[::-1]
    _check_outputs(outputs, {canonical(each) for each in (*keys, *(function for _, function in states))})
    shown = _shown(plan, step, outputs or keys)
    merge = MergePlan(
        depth,
        tuple(_state(path, each) for path, each in states),
        tuple(shown.get(canonical(key)) for key in keys),
        tuple(shown.get(canonical(each)) for _, each in states),
        is_distinct=step.name == "Distinct",
    )
    _check_types(result, merge)
    _check_sums(result, merge, [path for path, each in functions if each.children[0].name == "Sum"])
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


def _check_outputs(outputs: Iterable[PlanTree], known: set[str]) -> None:
    """Refuse outputs that are not made of ``known`` keys and functions, but of keys that are written in another way."""
    for expression in outputs:
        if canonical(expression) in known:
            continue
        if expression.name == "AttributeReference":
            raise _NotMergedError("it shows keys in another way than it groups by them")
        _check_outputs(expression.children, known)


def _check_sums(result: DataFrame, merge: MergePlan, paths: Iterable[tuple[int, ...]]) -> None:
    """Refuse sums that are null, or another number, if they are too large: as a state, null stands for no values."""
    step = aggregate_step(result, merge)
    for path in paths:
        function = at_path(step, path).children().apply(0)
        # Spark's JSON does not tell `sum` from `try_sum`.
        if _type_of(function) != "double" and function.evalContext().evalMode().toString() != "ANSI":
            raise _NotMergedError("a sum that is null, or another number, if it is too large cannot be merged")


def _check_types(result: DataFrame, merge: MergePlan) -> None:
    step = aggregate_step(result, merge)
    for key in key_expressions(step, merge):
        if not _is_key_type(key.dataType()):
            raise _NotMergedError(f"a key of type {key.dataType().simpleString()} cannot be looked up")
        # Spark joins the sessions of rows when it aggregates them; in its plan only a mark of the column says so.
        if key.getClass().getSimpleName() == "AttributeReference" and "sessionWindow" in key.metadata().json():
            raise _NotMergedError("new rows can join two sessions into one")
    for state in merge.states:
        function = at_path(step, state.path).children().apply(0)
        # What is compared, in max_by and min_by, is the second argument.
        by = state.merged_as in ("max_by", "min_by")
        compared = function.children().apply(1) if by else function
        if _type_of(compared) not in _STATE_TYPES:
            if by:
                raise _NotMergedError(f"{state.merged_as} by a value of type {_type_of(compared)} cannot be merged")
            raise _NotMergedError(f"the state of {state.function} of type {_type_of(compared)} cannot be merged")
        if state.merged_as == "average" and _type_of(function) != "double":
            raise _NotMergedError(f"an average of type {_type_of(function)} has no state that can be merged exactly")


def _is_key_type(kind: Any) -> bool:
    if kind.typeName() == "struct":
        return all(_is_key_type(each.dataType()) for each in kind.fields())
    return _type_name(kind) in _KEY_TYPES


def _type_of(expression: Any) -> str:
    return _type_name(expression.dataType())


def _type_name(kind: Any) -> str:
    return str(kind.typeName()).partition("(")[0]


# --- the same places in Spark's own plan --------------------------------------------------------------------


def aggregate_step(frame: DataFrame, merge: MergePlan) -> Any:
    """The aggregate in Spark's analysed plan of a frame."""
    step = spark_plan(frame)
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


def _functions(outputs: Sequence[PlanTree]) -> list[tuple[tuple[int, ...], PlanTree]]:
    """The aggregate functions in expressions, with their paths."""
    found: list[tuple[tuple[int, ...], PlanTree]] = []

    def walk(expression: PlanTree, path: tuple[int, ...]) -> None:
        if expression.name == "AggregateExpression":
            found.append((path, expression))
            return
        for place, child in enumerate(expression.children):
            walk(child, (*path, place))

    for place, output in enumerate(outputs):
        walk(output, (place,))
    return found


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
