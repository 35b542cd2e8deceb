"""Spark's analysed plans as plain trees, for the proofs of how a table can be kept.

A plan is read from the JSON that Spark writes of it. Sources are marked by an alias, so that they are found in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: what sources are called in a plan that is analysed
SOURCE_MARK = "headgate_source_"


def plan_of(frame: DataFrame) -> PlanTree:
    """The analysed plan of a frame."""
    return parse_tree(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))


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


def parse_tree(nodes: Sequence[Mapping[str, Any]]) -> PlanTree:
    """A tree out of its nodes in the order of a walk, as Spark writes it."""
    rest = iter(nodes)

    def build() -> PlanTree:
        node = next(rest)
        children = tuple(build() for _ in range(int(node["num-children"])))
        return PlanTree(str(node["class"]).rpartition(".")[2], node, children)

    return build()


def source_of(step: PlanTree) -> str | None:
    """The source that a step stands for."""
    if step.name != "SubqueryAlias":
        return None
    name = str(step.fields["identifier"]["name"])
    return name.removeprefix(SOURCE_MARK) if name.startswith(SOURCE_MARK) else None


def own_text(step: PlanTree) -> str:
    """What a step says itself, without its children: its expressions, and the plans of subqueries in them."""
    return json.dumps({key: value for key, value in step.fields.items() if key != "desc"})


def sources_in_subqueries(step: PlanTree) -> list[str]:
    """The sources that subqueries in a step's own expressions read."""
    return [] if source_of(step) is not None else re.findall(f'"{SOURCE_MARK}([^"]+)"', own_text(step))


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


def join_kind(step: PlanTree) -> str:
    kind = step.fields["joinType"]
    return str(kind.get("object") or kind.get("product-class")).rpartition(".")[2].removesuffix("$")


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
    times = {each.id: each for each in start.walk() if each.name == "AttributeReference"}
    numbers = {int(each.fields["value"]) for each in start.walk() if each.name == "Literal"} - {0}
    is_start = "PreciseTimestampConversion" in names and names <= _PARTS_OF_A_WINDOW
    return (*times.values(), *numbers) if is_start and len(times) == len(numbers) == 1 else None  # type: ignore[return-value]
