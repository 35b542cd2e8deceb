"""Sessions in a table and with Structured Streaming, in turn: `python -m benchmarks.stream_spark.sessions OPTIONS`."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.stream_spark.hosted_table import HostedTable
from benchmarks.stream_spark.process import answer
from benchmarks.stream_spark.rows import as_seconds, cut, land, stamped
from benchmarks.stream_spark.session import spark_session
from benchmarks.stream_spark.sessionising import SCHEMA, sessions_table
from benchmarks.stream_spark.sessions_peers import found_sessions, run_peer
from workloads.tpcxbb.clicks import web_clickstreams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADGATE = "headgate"
Found = Counter[tuple[int, tuple[int, ...]]]


def measure(
    rows: int,
    users: int,
    files: int,
    ways: list[bool],
    buckets: int,
    reps: int,
    seed: int,
    warm_up: int,
    peers: list[str],
) -> list[dict[str, Any]]:
    """A row for every contender, way to cut the input into updates (all files together or not), and repetition."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        clicks = stamped(web_clickstreams(rows, seed=seed, customers=users))
        with spark_session(folder) as spark:
            contest = _Contest(spark, folder, buckets, peers)
            if warm_up:
                contest.all_once(cut(clicks.slice(0, warm_up), files), "warm", together=False)
            found = []
            for rep in range(1, reps + 1):
                for together in ways:
                    made = contest.all_once(cut(clicks, files), f"{users}-{rep}-{together}", together)
                    found += [
                        {
                            "contender": name,
                            "users": users,
                            "updates": 1 if together else files,
                            "rep": rep,
                            "rows per second": rows / seconds,
                            "sessions": count,
                        }
                        for name, (seconds, count) in made.items()
                    ]
    return found


class _Contest:
    def __init__(self, spark: SparkSession, folder: Path, buckets: int, peers: list[str]) -> None:
        self._spark = spark
        self._folder = folder
        self._buckets = buckets
        self._peers = peers

    def all_once(self, parts: list[pa.Table], name: str, together: bool) -> dict[str, tuple[float, int]]:
        """Seconds and sessions of every contender; raises if they do not agree on the sessions."""
        seconds, expected = self._headgate(self._folder / f"{name}-headgate", parts, together)
        made = {HEADGATE: (seconds, expected.total())}
        landing = self._folder / f"{name}-landing"
        for number, part in enumerate(parts):
            land(part, landing, f"{number:06d}")
        for peer in self._peers:
            out = self._folder / f"{name}-{peer}"
            files = len(parts) if together else 1
            seconds = run_peer(self._spark, peer, landing, out, self._buckets, files)
            times, items = found_sessions(out)
            found = Counter(zip(times.tolist(), map(tuple, items), strict=True))
            if found != expected:
                raise RuntimeError(f"{peer} and Headgate do not agree: {_difference(found, expected)}")
            made[peer] = (seconds, found.total())
        return made

    def _headgate(self, folder: Path, parts: list[pa.Table], together: bool) -> tuple[float, Found]:
        query = partial(sessions_table, self._buckets)
        table = HostedTable(folder, self._spark, SCHEMA, query, time="trigger", partition="3650 days")
        seconds = 0.0
        for number, part in enumerate(parts):
            table.land(part)
            if not together or number == len(parts) - 1:
                seconds += table.update().both
        rows = table.rows().combine_chunks()
        times = as_seconds(rows.column("trigger").combine_chunks())
        return seconds, Counter(zip(times.tolist(), map(tuple, rows.column("items").to_pylist()), strict=True))


def _difference(found: Found, expected: Found) -> str:
    missing, extra = expected - found, found - expected
    return f"{missing.total()} are missing, such as {list(missing)[:1]}; {extra.total()} too many: {list(extra)[:1]}"


if __name__ == "__main__":
    answer(measure)
