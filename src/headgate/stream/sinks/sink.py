"""What the engine asks of a sink. Batches come in order, from one thread at a time but not always the same one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa  # type: ignore[import-untyped]


class Writer(Protocol):
    """One run into a sink."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the next rows; batches are never empty."""

    def close(self) -> None:
        """The query has ended, well or not. May be called more than once."""


@runtime_checkable
class Sink(Protocol):
    """Where rows go. A sink with an attribute ``blocking`` that is true gets a thread of its own."""

    def open(self) -> Writer:
        """Begin a run."""
