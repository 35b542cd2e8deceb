"""A shop as a warehouse: clicks and sales come in, and five questions about them are kept answered.

Derived from TPCx-BB Q1, Q2, Q3, Q4 and Q15, unofficial, not comparable: neither the data nor the queries are those of
the benchmark.

Each question is two tables. The first is a stream query inside Spark that goes on from row to row: it is appended to,
and its states are committed with its rows. The second counts what the first has found, as plain SQL, day by day.

A click that comes after a later one of its user is rejected, since a session cannot be opened again; lines of a ticket
may come in any order.
"""

import json
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg
from headgate import stream as hs

HOUR = 3_600 * 1_000_000  # event times are in microseconds, and no two rows of a stream share one
TIME = pa.timestamp("us", "UTC")

wh = hg.Warehouse("shop")

CLICK = "id long, ts timestamp, user int, item int, category int, page string, sale int"
SALE = "id long, ts timestamp, ticket long, item int, category int, net_cents int"
clicks = hg.Files("landing/clicks", format="parquet", schema=CLICK, settle=0)
sales = hg.Files("landing/sales", format="parquet", schema=SALE, settle=0)
wh.stream("clicks", clicks, time="ts", period="1 second", partition="1 day", comment="one row per click")
wh.stream("sales", sales, time="ts", period="1 second", partition="1 day", comment="one row per line of a ticket")


# --- Q1: which items are bought together, hour by hour ---------------------------------------------------------

PAIR = pa.schema([("ts", TIME), ("a", pa.int32()), ("b", pa.int32())])
DAY = 24 * HOUR


class Tickets:
    """The items of each ticket so far: a new one makes a pair with each of them, in whatever order lines come.

    A state of one's own, because tickets come and go: one that began a day before the newest line is forgotten, and a
    line of that age is rejected, since nobody knows any more what else was on its ticket.
    """

    def __init__(self) -> None:
        self._tickets: dict[int, tuple[int, list[int]]] = {}  # {ticket: (time of its first line, items)}
        self._oldest = 0

    def process(self, part: hs.Part) -> hs.Output:
        made, parents, rejected = [], [], []
        for place, line in zip(part.rows.tolist(), part.batch.to_pylist(), strict=True):
            self._oldest = max(self._oldest, line["at"] - DAY)
            if line["at"] < self._oldest:
                rejected.append(hs.Rejected(place, "its ticket may have been forgotten", json.dumps(line)))
                continue
            began, items = self._tickets.get(line["ticket"], (0, []))
            if began < self._oldest:
                began, items = line["at"], []
            new = line["item"]
            pairs = [{"ts": line["at"], "a": min(new, old), "b": max(new, old)} for old in items if new not in items]
            made += pairs
            parents += [place] * len(pairs)
            self._tickets[line["ticket"]] = began, list(dict.fromkeys((*items, new)))
        self._tickets = {ticket: held for ticket, held in self._tickets.items() if held[0] >= self._oldest}
        return hs.Output(pa.RecordBatch.from_pylist(made, PAIR), np.array(parents, np.int64), rejected=tuple(rejected))

    def flush(self) -> hs.Output:
        return hs.Output(pa.RecordBatch.from_pylist([], PAIR))  # nothing is kept back

    def snapshot(self) -> hs.Snapshot:
        kinds = {"ticket": pa.int64(), "began": pa.int64(), "items": pa.list_(pa.int32())}
        held = [{"ticket": ticket, "began": at, "items": items} for ticket, (at, items) in self._tickets.items()]
        return hs.Snapshot({"tickets": pa.Table.from_pylist(held, pa.schema(kinds))}, {"oldest": self._oldest})

    def restore(self, snapshot: hs.Snapshot) -> None:
        self._oldest = snapshot.values["oldest"]
        for held in snapshot.tables["tickets"].to_pylist():
            self._tickets[held["ticket"]] = held["began"], held["items"]


