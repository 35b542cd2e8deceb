"""A node of an open warehouse: the work of one layer on one table.

A node knows its table, its sources and what of them the table does not have yet. It plans an ``Update`` (``plan``:
cheap, asked often), fixes what the update takes in (``begin``), runs it (``run``: one Spark job and one commit, on any
thread), and takes note of how that went (``end``). Nodes built on the table are then told ``source_changed``.

A node knows nothing of order, threads or other tables. Everything but ``query`` and ``run`` is for one thread at a
time, and whoever runs updates must see to it that the nodes of one table never run at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from headgate.core import Layer, Update, node_name
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader


class Node(ABC):
    """The work of one layer on one table."""

    table: str
    store: TableStore
    layer: Layer = "live"
    sources: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return node_name(self.table, self.layer)

    @property
    def state(self) -> CommitState:
        """What the newest commit of the table says."""
        return CommitState.from_json(self.store.state, self.store.directory.name)

    @property
    def freshness(self) -> int | None:
        return self.state.freshness

    @abstractmethod
    def plan(self) -> Update | None:
        """The update that could be made now, with what it would gain; None if there is nothing to do."""

    @abstractmethod
    def begin(self, most_seconds: float = math.inf) -> Update | None:
        """An update that takes in at most ``most_seconds`` of data; None if there is nothing to do after all."""

    def query(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        """The stream queries that the table's function asks for, if others could share them; to be given to ``run``."""
        return None

    @abstractmethod
    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        query: HostedUpdate | None = None,
    ) -> None:
        """Compute and commit, and write into ``update`` what was done; ``files`` reads the files of tables.

        If it raises, nothing was committed, or the next update finds out what was.
        """

    def end(self, update: Update) -> None:  # noqa: B027 - most have nothing to do
        """The update is committed, or has failed and is still to be done."""

    def source_changed(self, source: str) -> None:  # noqa: B027 - most have nothing to do
        """A table that this one is built on has been updated."""

    def update(self, spark: SparkSession, most_seconds: float = math.inf) -> Update | None:
        """Begin, run and end one update, for whoever has one thread only."""
        update = self.begin(most_seconds)
        if update is None:
            return None
        try:
            self.run(update, spark)
            update.commits(update.work)
        finally:
            self.end(update)
        return update

    def _planned(self, gained: float, arrived: tuple[float, float, int] | None = None) -> Update:
        return Update(self.table, self.layer, gained=gained, arrived=arrived)
