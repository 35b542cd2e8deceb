"""Which columns of a query's result are keys: rows of its sources matter only to result rows with the same key.

Then an update computes the result again only for the keys of changed rows, from the rows of its sources with these
keys, and replaces just those rows. That is right for every aggregate, window function and join by key.

The proof goes through Spark's analysed plan from the sources up. For each column of a step it knows the *origin*: an
expression over the columns of a source. If a row of the source changes, only rows of the step change in which the
column equals the expression's value. A plan may use a source several times; an origin is known for each use. A column
is a key if its origin is known for every use of every source that changes all the time.

A step that brings rows together by a column (groups, window functions) changes all rows with the same value of it. So
of its columns only that one keeps its origin, and those that are equal to it in every row. That two columns have the
same origin does not make them equal: rows may also come from elsewhere, as in a union with a dimension.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.core import HeadgateError
from headgate.warehouse.declare.plan_tree import (
    CONSTANT,
    PASSING,
    UNIT_LENGTHS,
    PlanTree,
    canonical,
    columns_of_source,
    conjuncts,
    join_kind,
    named_columns,
    parse_tree,
    quoted,
    source_of,
    sources_in_subqueries,
    tumbling_window,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

#: an expression over the columns of a source, as SQL; by the number of the use of the source
Origin = Mapping[int, str]

_PASSED = PASSING | {"Filter", "Distinct"}
#: steps that choose some of the rows below by looking at all of them
_CHOOSING = {"GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"}
#: {Spark's expression: how it is written in SQL}; all give the same value wherever they are evaluated, and none fails:
#: they are computed for rows that the query itself may leave out first
_SQL = {
    "Upper": "upper({})",
    "Lower": "lower({})",
    "StringTrim": "trim({})",
    "Length": "length({})",
    "Substring": "substring({}, {}, {})",
    "Year": "year({})",
    "Month": "month({})",
    "DayOfMonth": "day({})",
    "Hour": "hour({})",
    "Minute": "minute({})",
    "ParseToDate": "try_cast({} as date)",
}
#: the same for numbers, if they raise where the result does not fit
_TRIED = {
    "Add": "try_add({}, {})",
    "Subtract": "try_subtract({}, {})",
    "Multiply": "try_multiply({}, {})",
    "Remainder": "try_mod({}, {})",
}
_TEXTS = {"Upper", "Lower", "StringTrim", "Substring"}
_JOINS = {"Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti"}
_LITERALS = {"integer", "long", "short", "byte", "boolean"}
_DAY = UNIT_LENGTHS["DAY"]
#: how long after a truncated time the time itself can be, in microseconds
_LONGEST = UNIT_LENGTHS | {"WEEK": 7 * _DAY, "MONTH": 31 * _DAY, "QUARTER": 92 * _DAY, "YEAR": 366 * _DAY}
_TRUNCATED = re.compile(r"date_trunc\('(\w+)', (`(?:[^`]|``)*`)\)")
#: types that are compared with equality; not those with values that are equal but not the same, as -0.0 and 0.0 are,
#: or texts with a collation
_COMPARED = {
    *("boolean", "tinyint", "smallint", "int", "bigint", "decimal", "string", "varchar", "binary"),
    *("date", "timestamp"),
}


class _UnknownPlanError(HeadgateError):
    """The plan has a part whose sources cannot be found."""


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The key columns of a table, and how the keys of a source's rows are computed.

    ``origins[source]`` has one tuple for each way in which the query uses the source: SQL expressions over its columns,
    in the order of ``columns``. A source that is not there has no keys: if it changes, everything may change.
    """

    columns: tuple[str, ...]
    origins: Mapping[str, tuple[tuple[str, ...], ...]]


