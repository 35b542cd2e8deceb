"""Random queries as functions of data frames: a chain of one to three steps, among them Python functions."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.warehouse.random_expressions import EXACT, SHOPS, Column, Kind, Relation, Scope, scope_of
from tests.warehouse.random_queries import Draft, Grammar, Query

#: what the functions of tables can use
TOOLS = """
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F


@F.udf("string")
def shout(text):
    return None if text is None else text.upper() + "!"


@F.udf("int")
def digits(number):
    return None if number is None else len(str(abs(number)))


def newest(rows):
    # one row for each group: its newest time, its key, how many rows it has
    key = rows.column("k")[0]
    return pa.table({"ts": [pc.max(rows.column("ts"))], "k": [key], "n": [rows.num_rows]})


def on_full_minutes(batches):
    for batch in batches:
        yield batch.filter(pc.equal(pc.second(batch.column("ts")), 0))
"""
#: the Spark types of what Python functions return
TYPES: Mapping[Kind, str] = {"time": "timestamp", "text": "string", "flag": "boolean", "list": "array<string>"}


def as_function(query: Query) -> Callable[..., Any]:
    """The function of a table, as if it had been imported from a file; its source can be read."""
    assert query.body is not None
    text = f"{TOOLS}\n\n{query.text}"
    file = f"<random query {query.name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    # Not a module that is known: Spark then sends its functions to Python workers as they are.
    names: dict[str, Any] = {"__name__": "random_query"}
    exec(compile(text, file, "exec"), names)
    function: Callable[..., Any] = names[query.name]
    return function


class FrameGrammar(Grammar):
    """Drafts whose text is Python."""

    def __init__(self, chance: random.Random, tables: list[Relation]) -> None:
        super().__init__(chance, tables)
        self._made = 0

    def draft(self) -> tuple[str, Draft]:
        self.used, self._made = set(), 0
        start = self.table()
        current = Relation(start.text, start.columns, start.size)
        steps = {
            self.filtered: 3,
            self.computed: 2,
            self.by_python: 3,
            self.grouped: 6,
            self.unique: 2,
            self.ranked: 3,
            self.first_rows: 2,
            self.joined: 4,
            self.united: 3,
            self.grouped_by_python: 2,
            self.filtered_by_python: 1,
            self.pivoted: 1,
            self.with_dimension: 2,
        }
        names: list[str] = []
        for _ in range(self.chance.choice([1, 2, 2, 3])):
            step = self.choose(steps)
            names.append(step.__name__.replace("_", " "))
            current = step(current)
        return f"frame: {', '.join(names)}", Draft(current.text, current.columns, current.size)

    def _new_name(self) -> str:
        """A name that no column has, also of the tables that are read."""
        self._made += 1
        return f"e{len(self.tables)}_{self._made}"

    def _named(self, column: Column) -> tuple[str, str, Kind]:
        """A new name for an expression, and how it is written."""
        name = self._new_name()
        return name, f'F.expr("{column.text}").alias("{name}")', column.kind

    def _selected(self, columns: list[Column], time: str) -> tuple[str, dict[str, Kind]]:
        texts, kinds = [f'F.expr("{time}").alias("ts")'], {"ts": "time"}
        for column in columns:
            name, text, kind = self._named(column)
            texts.append(text)
            kinds[name] = kind
        return ", ".join(texts), kinds  # type: ignore[return-value]

    # --- steps ----------------------------------------------------------------------------------------------

    def filtered(self, now: Relation) -> Relation:
        return Relation(f'{now.text}.where("{self.condition(scope_of(now))}")', now.columns, now.size)

    def computed(self, now: Relation) -> Relation:
        scope = scope_of(now)
        texts, kinds = self._selected([self.scalar(scope) for _ in range(self.chance.randint(1, 3))], self.moment("ts"))
        return Relation(f"{now.text}.select({texts})", kinds, now.size)

    def by_python(self, now: Relation) -> Relation:
        scope = scope_of(now)
        forms = [("shout", column, "text") for column in scope.of("text")]
        forms += [("digits", column, "int") for column in scope.of("int")]
        if not forms:
            return self.filtered(now)
        function, column, kind = self.chance.choice(forms)
        name = self._new_name()
        text = f'{now.text}.withColumn("{name}", {function}(F.col("{column.text}")))'
        return Relation(text, {**now.columns, name: kind}, now.size)  # type: ignore[dict-item]

    def grouped(self, now: Relation) -> Relation:
        scope = scope_of(now)
        keys = [self._named(key) for key in self.keys(scope)]
        times = {"max(ts)": 3, "min(ts)": 1}
        by = [text for _, text, _ in keys]
        kinds: dict[str, Kind] = {name: kind for name, _, kind in keys}
        measures = []
        if self.often(0.5) or not by:
            by.append(f'F.expr("{self.truncated("ts")}").alias("ts")')
            kinds["ts"] = "time"
        else:
            measures.append(f'F.expr("{self.choose(times)}").alias("ts")')
            kinds["ts"] = "time"
        for _ in range(self.chance.randint(1, 3)):
            name, text, kind = self._named(self.aggregate(scope))
            measures.append(text)
            kinds[name] = kind
        text = f"{now.text}.groupBy({', '.join(by)}).agg({', '.join(measures)})"
        return Relation(text, kinds, max(3, now.size // 2))

    def unique(self, now: Relation) -> Relation:
        names = [name for name, kind in now.columns.items() if kind in EXACT and name != "ts"]
        chosen = ["ts", *self.chance.sample(names, k=min(len(names), 2))]
        texts = ", ".join(f'"{name}"' for name in chosen)
        how = self.chance.choice(["distinct()", "dropDuplicates()", f"dropDuplicates([{texts}])"])
        return Relation(f"{now.text}.select({texts}).{how}", {name: now.columns[name] for name in chosen}, now.size)

    def ranked(self, now: Relation) -> Relation:
        name, text, kind = self._named(self.window_function(scope_of(now), "ts"))
        return Relation(f'{now.text}.select("*", {text})', {**now.columns, name: kind}, now.size)

    def first_rows(self, now: Relation) -> Relation:
        order = ", ".join(
            f'F.col("{column.text}").{self.chance.choice(["asc", "desc", "asc_nulls_last", "desc_nulls_last"])}()'
            for column in [*scope_of(now).of(*EXACT), *scope_of(now).of("near")]
        )
        return Relation(f"{now.text}.orderBy({order}).limit({self.chance.randint(1, 9)})", now.columns, 5)

    def joined(self, now: Relation) -> Relation:
        other = self.table()
        how = self.chance.choice(["inner", "left", "right", "outer", "left_semi", "left_anti"])
        return self._join(now, other, self.joined_by(now, other), how)

    def with_dimension(self, now: Relation) -> Relation:
        self.used.add(SHOPS.text)
        keys = scope_of(now, "a").of("text")
        if not keys:
            return self.filtered(now)
        how = self.chance.choice(["inner", "left", "left_semi", "left_anti"])
        return self._join(now, SHOPS, f"{self.chance.choice(keys).text} = b.k", how)

    def _join(self, now: Relation, other: Relation, condition: str, how: str) -> Relation:
        a, b = scope_of(now, "a"), scope_of(other, "b")
        scope = a if how in ("left_semi", "left_anti") else Scope([*a.columns, *b.columns])
        time = {"right": "b.ts", "outer": "coalesce(a.ts, b.ts)"}.get(how, "a.ts")
        texts, kinds = self._selected([self.scalar(scope) for _ in range(self.chance.randint(1, 4))], time)
        text = f'{now.text}.alias("a").join({other.text}.alias("b"), F.expr("{condition}"), "{how}").select({texts})'
        return Relation(text, kinds, now.size + 4 * other.size)

    def united(self, now: Relation) -> Relation:
        other = self.table()
        kinds: list[Kind] = self.chance.sample(["text", "int", "flag"], k=self.chance.randint(1, 2))
        sides, names = [], {"ts": "time", **{f"u{i}": kind for i, kind in enumerate(kinds)}}
        for side in (now, other):
            texts = ['F.col("ts")']
            for i, kind in enumerate(kinds):
                found = scope_of(side).of(kind)
                text = self.chance.choice(found).text if found else self.literal(kind)
                texts.append(f'F.expr("{text}").alias("u{i}")')
            sides.append(f"{side.text}.select({', '.join(texts)})")
        how = self.chance.choice(["union", "unionByName", "intersect", "exceptAll", "subtract", "intersectAll"])
        return Relation(f"{sides[0]}.{how}({sides[1]})", names, now.size + other.size)  # type: ignore[arg-type]

    def grouped_by_python(self, now: Relation) -> Relation:
        keys = scope_of(now).of("text")
        if not keys:
            return self.filtered(now)
        key = self.chance.choice(keys).text
        text = f'{now.text}.select("ts", F.col("{key}").alias("k")).groupBy("k")'
        text += '.applyInArrow(newest, "ts timestamp, k string, n long")'
        return Relation(text, {"ts": "time", "k": "text", "n": "int"}, 6)

    def filtered_by_python(self, now: Relation) -> Relation:
        names = [name for name, kind in now.columns.items() if kind in TYPES]
        types = ", ".join(f"{name} {TYPES[now.columns[name]]}" for name in names)
        chosen = ", ".join(f'"{name}"' for name in names)
        text = f'{now.text}.select({chosen}).mapInArrow(on_full_minutes, "{types}")'
        return Relation(text, {name: now.columns[name] for name in names}, now.size)

    def pivoted(self, now: Relation) -> Relation:
        texts, numbers = scope_of(now).of("text"), scope_of(now).of("int")
        if not texts or not numbers:
            return self.filtered(now)
        key, number = self.chance.choice(texts).text, self.chance.choice(numbers).text
        text = f'{now.text}.groupBy(F.expr("{self.truncated("ts")}").alias("ts"))'
        text += f'.pivot("{key}", ["a", "b"]).agg(F.sum("{number}"))'
        return Relation(text, {"ts": "time", "a": "int", "b": "int"}, 10)
