"""Random expressions of SQL over the columns of two streams, a dimension and other tables; all are deterministic.

However many rows Spark takes at once and in whatever order, the results are the same. So orders are total (by all
columns), doubles are multiples of a quarter, whose sums are exact, and what is not exact is compared with a tolerance
and never used as a key or in a condition.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

Choice = TypeVar("Choice")

#: kinds of columns. Sums of ``real`` are exact, a ``ratio`` is exact but its sums are not, ``near`` is not exact itself
Kind = Literal["time", "text", "int", "real", "ratio", "near", "decimal", "flag", "list"]
#: kinds whose values are the same however they are computed
EXACT: tuple[Kind, ...] = ("time", "text", "int", "real", "ratio", "decimal", "flag", "list")
NUMBERS: tuple[Kind, ...] = ("int", "real", "ratio", "decimal")
#: an event time before all others, for rows that have none
LONG_AGO = "timestamp'2026-11-14 03:00:00'"
#: results that are expected to be larger than this are not joined without their time
MANY_ROWS = 150


@dataclass(frozen=True, slots=True)
class Relation:
    """What a query reads: ``text`` is a table's name or a query in parentheses, ``size`` about how many rows it has.

    Without ``has_time`` it is a dimension; otherwise its column ``ts`` is never null. ``depth`` is how many derived
    tables lie between it and the streams.
    """

    text: str
    columns: Mapping[str, Kind]
    size: int = 40
    has_time: bool = True
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column or expression as it is written, and what it gives."""

    text: str
    kind: Kind


ORDERS = Relation(
    "orders", {"ts": "time", "k": "text", "n": "int", "x": "real", "d": "decimal", "b": "flag", "tags": "list"}
)
CLICKS = Relation("clicks", {"ts": "time", "k": "text", "v": "int", "y": "real", "page": "text"})
SHOPS = Relation("shops", {"k": "text", "city": "text", "w": "int", "open": "flag"}, size=6, has_time=False)
SCHEMAS: Mapping[str, str] = {
    "orders": "ts timestamp, k string, n int, x double, d decimal(10,2), b boolean, tags array<string>",
    "clicks": "ts timestamp, k string, v int, y double, page string",
    "shops": "k string, city string, w int, open boolean",
}

#: {unit that times are truncated to: how often it is chosen}
UNITS: Mapping[str, int] = {"minute": 4, "hour": 4, "day": 2, "week": 1, "month": 1, "quarter": 1, "second": 1}


@dataclass
class Scope:
    """The columns that can be used in an expression."""

    columns: Sequence[Column]

    def of(self, *kinds: Kind) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]

    def plus(self, other: Scope) -> Scope:
        return Scope([*self.columns, *other.columns])


def scope_of(relation: Relation, alias: str = "") -> Scope:
    dot = f"{alias}." if alias else ""
    return Scope([Column(f"{dot}{name}", kind) for name, kind in relation.columns.items()])


