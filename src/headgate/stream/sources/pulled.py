"""The reader of sources that have all their rows at hand: files, lists, iterables."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.sources.block import BLOCK_ROWS, Block, Cursor
from headgate.stream.sources.source import Chunk


class Pulled:
    """Reads blocks as they are asked for. Rows arrive at the moment at which they are read."""

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
