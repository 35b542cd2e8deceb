"""Which columns of a query's result are keys: rows of its sources matter only to result rows with the same key.

Then an update computes the result again only for the keys of changed rows, from the rows of its sources with these
keys, and replaces just those rows. That is right for every aggregate, window function and join by key.

The proof goes through Spark's analysed plan from the sources up. For each column of a step it knows the *origin*: an
expression over the columns of a source. If a row of the source changes, only rows of the step change in which the
column equals the expression's value. A plan may use a source several times; an origin is known for each use. A column
is a key if its origin is known for every use of every source that changes all the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.core import HeadgateError
from headgate.warehouse.declare.plan_tree import (
    PlanTree,
    conjuncts,
    join_kind,
    named_columns,
    own_text,
    parse_tree,
    plan_of,
    quoted,
    source_of,
    sources_in_subqueries,
    tumbling_window,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: an expression over the columns of a source, as SQL; by the number of the use of the source
Origin = Mapping[int, str]

_PASSED = {
    *("Filter", "Sort", "View", "SubqueryAlias", "ResolvedHint", "Repartition", "RepartitionByExpression"),
    *("Distinct", "RebalancePartitions"),
}
#: {Spark's expression: how it is written in SQL}; all give the same value wherever they are evaluated
_SQL: Mapping[str, str] = {
    **{"Upper": "upper({})", "Lower": "lower({})", "StringTrim": "trim({})", "Length": "length({})"},
    **{"Year": "year({})", "Month": "month({})", "DayOfMonth": "day({})", "Hour": "hour({})", "Minute": "minute({})"},
    **{"Add": "({} + {})", "Subtract": "({} - {})", "Multiply": "({} * {})", "Remainder": "({} % {})"},
    **{"Pmod": "pmod({}, {})", "Substring": "substring({}, {}, {})", "ParseToDate": "to_date({})"},
}
_JOINS = {"Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti"}
_LITERALS = {"integer", "long", "short", "byte", "boolean"}
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
#: how long after a truncated time the time itself can be, in microseconds
_LONGEST = {
    **{"microsecond": 0, "millisecond": 1_000, "second": _SECOND, "minute": 60 * _SECOND, "hour": 3_600 * _SECOND},
    **{"day": _DAY, "dd": _DAY, "week": 7 * _DAY, "month": 31 * _DAY, "quarter": 92 * _DAY, "year": 366 * _DAY},
}
_TRUNCATED = re.compile(r"date_trunc\('(\w+)', (`(?:[^`]|``)*`)\)")
#: a key is compared with equality, which these types do not have or do not have in the same way everywhere
_NOT_COMPARED = ("map", "array", "struct", "variant", "float", "double")


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


def find_keys(result: DataFrame, changing: Collection[str]) -> TableKeys | None:
    """The keys of a query over marked sources; None if there are none that all ``changing`` sources have."""
    proof = _KeyProof()
    try:
        known = proof.columns(plan_of(result))
    except _UnknownPlanError:
        return None
    needed = [use for use, source in enumerate(proof.uses) if source in changing]
    names = [name for _, name in known.output]
    types = {each.name: each.dataType.typeName() for each in result.schema}
    columns = [
        (number, name)
        for number, name in known.output
        if known.has(number, needed) and names.count(name) == 1 and types[name] not in _NOT_COMPARED
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
        return _LONGEST.get(truncated.group(1).lower())
    return 0 if sql == time else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a step: their numbers and names, and the origins that are known of them.

    ``either`` are the origins of the columns of a full join that are equal where both are there: ``coalesce`` of them.
    """

    output: tuple[tuple[int, str], ...]
    origins: Mapping[int, Origin]
    either: Mapping[frozenset[int], Origin] = field(default_factory=dict)

    def has(self, number: int, uses: Collection[int]) -> bool:
        """Whether a column has an origin for ``uses``; a constant is none, though it is the same for all rows."""
        origin = self.origins.get(number, {})
        return all("`" in origin.get(use, "") for use in uses)

    def keeping(self, keys: Sequence[Origin]) -> _Columns:
        """Only the origins that are those of a key: rows are brought together by equal keys."""
        kept = {n: origin for n, origin in self.origins.items() if any(_is_key(origin, key) for key in keys)}
        return _Columns(self.output, kept)


