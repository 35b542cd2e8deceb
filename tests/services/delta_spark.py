"""Delta's own reader on a Spark of its own, as another team would use it: one process that answers questions.

``scripts/ensure_delta_spark.sh`` makes the environment. The reader needs an older Spark than Headgate, so it cannot
live in the process of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

CACHE = Path(os.environ.get("HEADGATE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "headgate"))
HOME = CACHE.expanduser() / "delta-spark-4.2.0"

#: settings of a Spark, of ours as well, that can make and find Delta tables
SETTINGS = {
    "spark.driver.extraClassPath": ":".join(map(str, sorted((HOME / "jars").glob("*.jar")))),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}

#: reads one question in a line, answers in a line; rows are lists of values, times are microseconds
_SERVER = """
import json, sys
from pyspark.sql import SparkSession

settings = {
    **json.loads(sys.argv[1]),
    # Tables of a few rows: 50 tasks for the log of each version, and compiling well what runs once, take minutes.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
builder = SparkSession.builder.master("local[1]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for line in sys.stdin:
    question = json.loads(line)
    try:
        if "sql" in question:
            rows = spark.sql(question["sql"]).collect()
        else:
            reader = spark.read.format("delta")
            for key, value in question["options"].items():
                reader = reader.option(key, value)
            rows = reader.load(question["table"]).selectExpr(*question["columns"]).collect()
        answer = {"rows": [list(row) for row in rows]}
    except Exception as error:
        answer = {"error": str(error)[:2000]}
    print(json.dumps(answer), flush=True)
"""


class DeltaSpark:
    """The reader while it runs, as a context; ``settings`` are further ones of its Spark."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[str] | None = None

    @staticmethod
    def missing() -> str:
        """Why there is none; empty if there is one."""
        return "" if (HOME / "ready").exists() else "Delta's own reader is not installed: scripts/ensure_delta_spark.sh"

    def __enter__(self) -> DeltaSpark:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
        self._process = subprocess.Popen(
            [HOME / "venv/bin/python", "-c", _SERVER, json.dumps(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={key: value for key, value in environment.items() if key != "SPARK_HOME"},
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(300.0)
            finally:
                self._process.kill()
                self._process.wait()
                assert self._process.stdout is not None
                self._process.stdout.close()

    def read(self, table: Path, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
        """The rows of a table: ``columns`` are SQL expressions, ``options`` are those of Delta's reader."""
        return self._ask({"table": str(table), "columns": columns, "options": options})

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._ask({"sql": query})

    def _ask(self, question: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("Delta's own reader has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"Delta's own reader: {answer['error']}")
        return [tuple(row) for row in answer["rows"]]
