"""The five queries of the ordered paper on the stream engine: their inputs, and runs for throughput and for latency.

Derived from TPCx-BB, unofficial, not comparable. Parameters are those of the paper's table 1 (``PAPER``), scale factor
1. Tickets come at 20,000 lines an hour of event time for Q1; for Q15 the rows of a run cover the 366 days that it asks
for. Clicks come at 3,706 a day, those of a visit spread over a day (B = 86,400 s, TPCx-BB's own), from 100,000 users.

Inputs are made before the clock runs. A run for throughput reads them as fast as it can; a run for latency gets them
at a constant rate, and a row's latency counts from the moment at which it is due. A run during which other processes
took more than a fifth of a core is done again, once, and then counts; how much they took is in the rows.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.harness import Row
from headgate.stream import Engine, Paced, QuerySpec, QueryStatistics, Source, from_batches, to_function
from headgate.stream.spec import AUTOMATIC_BUCKETS
from workloads.tpcxbb import q1, q2, q3, q4, q15
from workloads.tpcxbb.clicks import web_clickstreams
from workloads.tpcxbb.dims import Dims
from workloads.tpcxbb.sales import store_sales

QUERIES: dict[str, Any] = {"q1": q1, "q2": q2, "q3": q3, "q4": q4, "q15": q15}
UNOFFICIAL = "derived from TPCx-BB, unofficial, not comparable"
TIMEOUT = 120.0
#: cores that other processes may take from a run
_DISTURBED = 0.2
_DAYS = 366


def input_rows(query: str, rows: int, seed: int) -> pa.RecordBatch:
    """The rows that a query reads."""
    if query == "q15":
        return _days_of_sales(rows, seed)
    table = "sales" if query == "q1" else "clicks"
    longest = _longest.get((table, seed))
    # More rows only go on, so fewer are the beginning of more.
    if longest is None or longest.num_rows < rows:
        make = store_sales if table == "sales" else web_clickstreams
        longest = _longest[table, seed] = _one_batch(make(rows, seed=seed))
    return longest.slice(0, rows)


#: {(table, seed): the longest beginning of it that was asked for}
_longest: dict[tuple[str, int], pa.RecordBatch] = {}


@lru_cache(maxsize=2)
def _days_of_sales(rows: int, seed: int) -> pa.RecordBatch:
    return _one_batch(store_sales(rows, seed=seed, lines_per_hour=rows / _DAYS / 24))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


@lru_cache(maxsize=1)
def _dims(seed: int) -> Dims:
    return Dims(seed)


def measure_throughput(query: str, rows: int, seed: int, *, buckets: int = AUTOMATIC_BUCKETS, **options: Any) -> Row:
    """How fast a query reads ``rows`` rows: in the middle of the run, and over all of it."""
    source = from_batches([input_rows(query, rows, seed)])
    return _measured(_spec(query, source, seed, buckets), options)


def measure_latency(
    query: str, rate: float, seconds: float, seed: int, *, buckets: int = AUTOMATIC_BUCKETS, **options: Any
) -> Row:
    """How long rows take that come at ``rate`` rows a second, from their arrival to the sink."""
    rows = input_rows(query, math.ceil(rate * seconds), seed)
    # Not the table itself, which would be repeated: event time must not go back.
    source = Paced(from_batches([rows]), rate)
    return {"rate": rate, **_measured(_spec(query, source, seed, buckets), options)}


def _spec(query: str, source: Source, seed: int, buckets: int) -> QuerySpec:
    module = QUERIES[query]
    spec: QuerySpec = module.query(source, to_function(_nowhere), module.PAPER, buckets, dims=_dims(seed))
    return spec


def _nowhere(_: pa.RecordBatch) -> None:
    """Rows have arrived; nobody keeps them."""


def _measured(spec: QuerySpec, options: dict[str, Any]) -> Row:
    found, use = run_once(spec, options)
    return {
        "rows per second": throughput_of(found),
        "of the whole run": found.rows_per_second,
        "mean latency": 1e3 * found.middle.mean_latency,
        "max latency": 1e3 * found.middle.max_latency,
        **use,
        "rows in": found.rows_in,
        "rows out": found.rows_out,
    }


def run_once(spec: QuerySpec, options: dict[str, Any]) -> tuple[QueryStatistics, Row]:
    """A run on an engine of its own: what it tells of the query, and how many cores it and others kept busy."""
    found, use = _run(spec, options)
    return _run(spec, options) if (use["others busy"] or 0.0) > _DISTURBED else (found, use)


def _run(spec: QuerySpec, options: dict[str, Any]) -> tuple[QueryStatistics, Row]:
    gc.collect()
    began, own, everybody = time.perf_counter(), time.process_time(), _busy_seconds()
    with Engine(**options) as engine:
        engine.add(spec).result(TIMEOUT)
        (found,) = engine.statistics().queries
    seconds = time.perf_counter() - began
    mine = (time.process_time() - own) / seconds
    after = _busy_seconds()
    others = None if everybody is None or after is None else max(0.0, (after - everybody) / seconds - mine)
    return found, {"cores busy": mine, "others busy": others}


def _busy_seconds() -> float | None:
    """Seconds of all processors that were not idle since the machine started; None where nobody tells."""
    try:
        numbers = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = map(int, numbers)
    return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")


def throughput_of(found: QueryStatistics) -> float:
    """Source rows a second in the middle of the run; of a run too short to have one, over all of it."""
    middle = found.middle.rows_per_second
    return found.rows_per_second if math.isnan(middle) else middle


# --- reading the rows of a benchmark ------------------------------------------------------------------------------


def chosen(rows: Sequence[Row], **cells: object) -> list[Row]:
    """The rows with these cells, in their order."""
    return [row for row in rows if all(row.get(column) == cell for column, cell in cells.items())]


def median(rows: Sequence[Row], value: str, **cells: object) -> float:
    """The median of a column over the repetitions of one point."""
    return float(statistics.median(row[value] for row in chosen(rows, **cells)))


def median_ratio(rows: Sequence[Row], value: str, over: dict[str, object], under: dict[str, object]) -> float:
    """The median, over the repetitions that both have, of one contender's value to another's measured beside it."""
    others = {row["rep"]: row[value] for row in chosen(rows, **under)}
    return float(
        statistics.median(row[value] / others[row["rep"]] for row in chosen(rows, **over) if row["rep"] in others)
    )
