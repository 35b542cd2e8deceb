"""Keeping the groups of an aggregate: states of new rows are merged into those that the table's files keep.

The keys and states of a group are columns of the table's data files: the table's own where it shows them, hidden ones
otherwise. Spark's analysed plan of the user's query is taken apart at its aggregate: what is below computes the states
of new rows, what is above computes the table's columns from states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.warehouse.declare.merging import MergePlan, aggregate_step, at_path, key_expressions
from headgate.warehouse.declare.plan_tree import PlanTree, canonical, plan_of, quoted, spark_plan
from headgate.warehouse.storage import HIDDEN_PREFIX
from headgate.warehouse.updates.key_lookup import look_up
from headgate.warehouse.updates.states import KINDS, StateKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROW = f"{HIDDEN_PREFIX}row"


class GroupMerger:
    """Merges the groups of one table. ``columns`` are the table's, in their order."""

    def __init__(self, plan: MergePlan, columns: Sequence[str]) -> None:
        self._plan = plan
        self._columns = tuple(columns)
        self._keys = [shown or f"{HIDDEN_PREFIX}k{i}" for i, shown in enumerate(plan.shown_keys)]
        #: for each function, the columns that its parts are kept in
        self._parts: list[list[str]] = []
        for i, shown in enumerate(plan.shown_states):
            kind = self._kind(i)
            names = [f"{HIDDEN_PREFIX}s{i}{suffix}" for suffix in kind.suffixes]
            if shown is not None and kind.shows_itself:
                names[0] = shown
            self._parts.append(names)
        #: how the columns that are neither keys nor functions are computed; found with the first update's plan
        self._steps: list[list[Column]] | None = None

    def _kind(self, function: int) -> StateKind:
        return KINDS[self._plan.states[function].merged_as]

    @property
    def kept(self) -> list[str]:
        """The columns of the table's files that hold the keys and states of groups."""
        return list(dict.fromkeys([*self._keys, *(name for names in self._parts for name in names)]))

    # --- states of new rows, on Spark -----------------------------------------------------------------------

    def states(self, result: DataFrame) -> DataFrame:
        """The keys and states of the groups in ``result``, the user's query over new rows."""
        from pyspark.sql import DataFrame as Frame

        spark = result.sparkSession
        step = aggregate_step(result, self._plan)
        datasets, _ = _classes(spark._jvm)
        rows = Frame(datasets.ofRows(spark._jsparkSession, step.child()), spark)
        named: dict[str, Column] = {}
        keys = [
            _column(spark, key).alias(f"{HIDDEN_PREFIX}k{i}") for i, key in enumerate(key_expressions(step, self._plan))
        ]
        for names, state in zip(self._parts, self._plan.states, strict=True):
            expression = at_path(step, state.path)
            arguments = partial(self._arguments, spark, expression, state.has_filter)
            parts = KINDS[state.merged_as].parts(_column(spark, expression), arguments)
            named |= {name: part.alias(name) for name, part in zip(names, parts, strict=True)}
        groups = rows.groupBy(*keys)
        states = groups.agg(*named.values()) if named else rows.select(*keys).distinct()
        return states.withColumnsRenamed({f"{HIDDEN_PREFIX}k{i}": name for i, name in enumerate(self._keys)})

    @staticmethod
    def _arguments(spark: SparkSession, expression: Any, has_filter: bool) -> list[Column]:
        from pyspark.sql import functions as F

        children = expression.children().apply(0).children()
        arguments = [_column(spark, children.apply(i)) for i in range(children.size())]
        if not has_filter:
            return arguments
        kept = _column(spark, expression.children().apply(1))
        return [F.when(kept, argument) for argument in arguments]

    # --- merging, with Arrow --------------------------------------------------------------------------------

    def find(self, new: pa.Table, kept: pa.Table) -> NDArray[np.int64]:
        """For each row of ``kept``, rows of a file, the place of its group in ``new``; -1 if it is not there."""
        return look_up(new.select(self._keys), kept.select(self._keys))

    def merged(self, new: pa.Table, kept: pa.Table, places: NDArray[np.int64]) -> pa.Table:
        """``new`` with the states of ``kept`` merged in; row i of ``kept`` is of the group at ``places[i]``.

        Raises OverflowError if a value does not fit into its type any more.
        """
        if not kept.num_rows:
            return new
        # Row by row beside each other: the states kept, and null states for groups that are new.
        row_of = np.full(new.num_rows, -1, dtype=np.int64)
        row_of[places] = np.arange(kept.num_rows)
        touched = np.flatnonzero(row_of >= 0)
        beside = kept.select(self.kept).take(pa.array(row_of[touched]))
        fresh = new.take(pa.array(touched))
        columns = {name: fresh.column(name) for name in self._keys}
        for i, names in enumerate(self._parts):
            before = [beside.column(name).cast(fresh.column(name).type) for name in names]
            try:
                after = self._kind(i).merge(before, [fresh.column(name) for name in names])
            except pa.ArrowInvalid as error:
                function, column = self._plan.states[i].function, self._plan.shown_states[i]
                of_column = "" if column is None else f" in column {column!r}"
                raise OverflowError(
                    f"{function}{of_column} of type {fresh.column(names[0]).type} has become too large for its type "
                    f"({error}): cast what it is computed from to a larger type"
                ) from error
            columns |= dict(zip(names, after, strict=True))
        others = new.take(pa.array(np.flatnonzero(row_of < 0)))
        merged = pa.table({name: columns[name].cast(new.schema.field(name).type) for name in new.column_names})
        return pa.concat_tables([merged, others.select(merged.column_names)])

    def complete(self, states: pa.Table, result: DataFrame) -> pa.Table:
        """The rows of the table for groups with these states: its columns, and hidden ones.

        ``result`` is any analysed frame of the user's query; what is above its aggregate computes the columns.
        """
        values = {name: states.column(name) for name in self._keys if not name.startswith(HIDDEN_PREFIX)}
        for i, shown in enumerate(self._plan.shown_states):
            if shown is not None:
                parts = [states.column(name) for name in self._parts[i]]
                values[shown] = self._kind(i).value(parts, self._plan.states[i].function)
        if any(name not in values for name in self._columns):
            values |= self._computed_on_spark(states, result)
        hidden = {name: states.column(name) for name in self.kept if name.startswith(HIDDEN_PREFIX)}
        return pa.table({**{name: values[name] for name in self._columns}, **hidden})

    def _computed_on_spark(self, states: pa.Table, result: DataFrame) -> Mapping[str, pa.ChunkedArray]:
        spark = result.sparkSession
        numbered = states.append_column(_ROW, pa.array(range(states.num_rows), pa.int64()))
        rows = self._shown(spark.createDataFrame(numbered), result, [_ROW]).toArrow().sort_by(_ROW)
        return {name: rows.column(name) for name in self._columns}

    def complete_on_spark(self, states: DataFrame, result: DataFrame) -> DataFrame:
        """The same as ``complete``, for results that are too large for the driver."""
        return self._shown(states, result, [name for name in self.kept if name.startswith(HIDDEN_PREFIX)])

    def merged_on_spark(self, new: DataFrame, kept: DataFrame) -> DataFrame:
        """The keys and states of all groups that are in ``new`` or in ``kept``, the columns of that name in files.

        The same as ``merged`` for the groups in both, for results that are too large for the driver.
        """
        from pyspark.sql import functions as F

        is_new, was_kept = f"{HIDDEN_PREFIX}new", f"{HIDDEN_PREFIX}kept"
        before = kept.select(*(F.col(quoted(name)).alias(f"{was_kept}_{i}") for i, name in enumerate(self.kept)))
        old = {name: F.col(f"{was_kept}_{i}") for i, name in enumerate(self.kept)}
        now = {name: F.col(quoted(name)) for name in self.kept}
        same = reduce(lambda one, other: one & other, (now[name].eqNullSafe(old[name]) for name in self._keys))
        both = new.withColumn(is_new, F.lit(True)).join(before.withColumn(was_kept, F.lit(True)), same, "full_outer")

        def chosen(name: str, merged: Column) -> Column:
            value = F.when(F.col(was_kept).isNull(), now[name]).when(F.col(is_new).isNull(), old[name])
            return value.otherwise(merged).alias(name)

        columns = {name: chosen(name, now[name]) for name in self._keys}
        for i, names in enumerate(self._parts):
            types = [new.schema[name].dataType for name in names]
            values = self._kind(i).merge_on_spark([old[name] for name in names], [now[name] for name in names], types)
            columns |= {name: chosen(name, value) for name, value in zip(names, values, strict=True)}
        return both.select(*columns.values())

    def _shown(self, states: DataFrame, result: DataFrame, kept: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        if self._steps is None:
            self._steps = _steps_above(result, self._plan)
        keys = [F.col(quoted(name)).alias(f"{HIDDEN_PREFIX}k{i}") for i, name in enumerate(self._keys)]
        values = [
            self._kind(i).value_on_spark([F.col(quoted(n)) for n in names], self._plan.states[i].function)
            for i, names in enumerate(self._parts)
        ]
        named = [value.alias(f"{HIDDEN_PREFIX}f{i}") for i, value in enumerate(values)]
        # Keys may be kept under their hidden names already.
        others = [F.col(name) for name in kept if name not in {f"{HIDDEN_PREFIX}k{i}" for i in range(len(keys))}]
        frame = states.select(*keys, *named, *others)
        for columns in self._steps[:-1]:
            frame = frame.select(*columns, *(F.col(name) for name in kept))
        return frame.select(*self._steps[-1], *(F.col(name) for name in kept))


# --- the part of a plan above its aggregate -----------------------------------------------------------------


def _steps_above(result: DataFrame, plan: MergePlan) -> list[list[Column]]:
    """What the aggregate's output and each projection above it compute, from columns called by name.

    Keys are called ``__headgate_k0`` and so on, functions ``__headgate_f0``.
    """
    spark = result.sparkSession
    tree, step = plan_of(result), spark_plan(result)
    above: list[tuple[PlanTree, Any]] = []
    for _ in range(plan.depth):
        above.insert(0, (tree, step))
        tree, step = tree.children[0], step.children().apply(0)
    projections = [(each, jvm_step) for each, jvm_step in above if each.name == "Project"]
    if plan.is_distinct:
        columns = tree.children[0].expressions("projectList")
        known = {f"#{each.id}": f"{HIDDEN_PREFIX}k{i}" for i, each in enumerate(columns)}
        outputs = [(PlanTree("AttributeReference", each.fields, ()), None) for each in columns]
    else:
        known = {
            canonical(key): f"{HIDDEN_PREFIX}k{i}" for i, key in enumerate(tree.expressions("groupingExpressions"))
        }
        functions = [_at(tree.expressions("aggregateExpressions"), state.path) for state in plan.states]
        known |= {canonical(each): f"{HIDDEN_PREFIX}f{i}" for i, each in enumerate(functions)}
        listed = step.aggregateExpressions()
        outputs = [(each, listed.apply(i)) for i, each in enumerate(tree.expressions("aggregateExpressions"))]
    steps = [_renamed(spark, outputs, known, is_last=not projections)]
    for place, (each, jvm_step) in enumerate(projections):
        listed = jvm_step.projectList()
        outputs = [(e, listed.apply(i)) for i, e in enumerate(each.expressions("projectList"))]
        steps.append(_renamed(spark, outputs, {}, is_last=place == len(projections) - 1))
    return steps


def _renamed(
    spark: SparkSession, outputs: Sequence[tuple[PlanTree, Any]], known: Mapping[str, str], is_last: bool
) -> list[Column]:
    """Expressions whose parts in ``known`` are replaced by columns of that name, other columns by their numbers."""
    columns = []
    for tree, expression in outputs:
        inner, jvm_inner = tree, expression
        if tree.name == "Alias":
            inner, jvm_inner = tree.children[0], expression.child()
        name = str(tree.fields["name"]) if is_last else _by_number(tree.id)
        columns.append(_column(spark, _replaced(spark, inner, jvm_inner, known)).alias(name))
    return columns


def _replaced(spark: SparkSession, tree: PlanTree, expression: Any, known: Mapping[str, str]) -> Any:
    from pyspark.sql import functions as F

    jvm: Any = spark._jvm
    name = known.get(canonical(tree))
    if name is None and tree.name == "AttributeReference":
        name = _by_number(tree.id)
    if name is not None:
        return _classes(jvm)[1].expression(F.col(quoted(name))._jc)
    children = expression.children()
    replaced = [_replaced(spark, each, children.apply(i), known) for i, each in enumerate(tree.children)]
    return expression.withNewChildren(jvm.PythonUtils.toSeq(replaced)) if replaced else expression


def _at(expressions: Sequence[PlanTree], path: Sequence[int]) -> PlanTree:
    expression = expressions[path[0]]
    for place in path[1:]:
        expression = expression.children[place]
    return expression


def _by_number(number: int) -> str:
    return f"{HIDDEN_PREFIX}c{number}"


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(_classes(spark._jvm)[1].column(expression))


@cache
def _classes(jvm: Any) -> tuple[Any, Any]:
    """Spark's classes that make a frame of a plan, and a column of an expression; to find them takes long."""
    classic = jvm.org.apache.spark.sql.classic
    return classic.Dataset, classic.ExpressionUtils