@dataclass
class Expressions:
    """Random expressions over the columns of a scope."""

    chance: random.Random

    def choose(self, weighted: Mapping[Choice, int]) -> Choice:
        return self.chance.choices(list(weighted), list(weighted.values()))[0]

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def literal(self, kind: Kind) -> str:
        match kind:
            case "int":
                return str(self.chance.randint(-3, 9))
            case "real" | "ratio":
                return f"{self.chance.randint(-8, 24) / 4}D"
            case "decimal":
                return f"{self.chance.randint(-100, 900) / 100:.2f}BD"
            case "text":
                return f"'{self.chance.choice('abcdez')}'"
            case "flag":
                return self.chance.choice(["true", "false"])
            case "time":
                hour, minute = self.chance.randint(9, 14), self.chance.choice([0, 7, 15, 30, 45])
                return f"timestamp'2026-11-15 {hour:02}:{minute:02}:00'"
        raise AssertionError(kind)

    def scalar(self, scope: Scope) -> Column:  # noqa: PLR0911 - one for each kind of expression
        """A column, or an expression of one row."""
        column = self.chance.choice(scope.columns)
        if self.often(0.5):
            return column
        text = column.text
        match column.kind:
            case "int":
                forms = [f"{text} + 1", f"{text} * 2", f"abs({text})", f"{text} % 3", f"coalesce({text}, 0)"]
                forms += [f"case when {self.condition(scope)} then {text} else -1 end", f"nullif({text}, 2)"]
                return Column(self.chance.choice(forms), "int")
            case "real":
                forms = [f"{text} * 2", f"{text} - 0.25D", f"coalesce({text}, 0D)", f"-{text}", f"{text} / 4D"]
                return Column(self.chance.choice(forms), "real")
            case "ratio":
                return Column(f"coalesce({text}, 0D)", "ratio")
            case "text":
                forms = [f"upper({text})", f"concat({text}, '-')", f"coalesce({text}, 'none')", f"left({text}, 1)"]
                forms += [f"if({self.condition(scope)}, {text}, 'other')", f"concat_ws('/', {text}, 'z')"]
                return Column(self.chance.choice(forms), "text")
            case "time":
                forms = [f"minute({text})", f"cast(unix_seconds({text}) % 7 as int)", f"dayofweek({text})"]
                return Column(self.chance.choice(forms), "int")
            case "decimal":
                return Column(f"cast({text} * 2 as decimal(18,2))", "decimal")
            case "flag":
                return Column(self.chance.choice([f"not {text}", f"coalesce({text}, false)"]), "flag")
            case "list":
                forms = {f"array_join({text}, '+')": "text", f"coalesce(size({text}), -1)": "int"}
                chosen = self.chance.choice(list(forms))
                return Column(chosen, forms[chosen])  # type: ignore[arg-type]
        return column

    def condition(self, scope: Scope, depth: int = 0) -> str:  # noqa: PLR0911 - one for each form
        """Whether something is true of one row; may be null."""
        form = self.chance.random()
        if depth < 2 and form < 0.12:
            return f"({self.condition(scope, depth + 1)} or {self.condition(scope, depth + 1)})"
        if depth < 2 and form < 0.24:
            return f"({self.condition(scope, depth + 1)} and {self.condition(scope, depth + 1)})"
        if depth < 2 and form < 0.3:
            return f"not ({self.condition(scope, depth + 1)})"
        column = self.chance.choice(scope.of("time", "text", "int", "real", "ratio", "decimal", "flag"))
        text = column.text
        if form < 0.38:
            return f"{text} is {self.chance.choice(['', 'not '])}null"
        if column.kind == "flag":
            return text
        if column.kind == "text":
            forms = [f"{text} in ('a', 'b', {self.literal('text')})", f"{text} = {self.literal('text')}"]
            forms += [f"{text} is distinct from {self.literal('text')}", f"{text} like 'a%'", f"{text} <= 'c'"]
            return self.chance.choice(forms)
        if column.kind == "time" and self.often(0.5):
            return f"minute({text}) % 2 = {self.chance.randint(0, 1)}"
        if self.often(0.2):
            low, high = sorted((self.literal(column.kind), self.literal(column.kind)))
            return f"{text} between {low} and {high}"
        return f"{text} {self.chance.choice(['<', '<=', '>', '>=', '<>'])} {self.literal(column.kind)}"

    def where(self, scope: Scope, share: float = 0.4) -> str:
        return f" where {self.condition(scope)}" if self.often(share) else ""

    def truncated(self, time: str) -> str:
        return f"date_trunc('{self.choose(UNITS)}', {time})"

    def moment(self, time: str) -> str:
        """A time made of a time."""
        forms = {
            time: 8,
            self.truncated(time): 3,
            f"{time} + interval 1 hour": 1,
            f"{time} - interval 90 minutes": 1,
            f"cast(to_date({time}) as timestamp)": 1,
        }
        return self.choose(forms)

    def total_order(self, scope: Scope, directions: bool = True) -> str:
        """All columns, so that rows that tie are equal; those that are not exact come last."""
        columns = scope.of(*EXACT)
        self.chance.shuffle(columns)
        columns += scope.of("near")
        ends = ["", " desc", " desc nulls last", " nulls last"] if directions else [""]
        return ", ".join(f"{column.text}{self.chance.choice(ends)}" for column in columns)

    def whole_row(self, scope: Scope) -> str:
        """All columns as one value, to choose one of several rows by."""
        columns = [*scope.of(*EXACT), *scope.of("near")]
        return f"struct({', '.join(column.text for column in columns)})"

    # --- aggregates -----------------------------------------------------------------------------------------

    def aggregate(self, scope: Scope) -> Column:
        """An aggregate, or an expression over several."""
        form = self.chance.random()
        if form < 0.75:
            return self._aggregate(scope)
        numbers = scope.of("int")
        if not numbers or form < 0.8:
            return Column(f"count(*) * 2 + {self._counted(scope)}", "int")
        one, other = self.chance.choice(numbers).text, self.chance.choice(numbers).text
        forms: dict[str, Kind] = {
            f"sum({one}) / count(*)": "ratio",
            f"max({one}) - min({other})": "int",
            f"coalesce(sum({one}), 0) + count({other})": "int",
            f"round(avg({one}), 1)": "ratio",
            f"if(count({one}) > 2, max({other}), null)": "int",
            f"try_divide(sum({one}), sum({other}))": "ratio",
        }
        chosen = self.chance.choice(list(forms))
        return Column(chosen, forms[chosen])

    def _aggregate(self, scope: Scope) -> Column:
        function = self._function(scope)
        if function.text.endswith(")") and "array_" not in function.text and self.often(0.2):
            return Column(f"{function.text} filter (where {self.condition(scope)})", function.kind)
        return function

    def _counted(self, scope: Scope) -> str:
        return f"count({self.chance.choice(scope.columns).text})"

    def _function(self, scope: Scope) -> Column:  # noqa: PLR0911 - one for each kind of function
        chance = self.chance
        texts, numbers = scope.of("text"), scope.of(*NUMBERS)
        kind = chance.choice(["count", "sum", "avg", "extreme", "extreme", "spread", "logic", "by", "set", "distinct"])
        if chance.random() < 0.15:
            kind = "rare"
        if kind == "sum" and numbers:
            column = chance.choice(numbers)
            if column.kind == "decimal":
                digits = chance.choice(["10,2", "10,2", "28,5", "38,18"])
                return Column(f"sum(cast({column.text} as decimal({digits})))", "decimal")
            sums: dict[Kind, Kind] = {"int": "int", "real": "real", "ratio": "near"}
            return Column(f"sum({column.text})", sums[column.kind])
        if kind == "avg" and numbers:
            column = chance.choice(numbers)
            if column.kind == "decimal":
                return Column(f"avg(cast({column.text} as decimal(10,2)))", "decimal")
            return Column(f"avg({column.text})", "near" if column.kind == "ratio" else "ratio")
        if kind == "extreme":
            column = chance.choice(scope.columns)
            return Column(f"{chance.choice(['max', 'min'])}({column.text})", column.kind)
        if kind == "spread" and numbers:
            function = chance.choice(["stddev", "stddev_pop", "variance", "var_pop"])
            return Column(f"{function}({chance.choice(numbers).text})", "near")
        if kind == "logic":
            function = chance.choice(["count_if", "bool_and", "bool_or", "every", "some"])
            return Column(f"{function}({self.condition(scope)})", "int" if function == "count_if" else "flag")
        if kind == "by":
            column = chance.choice(scope.columns)
            function = chance.choice(["max_by", "min_by"])
            return Column(f"{function}({column.text}, {self.whole_row(scope)})", column.kind)
        if kind == "set" and texts:
            function = chance.choice(["collect_set", "collect_list"])
            condition = f" filter (where {self.condition(scope)})" if self.often(0.2) else ""
            return Column(f"array_sort({function}({chance.choice(texts).text}){condition})", "list")
        if kind == "distinct":
            column = chance.choice(scope.of(*EXACT))
            function = chance.choice(["count(distinct {})", "count(distinct {})", "approx_count_distinct({})"])
            return Column(function.format(column.text), "int")
        if kind == "rare" and numbers:
            return self._rare(scope)
        return Column(chance.choice(["count(*)", self._counted(scope)]), "int")

    def _rare(self, scope: Scope) -> Column:
        number = self.chance.choice(scope.of(*NUMBERS)).text
        forms: dict[str, Kind] = {
            f"percentile({number}, 0.5)": "ratio",
            f"percentile({number}, 0.9)": "ratio",
            f"median({number})": "ratio",
            f"covar_pop({number}, {self.chance.choice(scope.of(*NUMBERS)).text})": "near",
        }
        for column in scope.of("int"):
            forms |= {f"sum(distinct {column.text})": "int", f"bit_xor({column.text})": "int"}
            forms |= {f"avg(distinct {column.text})": "ratio", f"percentile_approx({column.text}, 0.5)": "int"}
        for column in scope.of("text"):
            forms[f"count(distinct {column.text}, {number})"] = "int"
        chosen = self.chance.choice(list(forms))
        return Column(chosen, forms[chosen])

    # --- window functions -----------------------------------------------------------------------------------

    def window_function(self, scope: Scope, time: str) -> Column:
        """A window function, over a partition by some columns or by none, in a total order where it matters."""
        chance = self.chance
        keys = [*scope.of("text", "flag"), Column(self.truncated(time), "time")]
        partition = f"partition by {chance.choice(keys).text} " if self.often(0.8) else ""
        column = chance.choice(scope.columns)
        exact = chance.choice(scope.of(*EXACT))
        number = chance.choice([*scope.of("int", "real"), Column("1", "int")])
        total = self.total_order(scope)
        forms: dict[str, Kind] = {
            f"row_number() over ({partition}order by {total})": "int",
            f"rank() over ({partition}order by {exact.text})": "int",
            f"dense_rank() over ({partition}order by {exact.text} desc)": "int",
            f"ntile(3) over ({partition}order by {total})": "int",
            f"lag({column.text}) over ({partition}order by {total})": column.kind,
            f"lead({column.text}, 2) over ({partition}order by {total})": column.kind,
            f"first_value({column.text}) over ({partition}order by {total})": column.kind,
            f"sum({number.text}) over ({partition}order by {exact.text})": number.kind,
            f"sum({number.text}) over ({partition}order by {total} rows between 2 preceding and 1 following)": (
                number.kind
            ),
            f"count(*) over ({partition}order by {time} range between interval 10 minutes preceding and current row)": (
                "int"
            ),
            f"max({exact.text}) over ({partition.rstrip()})": exact.kind,
            f"percent_rank() over ({partition}order by {exact.text})": "ratio",
        }
        chosen = chance.choice(list(forms))
        return Column(chosen, forms[chosen])


def listed(columns: Mapping[str, str]) -> str:
    """{name: expression} as the list of a select."""
    return ", ".join(name if name == text else f"{text} as {name}" for name, text in columns.items())


@dataclass
class Selected:
    """The columns of a result, named as they are added."""

    texts: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)

    def add(self, column: Column, name: str | None = None) -> None:
        chosen = f"c{len(self.texts)}" if name is None else name
        self.texts[chosen], self.kinds[chosen] = column.text, column.kind

    @property
    def listed(self) -> str:
        return listed(self.texts)
