"""Nodes that are loaded from a source: streams and dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.warehouse.sources import Limit, Pending, Range
from headgate.warehouse.updates.loading import DimensionLoader, Loaded, StreamLoader
from headgate.warehouse.updates.nodes.node import Job, Node, Outcome, PendingUpdate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.warehouse.updates.reads import Reads


class StreamNode(Node):
    """A base table and its source. ``period`` is as stated, or learned from arrivals; None before there were two."""

    #: what the latest arrivals count for when a period is learned
    LEARNING = 0.3

    def __init__(self, loader: StreamLoader) -> None:
        self.name = loader.spec.name
        self.store = loader.table
        self.spec = loader.spec
        self._loader = loader
        self._newest_first = loader.spec.catch_up == "newest"
        self.period = loader.spec.period
        self._last_arrival: float | None = None

    def pending(self) -> PendingUpdate | None:
        waiting = self._loader.spec.source.latest(self._loader.offset)
        if not waiting.chunks:
            return None
        return PendingUpdate(self._gain(waiting), waiting.oldest)

    def _gain(self, waiting: Pending) -> float:
        """Event times are not known before the data is read; what arrived over so long tells of about so long."""
        oldest, newest = waiting.oldest or 0.0, waiting.newest or 0.0
        if self._last_arrival is not None and newest <= self._last_arrival:
            return 0.0  # older than what has been loaded already
        if self._last_arrival is not None:
            oldest = max(oldest, self._last_arrival)
        return max(newest - oldest, 0.0) + (self.period or 0.0)

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        limit = Limit(
            seconds=None if most_seconds == math.inf else most_seconds,
            first="newest" if self._newest_first else "oldest",
        )
        wanted = self._loader.next_range(limit)
        return None if wanted is None else _Load(self._loader, wanted)

    def end(self, job: Job, outcome: Outcome | None) -> None:
        if outcome is None or outcome.arrived is None:
            return
        _, newest, chunks = outcome.arrived
        before, self._last_arrival = self._last_arrival, max(newest, self._last_arrival or newest)
        if self._loader.spec.period is None and before is not None and newest > before:
            seen = (newest - before) / chunks
            self.period = seen if self.period is None else self.period + self.LEARNING * (seen - self.period)


class DimensionNode(Node):
    """A table without event time, replaced as a whole when its source has changed."""

    def __init__(self, loader: DimensionLoader) -> None:
        self.name = loader.spec.name
        self.store = loader.table
        self._loader = loader

    def pending(self) -> PendingUpdate | None:
        # Looked at whole, since files may be replaced by others of the same name.
        everything = self._loader.everything()
        if everything is None or self._loader.is_loaded(everything):
            return None
        return PendingUpdate(0.0, everything.newest)

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        wanted = self._loader.everything()
        return None if wanted is None or self._loader.is_loaded(wanted) else _Load(self._loader, wanted)


@dataclass(frozen=True, slots=True)
class _Load(Job):
    loader: StreamLoader | DimensionLoader
    wanted: Range

    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        loaded: Loaded = self.loader.load(spark, self.wanted)
        spans = () if loaded.span is None else (loaded.span,)
        arrived = (self.wanted.oldest, self.wanted.newest, self.wanted.chunks)
        return Outcome(loaded.version, loaded.rows, loaded.rejected, loaded.freshness, spans, loaded.work, arrived)
