"""A Spark Declarative Pipelines project, run as it is: by Headgate, and by `spark-pipelines run` over and over.

Both have the same files, which arrive once a second, and the same machine. What counts is how old the newest rows are
that each table shows, over all tables and weighted by the priorities of the project's side file. `spark-pipelines run`
starts its Spark anew for each run, as the command does; a table shows new rows when its run is over.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.spark.environment import python_with_pipelines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADGATE, PIPELINES = "headgate run", "spark-pipelines run, repeated"
CONTENDERS = (HEADGATE, PIPELINES)
ENVIRONMENT = Path(__file__).parent / "results" / "environment"
SECONDS = 240.0
ROWS, EVERY, LOOK = 500, 1.0, 0.5
#: {table: priority}, and of those with event time {table: its column}
PRIORITIES = {"orders": 1.0, "alerts": 20.0, "by_minute": 5.0, "by_customer": 2.0}
TIMES = {"orders": "ts", "alerts": "ts", "by_minute": "minute"}

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@dp.table
def orders():
    return spark.readStream.schema("ts timestamp, customer string, amount double").json("LANDING")

@dp.table
def alerts():
    return spark.readStream.table("orders").where("amount > 95")

@dp.materialized_view
def by_minute():
    minute = F.date_trunc("minute", "ts").alias("minute")
    return spark.read.table("orders").groupBy(minute).agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
"""
SQL = """
CREATE MATERIALIZED VIEW by_customer AS
SELECT customer, max(ts) AS ts, sum(amount) AS amount FROM orders GROUP BY customer
"""


