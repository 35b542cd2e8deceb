"""The tables of a simulated world: a stream, a dimension, and a table of each kind and mode that is derived from them.

Each has its query three times: with Arrow for the fake Spark, as plain Python for the oracle, and as SQL for a test
that compares what is said here about the queries with what the real Spark says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headgate.warehouse.declare.analysis import Analysis
from headgate.warehouse.declare.keys import TableKeys
from headgate.warehouse.declare.merging import AggregateState, MergePlan
from headgate.warehouse.declare.spec import DimensionSpec, Place, StreamSpec, TableSpec, WarehouseSpec
from headgate.warehouse.sources.files.source import Files
from tests.world.spark import HOUR, TIME, FakeFrame

DAY = 24 * HOUR
HERE = Place("world.py", 1)
#: seconds between two looks at a landing folder, and how long a file must be left alone to be complete
PERIOD, SETTLE = 10.0, 0.5
MAX_FUTURE = 3600.0
_TYPES = {"timestamp": TimestampType(), "string": StringType(), "bigint": LongType()}

Row = tuple[Any, ...]
#: the rows of each table
Tables = Mapping[str, Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Declaration:
    """What may change in the pipeline file while the world runs: which tables there are, and a number in a query.

    ``wrong``: the stream is declared as a dimension, which cannot be adopted.
    """

    tables: tuple[str, ...]
    least: int = 50
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """One derived table. ``columns`` by name and type; ``computed`` with Arrow and ``expected`` with plain Python."""

    sources: tuple[str, ...]
    columns: Mapping[str, str]
    time: str | None
    sql: str
    computed: Callable[..., Callable[..., FakeFrame]]
    expected: Callable[[Tables, int], Iterable[Row]]
    analysis: Mapping[str, Any]
    key: tuple[str, ...] = ()
    partition: float = 3600.0


ORDERS = {"ts": "timestamp", "shop": "string", "amount": "bigint", "id": "bigint"}
SHOPS = {"shop": "string", "region": "string"}


def _truncated(column: pa.ChunkedArray, length: int) -> pa.ChunkedArray:
    micros = pc.cast(column, pa.int64())
    whole = pc.multiply(pc.divide(micros, length), length)
    return pc.cast(whole, TIME)


def _large(least: int) -> Callable[..., FakeFrame]:
    return lambda orders: orders.map(lambda rows: rows.filter(pc.greater_equal(rows.column("amount"), least)))


def _hourly(least: int) -> Callable[..., FakeFrame]:
    def computed(rows: pa.Table) -> pa.Table:
        hours = rows.append_column("hour", _truncated(rows.column("ts"), HOUR))
        sums = hours.group_by(["hour", "shop"], use_threads=False).aggregate([("amount", "sum"), ("amount", "count")])
        chosen = sums.select(["hour", "shop", "amount_sum", "amount_count"])
        return chosen.rename_columns(["hour", "shop", "total", "n"])

    return lambda orders: orders.map(computed)


def _totals(least: int) -> Callable[..., FakeFrame]:
    def computed(rows: pa.Table) -> pa.Table:
        sums = rows.group_by("shop", use_threads=False).aggregate([("amount", "sum")])
        return sums.select(["shop", "amount_sum"]).rename_columns(["shop", "total"])

    return lambda orders: orders.map(computed)


def _by_region(least: int) -> Callable[..., FakeFrame]:
    def computed(rows: pa.Table, shops: pa.Table) -> pa.Table:
        joined = rows.join(shops.combine_chunks(), "shop", join_type="inner", use_threads=False)
        return joined.select(["ts", "region", "amount", "id"])

    return lambda orders, shops: orders.map(computed, shops)


def _daily(least: int) -> Callable[..., FakeFrame]:
    def computed(rows: pa.Table) -> pa.Table:
        days = rows.append_column("day", _truncated(rows.column("hour"), DAY))
        sums = days.group_by("day", use_threads=False).aggregate([("total", "sum")])
        return sums.select(["day", "total_sum"]).rename_columns(["day", "total"])

    return lambda hourly: hourly.map(computed)


def _busy_hours(least: int) -> Callable[..., FakeFrame]:
    def computed(rows: pa.Table) -> pa.Table:
        sums = rows.group_by("shop", use_threads=False).aggregate([("hour", "count"), ("total", "max")])
        return sums.select(["shop", "hour_count", "total_max"]).rename_columns(["shop", "hours", "most"])

    return lambda hourly: hourly.map(computed)


def _above_mean(least: int) -> Callable[..., FakeFrame]:
    def computed(rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows.select(["shop", "total"])
        mean = pc.mean(pc.cast(rows.column("total"), pa.float64()))
        return rows.filter(pc.greater_equal(pc.cast(rows.column("total"), pa.float64()), mean))

    return lambda totals: totals.map(computed)


# --- the same as plain Python -----------------------------------------------------------------------------------


def _sums(rows: Iterable[tuple[Row, int]]) -> dict[Row, tuple[int, int, int]]:
    """{key: sum, count and largest of the values}."""
    sums: dict[Row, tuple[int, int, int]] = {}
    for key, value in rows:
        total, count, most = sums.get(key, (0, 0, value))
        sums[key] = total + value, count + 1, max(most, value)
    return sums


def _mean_or_more(rows: Sequence[Row]) -> list[Row]:
    mean = sum(row[1] for row in rows) / len(rows) if rows else 0
    return [row for row in rows if row[1] >= mean]


def _merged(keys: Sequence[str], functions: Sequence[tuple[str, str]]) -> MergePlan:
    states = tuple(
        AggregateState((len(keys) + i, 0), name, name.lower(), False) for i, (name, _) in enumerate(functions)
    )
    return MergePlan(0, states, tuple(keys), tuple(shown for _, shown in functions), False)


KINDS: Mapping[str, Kind] = {
    "large": Kind(
        sources=("orders",),
        columns=ORDERS,
        time="ts",
        sql="select * from orders where amount >= {least}",
        computed=_large,
        expected=lambda tables, least: [row for row in tables["orders"] if row[2] >= least],
        analysis={},
    ),
    "hourly": Kind(
        sources=("orders",),
        columns={"hour": "timestamp", "shop": "string", "total": "bigint", "n": "bigint"},
        time="hour",
        sql="select date_trunc('hour', ts) as hour, shop, sum(amount) as total, count(amount) as n from orders "
        "group by 1, 2",
        computed=_hourly,
        expected=lambda tables, least: [
            (*key, total, n)
            for key, (total, n, _) in _sums(
                ((row[0] // HOUR * HOUR, row[1]), row[2]) for row in tables["orders"]
            ).items()
        ],
        analysis={"not_linear": "Aggregate", "merge": _merged(("hour", "shop"), (("Sum", "total"), ("Count", "n")))},
    ),
    "totals": Kind(
        sources=("orders",),
        columns={"shop": "string", "total": "bigint"},
        time=None,
        key=("shop",),
        sql="select shop, sum(amount) as total from orders group by shop",
        computed=_totals,
        expected=lambda tables, least: [
            (*key, total) for key, (total, _, _) in _sums(((row[1],), row[2]) for row in tables["orders"]).items()
        ],
        analysis={"not_linear": "Aggregate", "not_local": "no time", "merge": _merged(("shop",), (("Sum", "total"),))},
    ),
    "by_region": Kind(
        sources=("orders", "shops"),
        columns={"ts": "timestamp", "region": "string", "amount": "bigint", "id": "bigint"},
        time="ts",
        sql="select ts, region, amount, id from orders join shops using (shop)",
        computed=_by_region,
        expected=lambda tables, least: [
            (ts, region, amount, number)
            for ts, shop, amount, number in tables["orders"]
            for other, region in tables["shops"]
            if shop == other
        ],
        analysis={},
    ),
    "daily": Kind(
        sources=("hourly",),
        columns={"day": "timestamp", "total": "bigint"},
        time="day",
        partition=86_400.0,
        sql="select date_trunc('day', hour) as day, sum(total) as total from hourly group by 1",
        computed=_daily,
        expected=lambda tables, least: [
            (*key, total)
            for key, (total, _, _) in _sums(((row[0] // DAY * DAY,), row[2]) for row in tables["hourly"]).items()
        ],
        analysis={"not_linear": "Aggregate", "merge": "rows change"},
    ),
    "busy_hours": Kind(
        sources=("hourly",),
        columns={"shop": "string", "hours": "bigint", "most": "bigint"},
        time=None,
        key=("shop",),
        sql="select shop, count(hour) as hours, max(total) as most from hourly group by shop",
        computed=_busy_hours,
        expected=lambda tables, least: [
            (*key, count, most) for key, (_, count, most) in _sums(((r[1],), r[2]) for r in tables["hourly"]).items()
        ],
        analysis={
            "not_linear": "Aggregate",
            "not_local": "no time",
            "merge": "rows change",
            "keys": TableKeys(("shop",), {"hourly": (("`shop`",),)}),
        },
    ),
    "above_mean": Kind(
        sources=("totals",),
        columns={"shop": "string", "total": "bigint"},
        time=None,
        key=("shop",),
        sql="select * from totals where total >= (select avg(total) from totals)",
        computed=_above_mean,
        expected=lambda tables, least: _mean_or_more(tables["totals"]),
        analysis={"not_linear": "subquery", "not_local": "no time", "merge": "not an aggregate"},
    ),
}

#: each derived table after its sources
DERIVED = tuple(KINDS)


def with_sources(names: Iterable[str]) -> tuple[str, ...]:
    """The derived tables, and those that they are derived from, in order."""
    wanted = set(names)
    for name in reversed(DERIVED):
        if name in wanted:
            wanted.update(source for source in KINDS[name].sources if source in KINDS)
    return tuple(name for name in DERIVED if name in wanted)


def expected(declared: Declaration, orders: Sequence[Row], shops: Sequence[Row]) -> dict[str, list[Row]]:
    """What each table holds, by the rows of the stream and the dimension."""
    tables: dict[str, list[Row]] = {"orders": sorted(orders), "shops": sorted(shops)}
    for name in with_sources(declared.tables):
        tables[name] = sorted(KINDS[name].expected(tables, declared.least))
    return tables


def struct(columns: Mapping[str, str]) -> StructType:
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns.items()])


def declared_spec(
    declared: Declaration, folder: Path, clock: Callable[[], float], steady: Callable[[], float]
) -> WarehouseSpec:
    """The declaration of the world's warehouse in ``folder``."""

    def files(name: str, columns: Mapping[str, str]) -> Files:
        schema = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        return Files(folder / "landing" / name, schema=schema, settle=SETTLE, clock=clock, steady=steady)

    orders = StreamSpec("orders", files("orders", ORDERS), "ts", 3600.0, HERE, period=PERIOD, max_future=MAX_FUTURE)
    tables = [
        TableSpec(
            name,
            kind.sources,
            kind.time,
            kind.partition,
            HERE,
            function=kind.computed(declared.least),
            key=kind.key,
        )
        for name, kind in ((name, KINDS[name]) for name in with_sources(declared.tables))
    ]
    dimensions = [DimensionSpec("shops", files("shops", SHOPS), HERE)]
    streams = [orders]
    if declared.wrong:
        streams, tables = [], []
        dimensions.append(DimensionSpec("orders", files("orders", ORDERS), HERE))
    return WarehouseSpec("world", str(folder / "warehouse"), tuple(streams), tuple(dimensions), tuple(tables), HERE)


def analyses(spec: WarehouseSpec, declared: Declaration) -> dict[str, Analysis]:
    """Takes the place of Spark's analysis of the queries."""
    known = {"orders": Analysis(struct(ORDERS)), "shops": Analysis(struct(SHOPS))}
    for table in spec.tables:
        kind = KINDS[table.name]
        plan = f"{table.name} {declared.least}" if "{least}" in kind.sql else table.name
        columns = {name: tuple(known[name].schema.names) for name in kind.sources}
        known[table.name] = Analysis(
            struct(kind.columns),
            source_columns=columns,
            fingerprint={"plan": plan, "by": "world"},
            **kind.analysis,
        )
    return known
