"""Rows in the blocks in which a source makes them, and cut into the chunks that the engine asks for.

How a source makes its rows (a file's row groups, some thousand lines of text) must not matter to anybody. A cursor goes
through the blocks and cuts them anywhere; malformed rows keep their place between the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Rejected
from headgate.stream.sources.source import Chunk

#: rows or lines that a source makes at once, if it is free to choose
BLOCK_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Block:
    """Rows, and those that were malformed: ``rejected[i].row`` is the number of good rows of the block before it."""

    batch: pa.RecordBatch
    rejected: tuple[Rejected, ...] = ()


class Pieces:
    """Collects pieces of blocks and makes them one block."""

    def __init__(self) -> None:
        self.rows = 0
        self._batches: list[pa.RecordBatch] = []
        self._rejected: list[Rejected] = []

    def add(self, piece: Block) -> None:
        self._rejected.extend(rejected._replace(row=rejected.row + self.rows) for rejected in piece.rejected)
        if piece.batch.num_rows:
            self._batches.append(piece.batch)
            self.rows += piece.batch.num_rows

    def reject(self, rejected: tuple[Rejected, ...]) -> None:
        """Add rows that were malformed and come after all others."""
        self._rejected.extend(one._replace(row=self.rows) for one in rejected)

    @property
    def is_empty(self) -> bool:
        return not self._batches and not self._rejected

    def block(self, schema: pa.Schema) -> Block | None:
        """All pieces as one block; None if there was nothing."""
        if self.is_empty:
            return None
        return Block(concatenate_batches(self._batches, schema), tuple(self._rejected))


class Cursor:
    """A place in a sequence of blocks. Not thread-safe.

    Invariants:
    1. Rows and rejected rows come out once each and in order.
    2. No more than two blocks of rejected rows are held, even if there are no others.
    3. An error of the blocks is raised only after all rows before it, and then every time.
    """

    def __init__(self, schema: pa.Schema, blocks: Iterator[Block]) -> None:
        self._schema = schema
        self._blocks = blocks
        self._rejected: tuple[Rejected, ...] = ()
        #: rejected rows of blocks that had no other rows
        self._held: tuple[Rejected, ...] = ()
        self._exhausted = False
        self._error: BaseException | None = None
        #: the current block, and how many of its rows have been cut off
        self.batch: pa.RecordBatch | None = None
        self.offset = 0
        #: how many blocks were looked at so far
        self.blocks = 0

    @property
    def ended(self) -> bool:
        """Nothing is left. It is known only after somebody has asked for more."""
        return self._exhausted and not self._held

    def at_hand(self) -> int:
        """Rows left in the current block, which is the next one if none were left; 0 if only ``remains`` has any."""
        while not self._exhausted:
            if self.batch is not None and self.offset < self.batch.num_rows:
                return int(self.batch.num_rows - self.offset)
            if len(self._held) >= BLOCK_ROWS:
                break
            self._next_block()
        return 0

    def cut(self, rows: int) -> Block:
        """The next rows, which must be at hand."""
        assert self.batch is not None, "rows are cut only when they are at hand"
        rejected = [r for r in self._rejected if r.row <= self.offset + rows]
        self._rejected = self._rejected[len(rejected) :]
        rebased = tuple(r._replace(row=r.row - self.offset) for r in rejected)
        piece = Block(self.batch.slice(self.offset, rows), self._held + rebased)
        self._held = ()
        self.offset += rows
        return piece

    def read(self, most: int) -> Block | None:
        """At most so many rows, from as many blocks as needed; None if nothing is left."""
        pieces = Pieces()
        while pieces.rows < most and (rows := self.look(may_raise=not pieces.rows)):
            pieces.add(self.cut(min(rows, most - pieces.rows)))
        pieces.reject(self.remains())
        return pieces.block(self._schema)

    def remains(self) -> tuple[Rejected, ...]:
        """Malformed rows without good rows after them: at the very end, or because there are very many."""
        if not self._exhausted and self._error is None and len(self._held) < BLOCK_ROWS:
            return ()
        held, self._held = self._held, ()
        return held

    def look(self, *, may_raise: bool) -> int:
        """As ``at_hand``, but an error is raised only if ``may_raise`` and all rows before it have been handed over."""
        try:
            return self.at_hand()
        except BaseException:
            if may_raise and not self._held:
                raise
            return 0

    def close(self) -> None:
        """Close what the blocks are made from."""
        self._exhausted, self.batch, self._rejected, self._held = True, None, (), ()
        if hasattr(self._blocks, "close"):
            self._blocks.close()

    def _next_block(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            block = next(self._blocks, None)
        except BaseException as error:
            self._error = error
            raise
        if block is None:
            self._exhausted, self.batch, self.offset = True, None, 0
            return
        self.batch, self.offset = block.batch, 0
        self.blocks += 1
        if block.batch.num_rows:
            self._rejected = block.rejected
        else:
            self._held += block.rejected


class BlockReader:
    """The reader of sources that have all their rows at hand: files, lists, iterables.

    It reads blocks as they are asked for. Rows arrive at the moment at which they are read.
    """

    def __init__(self, schema: pa.Schema, blocks: Iterator[Block]) -> None:
        self._cursor = Cursor(schema, blocks)

    def ready_at(self, now: float) -> float:
        return math.inf if self.ended else now

    def waiting(self, now: float) -> int:
        return 0 if self.ended else BLOCK_ROWS

    def read(self, most: int, now: float) -> Chunk | None:
        block = self._cursor.read(most)
        return None if block is None else Chunk(block.batch, now, now, block.rejected)

    @property
    def ended(self) -> bool:
        return self._cursor.ended

    def close(self) -> None:
        self._cursor.close()


def concatenate_batches(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    columns = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
