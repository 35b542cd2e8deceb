"""Whether Spark is alive, and starting it again in the same process when it has died."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_alive(spark: SparkSession) -> bool:
    """Whether the Java process of Spark answers and its context is not stopped."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def forget_spark() -> None:
    """Let go of a Spark that has died, so that another one can be started in this process.

    PySpark keeps the connection to its Java process for the life of a Python process, whether or not the Java process
    still lives. It has no public way to let go of it.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    process = getattr(gateway, "proc", None)
    if process is not None:  # if it lives, it has lost its context, and must not keep its memory
        process.kill()
        process.wait()
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")  # that the process is not there any more
        if context is not None:
            context.stop()
    with contextlib.suppress(Exception):
        if gateway is not None:
            gateway.shutdown()
    with SparkContext._lock:
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def stop_session(spark: SparkSession) -> None:
    """Stop Spark; if it has died already, let go of it."""
    if is_alive(spark):
        spark.stop()
    else:
        forget_spark()
