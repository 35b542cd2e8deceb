"""Queries of tables of two classes in one task, all rows waiting from the beginning: when do whose rows leave?

This is what runs in a Python worker of Spark (`headgate.stream.spark.task`), without Spark around it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.harness import Row
from benchmarks.stream_spark.riot import landed, pred
from headgate.stream.spark.hosted_query import EngineOptions, HostedQuery, TaskReport
from headgate.stream.spark.states import LiveStates
from headgate.stream.spark.task import Task, run_task
from workloads.riot.pred import PREDICTIONS

#: what ``on_spark`` is told, by what it is called here
VARIANTS: dict[str, dict[str, Any]] = {
    "scheduler (default)": {},
    "serial": {"loop": "serial"},
    "round-robin": {"policy": "round-robin"},
    "rounds of 10 ms": {"loop": "rounds", "period": 0.01},
}
#: rows in a packet, and in a batch that Spark sends
PACKET, BATCH = 2_000, 10_000


def measure_sharing(variant: str, low: int, lines: int) -> list[Row]:
    """One query of class HIGH and ``low`` of class LOW, each PRED over the same lines."""
    rows = landed("pred", 0, lines)
    queries = [HostedQuery(f"low{number}", "pred", pred, PREDICTIONS, stateful=True) for number in range(low)]
    # The last one: whoever goes by the order of declaration has it last.
    queries.append(replace(queries[0], table="high", importance_class=1))
    task = Task(0, rows.schema, tuple(queries), EngineOptions(packet_rows=PACKET, **VARIANTS[variant]))
    reports: list[TaskReport] = []
    left: dict[str, list[tuple[float, int]]] = {"HIGH": [], "LOW": []}
    began = time.perf_counter()
    batches = iter(rows.to_batches(max_chunksize=BATCH))
    for number, batch in run_task(task, batches, LiveStates(), reports.append):
        left["HIGH" if number == low else "LOW"].append((time.perf_counter() - began, batch.num_rows))
    took = time.perf_counter() - began
    failures = [report.failure for report in reports if report.failure is not None]
    if failures:
        raise RuntimeError(f"a query of the benchmark failed: {failures[0].message}\n{failures[0].traceback}")
    return [
        {
            "variant": variant,
            "class": name,
            "rows": sum(count for _, count in moments),
            "mean": sum(at * count for at, count in moments) / sum(count for _, count in moments),
            "last": max(at for at, _ in moments),
            "last_share": max(at for at, _ in moments) / took,
            "task": took,
        }
        for name, moments in left.items()
    ]
