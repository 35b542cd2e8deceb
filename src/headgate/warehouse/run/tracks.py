"""Tracks: a few long-lived threads, each with a Spark session of its own, that run one update at a time.

Spark finds the pool and the group of a job by the thread that submits it, and the views that SQL reads by the session;
so both are set for every job, and no two jobs share a session.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.warehouse.schedule.trouble import Failure
from headgate.warehouse.updates.nodes import Job, Outcome
from headgate.warehouse.updates.reads import Reads
from headgate.warehouse.updates.sharing import share_passes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Task:
    """Jobs to run one after the other, by the names of their nodes, in one of Spark's pools."""

    jobs: Mapping[str, Job]
    pool: str


@dataclass(frozen=True, slots=True)
class Done:
    """A job that has been run, with what came of it: ``outcome`` or ``failure``; ``left`` are to come in its task."""

    track: int
    name: str
    left: int
    outcome: Outcome | None
    failure: Failure | None
    began: float
    seconds: float


class Tracks:
    """The threads. ``report`` is called on them, once for every job.

    Everything else is for one thread at a time.
    """

    def __init__(self, spark: SparkSession, report: Callable[[Done], None], clock: Callable[[], float]) -> None:
        self._spark = spark
        self._report = report
        self._clock = clock
        self._inboxes: list[queue.SimpleQueue[Task | None]] = []
        self._threads: list[threading.Thread] = []

    def resize(self, count: int) -> None:
        """Start threads, or let the last ones go when they have done what they were given."""
        while len(self._inboxes) < count:
            inbox: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
            number = len(self._inboxes)
            thread = threading.Thread(target=self._run, args=(number, inbox), name=f"headgate-track-{number}")
            thread.daemon = True
            self._inboxes.append(inbox)
            self._threads.append(thread)
            thread.start()
        while len(self._inboxes) > count:
            self._inboxes.pop().put(None)

    def submit(self, track: int, task: Task) -> None:
        self._inboxes[track].put(task)

    def close(self) -> None:
        """Let all threads end after what they were given, and wait for them."""
        self.resize(0)
        for thread in self._threads:
            thread.join()

    def _run(self, number: int, inbox: queue.SimpleQueue[Task | None]) -> None:
        session: SparkSession | None = None
        while (task := inbox.get()) is not None:
            left = dict(task.jobs)
            try:
                session = session or self._spark.newSession()
                self._work_off(number, task, session, left)
            except BaseException as error:  # around the jobs: Spark is gone, or what they share cannot be planned
                failure = failure_of(error, self._clock())
                for name in tuple(left):
                    del left[name]
                    self._report(Done(number, name, len(left), None, failure, self._clock(), 0.0))

    def _work_off(self, number: int, task: Task, session: SparkSession, left: dict[str, Job]) -> None:
        """Run the jobs of a task; whoever has been reported is out of ``left``."""
        context = session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", task.pool)
        with Reads(session, keep=len(task.jobs) > 1) as reads:
            if len(task.jobs) > 1:
                share_passes(task.jobs.values(), session, reads)
            for name, job in task.jobs.items():
                context.setJobGroup(f"headgate {name}", f"update of {name}", True)
                outcome, failure = None, None
                began, started = self._clock(), time.perf_counter()
                try:
                    outcome = job.run(session, reads)
                except BaseException as error:
                    failure = failure_of(error, self._clock())
                del left[name]
                self._report(Done(number, name, len(left), outcome, failure, began, time.perf_counter() - started))


def failure_of(error: BaseException, now: float) -> Failure:
    """What to tell of an error: what lies behind it, if it was raised because of another."""
    shown = error.__cause__ or error
    lines = str(error).strip().splitlines()
    return Failure(now, lines[0] if lines else type(error).__name__, "".join(traceback.format_exception(shown)))
