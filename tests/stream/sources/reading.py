"""How tests read a source to its end, without sleeping and in pieces of any size."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from headgate.stream import Chunk, Reader, Source

#: far above anything that happens, so that only a broken source waits so long
PATIENCE = 300.0
#: a moment at which all rows of a paced source of these tests are due
LATE = 1e6


@dataclass
class Everything:
    """All rows of a run, and those rejected with the number of rows before them in the whole run."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[tuple[int, str, str]] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        self.rejected += [(len(self.rows) + each.row, each.reason, each.raw) for each in chunk.rejected]
        self.rows += chunk.batch.to_pylist()
        self.chunks.append(chunk)

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.rejected]


def read_all(source: Source, most: int = 1000, now: float = LATE) -> Everything:
    came = threading.Event()
    reader = source.open(came.set, 0.0)
    try:
        return drain(reader, came, most, now)
    finally:
        reader.close()


def drain(reader: Reader, came: threading.Event, most: int = 1000, now: float = LATE) -> Everything:
    everything = Everything()
    while not reader.ended:
        came.clear()
        chunk = reader.read(most, now)
        if chunk is not None:
            everything.add(chunk)
        elif not reader.ended:
            assert came.wait(PATIENCE), "the source neither gives rows nor ends"
    return everything


def nobody() -> None:
    """To be woken by sources that never have to."""
