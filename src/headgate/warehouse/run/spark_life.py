"""Whether Spark is alive, and starting it again in the same process when it has died.

A Java process that hangs, because it was frozen or only collects garbage any more, takes calls and never answers them.
So nothing here waits for it without a limit.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: how long Spark has to answer before it counts as lost: collecting garbage may take a while
ANSWER_SECONDS = 20.0
#: the same at the end of a run, which should not take long, and how long it has to stop before its process is ended
LAST_ANSWER_SECONDS, CLOSE_SECONDS = 3.0, 10.0


def within(limit: float, call: Callable[[], None]) -> bool:
    """Whether a call has returned within ``limit`` seconds; if not, a thread that nobody waits for is left with it."""
    thread = threading.Thread(target=call, name="headgate-spark-call", daemon=True)
    thread.start()
    thread.join(limit)
    return not thread.is_alive()


def is_alive(spark: SparkSession, limit: float = ANSWER_SECONDS) -> bool:
    """Whether the Java process of Spark answers within ``limit`` seconds and its context is not stopped."""
    answers: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            answers.append(not spark.sparkContext._jsc.sc().isStopped())

    within(limit, ask)
    return answers == [True]


def end_process() -> None:
    """End the Java process of a Spark that we have started, if there is one; calls that wait for it fail then."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
        if process.stdin is not None:  # by which Java notices that we have ended
            process.stdin.close()


def forget_spark() -> None:
    """Let go of a Spark that has died, so that another one can be started in this process.

    PySpark keeps the connection to its Java process for the life of a Python process, whether or not the Java process
    still lives. It has no public way to let go of it.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    end_process()  # if it lives, it has lost its context, and must not keep its memory
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

    def stop() -> None:
        with contextlib.suppress(Exception):
            spark.stop()

    if not is_alive(spark, LAST_ANSWER_SECONDS) or not within(CLOSE_SECONDS, stop):
        forget_spark()
