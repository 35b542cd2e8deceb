"""Spark's analysed plans as plain trees, for the proofs of how a table can be kept.

A plan is read from the JSON that Spark writes of it. Sources are marked by an alias, so that they are found in it.
Common table expressions are written out wherever they are referred to, so that no proof needs to know of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: what sources are called in a plan that is analysed
SOURCE_MARK = "headgate_source_"
#: steps that change neither rows nor columns
PASSING = {
    *("SubqueryAlias", "View", "Sort", "ResolvedHint"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
}
#: rows that come from no table of the warehouse
CONSTANT = {"LocalRelation", "OneRowRelation", "Range", "LogicalRelation", "LogicalRDD"}
_SECOND = 1_000_000
#: {what times are truncated to: its length in microseconds}; months and years have none, and weeks begin on Mondays
UNIT_LENGTHS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": _SECOND,
    "MINUTE": 60 * _SECOND,
    "HOUR": 3_600 * _SECOND,
    "DAY": 86_400 * _SECOND,
    "DD": 86_400 * _SECOND,
}
_WORDS = {
    "Aggregate": "an aggregate",
    "Deduplicate": "dropDuplicates",
    "Distinct": "distinct",
    "Except": "except",
    "Filter": "a filter",
    "Expand": "a sliding window, rollup or cube",
    "FlatMapGroupsInArrow": "a Python function over groups (applyInArrow)",
    "FlatMapGroupsInPandas": "a Python function over groups (applyInPandas)",
    "GlobalLimit": "limit",
    "Intersect": "intersect",
    "Join": "a join",
    "LocalLimit": "limit",
    "MapInArrow": "a Python function over many rows (mapInArrow or on_spark)",
    "MapInPandas": "a Python function over many rows (mapInPandas)",
    "Offset": "offset",
    "Sample": "a sample",
    "Tail": "tail",
    "Union": "a union",
    "Window": "a window function",
}
_SUBQUERY = re.compile(r"catalyst\.expressions\.(ScalarSubquery|Exists|ListQuery|LateralSubquery)\b")

#: the nodes of a tree in the order of a walk, as Spark writes them
PlanNodes = Sequence[Mapping[str, Any]]


def plan_nodes(frame: DataFrame) -> PlanNodes:
    """The analysed plan of a frame, as it is."""
    return _nodes(frame._jdf.queryExecution().analyzed())


def plan_of(frame: DataFrame, nodes: PlanNodes | None = None) -> PlanTree:
    """The plan of ``spark_plan`` as a tree; ``nodes`` are those of ``plan_nodes``, if they are there already."""
    nodes = plan_nodes(frame) if nodes is None else nodes
    has_common_tables = "catalyst.plans.logical.WithCTE" in json.dumps(nodes)
    return parse_tree(_nodes(spark_plan(frame)) if has_common_tables else nodes)


def spark_plan(frame: DataFrame) -> Any:
    """Spark's analysed plan of a frame, with common table expressions written out, as Spark's optimiser does."""
    return _write_out(frame.sparkSession._jvm).apply(frame._jdf.queryExecution().analyzed())


@cache
def _write_out(jvm: Any) -> Any:
    """Spark's rule that does so; to find its class takes long."""
    return jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False, False)


def _nodes(plan: Any) -> PlanNodes:
    nodes: PlanNodes = json.loads(plan.toJSON())
    return nodes


def marked(frame: DataFrame, source: str) -> DataFrame:
    """The frame of a source, for a plan that is to be looked through."""
    return frame.alias(f"{SOURCE_MARK}{source}")


@dataclass(frozen=True, slots=True)
class PlanTree:
    """A step of a plan, or an expression."""

    name: str
    fields: Mapping[str, Any]
    children: tuple[PlanTree, ...]

    @property
    def id(self) -> int:
        """The number by which Spark knows a column."""
        return int(self.fields["exprId"]["id"])

    def walk(self) -> Iterator[PlanTree]:
        yield self
        for child in self.children:
            yield from child.walk()

    def expressions(self, name: str) -> list[PlanTree]:
        """The expressions in a field that holds a list of them."""
        return [parse_tree(each) for each in self.fields.get(name) or ()]


