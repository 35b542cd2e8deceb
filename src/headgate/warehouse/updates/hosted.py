"""The stream queries inside a derived table: the states an update starts from, and what its commit says about them.

Rows that the queries reject go to the table ``<table>__rejected``, each exactly once. Two tables cannot be committed
together. So workers write rejected rows to files beside the table's states, and the commit of the table names these
files. Then the rows are committed to the table of rejected rows. If the process dies before that, the next update or
the next start does it: the newest commit still names the files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from headgate.core import UserCodeError
from headgate.places.place import for_workers
from headgate.stream.spark.ordering import ArrivalOrder, ArrivedFile
from headgate.stream.spark.state_files import read_rejected
from headgate.stream.spark.update import HostedUpdate, StoredStates, state_folder
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.storage.files import ALL, DataFile
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState

#: up to how much is read, one task for all buckets of a query is quicker than one for each (`stream_spark_small`)
ONE_TASK_BYTES = 2 << 20
REJECTED_COLUMNS = ("reason", "operator", "raw")


class HostedQueries:
    """The queries of one table. ``any`` says whether there are any, ``have_states`` whether these keep states.

    ``rejected`` is the table of the rows that they reject.
    """

    def __init__(self, spec: TableSpec, table: TableStore, rejected: TableStore, hosts: bool, has_states: bool) -> None:
        self.any = hosts
        self.have_states = has_states
        self._spec = spec
        self._table = table
        self.rejected = rejected
        if hosts:
            with suppress(Exception):  # the next update finds the same, and it becomes the failure of that table
                self.commit_rejected()  # left undone if the process died between the two commits

    def next_update(
        self, clock: tuple[str, int], files: Collection[tuple[str, DataFile]], rebuild: bool
    ) -> HostedUpdate:
        """The next update of the queries, with the states to start from.

        ``clock`` is the source's time column and its freshness. ``files`` are the files to read, each with its path.
        """
        if not rebuild:  # which finds all of them again
            self.commit_rejected()
        before = CommitState.from_json(self._table.state, self._spec.name)
        return HostedUpdate(
            number=before.update + 1,
            folder=for_workers(state_folder(self._table.directory)),
            stored={} if rebuild else stored_states(before),
            table=self._spec.name,
            clock=clock,
            arrival=ArrivalOrder.of([ArrivedFile(path, file.size, file.arrived) for path, file in files]),
            small=sum(file.size for _, file in files) <= ONE_TASK_BYTES,
            priority=self._spec.priority,
            importance_class=self._spec.importance_class,
        )

    def check(self, update: HostedUpdate) -> None:
        """Raise if a query failed in a task: nothing of such an update may be committed."""
        try:
            update.check()
        except UserCodeError as error:
            raise UserCodeError(f"{self._spec.place}: table {self._spec.name!r} failed: {error}") from error.__cause__

    def with_reason(self, error: UserCodeError, update: HostedUpdate) -> UserCodeError:
        """The error of a job; if a worker ended itself, with the reason it left. Spark only knows that it is gone."""
        verdict = update.verdict()
        if verdict is None:
            return error
        return UserCodeError(f"{self._spec.place}: table {self._spec.name!r} failed: {verdict}")

    def commit_fields(self, update: HostedUpdate, rebuild: bool) -> dict[str, Any]:
        """What the commit says about the queries: fields of ``CommitState``. The files that it names are on disk."""
        files = update.rejected_files()
        self._table.bring_to_disk(update.folder / name for name in (*update.new_state_files(), *files))
        rejected = {"update": update.number, "files": list(files), "anew": rebuild}
        return {
            "rejected": update.rejected_rows(),
            "queries": {name: states.to_json() for name, states in update.states().items()},
            "rejected_files": rejected if files or rebuild else None,
        }

    def commit_rejected(self) -> None:
        """Commit the rejected rows that the table's newest commit names, unless that is done already."""
        if not self._table.exists and self.rejected.exists:
            self.rejected.drop()  # of a table that was deleted; all of its rows are computed again
        named = CommitState.from_json(self._table.state).rejected_files
        if named is None or CommitState.from_json(self.rejected.state).update >= named["update"]:
            return
        number = int(named["update"])
        rows = read_rejected(state_folder(self._table.directory), rejected_files(named)).select(REJECTED_COLUMNS)
        files = self.rejected.write_arrow(number, rows, None) if rows.num_rows else []
        state = CommitState(number, "rejected", rows=rows.num_rows).to_json()
        replaced = ALL if named["anew"] and self.rejected.exists else None
        self.rejected.commit(number, files, replace=replaced, state=state, schema=rows.schema)


def stored_states(state: CommitState) -> dict[str, StoredStates]:
    """The states of the queries that a commit names."""
    return {name: StoredStates.from_json(stored) for name, stored in state.queries.items()}


def rejected_files(named: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The files with rejected rows that a commit names."""
    return () if named is None else tuple(map(str, named["files"]))
