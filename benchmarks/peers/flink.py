"""Flink SQL from Python: `python -m benchmarks.peers.flink`, options as in `protocol`.

SQL in streaming mode with windowing table functions and parallelism 2. Rows come from two files, each in the order of
time, one for each reader: Parquet if the environment has the library for it, else text. Python only hands over the text
of the query; no row passes through it. Time is what Flink itself says that a job took, which is without the start of
its cluster, in a process that has run the chain before.

Where it differs: nothing in the clicks. In Q1 the items of a ticket are gathered by the hour and joined with themselves
when it ends, where Headgate makes the pairs of a ticket line by line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyflink  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from benchmarks.peers.protocol import CLICKS, PARTS, PARTS_CSV, Q1, TOP, WORKERS, Answer, Task, this_task

SETTINGS: Mapping[str, str] = {
    "parallelism.default": str(WORKERS),
    "table.local-time-zone": "UTC",
    # No copies between operators of one task: none of them keeps or changes what it gets.
    "pipeline.object-reuse": "true",
    "execution.runtime-mode": "STREAMING",
}
COLUMNS = {
    CLICKS: "ts BIGINT, `user` INT, item INT",
    Q1: "ts BIGINT, ticket BIGINT, item INT, store SMALLINT",
}
RESULTS = {
    CLICKS: "w INT, item INT, n BIGINT",
    Q1: "w INT, place BIGINT, a INT, b INT, n BIGINT",
}
#: the number of the hour
WINDOW = "TIMESTAMPDIFF(HOUR, TIMESTAMP '1970-01-01 00:00:00', window_start)"
HOURS = "TABLE(TUMBLE(TABLE source, DESCRIPTOR(rt), INTERVAL '1' HOUR))"
QUERIES = {
    CLICKS: f"""
        SELECT {WINDOW}, item, COUNT(*) AS n
        FROM {HOURS}
        WHERE `user` >= 0 AND item >= 0
        GROUP BY window_start, window_end, item
    """,
    Q1: f"""
        WITH tickets AS (
            SELECT window_start, window_end, ticket, ARRAY_AGG(item) AS items
            FROM {HOURS}
            GROUP BY window_start, window_end, ticket
        ), different AS (
            SELECT window_start, window_end, ARRAY_DISTINCT(items) AS items FROM tickets
        ), pairs AS (
            SELECT window_start, window_end, a, b
            FROM different CROSS JOIN UNNEST(items) AS l (a) CROSS JOIN UNNEST(items) AS r (b)
            WHERE a < b
        ), counts AS (
            SELECT window_start, window_end, a, b, COUNT(*) AS n
            FROM pairs
            GROUP BY window_start, window_end, a, b
        ), ranked AS (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, a, b) AS place
            FROM counts
        )
        SELECT {WINDOW}, place, a, b, n FROM ranked WHERE place <= {TOP}
    """,
}


def has_parquet() -> bool:
    return any((Path(pyflink.__path__[0]) / "lib").glob("flink-sql-parquet-*.jar"))


def opened(task: Task, read: str) -> TableEnvironment:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in SETTINGS.items():
        environment.get_config().set(key, value)
    folder = task.inputs / (PARTS if read == "parquet" else PARTS_CSV)
    environment.execute_sql(f"""
        CREATE TABLE source ({COLUMNS[task.chain]}, rt AS TO_TIMESTAMP_LTZ(ts, 0), WATERMARK FOR rt AS rt)
        WITH ('connector' = 'filesystem', 'path' = 'file://{folder.absolute()}', 'format' = '{read}')
    """)
    environment.execute_sql(f"""
        CREATE TABLE found ({RESULTS[task.chain]})
        WITH ('connector' = 'filesystem', 'path' = 'file://{task.rows.absolute()}', 'format' = 'csv')
    """)
    environment.execute_sql(f"CREATE TABLE nowhere ({RESULTS[task.chain]}) WITH ('connector' = 'blackhole')")
    return environment


def run_once(environment: TableEnvironment, chain: str, sink: str) -> float:
    """Seconds that the job took."""
    job = environment.execute_sql(f"INSERT INTO {sink} {QUERIES[chain]}").get_job_client()
    milliseconds: int = job.get_job_execution_result().result().get_net_runtime()
    return milliseconds / 1000


def main() -> None:
    task = this_task()
    read = "parquet" if has_parquet() else "csv"
    environment = opened(task, read)
    run_once(environment, task.chain, "found")
    seconds = [run_once(environment, task.chain, "nowhere") for _ in range(task.reps)]
    Answer(seconds, read, "the job's net runtime after a first run").write(task)


if __name__ == "__main__":
    main()
