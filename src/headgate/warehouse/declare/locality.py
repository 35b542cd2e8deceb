"""Whether a query is local to blocks of time: proved from Spark's analysed plan, or not at all.

A *block* is a stretch of event time that is recomputed as one. A query is local if no row of its result depends on rows
of its sources in another block than its own. Then a changed block can be computed again by itself. If that cannot be
proved, the table is computed again as a whole: slower, but always right.

The proof goes through the plan from the sources up. At each step it knows which columns *determine the block*: rows
that agree in such a column come from one block. A column of times determines it if the times lie in the block that
their rows come from. Steps that bring rows together (aggregates, windows, distinct, joins) must do so by such a column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.core import HeadgateError
from headgate.warehouse.declare.plan_tree import (
    CONSTANT,
    PASSING,
    UNIT_LENGTHS,
    PlanTree,
    columns_of_source,
    conjuncts,
    has_subquery,
    is_one_of,
    join_kind,
    named_columns,
    parse_tree,
    source_of,
    tumbling_window,
    words_for,
)
from headgate.warehouse.declare.spec import DimensionSpec, NodeSpec, TableSpec

_MICROS = 1_000_000
_UTC = ("UTC", "Etc/UTC", "Z")
#: steps that neither bring rows together nor change columns
_PASSED = PASSING | {"Filter"}
#: {aggregates that choose one of the times of a group: whether there always is one}
_CHOOSING = {
    "Max": True,
    "Min": True,
    "First": True,
    "Last": True,
    "AnyValue": True,
    "MaxBy": False,
    "MinBy": False,
}


class _NotLocalError(HeadgateError):
    """The query is not local, or cannot be proved to be; the text says why."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is known of the rows of a step. ``output`` are the numbers and names of its columns.

    ``blocks`` are the columns that determine the block, ``times`` those of them that are times in it, and
    ``windows`` and ``days`` those that are windows or days of such times. ``nullable`` are times in the block if they
    are there at all, as those of an outer join's other side; rows without them may come from any block. ``sides`` are
    such times of the two sides of a full join: every row has those of one side. Rows of a dimension come from no block:
    they are ``constant``.
    """

    output: tuple[tuple[int, str], ...]
    blocks: frozenset[int] = frozenset()
    times: frozenset[int] = frozenset()
    windows: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    nullable: frozenset[int] = frozenset()
    sides: tuple[frozenset[int], frozenset[int]] | None = None
    constant: bool = False


def block_of(table: TableSpec, declared: Mapping[str, NodeSpec]) -> int:
    """The length of the blocks of a table: whole partitions of it and of its sources, in microseconds."""
    sources = [declared[name] for name in table.sources]
    dated = [node for node in sources if not isinstance(node, DimensionSpec) and node.time is not None]
    return block_length((table.partition, *(node.partition for node in dated)))


def block_length(lengths: Iterable[float]) -> int:
    """The least common multiple of partition lengths (seconds), in microseconds."""
    return math.lcm(*(round(length * _MICROS) for length in lengths))


def why_not_local(plan: PlanTree, time: str, times: Mapping[str, str | None], block: int) -> str | None:
    """Why a query is not proved to be local to blocks of ``block`` microseconds; None if it is.

    ``plan`` is its plan over ``marked`` sources, ``time`` its column of event time. ``times`` are those of the sources,
    None for a dimension.
    """
    try:
        rows = _Proof(times, block).rows(plan)
    except _NotLocalError as reason:
        return str(reason)
    # Rows without a time are an error, so there are none.
    if any(number in rows.times | rows.nullable for number, name in rows.output if name == time):
        return None
    return f"its time {time!r} may lie in another partition than the rows that it comes from"


@dataclass
class _Proof:
    """Goes through one plan."""

    times: Mapping[str, str | None]
    block: int

    # --- steps ----------------------------------------------------------------------------------------------

    def rows(self, step: PlanTree) -> _Rows:
        """What is known of a step's rows; raises if it brings rows of several blocks together."""
        source = source_of(step)
        if source is not None:
            return self._source_rows(step, source)
        if has_subquery(step):
            raise _NotLocalError(
                "it has a subquery, which may look at rows of all times (an `exists` or `in` can be written as a left "
                "semi join, a `not exists` as a left anti join)"
            )
        steps: Mapping[str, Callable[[PlanTree], _Rows]] = {
            "Aggregate": self._aggregate,
            "Deduplicate": self._deduplicate,
            "Distinct": self._distinct,
            "Generate": self._generate,
            "Join": self._join,
            "Project": self._project,
            "Union": self._union,
            "Window": self._window,
        }
        if step.name in steps:
            return steps[step.name](step)
        if step.name in CONSTANT:
            return _Rows(named_columns(step.expressions("output")), constant=True)
        if step.name in _PASSED:
            return self.rows(step.children[0])
        raise _NotLocalError(f"what {words_for(step)} gives may depend on rows of all times")

    def _source_rows(self, step: PlanTree, source: str) -> _Rows:
        output = columns_of_source(step)
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
            nullable=frozenset(n for n, each in pairs if self._may_be_time(each, child)),
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
            return _Rows(output, nullable=left.times | right.times, sides=(left.times, right.times))
        if sides is not None:
            kept, other = sides
            return replace(kept, output=output, nullable=kept.nullable | other.times | other.nullable)
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

    # --- expressions ----------------------------------------------------------------------------------------

    def _is_time(self, expression: PlanTree, rows: _Rows) -> bool:  # noqa: PLR0911 - one for each kind of expression
        """Whether the values are times in the block that their rows come from, and never null."""
        match expression.name:
            case "AttributeReference":
                return expression.id in rows.times
            case "Alias":
                return self._is_time(expression.children[0], rows)
            case "TruncTimestamp":
                unit, time = expression.children
                in_utc = expression.fields.get("timeZoneId") in _UTC
                length = UNIT_LENGTHS.get(str(unit.fields.get("value")).upper())
                return in_utc and self._divides(length) and self._is_time(time, rows)
            case "GetStructField":
                return expression.fields.get("ordinal") == 0 and self._is_window(expression.children[0], rows)
            case "Coalesce":
                return self._may_be_time(expression, rows) and self._is_never_null(expression.children, rows)
            case "AggregateExpression":
                function, *conditions = expression.children
                is_there = _CHOOSING.get(function.name, False) and not conditions
                return is_there and self._is_time(function.children[0], rows)
            case "Cast":
                return self._is_cast_of_a_day(expression, rows)
        return False

    def _may_be_time(self, expression: PlanTree, rows: _Rows) -> bool:
        """Whether the values are times in the block that their rows come from, or null."""
        match expression.name:
            case "Alias":
                return self._may_be_time(expression.children[0], rows)
            case "AttributeReference":
                return expression.id in rows.nullable or expression.id in rows.times
            case "Coalesce":
                return all(self._may_be_time(each, rows) for each in expression.children)
            case "AggregateExpression":
                function = expression.children[0]
                return function.name in _CHOOSING and self._may_be_time(function.children[0], rows)
        return self._is_time(expression, rows)

    def _is_never_null(self, times: Sequence[PlanTree], rows: _Rows) -> bool:
        """Whether one of ``times``, the arguments of ``coalesce``, is there in every row."""
        if any(self._is_time(each, rows) for each in times):
            return True
        return rows.sides is not None and all(any(is_one_of(each, side) for each in times) for side in rows.sides)

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
        return is_date and in_utc and self._divides(UNIT_LENGTHS["DAY"]) and self._is_time(expression.children[0], rows)

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
