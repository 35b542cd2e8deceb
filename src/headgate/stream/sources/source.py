"""What the engine asks of a source, and of the reader that it opens for a run.

A source is a description and can be opened any number of times; a reader is one run over it. The engine calls a reader
from one thread at a time, but not always from the same one. All times are seconds of the engine's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Rejected

Wake = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows read at once, and when the oldest and the newest of them arrived."""

    batch: pa.RecordBatch
    first_arrival: float
    last_arrival: float
    rejected: tuple[Rejected, ...] = ()


class Reader(Protocol):
    """One run over a source."""

    def ready_at(self, now: float) -> float:
        """When ``read`` will have something: a time up to ``now`` means at once, infinity means not before ``wake`` is
        called."""

    def waiting(self, now: float) -> int:
        """How many rows could be read now; for a source that has all its rows already, any number above 0."""

    def read(self, most: int, now: float) -> Chunk | None:
        """At most ``most`` rows, in their order; None if there is nothing now. Never blocks."""

    @property
    def ended(self) -> bool:
        """No rows will come any more, and all have been read."""

    def close(self) -> None:
        """Close files and sockets, end threads. May be called more than once."""


@runtime_checkable
class Source(Protocol):
    """Where rows come from."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""

    def open(self, wake: Wake, now: float) -> Reader:
        """Begin a run at time ``now``. ``wake`` may be called from any thread when rows come to a reader that had
        none."""
