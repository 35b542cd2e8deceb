"""Small updates of a table with a query inside, in one task and in one for each bucket, in turn:
`python -m benchmarks.stream_spark.small OPTIONS`.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.stream_spark.hosted_table import HostedTable
from benchmarks.stream_spark.process import answer
from benchmarks.stream_spark.rows import cut, stamped
from benchmarks.stream_spark.session import spark_session
from benchmarks.stream_spark.sessionising import SCHEMA, sessions_table
from headgate.warehouse.updates import hosted
from workloads.tpcxbb.clicks import web_clickstreams

#: up to how many bytes an update has one task, for either way
WAYS = {"one task": 1 << 60, "a task for each bucket": -1}


def measure(sizes: list[int], buckets: list[int], warm_up: int, updates: int, seed: int) -> list[dict[str, Any]]:
    """A row for every size, number of buckets, way and update: its rows, its bytes and the seconds of the table."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with spark_session(folder) as spark:
            for rows in sizes:
                count = warm_up + updates
                clicks = stamped(web_clickstreams(rows * count * len(WAYS), seed=seed, customers=10_000))
                for number in buckets:
                    query = partial(sessions_table, number)
                    there = folder / f"{rows}-{number}"
                    table = HostedTable(there, spark, SCHEMA, query, time="trigger", partition="3650 days")
                    # in turn, so that the compiler and the noise of the machine are the same for both
                    ways = list(WAYS) * count
                    for turn, (way, part) in enumerate(zip(ways, cut(clicks, len(ways)), strict=True)):
                        hosted.ONE_TASK_BYTES = WAYS[way]
                        table.land(part)
                        took = table.update()
                        if turn >= warm_up * len(WAYS):
                            made = {"size": rows, "bytes": table.bytes_read, "buckets": number, "tasks": way}
                            found.append({**made, "seconds": took.table})
    return found


if __name__ == "__main__":
    answer(measure)