def pairs_of_tickets(sales: hs.Stream) -> hs.Stream:
    lines = sales.project("id", "ticket", "item", at=pc.field("ts").cast(pa.int64()))
    return lines.key_by("ticket").state(Tickets, name="tickets")


@wh.table(time="ts", partition="1 day", mode="append")
def ticket_pairs(sales):
    """Two items on one ticket."""
    return hs.on_spark(sales, pairs_of_tickets, keys=["ticket"], time="ts", buckets=2)


wh.sql(
    "bought_together",
    """
    with counted as (
        select date_trunc('hour', ts) as hour, a, b, count(*) as tickets from ticket_pairs group by 1, 2, 3
    ), ranked as (
        select hour, row_number() over (partition by hour order by tickets desc, a, b) as place, a, b, tickets
        from counted
    )
    select * from ranked where place <= 100
    """,
    time="hour",
    partition="1 day",
    priority=10,
    comment="Q1: the 100 pairs of each hour",
)


# --- Q2: which items are looked at together in a session -------------------------------------------------------

SESSION = pa.schema([("user", pa.int32()), ("ended", TIME), ("items", pa.list_(pa.int32()))])


def sessions_of_users(clicks: hs.Stream) -> hs.Stream:
    known = clicks.filter(pc.field("user") >= 0).project("user", "item", at=pc.field("ts").cast(pa.int64()))
    return known.key_by("user").fold(add_to_session, None, SESSION)


def add_to_session(session: dict[str, Any] | None, click: dict[str, int]) -> tuple[dict[str, Any], list[Any]]:
    """The session that is open; a click more than an hour after its last one closes it."""
    closed = []
    if session is not None and click["at"] - session["ended"] > HOUR:
        closed, session = [{"user": click["user"], **session}], None
    items = {click["item"], *(session["items"] if session else ())}
    return {"ended": click["at"], "items": sorted(items)}, closed


@wh.table(time="ended", partition="1 day", mode="append", group="clicks")
def sessions(clicks):
    """The different items of each session, once it is over."""
    return hs.on_spark(clicks, sessions_of_users, keys=["user"], time="ts", buckets=2, late="reject")


wh.sql(
    "viewed_together",
    """
    with counted as (
        select date_trunc('day', ended) as day, a, b, count(*) as sessions
        from sessions lateral view explode(items) as a lateral view explode(items) as b
        where a < b group by 1, 2, 3
    ), ranked as (
        select day, row_number() over (partition by day order by sessions desc, a, b) as place, a, b, sessions
        from counted
    )
    select * from ranked where place <= 30
    """,
    time="day",
    partition="1 day",
    priority=10,
    comment="Q2: the 30 pairs of each day",
)


# --- Q3: which items are looked at shortly before one is bought ------------------------------------------------

VIEW = pa.schema([("ts", TIME), ("purchased", pa.int32()), ("viewed", pa.int32())])
RECENT_CLICKS, TEN_DAYS, MUSIC_AND_BOOKS = 5, 10 * DAY, (2, 3)


def views_of_buyers(clicks: hs.Stream) -> hs.Stream:
    columns = ("user", "item", "category", "sale")
    known = clicks.filter(pc.field("user") >= 0).project(*columns, at=pc.field("ts").cast(pa.int64()))
    return known.key_by("user").fold(look_back, None, VIEW)


def look_back(recent: list[Any] | None, click: dict[str, int]) -> tuple[list[Any], list[dict[str, int]]]:
    """The user's last clicks; if this one buys, it goes out with each of them that counts."""
    recent = recent or []
    viewed = [
        {"ts": click["at"], "purchased": click["item"], "viewed": item}
        for item, category, at in recent
        if click["sale"] >= 0 and category in MUSIC_AND_BOOKS and at >= click["at"] - TEN_DAYS
    ]
    return [*recent, (click["item"], click["category"], click["at"])][-RECENT_CLICKS:], viewed