def find_keys(
    plan: PlanTree, result: DataFrame, changing: Collection[str], sources: Mapping[str, StructType]
) -> TableKeys | None:
    """The keys of a query over marked sources; None if there are none that all ``changing`` sources have.

    ``plan`` is that of ``result``, ``sources`` are the columns of all sources.
    """
    is_ansi = result.sparkSession.conf.get("spark.sql.ansi.enabled") == "true"
    proof = _KeyProof({name: _with_origins(columns) for name, columns in sources.items()}, is_ansi)
    try:
        known = proof.columns(plan)
    except _UnknownPlanError:
        return None
    needed = [use for use, source in enumerate(proof.uses) if source in changing]
    names = [name for _, name in known.output]
    found = {each.name for each in result.schema if _is_compared(each.dataType)}
    columns = [
        (number, name)
        for number, name in known.output
        if known.has(number, needed) and names.count(name) == 1 and name in found
    ]
    if not needed or not columns:
        return None
    origins: dict[str, tuple[tuple[str, ...], ...]] = {}
    for source in dict.fromkeys(proof.uses):
        uses = [use for use, name in enumerate(proof.uses) if name == source]
        if all(known.has(number, uses) for number, _ in columns):
            tuples = [tuple(known.origins[number][use] for number, _ in columns) for use in uses]
            origins[source] = tuple(dict.fromkeys(tuples))
    return TableKeys(tuple(name for _, name in columns), origins)


def _is_compared(kind: DataType) -> bool:
    return kind.simpleString().partition("(")[0] in _COMPARED


def _with_origins(schema: StructType) -> frozenset[str]:
    """The columns of a source that keys can be made of."""
    return frozenset(each.name for each in schema if _is_compared(each.dataType) or _is_window(each.dataType))


def _is_window(kind: DataType) -> bool:
    return kind.simpleString() == "struct<start:timestamp,end:timestamp>"


def time_keys(keys: TableKeys, source: str, time: str) -> list[tuple[int | None, int]]:
    """For each use of a source, the key that is its time or its time truncated; None if there is none.

    Also how long after such a key the time itself can be, in microseconds.
    """
    found: list[tuple[int | None, int]] = []
    for origin in keys.origins[source]:
        lengths = {place: _length_after(sql, quoted(time)) for place, sql in enumerate(origin)}
        known = {place: length for place, length in lengths.items() if length is not None}
        shortest = min(known, key=lambda place: known[place], default=None)
        found.append((shortest, 0 if shortest is None else known[shortest]))
    return found


