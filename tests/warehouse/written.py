"""A table whose rows a test sets, for tests of what happens to its versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import Update
from headgate.warehouse.publish.protocol import TableRows
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.node import Node

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("amount", pa.float64())])
Row = tuple[int, str | None, float | None]


def table_of(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def rows_of(rows: list[Row]) -> TableRows:
    return TableRows.of(table_of(rows))


class Written(Node):
    """A table whose rows the test sets."""

    def __init__(self, folder: Path) -> None:
        self.table = "sums"
        self.store = TableStore(folder / "sums", syncs=False)

    def becomes(self, rows: list[Row], *, replace: bool = True) -> None:
        number = self.state.update + 1
        files = self.store.write_arrow(number, table_of(rows), None)
        replaced = ALL if replace and self.store.exists else None
        state = CommitState(number, "load", freshness=number * 1_000_000).to_json()
        self.store.commit(number, files, replace=replaced, state=state, schema=SCHEMA)

    def plan(self) -> Update | None:
        return None

    def begin(self, update: Update, most_seconds: float = 0.0) -> bool:
        return False

    def run(self, update: Update, spark: Any, files: Any = None, hosted: Any = None) -> None: ...
