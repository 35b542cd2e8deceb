"""What an update costs as history grows: `python -m benchmarks.spark.incremental PART --scale S`, prints JSON.

*hour*: totals by minute and sensor, with 20,000 new rows, as their hour fills with rows.
*customers*: totals by customer, with 20,000 new rows, after a long history.
*chain*: rows read by minutes, hours and days, each computed from the one before, with late rows.

Rows are committed to the stream's table as a load would commit them; what is measured are the updates of tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.warehouse.session import open_session
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

NEW_ROWS = 20_000
HOUR = 3600.0
#: event times begin here, in seconds since the epoch
BEGIN = 1_790_000_000 // 86_400 * 86_400
SENSORS = 1_000


@dataclass
class History:
    """A warehouse whose stream ``rows`` gets rows committed to it, and its tables."""

    folder: Path
    spark: SparkSession
    tables: dict[str, dict[str, Any]]
    opened: OpenWarehouse = field(init=False)
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self) -> None:
        wh = hg.Warehouse("incremental", self.folder / "warehouse")
        source = hg.Files(str(self.folder / "landing"), format="json", schema="ts timestamp, key bigint, value double")
        wh.stream("rows", source, time="ts", partition="1 hour", max_future=None)
        for name, options in self.tables.items():
            wh.sql(name, **options)
        self.opened = open_warehouse(wh.spec(), self.spark)

    def commit(self, seconds: NDArray[np.float64], keys: int) -> None:
        """Commit rows of these event times, in seconds after the beginning, to the stream."""
        count = len(seconds)
        moments = pa.array(((seconds + BEGIN) * 1e6).astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))
        numbers = pa.array(self.chance.integers(0, keys, count))
        rows = pa.table({"ts": moments, "key": numbers, "value": pa.array(self.chance.random(count))})
        store = self.opened.nodes["rows"].store
        number = CommitState.from_json(store.state).update + 1
        freshness = round((float(seconds.max()) + BEGIN) * 1e6)
        state = CommitState(number, "load", freshness, count, time="ts")
        files = store.write_arrow(number, rows, HOUR)
        store.commit(number, files, state=state.to_json(), schema=rows.schema)
        self.opened.updated("rows")

    def update(self, name: str) -> tuple[float, int]:
        """Update a table; returns the seconds that it took, and the rows that it read from its sources."""
        began = time.perf_counter()
        update = self.opened.nodes[name].update(self.spark)
        took = time.perf_counter() - began
        self.opened.updated(name)
        read = 0 if update is None else sum(f.rows for files in update.plan.files.values() for f in files)
        return took, read

    def tidy(self) -> None:
        """What maintenance does now and then."""
        for node in self.opened.nodes.values():
            if node.store.exists:
                node.store.compact()


def median_update(history: History, name: str, commit: Callable[[], None], repeats: int) -> float:
    took = []
    for _ in range(repeats):
        commit()
        took.append(history.update(name)[0])
    return statistics.median(took)


def hour(folder: Path, spark: SparkSession, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Updates of an hour's groups by minute, as the hour fills; merged, and recomputed for comparison."""
    query = "select date_trunc('minute', ts) as ts, key, count(*) as n, sum(value) as total, avg(value) as mean"
    found = []
    for mode in ("merge", "blocks"):
        options = {"query": f"{query} from rows group by 1, 2", "time": "ts", "mode": mode}
        history = History(folder / mode, spark, {"minutes": options})
        loaded, full = 0, round(30_000_000 * scale)

        def new_rows(history: History = history, full: int = full) -> None:
            nonlocal loaded
            begin = HOUR * 0.98 * loaded / full
            history.commit(np.sort(history.chance.uniform(begin, begin + 2.0, NEW_ROWS)), SENSORS)
            loaded += NEW_ROWS

        median_update(history, "minutes", new_rows, 12)  # compile
        history.tidy()
        for level in (0.0, 0.25, 0.5, 1.0):
            while loaded < level * full - NEW_ROWS:
                count = min(1_500_000, round(level * full) - loaded)
                begin, end = (HOUR * 0.98 * rows / full for rows in (loaded, loaded + count))
                history.commit(np.sort(history.chance.uniform(begin, end, count)), SENSORS)
                loaded += count
                if mode == "merge":
                    history.update("minutes")
            history.update("minutes")
            history.tidy()
            median_update(history, "minutes", new_rows, 2)
            took = median_update(history, "minutes", new_rows, repeats if mode == "merge" else 3)
            found.append({"part": "hour", "mode": mode, "rows": loaded, "seconds": took})
    return found


