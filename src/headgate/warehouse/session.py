"""The Spark session of a warehouse, set up for many small jobs from a few threads.

Every setting that differs from Spark's default has its reason beside it; measurements are in ``docs/warehouse.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: the pools that jobs are submitted to; few and fixed, because Spark never removes one
LIVE_POOL, BACKFILL_POOL, MAINTENANCE_POOL = "live", "backfill", "maintenance"

_SETTINGS: Mapping[str, str] = {
    # Tasks of a long job must not keep those of a short one waiting.
    "spark.scheduler.mode": "FAIR",
    # Small updates: 200 reduce tasks would be 199 too many, and adaptive execution re-plans what is known already.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.singleTaskExecution.enabled": "true",
    # Hundreds of tables have thousands of generated classes; with the default of 100 they are compiled again and again.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Files are named one by one; listing them must not become a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.locality.wait": "0",
    # Event times are UTC with microseconds everywhere; INT96 is what nobody else reads.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
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


def open_session(name: str, master: str = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session for the warehouse ``name``; ``conf`` has the last word on every setting."""
    from pyspark.sql import SparkSession

    pools = resources.files("headgate.warehouse").joinpath("pools.xml")
    settings = {**_SETTINGS, "spark.scheduler.allocation.file": f"file://{pools}", **(conf or {})}
    builder = SparkSession.builder.appName(f"headgate {name}").master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
