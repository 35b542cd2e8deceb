"""The stream queries inside a derived table, around an update: what they go on from, whether they did well, and what
the commit has to say of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headgate.core.errors import UserCodeError
from headgate.stream.spark.arrival import Arrival
from headgate.stream.spark.update import StoredStates, Update, state_folder
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.rejected import SetAside, naming
from headgate.warehouse.updates.state import UpdateState

#: up to how much is read, one task for all buckets of a query is quicker than one for each (`stream_spark_small`)
ONE_TASK_BYTES = 2 << 20


class QueriesInside:
    """The queries of one table. ``any`` says whether there are any, ``have_states`` whether these keep states."""

    def __init__(self, spec: TableSpec, table: TableStore, rejected: TableStore, hosts: bool, has_states: bool) -> None:
        self.any = hosts
        self.have_states = has_states
        self._spec = spec
        self._table = table
        self._set_aside = SetAside(table, rejected)
        if hosts:
            self._set_aside.settle()  # what an update that died in between has left to do

    def next_update(self, clock: tuple[str, int], files: Collection[DataFile], rebuild: bool) -> Update:
        """What the queries of the next update go on from; ``clock`` is how far the source has come, in its time, and
        ``files`` are those of its files that are read."""
        self._set_aside.settle()
        before = UpdateState.from_json(self._table.state, self._spec.name)
        stored = {} if rebuild else {name: StoredStates.from_json(each) for name, each in before.queries.items()}
        folder = state_folder(self._table.directory)
        arrival = Arrival.of([(file.path, file.size) for file in files])
        small = sum(file.size for file in files) <= ONE_TASK_BYTES
        number = before.update + 1
        return Update(number, folder, stored, table=self._spec.name, clock=clock, arrival=arrival, small=small)

    def check(self, update: Update) -> None:
        """Raise if a query failed in a task: nothing of such an update may be committed."""
        try:
            update.check()
        except UserCodeError as error:
            raise UserCodeError(f"{self._spec.place}: table {self._spec.name!r} failed: {error}") from error.__cause__

    def explained(self, error: UserCodeError, update: Update) -> UserCodeError:
        """The error of a job, in the words of a worker that had to end itself if there was one: Spark knows only that
        it is gone."""
        verdict = update.verdict()
        if verdict is None:
            return error
        return UserCodeError(f"{self._spec.place}: table {self._spec.name!r} failed: {verdict}")

    def named(self, update: Update, rebuild: bool) -> dict[str, Any]:
        """What the commit says of the queries: fields of ``UpdateState``."""
        return {
            "rejected": update.rejected_rows(),
            "queries": {name: states.to_json() for name, states in update.states().items()},
            "set_aside": naming(update.number, update.rejected(), anew=rebuild),
        }

    def committed(self) -> None:
        """The table has been committed: what it names is taken on from there."""
        self._set_aside.settle()
