"""Random pipelines as plain data: streams, a dimension perhaps, and tables from a menu of queries.

All streams and tables have the same columns (ts, key, n), so that anything can be built on anything. Numbers are whole,
so sums are exact in any order. Every query of the menu keeps the rules for users: rounded times fit into a partition of
the table, and who reaches back states a lookback. The SQL of a table says what it should be; some tables are declared
as functions of data frames instead, which must come to the same.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE, TEN_MINUTES, HOUR, DAY = 60, 600, 3600, 86_400
LENGTHS = (MINUTE, 300, 420, TEN_MINUTES, HOUR)

# --- the menu ------------------------------------------------------------------------------------------------


def bucket(column: str) -> str:
    """SQL: a time rounded down to the table's ``unit``."""
    return f"timestamp_seconds(unix_seconds({column}) - pmod(unix_seconds({column}), {{unit}}))"


def sums(source: str) -> str:
    return f"select {bucket('ts')} as ts, key, sum(n) as n from {source} group by 1, 2"


@dataclass(frozen=True)
class Query:
    """One way to compute a table from so many others, and a dimension perhaps.

    ``units`` are what times may be rounded to, ``reaches`` how far back rows may matter, both in seconds.
    """

    sql: str
    sources: int = 1
    dimension: bool = False
    units: tuple[int, ...] = ()
    reaches: tuple[int, ...] = ()
    row_wise: bool = False
    function: Callable[[Table, Sequence[DataFrame]], DataFrame] | None = None


def _rounded(table: Table) -> Column:
    from pyspark.sql import functions as F

    names = {MINUTE: "minute", HOUR: "hour", DAY: "day"}
    if table.unit in names:
        return F.date_trunc(names[table.unit], "ts").alias("ts")
    return F.window("ts", f"{table.unit} seconds").getField("start").alias("ts")


