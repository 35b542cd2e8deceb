"""The rows of a task for several queries: each goes through all of them, at its own pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Lock

import pyarrow as pa  # type: ignore[import-untyped]


class SharedBatches:
    """An iterator of batches that several readers go through, from any threads.

    Invariant: a batch that was taken from the iterator waits for every reader that has not had it, and for no other.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], readers: int) -> None:
        self._batches = batches
        self._lock = Lock()
        self._trouble: BaseException | None = None
        self._waiting: list[deque[pa.RecordBatch]] = [deque() for _ in range(readers)]

    def of(self, reader: int) -> Iterator[pa.RecordBatch]:
        """All batches, for one of the readers."""
        if len(self._waiting) == 1:
            yield from self._batches
            return
        mine = self._waiting[reader]
        while True:
            with self._lock:
                if not mine:
                    if self._trouble is not None:
                        raise self._trouble
                    try:
                        batch = next(self._batches, None)
                    except BaseException as error:  # an iterator that has raised looks like one that has ended
                        self._trouble = error
                        raise
                    if batch is None:
                        return
                    for waiting in self._waiting:
                        waiting.append(batch)
                batch = mine.popleft()
            yield batch
