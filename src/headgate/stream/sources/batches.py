"""Rows from the program itself: record batches, tables, or rows of Python values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError
from headgate.stream.sources.blocks import BLOCK_ROWS, Block, BlockReader
from headgate.stream.sources.fit import Row, fit_columns, sift_rows
from headgate.stream.sources.source import Wake

Item = TypeVar("Item")
Columns: TypeAlias = pa.RecordBatch | pa.Table


class _Items(Generic[Item]):
    """An iterable, or a function that makes one. An iterator can be read once; a second time is an error."""

    def __init__(self, items: Iterable[Item] | Callable[[], Iterable[Item]], what: str) -> None:
        self._source = items
        self._what = what
        self._once = not callable(items) and iter(items) is items
        self._opened = False

    def first(self) -> Item | None:
        """The first item, which stays where it is."""
        if not self._once:
            return next(self._items(), None)
        items = self._items()
        first = next(items, None)
        self._source = items if first is None else itertools.chain([first], items)
        return first

    def open(self) -> Iterator[Item]:
        if self._once and self._opened:
            raise DeclarationError(
                f"{self._what} was given an iterator, which can be read only once, and it was opened a second "
                f"time. Pass a list, or a function that makes a new iterator each time."
            )
        self._opened = True
        return self._items()

    def _items(self) -> Iterator[Item]:
        return iter(self._source() if callable(self._source) else self._source)


class Batches:
    """A source of record batches and tables.

    ``batches`` is an iterable of them, a function that makes one, or a single table. It is read while the query runs
    and should not block. ``schema`` may leave columns out; without it, it is that of the first.
    """

    def __init__(
        self, batches: Columns | Iterable[Columns] | Callable[[], Iterable[Columns]], schema: pa.Schema | None = None
    ) -> None:
        self._items = _Items[Columns]([batches] if isinstance(batches, Columns) else batches, "from_batches")
        self.schema: pa.Schema = schema or self._first_schema()

    def __repr__(self) -> str:
        return f"Batches({', '.join(self.schema.names)})"

    def open(self, wake: Wake, now: float) -> BlockReader:
        return BlockReader(self.schema, self._blocks(self._items.open()))

    def _blocks(self, items: Iterator[Columns]) -> Iterator[Block]:
        for number, item in enumerate(items):
            if not isinstance(item, Columns):
                raise DeclarationError(_not_columns(item, f"item {number}"))
            for batch in item.to_batches() if isinstance(item, pa.Table) else [item]:
                yield fit_columns(batch, self.schema, f"batch {number} of from_batches")

    def _first_schema(self) -> pa.Schema:
        first = self._items.first()
        if first is None:
            raise DeclarationError("from_batches got no batch and no schema. Pass schema=, or at least one batch.")
        if not isinstance(first, Columns):
            raise DeclarationError(_not_columns(first, "item 0"))
        return first.schema.remove_metadata()


def _not_columns(item: object, which: str) -> str:
    return (
        f"from_batches takes Arrow record batches and tables; {which} is of type {type(item).__name__}. "
        f"For dicts and tuples there is from_rows."
    )


class Rows:
    """A source of Python rows: dicts, or tuples in the order of the schema. Those that do not fit are rejected.

    Of a dict, keys that the schema does not have are ignored, and missing ones are null.
    """

    def __init__(self, rows: Iterable[Row] | Callable[[], Iterable[Row]], schema: pa.Schema) -> None:
        self._items = _Items[Row](rows, "from_rows")
        self.schema = schema

    def __repr__(self) -> str:
        return f"Rows({', '.join(self.schema.names)})"

    def open(self, wake: Wake, now: float) -> BlockReader:
        return BlockReader(self.schema, self._blocks(self._items.open()))

    def _blocks(self, rows: Iterator[Row]) -> Iterator[Block]:
        first = 0
        while block_rows := list(itertools.islice(rows, BLOCK_ROWS)):
            yield sift_rows(block_rows, self.schema, partial(_place, first))
            first += len(block_rows)


def _place(first: int, index: int) -> str:
    return f"row {first + index}: "


#: the names under which users know these sources
from_batches = Batches
from_rows = Rows
