"""The contender of Spark Declarative Pipelines: `python -m benchmarks.spark.declarative`, options as in `task`.

The 24 tables as one pipeline, run again as soon as a run has ended. A run takes what has landed into the base tables
(streaming tables), adds rows to the tables of rows (streaming tables as well), and computes the tables of windows anew
from all of the base table (materialized views: a streaming table could only add windows that are over). The server
lives on between runs. A pipeline can be run once, so its tables are declared anew for each run.

Freshness is what the base table holds when a run is over, for all tables of that stream; a table's new content counts
from the moment at which Spark reports its flow as complete. That is generous: a materialized view is emptied when a run
starts and stays empty until its flow is complete.

What the pipelines need to be installed goes into an environment of its own (`--environment`), in which this program
then starts itself again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark.environment import python_with_pipelines
from benchmarks.spark.log import LogWriter, Visible
from benchmarks.spark.session import STREAMING, all_settings
from benchmarks.spark.task import Task, task_from, task_parser
from benchmarks.spark.workload import SCHEMA, STREAMS, TABLES, TIME, Stream, Table, stream_of
from benchmarks.spark.writing import parquet_files, time_span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: All flows of a level at once; the next look at which are done is a second later, and no setting makes that less.
SETTINGS = {**STREAMING, "spark.sql.pipelines.execution.maxConcurrentFlows": str(len(STREAMS) + len(TABLES))}
COMPLETED = " has COMPLETED."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = task_parser("declarative")
    parser.add_argument("--environment", type=Path, help="the folder of the environment (default: beside --out)")
    options = parser.parse_args(arguments)
    if find_spec("grpc") is None:
        end = time.time() + options.seconds
        python = python_with_pipelines(options.environment or options.out.resolve().parent / "environment")
        given = sys.argv[1:] if arguments is None else list(arguments)
        left = ("--seconds", str(max(0.0, end - time.time())))
        os.execv(python, [str(python), "-m", "benchmarks.spark.declarative", *given, *left])
    task = task_from(options)
    spark = _session(task)
    with LogWriter(task.log) as log:
        while task.left > 0:
            log.write(_refresh(spark, task))
    spark.stop()


def _session(task: Task) -> SparkSession:
    """A client, and a server in the same process that lives as long."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(task.master)
    warehouse = {"spark.sql.warehouse.dir": str(task.out)}
    for key, value in all_settings(task, SETTINGS | warehouse).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    server = SparkContext._active_spark_context
    assert server is not None
    server.setLogLevel("ERROR")
    return session


def _refresh(spark: SparkSession, task: Task) -> Iterator[Visible]:
    """Runs the pipeline once; gives what it brought."""
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    graph = create_dataflow_graph(spark, default_catalog=None, default_database=None, sql_conf={})
    _declare(spark, graph, task.landing)
    completed: dict[str, float] = {}
    storage = (task.out / "_storage").as_uri()
    results = start_run(spark, graph, full_refresh=[], full_refresh_all=False, refresh=[], dry=False, storage=storage)
    for result in results:
        if "pipeline_event_result" in result:
            event = result["pipeline_event_result"].event
            if event.message.endswith(COMPLETED) and event.message.startswith("Flow "):
                name = event.message.removeprefix("Flow ").removesuffix(COMPLETED).rpartition(".")[2]
                completed[name] = event.timestamp.ToDatetime(UTC).timestamp()
    spans = {stream.name: time_span(parquet_files(task.out / stream.name), TIME) for stream in STREAMS}
    for table, stream in stream_of().items():
        span = spans[stream]
        if span is not None and table in completed:
            yield Visible(table, completed[table], span[1])


def _declare(spark: SparkSession, graph: str, landing: Path) -> None:
    from pyspark import pipelines
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

    with graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)):
        for stream in STREAMS:
            pipelines.table(name=stream.name)(_base(spark, landing, stream))
        for table in TABLES:
            declare: Any = pipelines.table if table.kind == "rows" else pipelines.materialized_view
            declare(name=table.name)(_derived(spark, table))


def _base(spark: SparkSession, landing: Path, stream: Stream) -> Callable[[], DataFrame]:
    folder = landing / stream.name
    folder.mkdir(parents=True, exist_ok=True)
    return lambda: spark.readStream.schema(SCHEMA).json(str(folder))


def _derived(spark: SparkSession, table: Table) -> Callable[[], DataFrame]:
    read: Any = spark.readStream if table.kind == "rows" else spark.read
    return lambda: table.function(read.table(table.stream))


if __name__ == "__main__":
    main()
