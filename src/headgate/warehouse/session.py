"""The Spark session of a warehouse, set up for many small jobs from a few threads.

Every setting that differs from Spark's default has its reason beside it; measurements are in ``docs/warehouse.md``.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: How large a packet of rows for Python may become. Spark measures it again after every row, which takes as long as all
#: the rest of the way to Python; a number that none can reach spares that, and the number of rows is limited anyway.
_PACKET_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ANY_SIZE, _SPARKS_OWN_SIZE = str(2**31 - 1), str(64 << 20)

_SETTINGS: Mapping[str, str] = {
    # Tasks of a long job must not keep those of a short one waiting.
    "spark.scheduler.mode": "FAIR",
    # Small updates: 200 reduce tasks would be 199 too many, and adaptive execution re-plans what is known already.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # Updates of a few files in one task: on two cores 48 ms in place of 65 (see `suit` for large ones).
    "spark.sql.optimizer.singleTaskExecution.enabled": "true",
    "spark.sql.optimizer.singleTaskExecution.maxNumFiles": "1000",
    # Hundreds of tables have thousands of generated classes; with the default of 100 they are compiled again and again.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Files are named one by one; listing them must not become a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.locality.wait": "0",
    # Event times are UTC with microseconds everywhere; INT96 is what nobody else reads.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    _PACKET_BYTES: _ANY_SIZE,
    # A driver that lives for weeks keeps little of what happened.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "25",
    "spark.scheduler.listenerbus.eventqueue.capacity": "50000",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.sql.maxPlanStringLength": "1000",
}

#: what suits jobs that read little: no shuffle where one task can do it all, and no planning anew half-way
_SMALL: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.singleTaskExecution.maxNumFiles": "1000",
}
#: what suits those that read much
_LARGE: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.optimizer.singleTaskExecution.maxNumFiles": "1",
}
#: up to how much one task is as fast as many
SMALL_BYTES = 8 << 20
#: up to how much a job reads, no packet of it can be too large
MODEST_BYTES = 64 << 20


def suit(session: SparkSession, bytes_to_read: int) -> None:
    """Set up ``session``, which must serve one job at a time, for a job that reads so much."""
    wanted = _SMALL if bytes_to_read <= SMALL_BYTES else _LARGE
    if session.conf.get("spark.sql.adaptive.enabled") != wanted["spark.sql.adaptive.enabled"]:
        for key, value in wanted.items():
            session.conf.set(key, value)
    packet = _ANY_SIZE if bytes_to_read <= MODEST_BYTES else _SPARKS_OWN_SIZE
    if session.conf.get(_PACKET_BYTES) != packet:
        session.conf.set(_PACKET_BYTES, packet)


def open_session(name: str, master: str = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session for the warehouse ``name``; ``conf`` has the last word on every setting."""
    from pyspark.sql import SparkSession

    files = resources.files("headgate.warehouse")
    settings = {
        **_SETTINGS,
        "spark.scheduler.allocation.file": f"file://{files.joinpath('pools.xml')}",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{files.joinpath('log4j2.properties')}",
    }
    if master.startswith("local"):
        # Functions of queries run in Python processes that Spark starts: with this interpreter, which has what the
        # user's functions import, and not with whatever `python3` is. They look for modules where this process does.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(_folders_added())
    settings |= conf or {}
    builder = SparkSession.builder.appName(f"headgate {name}").master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _folders_added() -> list[str]:
    """Where modules are looked for, apart from the interpreter's own folders."""
    installed = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))
    folders = map(os.path.abspath, sys.path)
    return [folder for folder in folders if os.path.exists(folder) and not folder.startswith(installed)]
