"""The tables of `spark_tables`: four streams of files and five tables derived from each, as plain frozen data.

All contenders take the names, priorities and functions from here, so they differ only in how they keep tables fresh.
A derived table is a function of one data frame, its stream's base table, and works on batches, on streams and through
Spark Connect. What the functions compute is restricted to what Structured Streaming can keep up to date in one query:
distinct counts are approximate, and the top is one row per group.

A window of a derived table never crosses a minute, so a table may be kept up to date minute by minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: "rows": every row comes from one row of the base table; "windows": one row per window of event time and group
Kind = Literal["rows", "windows"]
Query = Callable[["DataFrame"], "DataFrame"]

SCHEMA = "ts timestamp, key string, value double, device string, status int"
TIME = "ts"
#: rows of one stream in a second, whatever the speed-up
ROWS_PER_SECOND = 500


@dataclass(frozen=True)
class Stream:
    """A base table: files come every `period` seconds, the first of them `phase` of a period after the start."""

    name: str
    period: float
    phase: float
    priority: int = 1


@dataclass(frozen=True)
class Table:
    """A table derived from the base table of `stream`. `time` is its column of event time.

    `group` are the columns that identify a row of a table of windows.
    """

    name: str
    stream: str
    priority: int
    function: Query
    time: str
    kind: Kind
    group: tuple[str, ...] = ()


def alerts(rows: DataFrame) -> DataFrame:
    """Readings that are too high, about one in twenty."""
    from pyspark.sql import functions as F

    return rows.where((F.col("value") > 82.5) & (F.col("status") < 9)).select("ts", "key", "device", "value")


def by_minute(rows: DataFrame) -> DataFrame:
    """How many readings each key had in a minute, their mean and their maximum."""
    from pyspark.sql import functions as F

    return (
        rows.groupBy(F.window("ts", "1 minute"), "key")
        .agg(F.count("*").alias("readings"), F.avg("value").alias("mean"), F.max("value").alias("highest"))
        .select(F.col("window.start").alias("minute"), "key", "readings", "mean", "highest")
    )


def by_10s(rows: DataFrame) -> DataFrame:
    """Everything there was in ten seconds, in one row."""
    from pyspark.sql import functions as F

    return (
        rows.groupBy(F.window("ts", "10 seconds"))
        .agg(F.count("*").alias("readings"), F.avg("value").alias("mean"), F.min("value").alias("lowest"))
        .select(F.col("window.start").alias("start"), "readings", "mean", "lowest")
    )


def devices(rows: DataFrame) -> DataFrame:
    """How many devices sent something in a minute, for each key."""
    from pyspark.sql import functions as F

    return (
        rows.groupBy(F.window("ts", "1 minute"), "key")
        .agg(F.approx_count_distinct("device").alias("devices"))
        .select(F.col("window.start").alias("minute"), "key", "devices")
    )


def top(rows: DataFrame) -> DataFrame:
    """The device with the highest reading of each key in ten seconds."""
    from pyspark.sql import functions as F

    return (
        rows.groupBy(F.window("ts", "10 seconds"), "key")
        .agg(F.max("value").alias("highest"), F.max_by("device", "value").alias("device"))
        .select(F.col("window.start").alias("start"), "key", "highest", "device")
    )


#: Base tables have the lowest priority: nobody looks at them, they matter because of what is derived from them.
STREAMS = (
    Stream("air", period=2.0, phase=0.4),
    Stream("traffic", period=5.0, phase=0.7),
    Stream("weather", period=10.0, phase=0.3),
    Stream("meters", period=30.0, phase=0.6),
)

_QUERIES: tuple[tuple[Query, str, Kind, tuple[str, ...]], ...] = (
    (alerts, "ts", "rows", ()),
    (by_minute, "minute", "windows", ("key",)),
    (by_10s, "start", "windows", ()),
    (devices, "minute", "windows", ("key",)),
    (top, "start", "windows", ("key",)),
)

#: 100 ** (k / 19) for k = 0 to 19, rounded: few tables matter much, many a little. Table i in the order of TABLES has
#: k = 7 * i modulo 20, which gives every stream and every query some of high and some of low priority.
_PRIORITIES = {
    "air": (1, 5, 30, 1, 7),
    "traffic": (38, 2, 9, 48, 2),
    "weather": (11, 62, 3, 14, 78),
    "meters": (3, 18, 100, 4, 23),
}

TABLES = tuple(
    Table(f"{stream.name}_{function.__name__}", stream.name, priority, function, time, kind, group)
    for stream in STREAMS
    for priority, (function, time, kind, group) in zip(_PRIORITIES[stream.name], _QUERIES, strict=True)
)


def names() -> tuple[str, ...]:
    """All tables, base tables first."""
    return (*(stream.name for stream in STREAMS), *(table.name for table in TABLES))


def priorities() -> dict[str, int]:
    """The priority of every table, base tables included."""
    return {each.name: each.priority for each in STREAMS} | {each.name: each.priority for each in TABLES}


def stream_of() -> dict[str, str]:
    """The stream that each table tells of; a base table tells of its own."""
    return {stream.name: stream.name for stream in STREAMS} | {table.name: table.stream for table in TABLES}


def derived(stream: str) -> tuple[Table, ...]:
    """The tables derived from one stream, the most important first."""
    mine = [table for table in TABLES if table.stream == stream]
    return tuple(sorted(mine, key=lambda table: -table.priority))
