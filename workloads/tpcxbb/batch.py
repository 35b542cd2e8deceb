"""The questions of the streaming queries as Spark SQL over the whole input: what a stream must come to.

The text is over four views: ``store_sales`` and ``web_clickstreams`` with the columns of the streams and ``seq``, the
number of a row in the stream (see ``numbered``), by which rows of one second are told apart; ``item`` and
``web_page`` as ``Dims`` gives them. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import UnknownNameError
from workloads.tpcxbb import q1, q2, q3, q4, q15
from workloads.tpcxbb.dims import SECONDS_PER_DAY
from workloads.tpcxbb.ranking import END


def oracle_sql(name: str, parameters: Any) -> str:
    """The text for query ``name``, q1 to q15, whose columns are those of the stream's output, in its order.

    Q1: all of the output. Q2: the rows of window -1. Q3: those with a rank. Q4: the last row. Q15: the last row of each
    category, of those with a slope of at most 0.
    """
    if name not in _TEXTS:
        raise UnknownNameError("TPCx-BB query", name, _TEXTS)
    return _TEXTS[name](parameters)


def numbered(stream: pa.Table) -> pa.Table:
    """The rows of a stream with their number, ``seq``."""
    return stream.add_column(0, "seq", pa.array(np.arange(stream.num_rows, dtype=np.int64)))


def _q1(parameters: q1.Q1Parameters) -> str:
    window = "0" if parameters.window is None else f"ts DIV {parameters.window}"
    return f"""
        WITH lines AS (
            SELECT DISTINCT {window} AS hour, ticket, s.item
            FROM store_sales AS s JOIN item AS i ON s.item = i.item
            WHERE {_among("store", parameters.stores)} AND {_among("category", parameters.categories)}
        ), pairs AS (
            SELECT l.hour, l.item AS a, r.item AS b, count(*) AS tickets
            FROM lines AS l JOIN lines AS r ON l.hour = r.hour AND l.ticket = r.ticket AND l.item < r.item
            GROUP BY l.hour, l.item, r.item
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY hour ORDER BY tickets DESC, a, b) AS place
            FROM pairs
        )
        SELECT hour, place, a, b, tickets FROM ranked
        WHERE place <= {parameters.top} AND tickets >= {parameters.min_count}
        ORDER BY hour, place
    """


def _q2(parameters: q2.Q2Parameters) -> str:
    given = parameters.given
    pair = "l.item < r.item" if given is None else f"l.item <> {given} AND r.item = {given}"
    return f"""
        WITH clicks AS (
            SELECT seq, ts, `user` AS visitor, item
            FROM web_clickstreams WHERE `user` >= 0 AND item >= 0
        ), {_sessions(parameters.timeout)}, baskets AS (
            SELECT DISTINCT visitor, session, item FROM sessions
        ), pairs AS (
            SELECT l.item AS a, r.item AS b, count(*) AS baskets
            FROM baskets AS l JOIN baskets AS r ON l.visitor = r.visitor AND l.session = r.session AND {pair}
            GROUP BY l.item, r.item
        ), ranked AS (
            SELECT *, row_number() OVER (ORDER BY baskets DESC, a, b) AS place FROM pairs
        )
        SELECT {END} AS period, place, a, b, baskets FROM ranked WHERE place <= {parameters.top} ORDER BY place
    """


def _q3(parameters: q3.Q3Parameters) -> str:
    return f"""
        WITH clicks AS (
            SELECT `user` AS visitor, ts, c.item, sale, {_among("category", parameters.categories)} AS wanted,
                   row_number() OVER (PARTITION BY `user` ORDER BY seq) AS number
            FROM web_clickstreams AS c JOIN item AS i ON c.item = i.item
            WHERE `user` >= 0 AND c.item >= 0
        ), views AS (
            SELECT p.item AS purchased, v.item AS viewed, count(*) AS times
            FROM clicks AS p JOIN clicks AS v
                ON p.visitor = v.visitor AND v.number BETWEEN p.number - {parameters.views} AND p.number - 1
            WHERE p.sale >= 0 AND {_among("p.item", parameters.bought)}
                AND v.wanted AND v.ts >= p.ts - {parameters.horizon}
            GROUP BY p.item, v.item
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY purchased ORDER BY times DESC, viewed) AS place FROM views
        )
        SELECT purchased, viewed, times, place FROM ranked WHERE place <= {parameters.top} ORDER BY purchased, place
    """


def _q4(parameters: q4.Q4Parameters) -> str:
    return f"""
        WITH clicks AS (
            SELECT seq, ts, `user` AS visitor, type
            FROM web_clickstreams AS c JOIN web_page AS p ON c.page = p.page
            WHERE `user` >= 0 AND c.page >= 0 AND sale < 0
        ), {_sessions(parameters.timeout)}, counted AS (
            SELECT count(*) AS pages,
                   max(CASE WHEN type = 'dynamic' THEN seq ELSE -1 END) AS last_dynamic,
                   max(CASE WHEN type = 'order' THEN seq ELSE -1 END) AS last_order
            FROM sessions GROUP BY visitor, session
        )
        SELECT count(*), coalesce(sum(pages), 0) FROM counted WHERE last_dynamic > last_order
    """


def _q15(parameters: q15.Q15Parameters) -> str:
    return f"""
        WITH days AS (
            SELECT category, ts DIV {SECONDS_PER_DAY} AS day, sum(net_cents) AS cents
            FROM store_sales AS s JOIN item AS i ON s.item = i.item
            WHERE {_among("store", parameters.stores)}
                AND ts DIV {SECONDS_PER_DAY} BETWEEN {parameters.first_day} AND {parameters.last_day}
            GROUP BY category, ts DIV {SECONDS_PER_DAY}
        ), sums AS (
            SELECT category, max(day) AS last_day, count(*) AS n,
                   sum(CAST(day AS DECIMAL(38, 0))) AS x, sum(CAST(cents AS DECIMAL(38, 0))) AS y,
                   sum(CAST(day * cents AS DECIMAL(38, 0))) AS xy, sum(CAST(day * day AS DECIMAL(38, 0))) AS xx
            FROM days GROUP BY category
        ), lines AS (
            SELECT *, n * xy - x * y AS rise, y * xx - x * xy AS base, n * xx - x * x AS spread FROM sums
        )
        SELECT category, last_day, n, CAST(rise AS DOUBLE) / CAST(spread AS DOUBLE),
               CAST(base AS DOUBLE) / CAST(spread AS DOUBLE)
        FROM lines WHERE spread <> 0 AND rise <= 0
        ORDER BY category
    """


_TEXTS: dict[str, Callable[[Any], str]] = {
    q1.NAME: _q1,
    q2.NAME: _q2,
    q3.NAME: _q3,
    q4.NAME: _q4,
    q15.NAME: _q15,
}


def _sessions(timeout: int) -> str:
    """``clicks`` with the number of the session that each is in, which grows after a gap of more than the timeout."""
    return f"""gaps AS (
            SELECT *, ts - lag(ts) OVER (PARTITION BY visitor ORDER BY seq) AS gap FROM clicks
        ), sessions AS (
            SELECT *, sum(CASE WHEN gap > {timeout} THEN 1 ELSE 0 END)
                OVER (PARTITION BY visitor ORDER BY seq) AS session
            FROM gaps
        )"""


def _among(column: str, chosen: tuple[int, ...] | None) -> str:
    return "true" if chosen is None else f"{column} IN ({', '.join(map(str, chosen))})"