def _length_after(sql: str, time: str) -> int | None:
    truncated = _TRUNCATED.fullmatch(sql)
    if truncated is not None and truncated.group(2) == time:
        return _LONGEST.get(truncated.group(1).upper())
    return 0 if sql == time else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a step: their numbers and names, and the origins that are known of them.

    ``same`` is equal for columns that are equal in every row. ``either`` are the origins of the columns of a full join
    that are equal where both are there: ``coalesce`` of them.
    """

    output: tuple[tuple[int, str], ...]
    origins: Mapping[int, Origin]
    same: Mapping[int, str] = field(default_factory=dict)
    either: Mapping[frozenset[int], Origin] = field(default_factory=dict)

    def has(self, number: int, uses: Collection[int]) -> bool:
        """Whether a column has an origin for ``uses``; a constant is none, though it is the same for all rows."""
        origin = self.origins.get(number, {})
        return all("`" in origin.get(use, "") for use in uses)

    def text(self, expression: PlanTree) -> str:
        """The same for expressions that are equal in every row."""
        inner = expression.children[0] if expression.name == "Alias" else expression
        return canonical(inner, self.same)

    def keeping(self, keys: Sequence[PlanTree]) -> dict[int, Origin]:
        """Only the origins of columns that are one of ``keys``: rows are brought together by equal keys."""
        texts = {self.text(key) for key in keys}
        return {n: origin for n, origin in self.origins.items() if self.same.get(n, f"#{n}") in texts}


@dataclass
class _KeyProof:
    """Goes through one plan. ``with_origins`` are the columns of each source that keys can be made of.

    ``is_ansi``: numbers that do not fit are an error. ``uses`` are the sources in the order in which the plan has them.
    """

    with_origins: Mapping[str, Collection[str]]
    is_ansi: bool
    uses: list[str] = field(default_factory=list)

    def columns(self, step: PlanTree) -> _Columns:
        source = source_of(step)
        if source is not None:
            return self._source(step, source)
        # Sources in subqueries are used, too: without any origin.
        self.uses.extend(sources_in_subqueries(step))
        steps: Mapping[str, Callable[[PlanTree], _Columns]] = {
            "Aggregate": self._aggregate,
            "Deduplicate": self._deduplicate,
            "Except": self._side_by_side,
            "Generate": self._generate,
            "Intersect": self._side_by_side,
            "Join": self._join,
            "Project": self._project,
            "Union": self._side_by_side,
            "Window": self._window,
        }
        if step.name in steps:
            return steps[step.name](step)
        children = [self.columns(child) for child in step.children]
        if step.name in _PASSED:
            return children[0]
        # Any other step may bring rows together in any way.
        if step.name in _CHOOSING:
            return _Columns(children[0].output, {}, children[0].same)
        if "output" in step.fields and (children or step.name in CONSTANT):
            return _Columns(named_columns(step.expressions("output")), {})
        if step.name == "OneRowRelation":
            return _Columns((), {})
        raise _UnknownPlanError(f"the columns of {step.name} are not known")

    def _source(self, step: PlanTree, source: str) -> _Columns:
        output = columns_of_source(step)
        use = len(self.uses)
        self.uses.append(source)
        known = self.with_origins[source]
        return _Columns(output, {number: {use: quoted(name)} for number, name in output if name in known})

    # --- steps ----------------------------------------------------------------------------------------------

    def _project(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        return self._named(step.expressions("projectList"), child)

    def _aggregate(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        keys = frozenset(child.text(key) for key in step.expressions("groupingExpressions"))
        return self._named(step.expressions("aggregateExpressions"), child, keys)

    def _window(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        output = (*child.output, *named_columns(step.expressions("windowExpressions")))
        return _Columns(output, child.keeping(step.expressions("partitionSpec")), child.same)

    def _generate(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        output = (*child.output, *named_columns(step.expressions("generatorOutput")))
        return _Columns(output, child.origins, child.same)

    def _deduplicate(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        return _Columns(child.output, child.keeping(step.expressions("keys")), child.same)

    def _side_by_side(self, step: PlanTree) -> _Columns:
        """The columns of several children at the same places; rows are compared by all of them."""
        parts = [self.columns(child) for child in step.children]
        origins: dict[int, Origin] = {}
        same: dict[int, str] = {}
        for place, (number, _) in enumerate(parts[0].output):
            numbers = [part.output[place][0] for part in parts]
            of_parts = [part.origins.get(n, {}) for part, n in zip(parts, numbers, strict=True)]
            origins[number] = {use: sql for origin in of_parts for use, sql in origin.items()}
            same[number] = " | ".join(part.same.get(n, f"#{n}") for part, n in zip(parts, numbers, strict=True))
        return _Columns(parts[0].output, origins, same)

    def _join(self, step: PlanTree) -> _Columns:
        left, right = (self.columns(child) for child in step.children)
        kind = join_kind(step)
        one_side = kind in ("LeftSemi", "LeftAnti")
        output = left.output if one_side else (*left.output, *right.output)
        # A row of an outer join without a match depends on rows of the other side that are not there, so the other
        # side's columns, null in it, say nothing about them.
        kept = {"LeftOuter": (left,), "RightOuter": (right,), "FullOuter": ()}.get(kind, (left, right))
        if kind not in _JOINS:
            kept = ()
        origins: dict[int, Origin] = {number: origin for side in kept for number, origin in side.origins.items()}
        same = {**left.same, **right.same}
        either: dict[frozenset[int], Origin] = {}
        for one, other in _equal_columns(step, left, right):
            both = {**left.origins[one], **right.origins[other]}
            if kind == "FullOuter":
                either[frozenset((one, other))] = both
            if kind == "Inner":
                same[other] = same.get(one, f"#{one}")
            origins.update({number: both for number in (one, other) if number in origins})
        return _Columns(output, origins, same, either)

    # --- expressions ----------------------------------------------------------------------------------------

    def _named(self, expressions: Sequence[PlanTree], child: _Columns, keys: frozenset[str] | None = None) -> _Columns:
        """Columns made of a child's; with ``keys``, of groups of its rows with the same keys."""
        output = named_columns(expressions)
        origins: dict[int, Origin] = {}
        same: dict[int, str] = {}
        for (number, _), each in zip(output, expressions, strict=True):
            origins[number] = self._origin(each, child, keys)
            same[number] = child.text(each)
        return _Columns(output, origins, same)

    def _origin(self, expression: PlanTree, rows: _Columns, keys: frozenset[str] | None = None) -> Origin:
        """The origin of an expression over columns whose origins are known, for each use for which it can be told.

        With ``keys`` it is one value for a group of rows, so it must be made of keys.
        """
        if expression.name == "Alias":
            return self._origin(expression.children[0], rows, keys)
        if keys is not None and rows.text(expression) in keys:
            return self._origin(expression, rows)
        if expression.name == "AttributeReference":
            return {} if keys is not None else rows.origins.get(expression.id, {})
        if expression.name == "Coalesce" and all(child.name == "AttributeReference" for child in expression.children):
            return {} if keys is not None else rows.either.get(frozenset(child.id for child in expression.children), {})
        window = tumbling_window(expression)
        if window is not None:
            times = self._origin(window[0], rows, keys)
            return {use: _window_sql(time, window[1]) for use, time in times.items()}
        parts = [self._origin(child, rows, keys) for child in expression.children]
        uses = {use for origin in rows.origins.values() for use in origin}
        found = {
            use: _sql(expression, [part[use] for part in parts], self.is_ansi)
            for use in uses
            if all(use in p for p in parts)
        }
        return {use: sql for use, sql in found.items() if sql is not None}


