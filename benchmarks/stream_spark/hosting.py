"""The engine in Spark tasks and in plain processes, in turn: `python -m benchmarks.stream_spark.hosting OPTIONS`.

Both read the same Parquet files and run the same operators, serially, on packets of the same size, in as many processes
as Spark has cores; both end when all rows have come out. In a plain process rows come from Arrow's reader and end where
they come out of the engine; on Spark they come from Spark's reader, go to Python and back, and end in Spark's `noop`
sink. Processes are started, and have run the query, before anything is timed.

A query with states needs the rows of a key in one place, in the order of time. Spark partitions and sorts them; plain
processes are given files in which that is done already, because a single process would not have to do it at all.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from benchmarks.stream_spark import ticket_pairs
from benchmarks.stream_spark.process import answer
from benchmarks.stream_spark.rows import as_seconds, land, stamped
from benchmarks.stream_spark.session import CORES, spark_session
from headgate.stream import Query, Stream, from_batches, on_spark, to_function
from headgate.stream.loops.serial import run_serially
from headgate.stream.query_run import QueryRun
from workloads.tpcxbb.clicks import web_clickstreams
from workloads.tpcxbb.sales import store_sales

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAIN, SPARK, ALONE = "plain processes", "Spark tasks", "Spark alone"


def narrowed(clicks: Stream) -> Stream:
    """Without states: a filter and a computed column."""
    known = clicks.filter((pc.field("user") >= 0) & (pc.field("item") >= 0))
    return known.project("user", "item", hour=pc.divide(pc.field("ts"), 3_600))


def counts(clicks: Stream) -> Stream:
    """With states: a filter, and of every row how many clicks its user has made so far."""
    return clicks.filter((pc.field("user") >= 0) & (pc.field("item") >= 0)).key_by("user").running(n="count")


def sessions(clicks: Stream) -> Stream:
    """With states and few rows out: a filter, and sessions of an hour's pause."""
    known = clicks.filter((pc.field("user") >= 0) & (pc.field("item") >= 0))
    return known.key_by("user").session("ts", 3_600).aggregate(clicks="count")


@dataclass(frozen=True)
class Case:
    """A query, the rows it reads, and the column by which it has states."""

    build: Callable[[Stream], Stream]
    rows: str
    key: str | None = None


CASES: Mapping[str, Case] = {
    "without states": Case(narrowed, "clicks"),
    "running count": Case(counts, "clicks", "user"),
    "sessions": Case(sessions, "clicks", "user"),
    "q1": Case(ticket_pairs.top_pairs, "sales", ticket_pairs.KEY),
}


@dataclass(frozen=True)
class Files:
    """The same rows twice: a file for each core as they came, and by key. `columns` is their schema for Spark."""

    as_they_came: list[str]
    by_key: list[str]
    columns: str


def measure(
    rows: int, packet_rows: int, queries: list[str], reps: int, warm_up: int, seed: int
) -> list[dict[str, Any]]:
    """A row for every query, all of them if none is named, contender and repetition."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = _files(rows, seed, folder)
        # Spawned before there are threads of Spark's; each process stays for the whole run.
        with ProcessPoolExecutor(CORES, get_context("spawn")) as pool, spark_session(folder / "session") as spark:
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(packet_rows))
            found: list[dict[str, Any]] = []
            for rep in range(1 - warm_up, reps + 1):
                for name, case in ((name, CASES[name]) for name in queries or CASES):
                    mine = files[case.rows]
                    seconds = {
                        PLAIN: _plain(pool, mine.by_key if case.key else mine.as_they_came, name, packet_rows),
                        SPARK: _timed(_hosted(_read(spark, mine), case, packet_rows)),
                        ALONE: _timed(_moved(_read(spark, mine), case)),
                    }
                    found += [{"query": name, "where": w, "rep": rep, "seconds": s} for w, s in seconds.items()]
    return [row for row in found if row["rep"] > 0]


def _files(rows: int, seed: int, folder: Path) -> dict[str, Files]:
    clicks = web_clickstreams(rows, seed=seed).select(["ts", "user", "item"])
    sales = stamped(store_sales(rows, seed=seed))
    hours = pa.array(as_seconds(sales.column("ts").combine_chunks()) // ticket_pairs.HOUR)
    sales = sales.append_column(ticket_pairs.KEY, hours)
    return {
        "clicks": _cut(clicks, "user", folder / "clicks", "ts long, user int, item int"),
        "sales": _cut(sales, ticket_pairs.KEY, folder / "sales", f"{ticket_pairs.SCHEMA}, {ticket_pairs.KEY} long"),
    }


def _cut(rows: pa.Table, key: str, folder: Path, columns: str) -> Files:
    half = rows.num_rows // CORES
    keys = rows.column(key).combine_chunks().to_numpy()
    pieces = [rows.slice(n * half, half) for n in range(CORES)]
    owned = [rows.filter(pa.array(keys % CORES == n)) for n in range(CORES)]
    return Files(
        [str(land(piece, folder / "as-they-came", f"{n}")) for n, piece in enumerate(pieces)],
        [str(land(piece, folder / "by-key", f"{n}")) for n, piece in enumerate(owned)],
        columns,
    )


# --- plain processes ------------------------------------------------------------------------------------------------


def _plain(pool: ProcessPoolExecutor, files: list[str], query: str, packet_rows: int) -> float:
    began = time.perf_counter()
    list(pool.map(partial(run_file, query, packet_rows), files))
    return time.perf_counter() - began


def run_file(name: str, packet_rows: int, file: str) -> int:
    """What a plain process does; how many rows came out."""
    came = [0]

    def count(batch: pa.RecordBatch) -> None:
        came[0] += batch.num_rows

    reader = pq.ParquetFile(file)
    query = Query("query")
    source = from_batches(reader.iter_batches(batch_size=packet_rows), reader.schema_arrow)
    CASES[name].build(query.source(source)).to(to_function(count))
    run_serially(QueryRun(query.spec(), time.perf_counter, packet_rows=packet_rows))
    return came[0]


# --- Spark ----------------------------------------------------------------------------------------------------------


def _read(spark: SparkSession, files: Files) -> DataFrame:
    return spark.read.schema(files.columns).parquet(*files.as_they_came)


def _hosted(rows: DataFrame, case: Case, packet_rows: int) -> Callable[[], DataFrame]:
    options: dict[str, Any] = {"keys": [case.key], "time": "ts", "buckets": CORES} if case.key else {}
    return lambda: on_spark(rows, case.build, packet_rows=packet_rows, **options)


def _moved(rows: DataFrame, case: Case) -> Callable[[], DataFrame]:
    """To Python workers as the query needs them, where nothing is done and nothing comes back."""

    def moved() -> DataFrame:
        placed = rows.repartition(CORES, case.key).sortWithinPartitions("ts") if case.key else rows
        return placed.mapInArrow(_nothing, "nothing int")

    return moved


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def _timed(frame: Callable[[], DataFrame]) -> float:
    began = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


if __name__ == "__main__":
    answer(measure)