@dataclass
class _KeyProof:
    """Goes through one plan; ``uses`` are the sources in the order in which the plan uses them."""

    uses: list[str] = field(default_factory=list)
    definitions: dict[int, PlanTree] = field(default_factory=dict)

    def columns(self, step: PlanTree) -> _Columns:
        source = source_of(step)
        if source is not None:
            return self._source(step, source)
        self._note_subqueries(step)
        handle: Callable[[PlanTree], _Columns] | None = getattr(self, f"_{step.name.lower()}", None)
        if handle is not None:
            return handle(step)
        children = [self.columns(child) for child in step.children]
        if step.name in _PASSED:
            return children[0]
        # Any other step may bring rows together in any way.
        return _Columns(named_columns(step.expressions("output")) if "output" in step.fields else (), {})

    def _source(self, step: PlanTree, source: str) -> _Columns:
        leaf = step
        while leaf.children:
            leaf = leaf.children[0]
        output = named_columns(leaf.expressions("output"))
        use = len(self.uses)
        self.uses.append(source)
        return _Columns(output, {number: {use: quoted(name)} for number, name in output})

    def _note_subqueries(self, step: PlanTree) -> None:
        """Sources in subqueries are used, too: without any origin."""
        self.uses.extend(sources_in_subqueries(step))
        if "CTERelationRef" in own_text(step) and step.name != "CTERelationRef":
            raise _UnknownPlanError("a subquery refers to a common table expression")

    # --- steps ----------------------------------------------------------------------------------------------

    def _project(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        return _named(step.expressions("projectList"), child)

    def _aggregate(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        keys = [_origin(key, child) for key in step.expressions("groupingExpressions")]
        return _named(step.expressions("aggregateExpressions"), child, keys)

    def _window(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        kept = child.keeping([_origin(key, child) for key in step.expressions("partitionSpec")])
        return _Columns((*child.output, *named_columns(step.expressions("windowExpressions"))), kept.origins)

    def _generate(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        return _Columns((*child.output, *named_columns(step.expressions("generatorOutput"))), child.origins)

    def _deduplicate(self, step: PlanTree) -> _Columns:
        child = self.columns(step.children[0])
        return child.keeping([_origin(key, child) for key in step.expressions("keys")])

    def _union(self, step: PlanTree) -> _Columns:
        return self._side_by_side(step)

    def _intersect(self, step: PlanTree) -> _Columns:
        return self._side_by_side(step)

    def _except(self, step: PlanTree) -> _Columns:
        return self._side_by_side(step)

    def _side_by_side(self, step: PlanTree) -> _Columns:
        """The columns of several children at the same places; rows are compared by all of them."""
        parts = [self.columns(child) for child in step.children]
        origins: dict[int, Origin] = {}
        for place, (number, _) in enumerate(parts[0].output):
            of_parts = [part.origins.get(part.output[place][0], {}) for part in parts if part.output]
            origins[number] = {use: sql for origin in of_parts for use, sql in origin.items()}
        return _Columns(parts[0].output, origins)

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
        either: dict[frozenset[int], Origin] = {}
        for one, other in _equal_columns(step, left, right):
            both = {**left.origins[one], **right.origins[other]}
            if kind == "FullOuter":
                either[frozenset((one, other))] = both
            origins.update({number: both for number in (one, other) if number in origins})
        return _Columns(output, origins, either)

    def _withcte(self, step: PlanTree) -> _Columns:
        for child in step.children:
            if child.name == "CTERelationDef":
                self.definitions[int(child.fields["id"])] = child.children[0]
        (plan,) = (child for child in step.children if child.name != "CTERelationDef")
        return self.columns(plan)

    def _cterelationref(self, step: PlanTree) -> _Columns:
        definition = self.definitions.get(int(step.fields["cteId"]))
        if definition is None or step.fields.get("recursive"):
            raise _UnknownPlanError("a recursive common table expression")
        known = self.columns(definition)  # each reference is a use of its own
        output = named_columns(step.expressions("output"))
        pairs = zip(known.output, output, strict=True)
        return _Columns(output, {after: known.origins.get(before, {}) for (before, _), (after, _) in pairs})


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


def _named(expressions: Sequence[PlanTree], child: _Columns, keys: Sequence[Origin] | None = None) -> _Columns:
    """Columns made of a child's; with ``keys``, of groups of its rows with the same keys."""
    output = named_columns(expressions)
    origins = {number: _origin(each, child, keys) for (number, _), each in zip(output, expressions, strict=True)}
    return _Columns(output, origins)


def _origin(expression: PlanTree, rows: _Columns, keys: Sequence[Origin] | None = None) -> Origin:
    """The origin of an expression over columns whose origins are known, for each use for which it can be told.

    With ``keys`` it is one value for a group of rows, so it must be made of keys.
    """
    if expression.name == "Alias":
        return _origin(expression.children[0], rows, keys)
    if keys is not None:
        origin = _origin(expression, rows)
        if any(_is_key(origin, key) for key in keys):
            return origin
    if expression.name == "AttributeReference":
        return {} if keys is not None else rows.origins.get(expression.id, {})
    if expression.name == "Coalesce" and all(child.name == "AttributeReference" for child in expression.children):
        return {} if keys is not None else rows.either.get(frozenset(child.id for child in expression.children), {})
    window = tumbling_window(expression)
    if window is not None:
        times = _origin(window[0], rows, keys)
        return {use: _window_sql(time, window[1]) for use, time in times.items()}
    parts = [_origin(child, rows, keys) for child in expression.children]
    uses = {use for origin in rows.origins.values() for use in origin}
    found = {use: _sql(expression, [part[use] for part in parts]) for use in uses if all(use in p for p in parts)}
    return {use: sql for use, sql in found.items() if sql is not None}


def _is_key(origin: Origin, key: Origin) -> bool:
    return bool(origin) and all(key.get(use) == sql for use, sql in origin.items())


def _sql(expression: PlanTree, parts: Sequence[str]) -> str | None:
    """An expression as SQL, with its children given as SQL; None if it is not one that is known."""
    sql: str | None = None
    match expression.name:
        case "Literal":
            sql = _literal(expression)
        case "TruncTimestamp":
            sql = f"date_trunc({parts[0]}, {parts[1]})"
        case "Cast":
            kind = expression.fields.get("dataType")
            sql = f"try_cast({parts[0]} as {kind})" if kind in ("date", "timestamp", "string") else None
        case "GetStructField":
            name = expression.fields.get("name")
            sql = f"({parts[0]}).{name}" if name in ("start", "end") else None
        case name if name in _SQL and _SQL[name].count("{}") == len(parts):
            sql = _SQL[name].format(*parts)
    return sql


def _window_sql(time: str, length: int) -> str:
    start = f"unix_micros({time}) - pmod(unix_micros({time}), {length})"
    return f"named_struct('start', timestamp_micros({start}), 'end', timestamp_micros({start} + {length}))"


def _literal(expression: PlanTree) -> str | None:
    value, kind = expression.fields.get("value"), expression.fields.get("dataType")
    if kind == "string" and isinstance(value, str) and re.fullmatch(r"[\w .:-]*", value):
        return f"'{value}'"
    return str(value) if kind in _LITERALS and value is not None else None