def _some(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    return frames[0].where("n % 3 <> 0").select("ts", "key", "n")


def _sums(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    return frames[0].groupBy(_rounded(table), "key").agg(F.sum("n").alias("n"))


def _kinds(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    counted = frames[0].groupBy(_rounded(table)).agg(F.countDistinct("key").alias("n"))
    return counted.select("ts", F.lit("all").alias("key"), "n")


def _running(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    window = Window.partitionBy("key").orderBy(F.unix_micros("ts")).rangeBetween(-table.reach * 1_000_000, 0)
    return frames[0].select("ts", "key", F.sum("n").over(window).alias("n"))


def _both(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    return frames[0].unionByName(frames[1])


def _labelled(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    rows, labels = frames
    return rows.join(labels, "key").select("ts", F.col("label").alias("key"), (F.col("n") * F.col("weight")).alias("n"))


MENU: Mapping[str, Query] = {
    "some": Query("select ts, key, n from {0} where n % 3 <> 0", row_wise=True, function=_some),
    "doubled": Query("select ts, upper(key) as key, n * 2 as n from {0}", row_wise=True),
    "each_twice": Query(
        "select ts, one as key, n from {0} lateral view explode(array(key, 'all')) as one", row_wise=True
    ),
    "rounded": Query(
        f"select {bucket('ts')} as ts, key, n from {{0}}", units=(MINUTE, TEN_MINUTES, HOUR), row_wise=True
    ),
    "delayed": Query("select ts + interval {reach} seconds as ts, key, n from {0}", reaches=(90, 1200), row_wise=True),
    "sums": Query(sums("{0}"), units=(MINUTE, TEN_MINUTES, HOUR, DAY), function=_sums),
    "kinds": Query(
        f"select {bucket('ts')} as ts, 'all' as key, count(distinct key) as n from {{0}} group by 1",
        units=(TEN_MINUTES, HOUR, DAY),
        function=_kinds,
    ),
    "seen": Query(f"select distinct {bucket('ts')} as ts, key, 0L as n from {{0}}", units=(MINUTE, HOUR)),
    "highest": Query(
        f"select ts, key, n from {{0}} as mine where not exists (select 1 from {{0}} as other "
        f"where {bucket('other.ts')} = {bucket('mine.ts')} and other.n > mine.n)",
        units=(MINUTE, TEN_MINUTES),
    ),
    "pairs": Query(
        f"select a.ts, concat(a.key, b.key) as key, a.n + b.n as n from {{0}} as a join {{0}} as b "
        f"on {bucket('a.ts')} = {bucket('b.ts')} and a.key < b.key",
        units=(MINUTE,),
    ),
    "running": Query(
        "select ts, key, sum(n) over (partition by key order by ts "
        "range between interval {reach} seconds preceding and current row) as n from {0}",
        reaches=(MINUTE, 450, HOUR),
        function=_running,
    ),
    "steps": Query(
        "select ts, key, if(timestampdiff(microsecond, before, ts) <= {reach} * 1000000L, n - last, n) as n from "
        "(select ts, key, n, lag(ts) over w as before, lag(n) over w as last from {0} "
        "window w as (partition by key order by ts, n))",
        reaches=(300, 1200),
    ),
    "closed": Query(
        f"select {bucket('ts')} + interval {{unit}} seconds as ts, key, count(*) as n from {{0}} group by 1, 2",
        units=(300, HOUR),
        reaches=(HOUR,),
    ),
    "joined": Query(
        f"select a.ts, a.key, a.n + b.n as n from {{0}} as a join {{1}} as b "
        f"on {bucket('a.ts')} = {bucket('b.ts')} and a.key = b.key",
        sources=2,
        units=(MINUTE, TEN_MINUTES),
    ),
    "compared": Query(
        f"select a.ts, a.key, a.n - coalesce(b.n, 0) as n from ({sums('{0}')}) as a left join ({sums('{1}')}) as b "
        "on a.ts = b.ts and a.key = b.key",
        sources=2,
        units=(MINUTE, HOUR),
    ),
    "missing": Query(
        f"select ts, key, n from {{0}} as a where not exists (select 1 from {{1}} as b "
        f"where {bucket('b.ts')} = {bucket('a.ts')} and b.key = a.key)",
        sources=2,
        units=(TEN_MINUTES,),
    ),
    "recent": Query(
        "select a.ts, a.key, count(b.n) as n from {0} as a left join {1} as b on b.key = a.key "
        "and b.ts <= a.ts and b.ts >= a.ts - interval {reach} seconds group by 1, 2",
        sources=2,
        reaches=(300, 1200),
    ),
    "both": Query("select * from {0} union all select * from {1}", sources=2, function=_both),
    "all_three": Query(
        "select * from {0} union all select * from {1} union all select ts, key, -n as n from {2}", sources=3
    ),
    "labelled": Query(
        "select ts, label as key, n * weight as n from {0} join {dimension} using (key)",
        dimension=True,
        function=_labelled,
    ),
    "perhaps_labelled": Query(
        "select ts, coalesce(label, 'none') as key, n from {0} left join {dimension} using (key)", dimension=True
    ),
    "sums_by_label": Query(
        f"select {bucket('ts')} as ts, label as key, sum(n * weight) as n from "
        "(select * from {0} union all select * from {1}) join {dimension} using (key) group by 1, 2",
        sources=2,
        dimension=True,
        units=(MINUTE, HOUR),
    ),
}

# --- pipelines -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    name: str
    partition: int


@dataclass(frozen=True)
class Table:
    """``sources`` are those with event time. Lengths are seconds."""

    name: str
    query: str
    sources: tuple[str, ...]
    dimension: str | None
    partition: int
    unit: int = 0
    reach: int = 0
    mode: str = "auto"
    catch_up: str = "oldest"
    as_function: bool = False

    @property
    def sql(self) -> str:
        return MENU[self.query].sql.format(*self.sources, dimension=self.dimension, unit=self.unit, reach=self.reach)

    @property
    def all_sources(self) -> tuple[str, ...]:
        return self.sources if self.dimension is None else (*self.sources, self.dimension)


@dataclass(frozen=True)
class Pipeline:
    """``large`` says that Spark itself writes all results, as it does when they are too large for the driver."""

    streams: tuple[Stream, ...]
    dimension: str | None
    tables: tuple[Table, ...]
    large: bool = False

    def declared(self, folder: Path) -> WarehouseSpec:
        wh = Warehouse("random", path=str(folder / "warehouse"))
        for stream in self.streams:
            columns = "ts timestamp, key string, n bigint"
            source = Files(str(folder / stream.name), schema=columns, settle=0)
            wh.stream(stream.name, source, time="ts", partition=stream.partition)
        if self.dimension is not None:
            columns = "key string, label string, weight bigint"
            wh.dimension(self.dimension, Files(str(folder / self.dimension), schema=columns, settle=0))
        for table in self.tables:
            options = {"time": "ts", "partition": table.partition, "lookback": table.reach}
            options |= {"mode": table.mode, "catch_up": table.catch_up}
            if table.as_function:
                wh.table(name=table.name, **options)(_function(table))  # type: ignore[arg-type]
            else:
                wh.sql(table.name, table.sql, **options)  # type: ignore[arg-type]
        return wh.spec()


def _function(table: Table) -> Callable[..., DataFrame]:
    """As a user would write it: the names of the parameters are those of the sources."""
    compute = MENU[table.query].function
    assert compute is not None

    def function(**frames: DataFrame) -> DataFrame:
        return compute(table, [frames[name] for name in table.all_sources])

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in dict.fromkeys(table.all_sources)]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def random_pipeline(chance: random.Random) -> Pipeline:
    streams = tuple(Stream(f"s{i}", chance.choice(LENGTHS)) for i in range(chance.choice((1, 2, 2, 3))))
    dimension = "labels" if chance.random() < 0.5 else None
    # a pipeline has its favourites, so that tables of the same kind come to be built on each other
    favourites = chance.sample(list(MENU), 4)
    #: {name: how many tables it is away from a stream}
    known = {stream.name: 0 for stream in streams}
    growing = set(known)
    tables: list[Table] = []
    for number in range(chance.choice((1, 2, 3, 3, 4, 4, 5, 6))):
        candidates = [source for source, level in known.items() if level < 3]
        fitting = [query for query, entry in MENU.items() if _fits(entry, len(candidates), dimension)]
        liked = [query for query in favourites if query in fitting]
        query = chance.choice(liked if liked and chance.random() < 0.7 else fitting)
        sources = tuple(chance.sample(candidates, MENU[query].sources))
        table = _random_table(chance, f"t{number}", query, sources, dimension, growing.issuperset(sources))
        known[table.name] = 1 + max(known[source] for source in sources)
        tables.append(table)
        if MENU[query].row_wise and table.mode != "recompute" and growing.issuperset(sources):
            growing.add(table.name)
    return Pipeline(streams, dimension, tuple(tables), large=chance.random() < 0.1)


def _fits(query: Query, sources: int, dimension: str | None) -> bool:
    return query.sources <= sources and (dimension is not None or not query.dimension)


def _random_table(
    chance: random.Random, name: str, query: str, sources: tuple[str, ...], dimension: str | None, growing: bool
) -> Table:
    entry = MENU[query]
    unit = chance.choice(entry.units or (1,))
    modes = ("auto", "auto", "auto", "recompute", *(("append",) if entry.row_wise and growing else ()))
    return Table(
        name=name,
        query=query,
        sources=sources,
        dimension=dimension if entry.dimension else None,
        partition=chance.choice([length for length in LENGTHS if length % unit == 0] or [unit]),
        unit=unit,
        reach=chance.choice(entry.reaches or (0,)),
        mode=chance.choice(modes),
        catch_up=chance.choice(("oldest", "oldest", "newest")),
        as_function=entry.function is not None and chance.random() < 0.5,
    )
