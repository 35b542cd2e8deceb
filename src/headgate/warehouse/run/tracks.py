"""Tracks: a few long-lived threads, each with a Spark session of its own, that run one update at a time.

Spark finds the pool and the group of a job by the thread that submits it, and the views that SQL reads by the session;
so both are set for every update, and no two updates share a session.

The tables of a group that are updated together read the same files, which Spark keeps meanwhile. If they hold stream
queries over the same rows in the same order, one pass computes all of them. Every table still commits for itself.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.core import Update
from headgate.stream.spark.update import HostedUpdate, share_passes
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.spark_files import FileReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Inbox = queue.SimpleQueue[Sequence[Update] | None]


class Tracks:
    """The threads. ``report`` is called on them, once for every update, when it is committed or has failed.

    ``node_of`` finds the node that makes an update. Everything else is for one thread at a time.
    """

    def __init__(
        self,
        spark: SparkSession,
        node_of: Callable[[Update], Node],
        report: Callable[[Update], None],
        clock: Callable[[], float],
    ) -> None:
        self._spark = spark
        self._node_of = node_of
        self._report = report
        self._clock = clock
        self._inboxes: list[_Inbox] = []
        self._threads: list[threading.Thread] = []

    def resize(self, count: int) -> None:
        """Start threads, or let the last ones go when they have done what they were given."""
        while len(self._inboxes) < count:
            inbox: _Inbox = queue.SimpleQueue()
            number = len(self._inboxes)
            thread = threading.Thread(target=self._run, args=(inbox,), name=f"headgate-track-{number}")
            thread.daemon = True
            self._inboxes.append(inbox)
            self._threads.append(thread)
            thread.start()
        while len(self._inboxes) > count:
            self._inboxes.pop().put(None)

    def submit(self, track: int, updates: Sequence[Update]) -> None:
        """Have a track run updates of one layer, one after the other."""
        self._inboxes[track].put(updates)

    def close(self) -> None:
        """Let all threads end after what they were given, and wait for them."""
        self.resize(0)
        for thread in self._threads:
            thread.join()

    def _run(self, inbox: _Inbox) -> None:
        session: SparkSession | None = None
        while (updates := inbox.get()) is not None:
            left = list(updates)
            try:
                session = session or self._spark.newSession()
                # the pools of Spark's scheduler are named after the layers: see pools.xml
                session.sparkContext.setLocalProperty("spark.scheduler.pool", updates[0].layer)
                for _ in run_updates(updates, self._node_of, session, self._clock):
                    self._report(left.pop(0))
            except BaseException as error:  # around the updates: Spark is gone, or what they share cannot be planned
                for update in left:
                    update.began = self._clock()
                    update.fails(error)
                    self._report(update)


# --- the updates of one track, one after the other --------------------------------------------------------------


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
        update.fails(error, time.perf_counter() - started)


@contextmanager
def _outcome_noted(update: Update, clock: Callable[[], float]) -> Iterator[None]:
    update.began, started = clock(), time.perf_counter()
    try:
        yield
    except BaseException as error:
        update.fails(error, time.perf_counter() - started)
    else:
        update.commits(time.perf_counter() - started)