@wh.table(time="ts", partition="1 day", mode="append", group="clicks")
def views(clicks):
    """Something that was bought, and something of music or books that its buyer had clicked on just before."""
    return hs.on_spark(clicks, views_of_buyers, keys=["user"], time="ts", buckets=2, late="reject")


wh.sql(
    "viewed_before_buying",
    """
    with counted as (
        select date_trunc('day', ts) as day, purchased, viewed, count(*) as times from views group by 1, 2, 3
    ), ranked as (
        select day, purchased, viewed, times,
               row_number() over (partition by day, purchased order by times desc, viewed) as place
        from counted
    )
    select * from ranked where place <= 30
    """,
    time="day",
    partition="1 day",
    priority=10,
    comment="Q3: of each day and bought item, the 30 viewed before it",
)


# --- Q4: how many pages are looked at in sessions that leave a basket behind -----------------------------------

BASKET = pa.schema([("user", pa.int32()), ("ended", TIME), ("pages", pa.int64())])


def baskets_of_users(clicks: hs.Stream) -> hs.Stream:
    looking = clicks.filter((pc.field("user") >= 0) & (pc.field("sale") < 0) & pc.field("page").is_valid())
    pages = looking.project("user", "page", at=pc.field("ts").cast(pa.int64()))
    return pages.key_by("user").fold(turn_page, None, BASKET)


def turn_page(session: dict[str, Any] | None, click: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The session that is open; when it is closed, it goes out if a basket was filled and not ordered after that."""
    closed = []
    if session is not None and click["at"] - session["ended"] > HOUR:
        if session["filled"]:
            closed = [{"user": click["user"], "ended": session["ended"], "pages": session["pages"]}]
        session = None
    pages, filled = (session["pages"], session["filled"]) if session else (0, False)
    filled = click["page"] == "dynamic" or (filled and click["page"] != "order")
    return {"ended": click["at"], "pages": pages + 1, "filled": filled}, closed


@wh.table(time="ended", partition="1 day", mode="append", group="clicks")
def baskets_left(clicks):
    """A session whose last dynamic page came after its last order page, once it is over."""
    return hs.on_spark(clicks, baskets_of_users, keys=["user"], time="ts", buckets=2, late="reject")


wh.sql(
    "abandoned_baskets",
    """
    select date_trunc('day', ended) as day, count(*) as sessions, sum(pages) as pages, sum(pages) / count(*) as average
    from baskets_left group by 1
    """,
    time="day",
    partition="1 day",
    priority=10,
    comment="Q4: pages per abandoned basket, by day",
)


# --- Q15: in which categories sales do not grow ----------------------------------------------------------------


def sales_of_days(sales: hs.Stream) -> hs.Stream:
    return sales.key_by("category").tumbling("ts", timedelta(days=1)).aggregate(cents=("sum", "net_cents"))


@wh.table(time="window_start", partition="1 day", mode="append")
def daily_sales(sales):
    """What each category has earned on each day, once the day is over. Nine keys: one bucket will do."""
    return hs.on_spark(sales, sales_of_days, keys=["category"], time="ts", buckets=1)


wh.sql(
    "trends",
    """
    with numbered as (
        select window_start as day, category, cents, datediff(window_start, date'2001-09-02') as x from daily_sales
    ), sums as (
        select day, category, count(*) over w as n, sum(x) over w as x, sum(x * x) over w as xx,
               sum(cast(cents as decimal(38, 0))) over w as y, sum(cast(x * cents as decimal(38, 0))) over w as xy
        from numbered
        window w as (partition by category order by day rows between unbounded preceding and current row)
    )
    select day, category, n as days, cast(n * xy - x * y as double) / (n * xx - x * x) as cents_per_day
    from sums where n > 1 and n * xy <= x * y
    """,
    time="day",
    partition="1 day",
    lookback="365 days",
    priority=10,
    comment="Q15: categories whose line through the days of the last year does not rise",
)
