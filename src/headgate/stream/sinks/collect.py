"""Rows kept in the program itself, for tests, notebooks and small results."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]


class Collect:
    """A sink that keeps the batches of its last run. ``schema`` is for the table of a run without rows."""

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self._schema = schema
        self.batches: list[pa.RecordBatch] = []

    def __repr__(self) -> str:
        return f"Collect({sum(batch.num_rows for batch in self.batches)} rows)"

    def open(self) -> ListWriter:
        self.batches = []
        return ListWriter(self.batches)

    def table(self) -> pa.Table:
        """All rows in their order."""
        if not self.batches and self._schema is None:
            return pa.table({})
        return pa.Table.from_batches(self.batches, schema=self._schema)

    def rows(self) -> list[dict[str, Any]]:
        """All rows in their order, as dicts."""
        rows: list[dict[str, Any]] = self.table().to_pylist()
        return rows


class ToList:
    """A sink that appends batches to a list; a further run appends to it as well."""

    def __init__(self, target: list[pa.RecordBatch]) -> None:
        self._target = target

    def open(self) -> ListWriter:
        return ListWriter(self._target)


class ListWriter:
    def __init__(self, target: list[pa.RecordBatch]) -> None:
        self._target = target

    def write(self, batch: pa.RecordBatch) -> None:
        self._target.append(batch)

    def close(self) -> None:
        """Everything is in the list already."""


def to_list(target: list[pa.RecordBatch]) -> ToList:
    """Append every batch to a list."""
    return ToList(target)
