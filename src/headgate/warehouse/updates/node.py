"""A node of an open warehouse: the work of one layer on one table.

A node knows its table, its sources, and what of the sources is not in the table yet. It does four things, in this
order, for every update:

    plan    say what an update would gain; cheap, called often
    begin   fix what the update reads
    run     compute, write and commit: one Spark job, on any thread
    end     note whether the update was committed or failed

After a commit, ``source_changed`` is called on the nodes of the tables built on this one.

A node knows nothing of scheduling, threads or other tables. All methods but ``prepare`` and ``run`` are for one thread
at a time. The caller must not run two nodes of one table at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headgate.core import Layer, Update, node_name
from headgate.warehouse.sources.protocol import Pending
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.repairs import Repairs, repairs_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader


Known = TypeVar("Known")


def known(read: Callable[[], Known]) -> Known | None:
    """What a node says of its table, for reports; None if its log cannot be read now, which planning will report."""
    try:
        return read()
    except Exception:
        return None


class Node(ABC):
    """The work of one layer on one table."""

    table: str
    store: TableStore
    #: the table with its rejected rows, if it may have any
    rejected: TableStore | None = None
    layer: Layer = "live"
    sources: tuple[str, ...] = ()
    #: whether code of a user runs in its updates; if not, no error of them is the user's
    runs_user_code = False
    #: why the table must be computed anew before live updates go on; empty if it need not
    rebuild_reason: str = ""
    #: what the source said when it was last polled, by ``plan``; a node without a source has nothing to say
    last_poll: Pending = Pending()
    #: the version of the table whose state was last asked for, and the state
    _parsed: tuple[str, CommitState] | None = None

    @property
    def name(self) -> str:
        return node_name(self.table, self.layer)

    @property
    def state(self) -> CommitState:
        """What the newest commit of the table says. It is asked for often, so that it is parsed once per version."""
        version = self.store.version_id  # before the state: if there is a commit in between, it is parsed again
        if self._parsed is None or self._parsed[0] != version:
            self._parsed = (version, CommitState.from_json(self.store.state, self.store.directory.name))
        return self._parsed[1]

    @property
    def freshness(self) -> int | None:
        return self.state.freshness

    @property
    def repairs(self) -> Repairs | None:
        """The event times of the table that are still to be recomputed."""
        state = self.state
        return repairs_in(state.dirty, state.freshness) if state.dirty else None

    @abstractmethod
    def plan(self) -> Update | None:
        """The next update, with what it would gain; None if there is nothing to do."""

    @abstractmethod
    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        """Fix what a planned update reads, at most ``most_seconds`` of data; False if there is nothing to do after all.

        What it reads goes into ``update.plan``, for ``run`` and ``end``. ``update.gained`` becomes what that gains, and
        ``update.size``, if the node has it, how much it is: at most ``update.most``.
        """

    def prepare(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        """The update's stream queries, to be passed to ``run``; None if there are none that other tables could share.

        Called before ``run`` if several tables are updated together.
        """
        return None

    @abstractmethod
    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        """Compute, write and commit, and note the result in ``update``.

        ``files`` reads the files of source tables, ``hosted`` is what ``prepare`` returned. If this raises, nothing was
        committed, or the next update finds out what was.
        """

    def end(self, update: Update) -> None:  # noqa: B027 - most have nothing to do
        """The update was committed, or it failed and what it should have read is pending again."""

    def source_changed(self, source: str) -> None:  # noqa: B027 - most have nothing to do
        """A source of this table has been updated."""

    def waits(self) -> float:
        """The seconds until it should be planned again although nothing has come; infinity if it need not be."""
        return math.inf

    def retry_now(self) -> None:  # noqa: B027 - most have nothing to do
        """A user wants to try again at once what is waited with after a failure."""

    def update(self, spark: SparkSession, most_seconds: float = math.inf) -> Update | None:
        """Plan, begin, run and end one update, on this thread; None if there is nothing to do."""
        update = self.plan()
        if update is None or not self.begin(update, most_seconds):
            return None
        try:
            self.run(update, spark)
            update.commits(update.work)
        finally:
            self.end(update)
        return update

    def _planned(self, gained: float, arrived: tuple[float, float, int] | None = None) -> Update:
        return Update(self.table, self.layer, gained=gained, arrived=arrived)