def _equal_columns(step: PlanTree, left: _Columns, right: _Columns) -> Iterator[tuple[int, int]]:
    """The columns, one of each side, that a join's condition makes equal."""
    condition = step.fields.get("condition")
    for each in conjuncts(parse_tree(condition)) if condition else ():
        if each.name not in ("EqualTo", "EqualNullSafe") or any(c.name != "AttributeReference" for c in each.children):
            continue
        one, other = (child.id for child in each.children)
        if one in left.origins and other in right.origins:
            yield one, other
        elif other in left.origins and one in right.origins:
            yield other, one


# --- expressions --------------------------------------------------------------------------------------------


def _sql(expression: PlanTree, parts: Sequence[str], is_ansi: bool) -> str | None:
    """An expression as SQL, with its children given as SQL; None if it is not one that is known."""
    sql: str | None = None
    match expression.name:
        case "Literal":
            sql = _literal(expression)
        case "TruncTimestamp":
            sql = f"date_trunc({parts[0]}, {parts[1]})"
        case "Cast":
            sql = _cast(expression, parts[0])
        case "GetStructField":
            name = expression.fields.get("name")
            sql = f"({parts[0]}).{name}" if name in ("start", "end") else None
        case name if name in _SQL and _SQL[name].count("{}") == len(parts):
            sql = _SQL[name].format(*parts)
        case name if is_ansi and name in _TRIED and len(parts) == 2:
            sql = _TRIED[name].format(*parts)
    return sql


def _cast(expression: PlanTree, part: str) -> str | None:
    kind, inner = expression.fields.get("dataType"), expression.children[0]
    is_text = inner.name in _TEXTS or inner.fields.get("dataType") == "string"
    if kind == "string" and is_text:
        return None  # to another collation, which Spark does not write down
    return f"try_cast({part} as {kind})" if kind in ("date", "timestamp", "string") else None


def _window_sql(time: str, length: int) -> str:
    start = f"unix_micros({time}) - pmod(unix_micros({time}), {length})"
    return f"named_struct('start', timestamp_micros({start}), 'end', timestamp_micros({start} + {length}))"


def _literal(expression: PlanTree) -> str | None:
    value, kind = expression.fields.get("value"), expression.fields.get("dataType")
    if kind == "string" and isinstance(value, str) and re.fullmatch(r"[\w .:-]*", value):
        return f"'{value}'"
    return str(value) if kind in _LITERALS and value is not None else None
