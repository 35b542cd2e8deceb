"""Tracks: a few long-lived threads, each with its own Spark session, that run one update at a time.

Spark finds the pool and the group of a job by the thread that submits it. So both are set for every update. It finds
the temporary views that SQL reads by the session. So no two tracks share a session.

The tables of a group that are updated together read the same files, which Spark keeps in memory meanwhile. If they hold
stream queries over the same rows in the same order, one pass computes all of them. Each table has its own commit.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from headgate.core import Update
from headgate.stream.spark.update import HostedUpdate, share_passes
from headgate.warehouse.run.spark_life import within
from headgate.warehouse.session import another_session
from headgate.warehouse.transient import is_transient
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.spark_files import FileReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: how long Spark has to take the order to cancel a job; one that hangs never does
ORDER_SECONDS = 1.0


class _Submitted:
    """Updates that were submitted together. Those that have not begun can be withdrawn, by another thread.

    Invariant: ``_preparing``, if there is one, waits, too, and cannot be withdrawn.
    """

    def __init__(self, updates: Sequence[tuple[Update, Node]]) -> None:
        self.updates = [update for update, _ in updates]
        self._nodes = {update.name: node for update, node in updates}
        self._waiting = list(self.updates)
        self._preparing: Update | None = None
        self._withdrawn: list[Update] = []
        self._lock = threading.Lock()

    def node_of(self, update: Update) -> Node:
        return self._nodes[update.name]

    def prepares(self, update: Update) -> bool:
        """Whether an update may be prepared. It may not if it was withdrawn; until the next one is, it cannot be."""
        with self._lock:
            is_there = any(other is update for other in self._waiting)
            self._preparing = update if is_there else None
            return is_there

    def begins(self, update: Update) -> bool:
        """Whether an update may begin. It may not if it was withdrawn; from now on, it cannot be."""
        with self._lock:
            self._preparing = None
            return self._leaves(update)

    def withdraws(self, update: Update) -> bool:
        """Whether an update had not begun, and now never will."""
        with self._lock:
            if update is self._preparing or not self._leaves(update):
                return False
            self._withdrawn.append(update)
            return True

    def _leaves(self, update: Update) -> bool:
        before = len(self._waiting)
        self._waiting = [other for other in self._waiting if other is not update]
        return len(self._waiting) < before

    def left(self, ended: Sequence[Update]) -> list[Update]:
        """Those that have neither ended nor were withdrawn; from now on, they cannot be."""
        with self._lock:
            self._waiting = []
            gone = {id(update) for update in (*ended, *self._withdrawn)}
            return [update for update in self.updates if id(update) not in gone]


_Inbox = queue.SimpleQueue[_Submitted | None]


class UpdateStopped(BaseException):
    """Raised in a thread whose update did not end when it was cancelled."""


class Tracks:
    """The threads. They call ``report`` once for every update, when it was committed or failed.

    ``node_of`` finds the node that an update belongs to. The methods are for one thread at a time.
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
        #: {track: the thread that its updates were submitted to, which may be of a track that was removed, and they}
        self._submitted_to: dict[int, tuple[_Inbox, threading.Thread, _Submitted]] = {}
        #: threads of tracks that were removed; they finish their updates
        self._ending: list[threading.Thread] = []

    def resize(self, count: int) -> None:
        """Start threads, or end the last ones when they have finished what was submitted."""
        while len(self._inboxes) < count:
            inbox, thread = self._started(len(self._inboxes))
            self._inboxes.append(inbox)
            self._threads.append(thread)
        while len(self._inboxes) > count:
            self._inboxes.pop().put(None)
            self._ending.append(self._threads.pop())

    def _started(self, number: int) -> tuple[_Inbox, threading.Thread]:
        inbox: _Inbox = queue.SimpleQueue()
        thread = threading.Thread(target=self._run, args=(inbox,), name=f"headgate-track-{number}", daemon=True)
        thread.start()
        return inbox, thread

    def use(self, spark: SparkSession) -> None:
        """Go on with another Spark, from the next update on."""
        self._spark = spark

    def submit(self, track: int, updates: Sequence[Update]) -> None:
        """Run updates of one layer on a track, one after the other."""
        # The nodes as they are now: the warehouse may be opened again while an update does not end.
        job = _Submitted([(update, self._node_of(update)) for update in updates])
        self._submitted_to[track] = (self._inboxes[track], self._threads[track], job)
        self._inboxes[track].put(job)

    def withdraw(self, updates: Iterable[Update]) -> list[Update]:
        """Take back those of ``updates``, which were submitted, that have not begun: they will not begin."""
        return [update for update in updates if self._submitted_to[update.track][2].withdraws(update)]

    def close(self, timeout: float | None = None) -> None:
        """End all threads when they have finished what was submitted; wait so long for each, by default for ever."""
        self.resize(0)
        for thread in self._ending:
            thread.join(timeout)

    def replace(self, track: int) -> None:
        """Give a track a new thread, because its update does not end.

        The old thread gets an exception, which ends code in Python, but not a call that never returns. It still reports
        its updates when they end, and is not waited for.
        """
        inbox, stuck, _ = self._submitted_to[track]
        inbox.put(None)
        if stuck in self._ending:  # the track was removed while its update ran: nobody waits for it
            self._ending.remove(stuck)
        if track < len(self._threads) and self._threads[track] is stuck:
            self._inboxes[track], self._threads[track] = self._started(track)
        if stuck.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(stuck.ident), ctypes.py_object(UpdateStopped))

    def cancel(self, names: Iterable[str]) -> None:
        """Cancel the Spark jobs of the nodes called ``names``; others on the same Spark may be a user's own."""

        def cancel() -> None:
            for name in names:
                with suppress(Exception):  # a Spark that is lost has no jobs
                    self._spark.sparkContext.cancelJobGroup(_job_group(name))

        within(ORDER_SECONDS, cancel)

    def _run(self, inbox: _Inbox) -> None:
        spark: SparkSession | None = None
        session: SparkSession | None = None
        while (job := inbox.get()) is not None:
            ended: list[Update] = []
            try:
                if session is None or spark is not self._spark:
                    spark = self._spark
                    session = another_session(spark)
                # The pools of Spark's scheduler have the names of the layers: see pools.xml.
                session.sparkContext.setLocalProperty("spark.scheduler.pool", job.updates[0].layer)
                for update in run_updates(job.updates, job.node_of, session, self._clock, job):
                    ended.append(update)
                    self._report(update)
            except BaseException as error:  # not in one update: Spark has stopped, or a shared pass cannot be planned
                for update in job.left(ended):
                    update.began = self._clock()
                    update.was_passed_over = len(job.updates) > 1 and update.status != "failed"
                    update.fails(error, transient=is_transient(error))
                    self._report(update)


