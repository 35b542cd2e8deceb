"""The Spark session of the contenders on plain Spark.

The settings are those that Headgate runs with, as far as they are not about Headgate: a contender must not lose for
want of tuning. What only one contender needs it adds itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.spark import localfs
from benchmarks.spark.task import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.driver.memory": "2g",
    # A query that is stopped looks for the reason in the text of its error with a regular expression that needs a deep
    # stack; without one it ends with a stack overflow on standard error.
    "spark.driver.extraJavaOptions": "-Xss16m",
    # Jobs in the order submitted. FAIR pools, one for each query with its priority as the weight, are worse: with more
    # queries than cores most pools run nothing, pools that run nothing tie, and Spark then goes by name: the last in
    # the alphabet starve.
    "spark.scheduler.mode": "FIFO",
    # Small updates: nothing to spread over many tasks, and nothing to re-plan.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.singleTaskExecution.enabled": "true",
    # With the default of 100 classes, 24 tables would compile the same code again and again.
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.locality.wait": "0",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "25",
    "spark.sql.maxPlanStringLength": "1000",
    # One step less in every write: nobody asks for the empty marker file.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}

STREAMING: Mapping[str, str] = {
    # A query without news looks again after this long. Looking means listing a directory or reading a log: at the
    # default of 10 ms two dozen idle queries keep a core busy.
    "spark.sql.streaming.pollingDelay": "100ms",
    # An extra batch after each batch, only to drop state that is out of date, can wait for the next data.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.stopTimeout": "10s",
}


def all_settings(task: Task, more: Mapping[str, str]) -> dict[str, str]:
    """`SETTINGS`, the quiet file system unless the task says otherwise, and then `more`."""
    files = {} if task.forking else localfs.settings(task.out.parent)
    return {**SETTINGS, **files, **more}


def open_session(name: str, task: Task, more: Mapping[str, str]) -> SparkSession:
    """A session of the contender `name` with settings of its own."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(task.master)
    for key, value in all_settings(task, more).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def run_until_end(spark: SparkSession, task: Task) -> None:
    """Waits for the end of the task; a query that fails before ends it with its error."""
    spark.streams.awaitAnyTermination(math.ceil(task.left))
    if task.left > 0:
        raise RuntimeError("a streaming query ended before its time without an error")
    # From here on batches are interrupted, which Spark would report as errors.
    spark.sparkContext.setLogLevel("OFF")
