"""Headgate itself: `python -m benchmarks.spark.warehouse`, options as in `task` and those of `headgate run`.

The same tables as a pipeline file would declare them. A table's freshness is logged when its commit has been made.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headgate as hg
from benchmarks.spark.log import LogWriter, Visible
from benchmarks.spark.task import Task, task_from, task_parser
from benchmarks.spark.workload import SCHEMA, STREAMS, TABLES, TIME, Query
from headgate.core import Update, placement_from, policy_from
from headgate.warehouse.run.run import SparkOptions, WarehouseRun
from headgate.warehouse.schedule.run_options import RunOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MICROS = 1e6
#: of the tables to which nothing happens, a stream and those built on it
IDLE_EACH = 5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = task_parser("warehouse")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as often files come as stated")
    parser.add_argument("--tracks", type=int, default=2)
    parser.add_argument("--policy", default="max-benefit")
    parser.add_argument("--placement", default="proportional")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds that an update should take at most")
    parser.add_argument("--chop", type=float, default=math.inf, help="periods of data per update at most")
    parser.add_argument("--idle", type=int, default=0, help="so many more tables to which nothing happens")
    parser.add_argument("--alone", action="store_true", help="no groups: every table is an update of its own")
    parser.add_argument("--together", default="declared", help="which tables share jobs: auto, declared or never")
    parser.add_argument("--figures", type=Path, help="where to write what the run knows of itself, as JSON")
    options = parser.parse_args(arguments)
    began = time.time()
    task = task_from(options)
    settings = RunOptions(
        tracks=options.tracks,
        policy=policy_from(options.policy),
        placement=placement_from(options.placement),
        budget=options.budget,
        chop=options.chop,
        together=options.together,
    )
    with LogWriter(task.log) as log:

        def note(update: Update) -> None:
            if not update.committed:
                print(update.traceback, file=sys.stderr)
            elif update.layer != "maintenance" and update.freshness is not None:
                log.write([Visible(update.table, update.ended, update.freshness / MICROS)])

        spark = SparkOptions(task.master, {"spark.driver.memory": "2g"})
        run = WarehouseRun(declared(task, options.speed, options.alone, options.idle).spec(), settings, spark, note)
        with run:
            time.sleep(task.left)
            figures = {
                "tables": [asdict(row) for row in run.runtime.statistics()],
                "load": asdict(run.runtime.time_spent()),
                "trace": str(run.trace),
                "began": began,
            }
    if options.figures is not None:
        options.figures.write_text(json.dumps(figures), encoding="utf-8")


def declared(task: Task, speed: float, alone: bool, idle: int) -> hg.Warehouse:
    """The workload as a warehouse in the task's folder."""
    warehouse = hg.Warehouse("benchmark", task.out / "warehouse")
    for stream in STREAMS:
        source = hg.Files(str(task.landing / stream.name), format="json", schema=SCHEMA, settle=0)
        warehouse.stream(
            stream.name,
            source,
            time=TIME,
            period=stream.period / speed,
            partition="1 minute",
            priority=stream.priority,
        )
    for table in TABLES:
        declare = warehouse.table(
            name=table.name,
            time=table.time,
            partition="1 minute",
            priority=table.priority,
            group=None if alone else table.stream,
        )
        declare(_over(table.stream, table.function))
    for number in range(idle // IDLE_EACH):
        folder = task.landing / f"idle-{number}"
        folder.mkdir(parents=True)
        source = hg.Files(str(folder), format="json", schema=SCHEMA, settle=0)
        name = f"idle_{number}"
        warehouse.stream(name, source, time=TIME, period=5.0, partition="1 minute")
        for k in range(IDLE_EACH - 1):
            query = f"select date_trunc('minute', ts) as minute, count(*) as n from {name} group by 1"
            warehouse.sql(f"{name}_{k}", query, time="minute", partition="1 minute")
    return warehouse


def _over(stream: str, function: Query) -> Any:
    """``function`` with the stream's name as the name of its parameter."""

    def of_stream(**frames: DataFrame) -> DataFrame:
        return function(frames[stream])

    parameter = inspect.Parameter(stream, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    of_stream.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return of_stream


if __name__ == "__main__":
    main()
