"""Running the updates that a track was given, one after the other: what they read or compute in common, once.

The tables of a group that are updated together read the same files, which Spark keeps meanwhile. If they hold stream
queries over the same rows in the same order, one pass computes all of them. Every table still commits for itself.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.core import Update
from headgate.stream.spark.update import HostedUpdate, share_passes
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.read import FileReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_updates(
    updates: Sequence[Update],
    node_of: Callable[[Update], Node],
    spark: SparkSession,
    clock: Callable[[], float],
) -> Iterator[Update]:
    """Run ``updates`` one after the other; each is given out when it is committed or has failed."""
    context = spark.sparkContext
    together = len(updates) > 1
    with FileReader(spark, keep=together) as files:
        queries = _ask_all(updates, node_of, spark, files, clock) if together else {}
        for update in updates:
            if update.status != "failed":
                context.setJobGroup(f"headgate {update.name}", f"update of {update.name}", True)
                with _outcome_noted(update, clock):
                    node_of(update).run(update, spark, files, queries.get(update.name))
            yield update


def _ask_all(
    updates: Sequence[Update],
    node_of: Callable[[Update], Node],
    spark: SparkSession,
    files: FileReader,
    clock: Callable[[], float],
) -> dict[str, HostedUpdate]:
    """The stream queries of all updates that hold any, with those over the same rows made one pass."""
    queries: dict[str, HostedUpdate] = {}
    for update in updates:
        with _failure_noted(update, clock):
            query = node_of(update).query(update, spark, files)
            if query is not None:
                queries[update.name] = query
    files.release_at_the_end(share_passes(queries.values()))
    return queries


@contextmanager
def _failure_noted(update: Update, clock: Callable[[], float]) -> Iterator[None]:
    update.began, started = clock(), time.perf_counter()
    try:
        yield
    except BaseException as error:
        note_failure(update, error, time.perf_counter() - started)


@contextmanager
def _outcome_noted(update: Update, clock: Callable[[], float]) -> Iterator[None]:
    update.began, started = clock(), time.perf_counter()
    try:
        yield
    except BaseException as error:
        note_failure(update, error, time.perf_counter() - started)
    else:
        update.commits(time.perf_counter() - started)


def note_failure(update: Update, error: BaseException, seconds: float = 0.0) -> None:
    """The update has failed: what to tell of the error is what lies behind it, if it was raised because of another."""
    shown = error.__cause__ or error
    lines = str(error).strip().splitlines()
    summary = lines[0] if lines else type(error).__name__
    update.fails(summary, "".join(traceback.format_exception(shown)), seconds)