def measure(contender: str, seconds: float) -> Row:
    """The mean staleness of the project's tables over `seconds`, in a folder of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spec = _write_project(folder)
        ended = threading.Event()
        arrivals = threading.Thread(target=_arrive, args=(folder / "landing", ended))
        arrivals.start()
        started = time.time()
        freshness: dict[str, float] = dict.fromkeys(PRIORITIES, started)
        lock = threading.Lock()

        def show(newest: dict[str, float]) -> None:
            with lock:
                freshness.update(newest)

        staleness: dict[str, list[float]] = {table: [] for table in PRIORITIES}
        run = _headgate if contender == HEADGATE else _pipelines
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run, spec, started + seconds, show)
            while time.time() < started + seconds:
                time.sleep(LOOK)
                with lock:
                    for table, newest in freshness.items():
                        staleness[table].append(time.time() - newest)
        ended.set()
        arrivals.join()
        running.result()
    means = {table: sum(ages) / len(ages) for table, ages in staleness.items()}
    weighted = sum(PRIORITIES[table] * mean for table, mean in means.items()) / sum(PRIORITIES.values())
    return {"contender": contender, "weighted staleness": weighted, **means}


def _write_project(folder: Path) -> Path:
    (folder / "landing").mkdir()
    (folder / "transformations").mkdir()
    (folder / "transformations" / "orders.py").write_text(PYTHON.replace("LANDING", str(folder / "landing")))
    (folder / "transformations" / "customers.sql").write_text(SQL)
    spec = folder / "spark-pipeline.yml"
    storage = (folder / "storage").as_uri()
    spec.write_text(f"name: shop\nstorage: {storage}\nlibraries:\n  - glob:\n      include: transformations/**\n")
    options = {table: f"priority: {priority}" for table, priority in PRIORITIES.items()}
    options |= {table: f"{options[table]}, time: {column}" for table, column in TIMES.items()}
    tables = "".join(f"  {table}: {{{stated}}}\n" for table, stated in options.items())
    sources = f"  {folder / 'landing'}: {{settle: 0, partition: 10 minutes, period: {EVERY}}}\n"
    (folder / "headgate.yml").write_text(f"tables:\n{tables}sources:\n{sources}")
    return spec


def _arrive(landing: Path, ended: threading.Event) -> None:
    number = 0
    while not ended.wait(EVERY):
        now = datetime.now(UTC).isoformat()
        lines = [{"ts": now, "customer": f"c{row % 50}", "amount": float(row % 100)} for row in range(ROWS)]
        file = landing / f".{number:06d}.json"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        file.rename(landing / f"{number:06d}.json")
        number += 1


Show = Callable[[dict[str, float]], None]


def _headgate(spec: Path, until: float, show: Show) -> None:
    """Runs the command until `until`, and shows what the tables have committed."""
    from headgate.warehouse.reading import tables

    options = ["--for", f"{max(1.0, until - time.time()):.1f} s"]
    command_line = [sys.executable, "-m", "headgate.cli", "run", str(spec), *options]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command_line, cwd=spec.parent, stdout=silent, stderr=silent) as command:
        while command.poll() is None and time.time() < until:
            time.sleep(LOOK)
            directory = spec.parent / "shop.warehouse"
            if (directory / "tables").is_dir():
                found = {t.name: t.freshness / 1e6 for t in tables(directory) if t.freshness is not None}
                show({table: newest for table, newest in found.items() if table in PRIORITIES})


def _pipelines(spec: Path, until: float, show: Show) -> None:
    """Runs the pipeline again as soon as it has ended, and shows what its base table has then."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    python = sys.executable if _has_pipelines() else str(python_with_pipelines(ENVIRONMENT))
    command = [python, "-m", "pyspark.pipelines.cli", "run", "--spec", str(spec)]
    # The tables of one run must be known to the next, so the catalog is one that lasts: Hive's, in the folder.
    lasting = "--conf spark.sql.catalogImplementation=hive pyspark-shell"
    environment = {**os.environ, "SPARK_REMOTE": "local[*]", "PYSPARK_SUBMIT_ARGS": lasting}
    while (left := until - time.time()) > 0:
        try:
            ran = subprocess.run(
                command, cwd=spec.parent, env=environment, timeout=left, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            return
        if ran.returncode != 0:
            raise RuntimeError(f"spark-pipelines run failed with status {ran.returncode}: {ran.stderr[-2000:]}")
        files = [*(spec.parent / "spark-warehouse" / "orders").glob("*.parquet")]
        if files:
            newest = max(pc.max(pq.read_table(file, columns=["ts"]).column("ts")).as_py() for file in files)
            show(dict.fromkeys(PRIORITIES, newest.replace(tzinfo=newest.tzinfo or UTC).timestamp()))


def _has_pipelines() -> bool:
    return all(find_spec(package) is not None for package in ("grpc", "yaml", "zstandard"))


def run(context: Context) -> Results:
    if context.smoke:
        chosen = CONTENDERS if _has_pipelines() else (HEADGATE,)
        rows = context.points(measure, [{"contender": each, "seconds": 20.0} for each in chosen], timed=True)
        why = "" if len(chosen) == 2 else "; spark-pipelines left out: it needs pip install -e '.[benchmarks]'"
        return Results(rows, [Claim(BENCHMARK.claim, BENCHMARK.figure, f"too small to tell: a smoke run{why}", None)])
    seconds = context.seconds or SECONDS
    arguments = [{"contender": each, "seconds": seconds} for each in CONTENDERS]
    rows = context.points(measure, arguments * context.reps, timed=True)
    return Results(rows, claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    def mean(contender: str) -> float:
        found = [float(row["weighted staleness"]) for row in rows if row["contender"] == contender]
        return sum(found) / len(found)

    times = mean(PIPELINES) / mean(HEADGATE)
    return [Claim(BENCHMARK.claim, "a target of this project", f"{times:.1f} times", times >= 3)]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    axes.barh([row["contender"] for row in rows], [row["weighted staleness"] for row in rows])
    axes.set_xlabel("weighted staleness, s")


BENCHMARK = Benchmark(
    name="sdp",
    figure="Spark",
    claim="A Spark Declarative Pipelines project is 3 times less stale than with spark-pipelines run repeated.",
    takes="8 min",
    run=run,
    draw=draw,
    pivot=Pivot("contender", "contender", "weighted staleness"),
    reps=1,
)