def customers(folder: Path, spark: SparkSession, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Updates of totals by customer: of a new table, and after a long history of many customers."""
    query = "select key, max(ts) as ts, count(*) as n, sum(value) as total from rows group by key"
    options = {"query": query, "time": None, "key": ["key"]}
    everyone, rows = round(1_000_000 * scale), round(100_000_000 * scale)
    found = []
    for loaded in (0, rows):
        history = History(folder / str(loaded), spark, {"totals": options})
        at = 0.0

        def new_rows(history: History = history) -> None:
            nonlocal at
            history.commit(np.sort(history.chance.uniform(at, at + 2.0, NEW_ROWS)), everyone)
            at += 2.0

        for _ in range(0, loaded, 5_000_000):
            history.commit(np.sort(history.chance.uniform(at, at + 600.0, min(5_000_000, loaded))), everyone)
            at += 600.0
            history.update("totals")
        median_update(history, "totals", new_rows, 8 if loaded == 0 else 3)  # compile
        if loaded == 0:  # a new table again, with compiled code
            history = History(folder / "empty", spark, {"totals": options})
            took = median_update(history, "totals", lambda history=history: new_rows(history), repeats)  # type: ignore[misc]
        else:
            took = median_update(history, "totals", new_rows, repeats)
        groups = history.opened.nodes["totals"].store.statistics().rows
        found.append({"part": "customers", "rows": loaded, "groups": groups, "seconds": took})
    return found


def chain(folder: Path, spark: SparkSession, scale: float, repeats: int) -> list[dict[str, Any]]:
    """Rows that minutes, hours and days read for an update, with one late row in a hundred, in two ways."""
    found = []
    for mode in ("auto", "blocks"):
        tables = {
            "minutes": (
                "select date_trunc('minute', ts) as ts, key, sum(value) as v, count(*) as n from rows",
                "1 hour",
            ),
            "hours": ("select date_trunc('hour', ts) as ts, key, sum(v) as v, sum(n) as n from minutes", "1 day"),
            "days": ("select date_trunc('day', ts) as ts, key, sum(v) as v, sum(n) as n from hours", "1 day"),
        }
        options = {
            name: {"query": f"{query} group by 1, 2", "time": "ts", "partition": length, "mode": mode}
            for name, (query, length) in tables.items()
        }
        history = History(folder / mode, spark, options)
        hours = 10
        for start in range(hours):
            count = round(2_000_000 * scale)
            history.commit(np.sort(history.chance.uniform(start * HOUR, (start + 1) * HOUR, count)), 100)
        for name in tables:
            history.update(name)
        history.opened.bring_up_to_date(spark)
        read: dict[str, list[int]] = {name: [] for name in tables}
        for step in range(repeats):
            begin = hours * HOUR + 2.0 * step
            late = history.chance.uniform(0, hours * HOUR, round(NEW_ROWS * scale) // 100)
            new = history.chance.uniform(begin, begin + 2.0, round(NEW_ROWS * scale))
            history.commit(np.sort(np.concatenate([late, new])), 100)
            for name in tables:
                read[name].append(history.update(name)[1])
        mean = {name: statistics.mean(rows) for name, rows in read.items()}
        found.append({"part": "chain", "mode": mode, **mean, "together": sum(mean.values())})
    return found


PARTS = {"hour": hour, "customers": customers, "chain": chain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    spark = open_session("incremental", "local[*]", {"spark.driver.memory": "4g"})
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = PARTS[arguments.part](Path(folder), spark, arguments.scale, arguments.repeats)
    finally:
        spark.stop()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