def parse_tree(nodes: PlanNodes) -> PlanTree:
    """A tree out of its nodes."""
    rest = iter(nodes)

    def build() -> PlanTree:
        node = next(rest)
        children = tuple(build() for _ in range(int(node["num-children"])))
        return PlanTree(str(node["class"]).rpartition(".")[2], node, children)

    return build()


# --- steps --------------------------------------------------------------------------------------------------


def source_of(step: PlanTree) -> str | None:
    """The source that a step stands for."""
    if step.name != "SubqueryAlias":
        return None
    name = str(step.fields["identifier"]["name"])
    return name.removeprefix(SOURCE_MARK) if name.startswith(SOURCE_MARK) else None


def columns_of_source(step: PlanTree) -> tuple[tuple[int, str], ...]:
    """The columns of a step that stands for a source."""
    while step.children:
        step = step.children[0]
    return named_columns(step.expressions("output"))


def own_text(step: PlanTree) -> str:
    """What a step or an expression says itself, without its children; with the plans of subqueries in it."""
    return json.dumps({key: value for key, value in step.fields.items() if key not in ("desc", "identifier")})


def has_subquery(step: PlanTree) -> bool:
    """Whether there is a subquery in a step's own expressions, or in an expression itself."""
    return _SUBQUERY.search(own_text(step)) is not None


def sources_in_subqueries(step: PlanTree) -> list[str]:
    """The sources that subqueries in a step's own expressions read."""
    return [] if source_of(step) is not None else re.findall(f'"{SOURCE_MARK}([^"]+)"', own_text(step))


def join_kind(step: PlanTree) -> str:
    kind = step.fields["joinType"]
    return str(kind.get("object") or kind.get("product-class")).rpartition(".")[2].removesuffix("$")


def words_for(step: PlanTree) -> str:
    """What a step is called by people."""
    return _WORDS.get(step.name, f"the step {step.name}")


# --- expressions --------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """The name of a column in SQL."""
    return f"`{name.replace('`', '``')}`"


def named_columns(expressions: Sequence[PlanTree]) -> tuple[tuple[int, str], ...]:
    return tuple((each.id, str(each.fields["name"])) for each in expressions)


def is_one_of(expression: PlanTree, numbers: frozenset[int]) -> bool:
    return expression.name == "AttributeReference" and expression.id in numbers


def conjuncts(condition: PlanTree) -> Iterator[PlanTree]:
    if condition.name == "And":
        for each in condition.children:
            yield from conjuncts(each)
    else:
        yield condition


def canonical(expression: PlanTree, columns: Mapping[int, str] | None = None) -> str:
    """The same for expressions that are the same but for the numbers Spark gives to their results.

    ``columns`` is how columns are called, if not by their numbers.
    """
    if expression.name == "AttributeReference":
        return (columns or {}).get(expression.id, f"#{expression.id}")
    ignored = {"exprId", "num-children"}
    if expression.name != "PythonUDF":  # of two Python functions, only the number tells whether they are the same
        ignored.add("resultId")
    fields = {key: value for key, value in expression.fields.items() if key not in ignored}
    inner = ", ".join(canonical(child, columns) for child in expression.children)
    return f"{json.dumps(fields, sort_keys=True)}({inner})"


#: what Spark's expression for the start of a tumbling window consists of
_PARTS_OF_A_WINDOW = {
    *("KnownNullable", "PreciseTimestampConversion", "Subtract", "Add", "CaseWhen", "LessThan", "Remainder"),
    *("Literal", "Cast", "AttributeReference"),
}


def tumbling_window(expression: PlanTree) -> tuple[PlanTree, int] | None:
    """The column of times of ``window(time, length)`` and the length in microseconds; None if it is something else."""
    if expression.name != "CreateNamedStruct" or expression.children[0].fields.get("value") != "start":
        return None
    # Spark writes the start as the time less its remainder by the length; there is no other number in it.
    start = expression.children[1]
    names = {each.name for each in start.walk()}
    if "PreciseTimestampConversion" not in names or not names <= _PARTS_OF_A_WINDOW:
        return None
    times = {each.id: each for each in start.walk() if each.name == "AttributeReference"}
    numbers = {int(each.fields["value"]) for each in start.walk() if each.name == "Literal"} - {0}
    if len(times) != 1 or len(numbers) != 1:
        return None
    (time,), (length,) = times.values(), numbers
    return time, length
