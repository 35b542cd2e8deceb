"""PRED or STATS inside a table, on executors of one core each: `python -m benchmarks.stream_spark.on_nodes OPTIONS`.

Files of lines land; that the table has them is waited for, and then the next one lands. First many lines at a time, for
the rows per second, then few, for the time from landing to commit.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

import headgate as hg
from benchmarks.stream_spark.process import ROOT, answer
from benchmarks.stream_spark.riot import SCHEMA, TABLES, landed
from benchmarks.stream_spark.rows import land
from headgate.warehouse import RunOptions, SparkOptions, WarehouseRun
from tests.services.cluster import SparkCluster, executor_settings

PATIENCE = 600


def measure_pipeline(pipeline: str, executors: int, many: int, few: int, rounds: int, warm_up: int) -> dict[str, Any]:
    """Lines per second, median seconds from landing to commit, processor time; without executors on ``local[1]``."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        landing = folder / "landing"
        landing.mkdir()
        wh = hg.Warehouse("city", folder / "warehouse", shared=True)
        source = hg.Files(landing, format="parquet", schema=SCHEMA, settle=0)
        wh.stream("lines", source, time="ts", partition="1 day", max_future=None)
        wh.table(name=pipeline, time="ts", partition="1 day", mode="append")(TABLES[pipeline])
        files = [many] * (warm_up + rounds) + [few] * (warm_up + rounds)
        took: list[float] = []
        busy: list[float] = []
        with ExitStack() as stack:
            where = SparkOptions("local[1]")
            if executors:
                cluster = stack.enter_context(SparkCluster(folder / "cluster"))
                for _ in range(executors):
                    cluster.add_worker()
                # The workloads are no part of the package, which is all that executors are sent.
                settings = {**executor_settings(sys.executable), "spark.executorEnv.PYTHONPATH": str(ROOT)}
                where = SparkOptions(cluster.master, settings)
            run = stack.enter_context(WarehouseRun(wh.spec(), RunOptions(tracks=executors or 1), where))
            for number, lines in enumerate(files):
                rows = landed(pipeline, sum(files[:number]), lines)
                processor, started = processor_seconds(), time.perf_counter()
                land(rows, landing, f"{number:04}")
                run.wait_until_fresh(PATIENCE)
                took.append(time.perf_counter() - started)
                busy.append(processor_seconds() - processor)
        large = slice(warm_up, warm_up + rounds)
        lines = many * rounds
        return {
            "pipeline": pipeline.upper(),
            "executors": executors,
            "lines_per_second": lines / sum(took[large]),
            "latency": statistics.median(took[-rounds:]),
            "processor_per_million": 1e6 * sum(busy[large]) / lines,
            "cores_busy": sum(busy[large]) / sum(took[large]),
            "rows_in_table": wh.read(pipeline).num_rows,
            "checksum": checksum(wh.read(pipeline)),
        }


def checksum(rows: pa.Table) -> str:
    """The same for the same rows in any order."""
    keys = [(name, "ascending") for name in rows.column_names if not pa.types.is_nested(rows.schema.field(name).type)]
    in_order = rows.sort_by(keys).combine_chunks()
    digest = hashlib.sha256()
    for name in in_order.column_names:
        digest.update(repr(in_order.column(name).to_pylist()).encode())
    return digest.hexdigest()[:16]


def processor_seconds() -> float:
    """Of this process and all that it has started, and they in turn, as far as they still run."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours, found = {os.getpid()}, 0
    while len(ours) > found:
        found = len(ours)
        ours |= {process for process, parent in parents.items() if parent in ours}
    return sum(ticks.get(process, 0) for process in ours) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    answer(measure_pipeline)
