"""Random queries: tables over two streams, a dimension and each other, up to three deep, in SQL or as data frames.

Every query has a column ``ts`` that is never null, the time of its table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tests.warehouse.random_expressions import (
    CLICKS,
    EXACT,
    LONG_AGO,
    MANY_ROWS,
    ORDERS,
    SHOPS,
    Column,
    Expressions,
    Kind,
    Relation,
    Scope,
    Selected,
    scope_of,
)

#: tables are computed from tables, up to so many of them above the streams
DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Query:
    """The query of one table, as SQL or as the body of a Python function of ``sources``."""

    name: str
    shape: str
    sources: tuple[str, ...]
    relation: Relation
    sql: str | None = None
    body: str | None = None
    partition: str = "1 hour"
    catch_up: Literal["oldest", "newest"] = "oldest"
    lookback: str | None = None
    has_time: bool = True

    @property
    def options(self) -> dict[str, str | None]:
        """How its table is declared, besides its partitions."""
        lookback = {} if self.lookback is None else {"lookback": self.lookback}
        return {"time": "ts" if self.has_time else None, **lookback}

    @property
    def text(self) -> str:
        if self.sql is not None:
            return self.sql
        return f"def {self.name}({', '.join(self.sources)}):\n    return {self.body}\n"


@dataclass(frozen=True, slots=True)
class Draft:
    """A query without a name: its text, its columns, and about how many rows it gives.

    With ``lookback`` the rows of a time depend on no earlier ones than that.
    """

    sql: str
    columns: Mapping[str, Kind]
    size: int
    lookback: str | None = None


class Grammar(Expressions):
    """Queries over ``tables``, the relations that can be read; ``used`` are those that the query being made reads."""

    def __init__(self, chance: random.Random, tables: list[Relation]) -> None:
        super().__init__(chance)
        self.tables = tables
        self.used: set[str] = set()

    def draft(self) -> tuple[str, Draft]:
        """A query, and the name of its shape."""
        self.used = set()
        shapes: dict[str, tuple[int, Callable[[], Draft]]] = {
            "rows": (4, self.rows),
            "groups": (20, self.groups),
            "total": (3, self.total),
            "distinct": (4, self.distinct),
            "window functions": (7, self.windowed),
            "first of each key": (4, self.top_of_each),
            "limit": (4, self.limited),
            "set operation": (6, self.set_operation),
            "join": (12, self.join),
            "dimension": (6, self.join_dimension),
            "subquery": (7, self.subquery),
            "common table": (3, self.common_table),
            "rollup": (3, self.rollup),
            "explode": (3, self.exploded),
            "time windows": (5, self.time_windows),
            "groups of groups": (3, self.groups_of_groups),
            "lateral": (2, self.lateral),
            "lookback": (2, self.looking_back),
        }
        shape = self.choose({name: weight for name, (weight, _) in shapes.items()})
        return shape, shapes[shape][1]()

    # --- what is read ---------------------------------------------------------------------------------------

    def table(self) -> Relation:
        """A stream or a table; streams more often."""
        timed = [table for table in self.tables if table.has_time]
        streams = [table for table in timed if table.depth == 0]
        chosen = self.chance.choice(streams if self.often(0.65) else timed)
        self.used.add(chosen.text)
        return chosen

    def source(self, share_nested: float = 0.12) -> Relation:
        """A table, or a query over one."""
        if not self.often(share_nested):
            return self.table()
        kinds = [self.rows, self.groups, self.distinct, self.top_of_each, self.union]
        inner = self.chance.choice([*kinds, self.limited, self.united_with_dimension])()
        return Relation(f"({inner.sql})", inner.columns, inner.size)

    def read(self, relation: Relation, alias: str = "a") -> tuple[Scope, str]:
        """The columns of a relation, and how it is named after FROM."""
        return scope_of(relation, alias), f"{relation.text} {alias}"

    # --- one source -----------------------------------------------------------------------------------------

    def rows(self) -> Draft:
        relation = self.table()
        scope, text = self.read(relation)
        chosen = Selected()
        chosen.add(Column(self.moment("a.ts"), "time"), "ts")
        for _ in range(self.chance.randint(1, 4)):
            chosen.add(self.scalar(scope))
        return Draft(f"select {chosen.listed} from {text}{self.where(scope, 0.7)}", chosen.kinds, relation.size)

    def keys(self, scope: Scope, least: int = 0) -> list[Column]:
        """Columns and expressions of one row that are exact, to group by."""
        found: dict[str, Column] = {}
        if not scope.of("text", "int", "flag", "real", "decimal"):
            return []
        for _ in range(self.chance.choice([least, 1, 1, 2])):
            column = self.scalar(Scope(scope.of("text", "text", "int", "flag", "real", "decimal")))
            found[column.text] = column
        return list(found.values())

    def groups(self) -> Draft:
        """Groups with time in the key or without."""
        relation = self.source()
        scope, text = self.read(relation)
        keys = self.keys(scope)
        chosen = Selected()
        by = [key.text for key in keys]
        if self.often(0.45) or not keys:
            moment = self.truncated("a.ts")
            by.insert(self.chance.randint(0, len(by)), moment)
            chosen.add(Column(self.choose({moment: 3, "max(a.ts)": 1, f"{moment} + interval 1 hour": 1}), "time"), "ts")
        else:
            chosen.add(Column(self.choose({"max(a.ts)": 3, "min(a.ts)": 1}), "time"), "ts")
        for key in keys:
            chosen.add(key)
        if scope.of("real") and self.often(0.12):
            number = self.chance.choice(scope.of("real")).text  # -0.0 and 0.0 are one group, shown as 0.0
            by.append(number)
            chosen.add(Column(f"cast({number} as string)", "text"))
        for _ in range(self.chance.randint(1, 4)):
            chosen.add(self.aggregate(scope))
        having = f" having {self.having(scope)}" if self.often(0.25) else ""
        sql = f"select {chosen.listed} from {text}{self.where(scope)} group by {', '.join(by)}{having}"
        return Draft(sql, chosen.kinds, max(3, relation.size // 2))

    def having(self, scope: Scope) -> str:
        numbers = [Column("count(*)", "int"), *(Column(f"sum({c.text})", "int") for c in scope.of("int"))]
        return f"{self.chance.choice(numbers).text} {self.chance.choice(['>', '<', '>=', '<>'])} {self.literal('int')}"

    def total(self) -> Draft:
        """One row. Over no rows at all it would have no time."""
        relation = self.source()
        scope, text = self.read(relation)
        chosen = Selected()
        kept = self.often(0.5)
        chosen.add(Column(f"coalesce(max(a.ts), {LONG_AGO})" if kept else "max(a.ts)", "time"), "ts")
        for _ in range(self.chance.randint(1, 5)):
            chosen.add(self.aggregate(scope))
        having = "" if kept else " having count(*) > 0"
        return Draft(f"select {chosen.listed} from {text}{self.where(scope)}{having}", chosen.kinds, 1)

    def distinct(self) -> Draft:
        relation = self.table()
        scope, text = self.read(relation)
        chosen = Selected()
        chosen.add(Column(self.choose({self.truncated("a.ts"): 3, "a.ts": 1}), "time"), "ts")
        for key in self.keys(scope, least=1):
            chosen.add(key)
        return Draft(f"select distinct {chosen.listed} from {text}{self.where(scope)}", chosen.kinds, relation.size)

    def windowed(self) -> Draft:
        relation = self.source()
        scope, text = self.read(relation)
        chosen = Selected()
        chosen.add(Column("a.ts", "time"), "ts")
        chosen.add(self.scalar(scope))
        for _ in range(self.chance.randint(1, 2)):
            chosen.add(self.window_function(scope, "a.ts"))
        return Draft(f"select {chosen.listed} from {text}{self.where(scope, 0.3)}", chosen.kinds, relation.size)

    def top_of_each(self) -> Draft:
        """The first rows of each key."""
        relation = self.table()
        scope, text = self.read(relation)
        key = self.chance.choice([*scope.of("text", "text", "flag", "int"), Column(self.truncated("a.ts"), "time")])
        place = f"row_number() over (partition by {key.text} order by {self.total_order(scope)})"
        if self.often(0.3):
            place = f"rank() over (partition by {key.text} order by {self.chance.choice(scope.of(*EXACT)).text} desc)"
        inner = f"select a.*, {place} as place from {text}{self.where(scope, 0.3)}"
        sql = f"select {', '.join(relation.columns)} from ({inner}) where place <= {self.chance.randint(1, 3)}"
        return Draft(sql, relation.columns, max(3, relation.size // 3))

    def limited(self) -> Draft:
        relation = self.source()
        scope, text = self.read(relation)
        chosen = Selected()
        chosen.add(Column("a.ts", "time"), "ts")
        for column in self.chance.sample(list(scope.columns), k=min(2, len(scope.columns))):
            chosen.add(column)
        end = f"limit {self.chance.randint(1, 8)}"
        if self.often(0.25):
            end += f" offset {self.chance.randint(1, 4)}"
        order = self.total_order(scope)
        sql = f"select {chosen.listed} from {text}{self.where(scope)} order by {order} {end}"
        return Draft(sql, chosen.kinds, 5)

    def rollup(self) -> Draft:
        relation = self.table()
        scope, text = self.read(relation)
        texts = [column.text for column in scope.of("text", "flag")] or ["a.ts"]
        by = list(dict.fromkeys([self.chance.choice(texts), self.truncated("a.ts")]))
        kind = self.chance.choice(["rollup({})", "cube({})", "grouping sets (({}), ())", "grouping sets (({}), ({}))"])
        grouped = kind.format(", ".join(by), by[0])
        if kind.count("{}") == 2:
            grouped = f"grouping sets (({', '.join(by)}), ({by[0]}))"
        chosen = Selected()
        chosen.add(Column("max(a.ts)", "time"), "ts")
        chosen.add(Column(by[0], "text"))
        chosen.add(Column("cast(grouping_id() as int)", "int"))
        for _ in range(self.chance.randint(1, 3)):
            chosen.add(self.aggregate(scope))
        sql = f"select {chosen.listed} from {text}{self.where(scope)} group by {grouped}"
        if "()" in grouped or "rollup" in grouped or "cube" in grouped:
            sql += " having count(*) > 0"
        kinds = dict(chosen.kinds)
        kinds["c1"] = next(column.kind for column in [*scope.columns] if column.text == by[0])
        return Draft(sql, kinds, relation.size)

    def exploded(self) -> Draft:
        relation = self.table()
        scope, text = self.read(relation)
        chosen = Selected()
        chosen.add(Column("a.ts", "time"), "ts")
        chosen.add(self.scalar(scope))
        lists = scope.of("list")
        made = f"split(concat_ws(',', {', '.join(c.text for c in scope.of('text')) or 'a.ts'}, 'z'), ',')"
        array = self.chance.choice(lists).text if lists and self.often(0.7) else made
        function = self.chance.choice(["explode", "explode_outer"])
        view = f"lateral view {function}({array}) e as element"
        inner = Scope([*scope.columns, Column("element", "text")])
        if self.often(0.4):
            chosen = Selected()
            chosen.add(Column("max(a.ts)", "time"), "ts")
            chosen.add(Column("element", "text"))
            chosen.add(self.aggregate(inner))
            sql = f"select {chosen.listed} from {text} {view}{self.where(inner)} group by element"
            return Draft(sql, chosen.kinds, 6)
        chosen.add(Column("element", "text"))
        return Draft(f"select {chosen.listed} from {text} {view}{self.where(inner)}", chosen.kinds, 2 * relation.size)

    def time_windows(self) -> Draft:
        """Tumbling, sliding and session windows."""
        relation = self.table()
        scope, text = self.read(relation)
        windows = {
            "window(a.ts, '10 minutes')": 2,
            "window(a.ts, '10 minutes', '5 minutes')": 3,
            "window(a.ts, '1 hour', '20 minutes', '5 minutes')": 1,
            "session_window(a.ts, '5 minutes')": 3,
        }
        window = self.choose(windows)
        struct = window.partition("(")[0]
        chosen = Selected()
        chosen.add(Column(f"{struct}.{self.chance.choice(['start', 'start', 'end'])}", "time"), "ts")
        keys = self.chance.sample(scope.of("text", "flag"), k=min(len(scope.of("text", "flag")), 1))
        for key in keys:
            chosen.add(key)
        for _ in range(self.chance.randint(1, 3)):
            chosen.add(self.aggregate(scope))
        by = ", ".join([window, *(key.text for key in keys)])
        return Draft(f"select {chosen.listed} from {text}{self.where(scope)} group by {by}", chosen.kinds, 40)

    def groups_of_groups(self) -> Draft:
        inner = self.groups()
        scope, text = self.read(Relation(f"({inner.sql})", inner.columns))
        chosen = Selected()
        by = self.keys(scope, least=1) or [Column("a.ts", "time")]
        chosen.add(Column("max(a.ts)", "time"), "ts")
        for _ in range(self.chance.randint(1, 3)):
            chosen.add(self.aggregate(scope))
        grouped = ", ".join(f"({key.text})" for key in by)
        sql = f"select {chosen.listed} from {text} group by {grouped}"
        return Draft(sql, chosen.kinds, 6)

    # --- several sources ------------------------------------------------------------------------------------

    def aligned(self, kinds: list[Kind]) -> Draft | None:
        """Rows of a table with columns of these kinds, for one side of a set operation."""
        relation = self.table()
        scope, text = self.read(relation)
        chosen = Selected()
        chosen.add(Column(self.choose({"a.ts": 2, self.truncated("a.ts"): 2}), "time"), "ts")
        for kind in kinds:
            of_kind = scope.of(kind)
            chosen.add(self.chance.choice(of_kind) if of_kind else Column(self.literal(kind), kind))
        return Draft(f"select {chosen.listed} from {text}{self.where(scope)}", chosen.kinds, relation.size)

    def united_with_dimension(self) -> Draft:
        """Rows of a table and of the dimension: what is one column in the first are two in the second."""
        relation = self.table()
        scope, text = self.read(relation)
        self.used.add(SHOPS.text)
        key = self.chance.choice([*scope.of("text"), Column("'a'", "text")]).text
        rows = f"select a.ts as ts, {key} as c, {key} as p, minute(a.ts) as m from {text}{self.where(scope)}"
        sql = f"{rows} union all select {LONG_AGO}, concat(d.k, '!'), d.k, d.w from {SHOPS.text} d"
        return Draft(sql, {"ts": "time", "c": "text", "p": "text", "m": "int"}, relation.size)

    def union(self) -> Draft:
        return self.set_operation(("union all", "union"))

    def set_operation(
        self, operations: tuple[str, ...] = ("union all", "union", "intersect", "except", "intersect all", "except all")
    ) -> Draft:
        kinds = self.chance.sample(["text", "int", "flag", "real"], k=self.chance.randint(1, 2))
        one, other = self.aligned(kinds), self.aligned(kinds)  # type: ignore[arg-type]
        assert one is not None
        assert other is not None
        operation = self.chance.choice(operations)
        return Draft(f"{one.sql} {operation} {other.sql}", one.columns, one.size + other.size)

    def joined_by(self, left: Relation, right: Relation) -> str:
        """The condition of a join of ``a`` and ``b``: by a key, by time, or by a key and a range of time."""
        a, b = scope_of(left, "a"), scope_of(right, "b")
        pairs = [(x.text, y.text) for x in a.of("text") for y in b.of("text")]
        pairs = pairs or [(x.text, y.text) for x in a.of("int") for y in b.of("int")] or [("a.ts", "b.ts")]
        one, other = self.chance.choice(pairs)
        equal = f"{one} {self.chance.choice(['=', '=', '=', '<=>'])} {other}"
        unit = self.choose({"minute": 2, "hour": 2, "day": 1})
        ranges = [
            "b.ts between a.ts - interval 10 minutes and a.ts",
            "b.ts between a.ts - interval 5 minutes and a.ts + interval 20 minutes",
            "b.ts >= a.ts and b.ts < a.ts + interval 1 hour",
        ]
        forms = {
            f"a.ts = b.ts and {equal}": 1,
            "a.ts = b.ts": 1,
            f"date_trunc('{unit}', a.ts) = date_trunc('{unit}', b.ts) and {equal}": 2,
            f"{equal} and {self.chance.choice(ranges)}": 4,
            f"{equal} and {self.condition(a.plus(b))} and {self.chance.choice(ranges)}": 2,
        }
        if max(left.size, right.size) <= MANY_ROWS:
            forms |= {equal: 6, f"{equal} and a.ts > b.ts": 2, f"{equal} and {self.condition(a.plus(b))}": 2}
        return self.choose(forms)

    def join(self) -> Draft:
        left = self.source()
        right = left if self.often(0.2) and not left.text.startswith("(") else self.source()
        kind = self.choose(
            {"join": 4, "left join": 3, "right join": 2, "full join": 2, "left semi join": 2, "left anti join": 2}
        )
        (a, from_a), (b, from_b) = self.read(left, "a"), self.read(right, "b")
        condition = self.joined_by(left, right)
        one_sided = "semi" in kind or "anti" in kind
        times = {
            "join": ["a.ts", "b.ts", "greatest(a.ts, b.ts)", "least(a.ts, b.ts)", "date_trunc('hour', a.ts)"],
            "right join": ["b.ts"],
            "full join": ["coalesce(a.ts, b.ts)", "greatest(a.ts, b.ts)", "coalesce(b.ts, a.ts)"],
        }
        scope = a if one_sided else a.plus(b)
        chosen = Selected()
        time = self.chance.choice(times.get(kind, ["a.ts"]))
        body = f"from {from_a} {kind} {from_b} on {condition}{self.where(scope, 0.2)}"
        if self.often(0.35):
            keys = self.keys(scope, least=1) or [Column("a.ts", "time")]
            chosen.add(Column(f"max({time})", "time"), "ts")
            for key in keys:
                chosen.add(key)
            chosen.add(self.aggregate(scope))
            by = [key.text for key in keys]
            if kind in ("left join", "full join") and self.often(0.3):
                by = [*by, "coalesce(b.ts)"] if self.often(0.5) else ["coalesce(b.ts)"]
                chosen = Selected()
                chosen.add(Column(f"max({time})", "time"), "ts")
                chosen.add(self.aggregate(scope))
            sql = f"select {chosen.listed} {body} group by {', '.join(by)}"
            return Draft(sql, chosen.kinds, 10)
        chosen.add(Column(time, "time"), "ts")
        for _ in range(self.chance.randint(1, 4)):
            chosen.add(self.scalar(scope))
        return Draft(f"select {chosen.listed} {body}", chosen.kinds, left.size + right.size * 4)

    def join_dimension(self) -> Draft:
        left = self.source()
        self.used.add(SHOPS.text)
        (a, from_a), (d, from_d) = self.read(left, "a"), self.read(SHOPS, "d")
        kind = self.choose(
            {"join": 4, "left join": 3, "right join": 1, "full join": 1, "left semi join": 1, "left anti join": 1}
        )
        keys = a.of("text")
        condition = f"{self.chance.choice(keys).text} = d.k" if keys else "minute(a.ts) > d.w"
        if self.often(0.2):
            condition += f" and {self.condition(a.plus(d))}"
        scope = a if "semi" in kind or "anti" in kind else a.plus(d)
        time = f"coalesce(a.ts, {LONG_AGO})" if kind in ("right join", "full join") else "a.ts"
        body = f"from {from_a} {kind} {from_d} on {condition}{self.where(scope, 0.25)}"
        chosen = Selected()
        if self.often(0.5):
            by = self.keys(scope, least=1)
            grouped = [*(key.text for key in by), self.truncated(time)] if self.often(0.5) or not by else None
            chosen.add(Column(f"max({time})", "time"), "ts")
            for key in by:
                chosen.add(key)
            chosen.add(self.aggregate(scope))
            listed = grouped or [key.text for key in by]
            return Draft(f"select {chosen.listed} {body} group by {', '.join(listed)}", chosen.kinds, 15)
        chosen.add(Column(time, "time"), "ts")
        for _ in range(self.chance.randint(1, 4)):
            chosen.add(self.scalar(scope))
        return Draft(f"select {chosen.listed} {body}", chosen.kinds, left.size)

    def subquery(self) -> Draft:
        """A condition or a column that is a query itself."""
        outer = self.table()
        a, from_a = self.read(outer, "a")
        inner = self.choose({"another": 2, "dimension": 1, "same": 1})
        inner = {"another": self.table, "dimension": lambda: SHOPS, "same": lambda: outer}[inner]()
        self.used.add(inner.text)
        b, from_b = self.read(inner, "b")
        condition = self.condition(b)
        keys = [(x.text, y.text) for x in a.of("text") for y in b.of("text")]
        keys = keys or [(x.text, y.text) for x in a.of("int") for y in b.of("int")] or [("minute(a.ts)", "3")]
        x, y = self.chance.choice(keys)
        numbers = [(p.text, q.text) for p in a.of("int", "real") for q in b.of("int", "real")]
        tests = [
            f"{x} in (select {y} from {from_b} where {condition})",
            f"{x} not in (select {y} from {from_b} where {condition})",
            f"exists (select 1 from {from_b} where {x} = {y} and {condition})",
            f"not exists (select 1 from {from_b} where {x} = {y} and {condition})",
            f"{self.literal('int')} < (select count(*) from {from_b} where {x} = {y})",
        ]
        for p, q in numbers:
            tests += [
                f"{p} > (select avg({q}) from {from_b})",
                f"{p} >= (select max({q}) from {from_b} where {condition})",
                f"{p} = (select min({q}) from {from_b} where {x} = {y})",
            ]
        chosen = Selected()
        chosen.add(Column("a.ts", "time"), "ts")
        chosen.add(self.scalar(a))
        if self.often(0.25):
            count = Column(f"(select count(*) from {from_b} where {x} = {y} and {condition})", "int")
            plain = Column(f"(select max({y}) from {from_b})", "text" if y in {c.text for c in b.of("text")} else "int")
            chosen.add(self.chance.choice([count, plain]))
            return Draft(f"select {chosen.listed} from {from_a}{self.where(a)}", chosen.kinds, outer.size)
        sql = f"select {chosen.listed} from {from_a} where {self.chance.choice(tests)}"
        return Draft(sql, chosen.kinds, outer.size)

    def common_table(self) -> Draft:
        kinds = [self.groups, self.distinct, self.rows, self.top_of_each, self.limited, self.united_with_dimension]
        inner = self.chance.choice(kinds)()
        relation = replace(Relation("w", inner.columns, inner.size))
        if self.often(0.4):
            return self._used_once(relation, inner)
        (a, _), (b, _) = self.read(relation, "a"), self.read(relation, "b")
        chosen = Selected()
        chosen.add(Column("a.ts", "time"), "ts")
        for _ in range(2):
            chosen.add(self.scalar(a.plus(b)))
        if self.often(0.5):
            union = f"select {chosen.listed.replace('b.', 'a.')} from w a"
            sql = f"with w as ({inner.sql}) {union} union all {union}{self.where(a)}"
            return Draft(sql, chosen.kinds, 2 * inner.size)
        condition = self.joined_by(relation, relation)
        sql = f"with w as ({inner.sql}) select {chosen.listed} from w a join w b on {condition}"
        return Draft(sql, chosen.kinds, inner.size * 3)

    def _used_once(self, relation: Relation, inner: Draft) -> Draft:
        """A common table that only an aggregate, or rows, are computed from."""
        scope, text = self.read(relation)
        chosen = Selected()
        if self.often(0.3):
            chosen.add(Column("a.ts", "time"), "ts")
            chosen.add(self.scalar(scope))
            return Draft(f"with w as ({inner.sql}) select {chosen.listed} from {text}", chosen.kinds, inner.size)
        by = self.keys(scope, least=1) or [Column("a.ts", "time")]
        chosen.add(Column("max(a.ts)", "time"), "ts")
        for key in by:
            chosen.add(key)
        chosen.add(self.aggregate(scope))
        grouped = ", ".join(key.text for key in by)
        return Draft(f"with w as ({inner.sql}) select {chosen.listed} from {text} group by {grouped}", chosen.kinds, 8)

    def lateral(self) -> Draft:
        """For each row, an aggregate over rows of another table."""
        left, right = self.table(), self.table()
        (a, from_a), (b, from_b) = self.read(left, "a"), self.read(right, "b")
        chosen = Selected()
        chosen.add(Column("a.ts", "time"), "ts")
        chosen.add(self.scalar(a))
        number = self.chance.choice(["count(*)", *(f"sum({column.text})" for column in b.of("int"))])
        keys = [(x.text, y.text) for x in a.of("text") for y in b.of("text")] or [("a.ts", "b.ts")]
        x, y = self.chance.choice(keys)
        chosen.add(Column("l.found", "int"))
        inner = f"select {number} as found from {from_b} where {x} = {y}"
        return Draft(f"select {chosen.listed} from {from_a}, lateral ({inner}) l", chosen.kinds, left.size)

    def looking_back(self) -> Draft:
        """A join with rows shortly before, whose distance is stated."""
        left, right = self.table(), self.table()
        (a, from_a), (b, from_b) = self.read(left, "a"), self.read(right, "b")
        kind = self.chance.choice(["join", "left join", "left semi join", "left anti join"])
        keys = [(x.text, y.text) for x in a.of("text") for y in b.of("text")] or [("1", "1")]
        x, y = self.chance.choice(keys)
        minutes = self.chance.choice([5, 10, 45])
        condition = f"{x} = {y} and b.ts between a.ts - interval {minutes} minutes and a.ts"
        scope = a if "semi" in kind or "anti" in kind else a.plus(b)
        chosen = Selected()
        chosen.add(Column("a.ts", "time"), "ts")
        for _ in range(self.chance.randint(1, 3)):
            chosen.add(self.scalar(scope))
        sql = f"select {chosen.listed} from {from_a} {kind} {from_b} on {condition}{self.where(scope, 0.2)}"
        return Draft(sql, chosen.kinds, left.size + right.size, f"{minutes} minutes")


def random_queries(seed: object, count: int, without_time: float = 0.0) -> list[Query]:
    """So many queries, each after those that it reads. ``without_time`` is the share of tables without event time."""
    from tests.warehouse.random_frames import FrameGrammar

    chance = random.Random(f"queries {seed}")
    tables: list[Relation] = [ORDERS, CLICKS]
    queries: list[Query] = []
    for number in range(count):
        name = f"q{number}"
        grammar: Grammar = (FrameGrammar if chance.random() < 0.25 else Grammar)(chance, tables)
        shape, draft = grammar.draft()
        known = {table.text: table.depth for table in tables}
        depth = 1 + max(known.get(source, 0) for source in grammar.used)
        relation = Relation(name, draft.columns, draft.size, depth=depth)
        is_frame = isinstance(grammar, FrameGrammar)
        queries.append(
            Query(
                name,
                shape,
                tuple(sorted(grammar.used)),
                relation,
                sql=None if is_frame else draft.sql,
                body=draft.sql if is_frame else None,
                partition=chance.choice(["10 minutes", "1 hour", "1 hour", "1 day"]),
                catch_up=chance.choice(["oldest", "oldest", "newest"]),
                lookback=draft.lookback,
                has_time=chance.random() >= without_time,
            )
        )
        if depth < DEEPEST and draft.size <= 2 * MANY_ROWS and queries[-1].has_time:
            tables.append(relation)
    return queries
