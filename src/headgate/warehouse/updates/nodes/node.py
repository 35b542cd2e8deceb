"""A node of an open warehouse: what it could do next, and doing it.

A node knows its table, its sources and what of them it has not taken in yet. It is asked ``pending`` (cheap, often);
``begin`` makes an update out of it, a ``Job`` that any thread may run (one Spark job and one commit), and ``end`` tells
the node how that went. Those built on it are then told ``source_changed``. A node knows nothing of order, threads or
other tables. Everything but ``Job.run`` is for one thread at a time, and whoever runs jobs must see to it that nodes of
the same table (its updates, its backfill, its upkeep) never run at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.core.trace import OperatorFigures
from headgate.stream.spark.update import Update
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.plan import Span
from headgate.warehouse.updates.state import UpdateState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.warehouse.updates.reads import Reads


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """What an update would bring now.

    ``gain`` is how much fresher the table would become, in seconds of event time; data that came late and changes only
    the past brings none but still has to be taken in. ``arrived`` is when the oldest of it came, wall-clock seconds.
    """

    gain: float
    arrived: float | None = None

    @property
    def seconds(self) -> float:
        """The gain, and something for an update that only repairs the past, so that it is not forgotten."""
        return max(self.gain, 1e-3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An update that was made.

    ``spans`` are the event times that changed. ``work`` are the seconds in which data was read, computed and written:
    the rest of an update is Headgate's own. ``arrived`` are, for what was loaded from a source, when the first and the
    last chunk came and how many there were. ``operators`` tell of the stream queries inside the table.
    """

    version: int
    rows: int
    rejected: int
    freshness: int | None
    spans: tuple[Span, ...]
    work: float
    arrived: tuple[float, float, int] | None = None
    operators: tuple[OperatorFigures, ...] = ()


class Job(ABC):
    """One update that has begun."""

    @abstractmethod
    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        """Compute and commit; ``reads`` is how to read tables, if others read the same.

        If it raises, nothing was committed, or the next update finds out what was.
        """

    def hosted(self, spark: SparkSession, reads: Reads) -> Update | None:
        """The update with the stream queries that the table's function asks for; None if there are none."""
        return None


class Node(ABC):
    """One table of the warehouse, or something that is done to one."""

    name: str
    store: TableStore
    sources: tuple[str, ...] = ()

    @property
    def state(self) -> UpdateState:
        """What the newest commit of the table says."""
        return UpdateState.from_json(self.store.state, self.store.directory.name)

    @property
    def freshness(self) -> int | None:
        return self.state.freshness

    @abstractmethod
    def pending(self) -> PendingUpdate | None:
        """What an update would bring, or None if there is nothing to do."""

    @abstractmethod
    def begin(self, most_seconds: float = math.inf) -> Job | None:
        """An update that takes in at most ``most_seconds`` of data; None if there is nothing to do after all."""

    def end(self, job: Job, outcome: Outcome | None) -> None:  # noqa: B027 - most have nothing to do
        """The update is committed, or with None has failed and is still to be done."""

    def source_changed(self, source: str) -> None:  # noqa: B027 - most have nothing to do
        """A table that this one is built on has been updated."""

    def update(self, spark: SparkSession, most_seconds: float = math.inf) -> Outcome | None:
        """Begin, run and end one update, for whoever has one thread only."""
        job = self.begin(most_seconds)
        if job is None:
            return None
        outcome = None
        try:
            outcome = job.run(spark)
        finally:
            self.end(job, outcome)
        return outcome