def _job_group(name: str) -> str:
    """What Spark calls the jobs of a node's updates."""
    return f"headgate {name}"


# --- the updates of one track, one after the other --------------------------------------------------------------


def run_updates(
    updates: Sequence[Update],
    node_of: Callable[[Update], Node],
    spark: SparkSession,
    clock: Callable[[], float],
    job: _Submitted | None = None,
) -> Iterator[Update]:
    """Run ``updates`` one after the other; yields each when it was committed or failed.

    One that was withdrawn from their ``job`` before its turn is left out.
    """
    context = spark.sparkContext
    together = len(updates) > 1
    with FileReader(spark, keep=together) as files:
        hosted = _prepare_all(updates, node_of, spark, files, clock, job) if together else {}
        for update in updates:
            if job is not None and not job.begins(update):
                continue
            if update.status != "failed":
                context.setJobGroup(_job_group(update.name), f"update of {update.name}", True)
                node = node_of(update)
                with _failure_noted(update, clock, node.runs_user_code) as started:
                    node.run(update, spark, files, hosted.get(update.name))
                    update.commits(time.perf_counter() - started)
            yield update


def _prepare_all(
    updates: Sequence[Update],
    node_of: Callable[[Update], Node],
    spark: SparkSession,
    files: FileReader,
    clock: Callable[[], float],
    job: _Submitted | None,
) -> dict[str, HostedUpdate]:
    """The stream queries of the updates that have any; queries over the same rows share a pass."""
    prepared: dict[str, HostedUpdate] = {}
    for update in updates:
        if job is not None and not job.prepares(update):
            continue
        with _failure_noted(update, clock):
            hosted = node_of(update).prepare(update, spark, files)
            if hosted is not None:
                prepared[update.name] = hosted
            update.began = 0.0  # its own time begins when its turn comes
    files.release_at_end(share_passes(prepared.values()))
    return prepared


@contextmanager
def _failure_noted(update: Update, clock: Callable[[], float], in_user_code: bool = True) -> Iterator[float]:
    """Note when the update began, and its failure if there is one. Gives the start on the performance counter."""
    update.began, started = clock(), time.perf_counter()
    try:
        yield started
    except BaseException as error:
        transient = is_transient(error, in_user_code=in_user_code)
        update.fails(error, time.perf_counter() - started, transient=transient)
