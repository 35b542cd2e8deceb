"""The Spark session of these benchmarks: the warehouse's own, on two cores, for Headgate and peers alike.

All of them run in one JVM, in turn, so that its compiler, its memory and whatever else happens on the machine is the
same for all. Hadoop's local file system is the one without processes (`benchmarks.spark.localfs`): Structured
Streaming, which writes many small files, would otherwise lose by a library that is missing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.spark import localfs
from benchmarks.stream_spark.process import INSTALLED
from headgate.warehouse.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2


@contextmanager
def spark_session(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that is stopped afterwards; `folder` is for what it needs on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    INSTALLED.mkdir(parents=True, exist_ok=True)
    settings = {"spark.driver.memory": "6g", "spark.local.dir": str(folder / "spark"), **localfs.settings(INSTALLED)}
    spark = open_session("benchmark", f"local[{CORES}]", {**settings, **(more or {})})
    try:
        yield spark
    finally:
        spark.stop()
