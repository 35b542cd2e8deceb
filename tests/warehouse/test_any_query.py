"""A table equals its query, whatever the query: local to partitions of time or not."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.random_trial import interpreted
from tests.warehouse.test_opened import START, arrive, assert_all_as_batch, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MINUTE = "date_trunc('minute', ts)"

#: {what it is: (the query, the column of its time, how it is kept)}
QUERIES: dict[str, tuple[str, str | None, str]] = {
    "one row without event time": ("select count(*) as n, max(n) as most from sales", None, "merge"),
    "totals by minute": (f"select {MINUTE} as m, who, sum(n) as n from sales group by 1, 2", "m", "merge"),
    "by minute and again by hour": (
        f"select date_trunc('hour', m) as h, max(n) as n from "
        f"(select {MINUTE} as m, sum(n) as n from sales group by 1) group by 1",
        "h",
        "blocks",
    ),
    "tumbling windows": (
        "select window.start as w, who, count(*) as n from sales group by window(ts, '10 minutes'), who",
        "w",
        "merge",
    ),
    "days": (
        "select cast(day as timestamp) as d, sum(n) as n from (select to_date(ts) as day, n from sales) group by day",
        "d",
        "merge",
    ),
    "the newest of each minute": (f"select max(ts) as ts, who from sales group by {MINUTE}, who", "ts", "merge"),
    "distinct": (f"select distinct {MINUTE} as m, who from sales", "m", "merge"),
    "ranks in a minute": (
        f"select m, who, n from (select {MINUTE} as m, who, n, row_number() over "
        f"(partition by {MINUTE} order by n desc, who) as place from sales) where place = 1",
        "m",
        "keys",
    ),
    "a common table expression": (
        f"with minutes as (select {MINUTE} as m, sum(n) as n from sales group by 1) "
        "select a.m, a.n, b.n as again from minutes a join minutes b on a.m = b.m",
        "m",
        "keys",
    ),
    "joined by the minute": (
        f"select a.m, a.n, b.v from (select {MINUTE} as m, sum(n) as n from sales group by 1) a "
        f"left join (select {MINUTE} as m, max(v) as v from visits group by 1) b on a.m = b.m",
        "m",
        "keys",
    ),
    "both sides, by the minute": (
        f"select coalesce(a.m, b.m) as m, a.n, b.v from (select {MINUTE} as m, sum(n) as n from sales group by 1) a "
        f"full join (select {MINUTE} as m, max(v) as v from visits group by 1) b on a.m = b.m",
        "m",
        "keys",
    ),
    "united": (
        f"select {MINUTE} as m, count(*) as n from (select ts, n from sales union all select ts, v from visits) "
        "group by 1",
        "m",
        "keys",
    ),
    "joined to a dimension": (
        f"select {MINUTE} as m, city, sum(n) as n from sales join people using (who) group by 1, 2",
        "m",
        "merge",
    ),
    "totals by customer": ("select who, max(ts) as ts, sum(n) as n from sales group by who", "ts", "merge"),
    "the three largest": ("select ts, who, n from sales order by n desc, ts, who limit 3", "ts", "whole"),
    "the latest of each customer": (
        "select ts, who, n from (select *, row_number() over (partition by who order by ts desc, n desc) as place "
        "from sales) where place = 1",
        "ts",
        "keys",
    ),
    "pairs of a customer": (
        "select a.ts, a.who, a.n, b.n as other from sales a join sales b on a.who = b.who and a.ts < b.ts",
        "ts",
        "keys",
    ),
    "sales and visits of a customer": (
        "select s.ts, s.who, s.n, v.v from sales s join visits v on s.who = v.who",
        "ts",
        "keys",
    ),
    "customers without a visit": (
        "select s.ts, s.who, s.n from sales s left anti join visits v on s.who = v.who",
        "ts",
        "keys",
    ),
    "above the mean": ("select ts, who, n from sales where n > (select avg(n) from sales)", "ts", "whole"),
    "first seen": ("select min(ts) as ts, who from sales group by who", "ts", "merge"),
    "a total": ("select max(ts) as ts, sum(n) as n from sales", "ts", "merge"),
    "the next minute": (
        f"select {MINUTE} + interval 1 minute as m, sum(n) as n from sales group by {MINUTE}",
        "m",
        "merge",
    ),
    "days in short partitions": (
        "select date_trunc('week', ts) as w, sum(n) as n from sales group by 1",
        "w",
        "merge",
    ),
    "sliding windows": (
        "select window.start as w, count(*) as n from sales group by window(ts, '10 minutes', '5 minutes')",
        "w",
        "merge",
    ),
    "customers with many sales": (
        "select who, max(ts) as ts, count(*) as n from sales group by who having count(*) > 1",
        "ts",
        "keys",
    ),
    "how many amounts a customer has": (
        "select who, min(ts) as ts, count(distinct n) as n, percentile(n, 0.5) as middle from sales group by who",
        "ts",
        "keys",
    ),
    "sales or visits of a customer": (
        "select coalesce(s.ts, v.ts) as ts, coalesce(s.who, v.who) as who, n, v from sales s full join visits v "
        "on s.who = v.who",
        "ts",
        "keys",
    ),
    "people and their sales": (
        "select coalesce(max(ts), timestamp'2026-11-15 00:00:00') as ts, people.who, count(n) as n from people "
        "left join sales using (who) group by people.who",
        "ts",
        "keys",
    ),
    "sessions of a customer": (
        "select session_window.start as ts, who, count(*) n from sales group by session_window(ts, '9 minutes'), who",
        "ts",
        "keys",
    ),
    "who bought and visited at once": (
        "select who, date_trunc('hour', ts) as ts from sales intersect select who, date_trunc('hour', ts) from visits",
        "ts",
        "keys",
    ),
    "totals and their totals": (
        "select max(ts) as ts, who, hour(ts) as h, sum(n) as n, grouping_id() as g from sales "
        "group by cube(who, hour(ts))",
        "ts",
        "merge",
    ),
    "customers who are also seen": (
        "select s.ts, s.who, s.n from sales s where exists (select 1 from visits v where v.who = s.who)",
        "ts",
        "whole",
    ),
}


def declared(folder: Path) -> Warehouse:
    """A table for each query, called q0, q1 and so on."""
    wh = Warehouse("any", path=str(folder / "warehouse"))
    for name, columns in (("sales", "ts timestamp, who string, n int"), ("visits", "ts timestamp, who string, v int")):
        source = Files(str(folder / name), format="json", schema=columns, settle=0)
        wh.stream(name, source, time="ts", partition="10 minutes")
    people = Files(str(folder / "people"), format="json", schema="who string, city string", settle=0)
    wh.dimension("people", people)
    for number, (query, time, _) in enumerate(QUERIES.values()):
        wh.sql(f"q{number}", query, time=time, partition="1 day" if time == "d" else "1 hour")
    return wh


def row(chance: random.Random, column: str, minute: float) -> dict[str, Any]:
    moment = START + timedelta(minutes=minute, seconds=chance.randrange(60))
    return {
        "ts": moment.isoformat(),
        "who": chance.choice("abcd" if column == "n" else "abc"),
        column: chance.randrange(100),
    }


def test_each_query_is_kept_in_the_cheapest_way_that_is_proved_right(tmp_path: Path, spark: SparkSession) -> None:
    modes = open_warehouse(declared(tmp_path).spec(), spark).modes
    for number, (what, (_, _, mode)) in enumerate(QUERIES.items()):
        assert modes[f"q{number}"].name == mode, (what, str(modes[f"q{number}"]))


@pytest.mark.parametrize(
    ("stated", "kept"),
    [("auto", "merge"), ("recompute", "blocks"), ("blocks", "blocks"), ("keys", "keys"), ("whole", "whole")],
)
def test_the_mode_can_be_stated(tmp_path: Path, spark: SparkSession, stated: Any, kept: str) -> None:
    wh = Warehouse("stated", path=str(tmp_path / "warehouse"))
    source = Files(str(tmp_path / "sales"), format="json", schema="ts timestamp, who string, n int", settle=0)
    wh.stream("sales", source, time="ts")
    wh.sql("totals", "select who, max(ts) as ts, sum(n) as n from sales group by who", time="ts", mode=stated)
    assert open_warehouse(wh.spec(), spark).modes["totals"].name == kept


@pytest.mark.long
def test_after_every_update_each_table_is_its_query_over_its_sources(tmp_path: Path, spark: SparkSession) -> None:
    spark = interpreted(spark)
    chance = random.Random(11)
    wh = declared(tmp_path)
    arrive(tmp_path, "people", "1", [{"who": who, "city": city} for who, city in zip("abc", "xyz", strict=True)])
    warehouse = open_warehouse(wh.spec(), spark)
    for number in range(3):
        now = 45 * number
        for name, column in (("sales", "n"), ("visits", "v")):
            late = [row(chance, column, chance.uniform(0, now)) for _ in range(2)] if number else []
            arrive(tmp_path, name, f"{number}", [*(row(chance, column, now + 7 * i) for i in range(6)), *late])
        if number == 2:
            arrive(tmp_path, "people", "2", [{"who": "c", "city": "w"}])
            warehouse = open_warehouse(wh.spec(), spark)  # as after a crash
        for name in ("people", "sales", "visits"):
            if warehouse.nodes[name].update(spark) is not None:
                warehouse.updated(name)
        if number == 1:
            for query in range(len(QUERIES)):  # cut into pieces, as far as that is possible
                warehouse.nodes[f"q{query}"].update(spark, most_seconds=1800.0)
        warehouse.bring_up_to_date(spark)
        assert_all_as_batch(warehouse, spark)
        for query, what in enumerate(QUERIES):
            assert rows_of(warehouse.nodes[f"q{query}"].store), what
