"""Whether a query is local to blocks of time: proved from Spark's analysed plan, or not at all.

A *block* is a stretch of event time that is recomputed as one. A query is local if no row of its result depends on rows
of its sources in another block than its own. Then a changed block can be computed again by itself. If that cannot be
proved, the table is computed again as a whole: slower, but always right.

The proof goes through the plan from the sources up. At each step it knows which columns *determine the block*: rows
that agree in such a column come from one block. A column of times determines it if the times lie in the block that
their rows come from. Steps that bring rows together (aggregates, windows, distinct, joins) must do so by such a column.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headgate.core import HeadgateError
from headgate.warehouse.declare.plan_tree import (
    PlanTree,
    conjuncts,
    is_one_of,
    join_kind,
    named_columns,
    parse_tree,
    plan_of,
    source_of,
    tumbling_window,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MICROS = 1_000_000
#: lengths of what times are truncated to, in microseconds; months and years have none, and weeks begin on Mondays
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": _MICROS,
    "MINUTE": 60 * _MICROS,
    "HOUR": 3_600 * _MICROS,
    "DAY": 86_400 * _MICROS,
    "DD": 86_400 * _MICROS,
}
_UTC = ("UTC", "Etc/UTC", "Z")
#: steps that neither bring rows together nor change columns
_PASSED = {"Filter", "Sort", "View", "SubqueryAlias", "ResolvedHint", "Repartition", "RepartitionByExpression"}
#: rows that come from no table of the warehouse
_CONSTANT = {"LocalRelation", "OneRowRelation", "Range", "LogicalRelation", "LogicalRDD"}
_AGGREGATES_IN_BLOCK = {"Max", "Min", "First", "Last", "MaxBy", "MinBy", "AnyValue"}


class _NotLocalError(HeadgateError):
    """The query is not local, or cannot be proved to be; the text says why."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is known of the rows of a step. ``output`` are the numbers and names of its columns.

    ``blocks`` are the columns that determine the block, ``times`` those of them that are times in it, and
    ``windows`` and ``days`` those that are windows or days of such times. ``nullable`` are times of an outer join's
    other side: in the block if they are there at all. Rows of a dimension come from no block: they are ``constant``.
    """

    output: tuple[tuple[int, str], ...]
    blocks: frozenset[int] = frozenset()
    times: frozenset[int] = frozenset()
    windows: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    nullable: frozenset[int] = frozenset()
    constant: bool = False


def block_length(lengths: Iterable[float]) -> int:
    """The least common multiple of partition lengths (seconds), in microseconds."""
    return math.lcm(*(round(length * _MICROS) for length in lengths))


def why_not_local(result: DataFrame, time: str, times: Mapping[str, str | None], block: int) -> str | None:
    """Why a query is not proved to be local to blocks of ``block`` microseconds; None if it is.

    ``result`` is its analysed frame over ``marked`` sources, ``time`` its column of event time. ``times`` are those of
    the sources, None for a dimension.
    """
    plan = plan_of(result)
    try:
        rows = _Proof(times, block).rows(plan)
    except _NotLocalError as reason:
        return str(reason)
    if any(number in rows.times for number, name in rows.output if name == time):
        return None
    return f"its time {time!r} may lie in another partition than the rows that it comes from"


@dataclass
class _Proof:
    """Goes through one plan."""

    times: Mapping[str, str | None]
    block: int
    shared: dict[int, _Rows] = field(default_factory=dict)

    # --- steps ----------------------------------------------------------------------------------------------

    def rows(self, step: PlanTree) -> _Rows:
        """What is known of a step's rows; raises if it brings rows of several blocks together."""
        source = source_of(step)
        if source is not None:
            return self._source_rows(step, source)
        _refuse_subqueries(step)
        prove = getattr(self, f"_{step.name.lower()}", None)
        if prove is not None:
            rows: _Rows = prove(step)
            return rows
        if step.name in _CONSTANT:
            return _Rows(named_columns(step.expressions("output")), constant=True)
        if step.name in _PASSED:
            return self.rows(step.children[0])
        raise _NotLocalError(f"what {_words(step.name)} gives may depend on rows of all times")

    def _source_rows(self, step: PlanTree, source: str) -> _Rows:
        leaf = step
        while leaf.children:
            leaf = leaf.children[0]
        output = named_columns(leaf.expressions("output"))
        time = self.times[source]
        if time is None:
            return _Rows(output, constant=True)
        found = frozenset(number for number, name in output if name == time)
        return _Rows(output, found, found)

    def _project(self, step: PlanTree) -> _Rows:
        child = self.rows(step.children[0])
        return self._named(step.expressions("projectList"), child)

    def _named(self, expressions: Sequence[PlanTree], child: _Rows) -> _Rows:
        """What is known of columns that are made of a child's."""
        output = named_columns(expressions)
        numbers = [number for number, _ in output]
        pairs = list(zip(numbers, expressions, strict=True))
        return _Rows(
            output,
            blocks=frozenset(n for n, each in pairs if self._determines(each, child)),
            times=frozenset(n for n, each in pairs if self._is_time(each, child)),
            windows=frozenset(n for n, each in pairs if self._is_window(each, child)),
            days=frozenset(n for n, each in pairs if self._is_day(each, child)),
            constant=child.constant,
        )

    def _aggregate(self, step: PlanTree) -> _Rows:
        child = self.rows(step.children[0])
        keys = step.expressions("groupingExpressions")
        if not child.constant and not any(self._determines(key, child) for key in keys):
            raise _NotLocalError("its groups do not have a time of their own: group by the time, truncated")
        return self._named(step.expressions("aggregateExpressions"), child)

    def _distinct(self, step: PlanTree) -> _Rows:
        child = self.rows(step.children[0])
        if not child.constant and not child.blocks:
            raise _NotLocalError("distinct rows without their time may come from several partitions")
        return child

    def _generate(self, step: PlanTree) -> _Rows:
        child = self.rows(step.children[0])
        return replace(child, output=(*child.output, *named_columns(step.expressions("generatorOutput"))))

    def _deduplicate(self, step: PlanTree) -> _Rows:
        child = self.rows(step.children[0])
        if not child.constant and not any(self._determines(key, child) for key in step.expressions("keys")):
            raise _NotLocalError("rows of one key may come from several partitions")
        return child

    def _window(self, step: PlanTree) -> _Rows:
        child = self.rows(step.children[0])
        if not child.constant and not any(self._determines(key, child) for key in step.expressions("partitionSpec")):
            raise _NotLocalError("its window functions look at rows of all times: partition by the time, truncated")
        return replace(child, output=(*child.output, *named_columns(step.expressions("windowExpressions"))))

    def _union(self, step: PlanTree) -> _Rows:
        parts = [self.rows(child) for child in step.children]
        if all(part.constant for part in parts):
            return parts[0]
        first = parts[0].output

        def in_all(kind: str) -> frozenset[int]:
            places = range(len(first))
            held = [i for i in places if all(part.output[i][0] in getattr(part, kind) for part in parts)]
            return frozenset(first[i][0] for i in held)

        return _Rows(first, in_all("blocks"), in_all("times"), in_all("windows"), in_all("days"))

    def _join(self, step: PlanTree) -> _Rows:
        left, right = (self.rows(child) for child in step.children)
        kind = join_kind(step)
        output = left.output if kind in ("LeftSemi", "LeftAnti") else (*left.output, *right.output)
        if left.constant and right.constant:
            return _Rows(output, constant=True)
        if right.constant or left.constant:
            kept, lost = (left, "RightOuter") if right.constant else (right, "LeftOuter")
            if kind in ("FullOuter", lost) or (left.constant and kind in ("LeftSemi", "LeftAnti")):
                raise _NotLocalError("an outer join keeps rows of a dimension, which have no time")
            return replace(kept, output=output)
        if not self._same_block(step, left, right):
            raise _NotLocalError("it joins rows of different times: join by the time as well, or state lookback")
        sides = {"LeftOuter": (left, right), "RightOuter": (right, left)}.get(kind)
        if kind == "FullOuter":
            return _Rows(output, nullable=left.times | right.times)
        if sides is not None:
            kept, other = sides
            return replace(kept, output=output, nullable=other.times)
        if kind in ("LeftSemi", "LeftAnti"):
            return left
        return _Rows(
            output,
            left.blocks | right.blocks,
            left.times | right.times,
            left.windows | right.windows,
            left.days | right.days,
        )

    def _same_block(self, step: PlanTree, left: _Rows, right: _Rows) -> bool:
        condition = step.fields.get("condition")
        if not condition:
            return False
        for each in conjuncts(parse_tree(condition)):
            if each.name in ("EqualTo", "EqualNullSafe"):
                one, other = each.children
                if (self._is_time(one, left) and self._is_time(other, right)) or (
                    self._is_time(one, right) and self._is_time(other, left)
                ):
                    return True
        return False

    def _withcte(self, step: PlanTree) -> _Rows:
        *definitions, plan = self._cte_parts(step)
        for definition in definitions:
            self.shared[int(definition.fields["id"])] = self.rows(definition.children[0])
        return self.rows(plan)

    @staticmethod
    def _cte_parts(step: PlanTree) -> list[PlanTree]:
        definitions = [child for child in step.children if child.name == "CTERelationDef"]
        return [*definitions, *(child for child in step.children if child.name != "CTERelationDef")]

    def _cterelationref(self, step: PlanTree) -> _Rows:
        known = self.shared.get(int(step.fields["cteId"]))
        if known is None:
            raise _NotLocalError("its common table expressions refer to each other")
        output = named_columns(step.expressions("output"))
        renamed = {before: after for (before, _), (after, _) in zip(known.output, output, strict=True)}

        def follow(numbers: frozenset[int]) -> frozenset[int]:
            return frozenset(renamed[n] for n in numbers if n in renamed)

        return replace(
            known,
            output=output,
            blocks=follow(known.blocks),
            times=follow(known.times),
            windows=follow(known.windows),
            days=follow(known.days),
            nullable=follow(known.nullable),
        )

    # --- expressions ----------------------------------------------------------------------------------------

    def _is_time(self, expression: PlanTree, rows: _Rows) -> bool:  # noqa: PLR0911 - one for each kind of expression
        """Whether the values are times in the block that their rows come from."""
        match expression.name:
            case "AttributeReference":
                return expression.id in rows.times
            case "Alias":
                return self._is_time(expression.children[0], rows)
            case "TruncTimestamp":
                unit, time = expression.children
                in_utc = expression.fields.get("timeZoneId") in _UTC
                length = _UNITS.get(str(unit.fields.get("value")).upper())
                return in_utc and self._divides(length) and self._is_time(time, rows)
            case "GetStructField":
                return expression.fields.get("ordinal") == 0 and self._is_window(expression.children[0], rows)
            case "Coalesce":
                return all(self._is_time(each, rows) or is_one_of(each, rows.nullable) for each in expression.children)
            case "AggregateExpression":
                function = expression.children[0]
                return function.name in _AGGREGATES_IN_BLOCK and self._is_time(function.children[0], rows)
            case "Cast":
                return self._is_cast_of_a_day(expression, rows)
        return False

    def _is_cast_of_a_day(self, expression: PlanTree, rows: _Rows) -> bool:
        """``cast(to_date(time) as timestamp)``: the day's first moment."""
        inner = expression.children[0]
        to_time = expression.fields.get("dataType") == "timestamp" and expression.fields.get("timeZoneId") in _UTC
        return to_time and self._is_day(inner, rows)

    def _is_day(self, expression: PlanTree, rows: _Rows) -> bool:
        if expression.name == "Alias":
            return self._is_day(expression.children[0], rows)
        if expression.name == "AttributeReference":
            return expression.id in rows.days
        is_date = expression.name == "ParseToDate" and len(expression.children) == 1
        is_date |= expression.name == "Cast" and expression.fields.get("dataType") == "date"
        in_utc = expression.fields.get("timeZoneId") in _UTC
        return is_date and in_utc and self._divides(_UNITS["DAY"]) and self._is_time(expression.children[0], rows)

    def _is_window(self, expression: PlanTree, rows: _Rows) -> bool:
        """Whether the values are tumbling windows that begin in the block that their rows come from."""
        if expression.name == "AttributeReference":
            return expression.id in rows.windows
        if expression.name == "Alias":
            return self._is_window(expression.children[0], rows)
        window = tumbling_window(expression)
        return window is not None and self._divides(window[1]) and is_one_of(window[0], rows.times)

    def _determines(self, expression: PlanTree, rows: _Rows) -> bool:
        """Whether rows that agree in the expression come from one block."""
        if expression.name == "Alias":
            return self._determines(expression.children[0], rows)
        return (
            is_one_of(expression, rows.blocks)
            or self._is_window(expression, rows)
            or self._is_day(expression, rows)
            or (expression.name != "AggregateExpression" and self._is_time(expression, rows))
        )

    def _divides(self, length: int | None) -> bool:
        """Whether blocks consist of whole stretches of so many microseconds."""
        return length is not None and length > 0 and self.block % length == 0


def _refuse_subqueries(step: PlanTree) -> None:
    text = json.dumps({key: value for key, value in step.fields.items() if key not in ("desc", "identifier")})
    if "catalyst.expressions.ScalarSubquery" in text or "catalyst.expressions.Exists" in text or "ListQuery" in text:
        raise _NotLocalError("it has a subquery, which may look at rows of all times")


def _words(step: str) -> str:
    """What a step of Spark's is called by people."""
    return {
        "GlobalLimit": "limit",
        "LocalLimit": "limit",
        "Offset": "offset",
        "Tail": "tail",
        "MapInArrow": "a Python function over many rows (mapInArrow or on_spark)",
        "MapInPandas": "a Python function over many rows (mapInPandas)",
        "FlatMapGroupsInPandas": "a Python function over groups (applyInPandas)",
        "Expand": "a sliding window, rollup or cube",
    }.get(step, f"the step {step}")
