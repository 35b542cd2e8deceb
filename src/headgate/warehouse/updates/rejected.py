"""Rows that the queries inside a table could not take, in the table ``<table>__rejected``, each exactly once.

Two tables cannot be committed together. So workers write such rows to files beside the table's states, the commit of
the table names them, and only then they are committed to the other table. Whoever finds that the other table is behind,
after a crash, brings it up: the files are named by the newest commit and stay until they are not needed any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.stream.spark.update import read_rejected, state_folder
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.state import UpdateState

COLUMNS = ("reason", "operator", "raw")


class SetAside:
    """The rejected rows of one derived table."""

    def __init__(self, table: TableStore, rejected: TableStore) -> None:
        self._table = table
        self._rejected = rejected

    def settle(self) -> None:
        """Commit what the table's newest commit names and the table of rejected rows does not have yet."""
        named = UpdateState.from_json(self._table.state).set_aside
        if named is None or UpdateState.from_json(self._rejected.state).update >= named["update"]:
            return
        update = int(named["update"])
        rows = read_rejected(state_folder(self._table.directory), files_of(named)).select(COLUMNS)
        files = self._rejected.write_arrow(update, rows, None) if rows.num_rows else []
        state = UpdateState(update, "rejected", rows=rows.num_rows).to_json()
        replaced = ALL if named["anew"] and self._rejected.exists else None
        self._rejected.commit(update, files, replace=replaced, state=state, schema=rows.schema)


def naming(update: int, files: Sequence[str], anew: bool) -> dict[str, Any] | None:
    """What a commit says of the files with rejected rows of its update; ``anew``: instead of all from before."""
    return {"update": update, "files": list(files), "anew": anew} if files or anew else None


def files_of(named: Mapping[str, Any] | None) -> tuple[str, ...]:
    return () if named is None else tuple(map(str, named["files"]))
