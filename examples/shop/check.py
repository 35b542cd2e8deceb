"""Asks the shop's five questions of all rows that have landed, as batch SQL, and compares the answers with the tables.

The SQL knows nothing of streams, states and updates: it sees the landed files, without the rows that a table says it
has rejected. It also says which sessions and days are over by now, since only those are in the tables. Derived from
TPCx-BB, unofficial, not comparable.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from headgate.warehouse import open_session
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.run.run import resolved
from headgate.warehouse.updates.open_warehouse import open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Question:
    """``stage`` is the table between ``stream`` and ``table``; ``sql`` reads ``accepted``, the rows it has taken."""

    name: str
    table: str
    stage: str
    stream: str
    sql: str


@dataclass(frozen=True)
class Comparison:
    """How many rows a table has, how many of the right ones it lacks, how many it should not have, and how many rows
    of its stream were rejected on the way."""

    question: Question
    rows: int
    missing: int
    wrong: int
    rejected: int

    @property
    def equal(self) -> bool:
        return not self.missing and not self.wrong


#: clicks with the number of their user's session, and whether another session of the user has begun since
_SESSIONS = """
    gaps as (
        select *, ts > lag(ts) over (partition by user order by ts) + interval 1 hour as begins from wanted
    ), numbered as (
        select *, count_if(begins) over (partition by user order by ts) as session from gaps
    ), closed as (
        select *, max(ts) over (partition by user, session) as ended from (
            select *, max(session) over (partition by user) as last_session from numbered
        ) where session < last_session
    )
"""

QUESTIONS = (
    Question(
        "Q1",
        "bought_together",
        "ticket_pairs",
        "sales",
        """
        with lines as (
            select ticket, item, min(ts) as ts from accepted group by ticket, item
        ), pairs as (
            select date_trunc('hour', greatest(l.ts, r.ts)) as hour, l.item as a, r.item as b, count(*) as tickets
            from lines as l join lines as r on l.ticket = r.ticket and l.item < r.item
            group by 1, 2, 3
        )
        select hour, place, a, b, tickets from (
            select *, row_number() over (partition by hour order by tickets desc, a, b) as place from pairs
        ) where place <= 100
        """,
    ),
    Question(
        "Q2",
        "viewed_together",
        "sessions",
        "clicks",
        f"""
        with wanted as (select * from accepted where user >= 0), {_SESSIONS}, baskets as (
            select distinct user, session, ended, item from closed
        ), pairs as (
            select date_trunc('day', l.ended) as day, l.item as a, r.item as b, count(*) as sessions
            from baskets as l join baskets as r on l.user = r.user and l.session = r.session and l.item < r.item
            group by 1, 2, 3
        )
        select day, place, a, b, sessions from (
            select *, row_number() over (partition by day order by sessions desc, a, b) as place from pairs
        ) where place <= 30
        """,
    ),
    Question(
        "Q3",
        "viewed_before_buying",
        "views",
        "clicks",
        """
        with wanted as (
            select *, row_number() over (partition by user order by ts) as number from accepted where user >= 0
        ), pairs as (
            select date_trunc('day', p.ts) as day, p.item as purchased, v.item as viewed, count(*) as times
            from wanted as p join wanted as v on p.user = v.user and v.number between p.number - 5 and p.number - 1
            where p.sale >= 0 and v.category in (2, 3) and v.ts >= p.ts - interval 10 days
            group by 1, 2, 3
        )
        select day, purchased, viewed, times, place from (
            select *, row_number() over (partition by day, purchased order by times desc, viewed) as place from pairs
        ) where place <= 30
        """,
    ),
    Question(
        "Q4",
        "abandoned_baskets",
        "baskets_left",
        "clicks",
        f"""
        with wanted as (
            select * from accepted where user >= 0 and sale < 0 and page is not null
        ), {_SESSIONS}, counted as (
            select ended, count(*) as pages,
                   max(ts) filter (where page = 'dynamic') as filled, max(ts) filter (where page = 'order') as ordered
            from closed group by user, session, ended
        )
        select date_trunc('day', ended) as day, count(*) as sessions, sum(pages) as pages,
               sum(pages) / count(*) as average
        from counted where filled is not null and (ordered is null or filled > ordered) group by 1
        """,
    ),
    Question(
        "Q15",
        "trends",
        "daily_sales",
        "sales",
        """
        with days as (
            select date_trunc('day', ts) as day, category, sum(cast(net_cents as decimal(38, 0))) as y,
                   datediff(date_trunc('day', ts), date'2001-09-02') as x
            from accepted
            where date_trunc('day', ts) < (select date_trunc('day', max(ts)) from accepted)
            group by all
        ), sums as (
            select t.day, t.category, count(*) as n, sum(d.x) as x, sum(d.y) as y, sum(d.x * d.y) as xy,
                   sum(d.x * d.x) as xx
            from days as t join days as d
                on d.category = t.category and d.day between t.day - interval 365 days and t.day
            group by t.day, t.category
        )
        select day, category, n as days, cast(n * xy - x * y as double) / (n * xx - x * x) as cents_per_day
        from sums where n * xx <> x * x and n * xy - x * y <= 0
        """,
    ),
)


def bring_up_to_date(folder: Path, spark: "SparkSession") -> None:
    """Let the tables take in what was still waiting when the warehouse was stopped."""
    open_warehouse(resolved(load(folder / "shop.py").spec()), spark).bring_up_to_date(spark)


def compare(question: Question, folder: Path, spark: "SparkSession") -> Comparison:
    """The table that answers a question with what the batch SQL says."""
    tables = folder / "shop.warehouse" / "tables"
    landed = spark.read.parquet(str(folder / "landing" / question.stream))
    rejected = rejected_ids(folder, question.stage)
    ids = spark.createDataFrame([(each,) for each in rejected], "id long")
    landed.join(ids, "id", "left_anti").createOrReplaceTempView("accepted")
    answer = spark.sql(question.sql)
    wanted = Counter(tuple(row.values()) for row in answer.toArrow().to_pylist())
    table = DeltaTable(tables / question.table).to_pyarrow_table(columns=answer.columns)
    found = Counter(tuple(row.values()) for row in table.to_pylist())
    return Comparison(question, found.total(), (wanted - found).total(), (found - wanted).total(), len(rejected))


def rejected_ids(folder: Path, stage: str) -> list[int]:
    """The rows that a table has rejected, by their numbers."""
    path = folder / "shop.warehouse" / "tables" / f"{stage}__rejected"
    if not path.exists():
        return []
    rows = DeltaTable(path).to_pyarrow_table(columns=["raw"])
    return [json.loads(raw)["id"] for raw in rows.column("raw").to_pylist()]


def all_as_they_should_be(folder: Path, spark: "SparkSession") -> bool:
    """Bring the tables up to date and print a line for each."""
    bring_up_to_date(folder, spark)
    print(f"{'':4} {'table':22} {'rows':>7} {'missing':>8} {'wrong':>6} {'rejected':>9}")
    comparisons = [compare(question, folder, spark) for question in QUESTIONS]
    for each in comparisons:
        counts = f"{each.rows:7} {each.missing:8} {each.wrong:6} {each.rejected:9}"
        print(f"{each.question.name:4} {each.question.table:22} {counts}  {'ok' if each.equal else 'DIFFERS'}")
    print("derived from TPCx-BB, unofficial, not comparable")
    return all(each.equal for each in comparisons)


if __name__ == "__main__":
    session = open_session("shop check")
    try:
        equal = all_as_they_should_be(Path(__file__).parent, session)
    finally:
        session.stop()
    sys.exit(0 if equal else 1)
