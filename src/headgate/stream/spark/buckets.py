"""The rows of several buckets that come to one task, one bucket after the other.

A task of its own for each bucket is quick when there is much to do. When there is little, starting the tasks is most of
the work: Spark and a Python worker need some 25 ms for each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import InvariantError


class InTurn:
    """Batches whose rows are sorted by the column ``name``, the number of their bucket.

    Invariant: ``_rest`` are the rows that were read and not given out; all before them were given out or passed over.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], name: str) -> None:
        self._batches = batches
        self._name = name
        self._rest: pa.RecordBatch | None = None

    def of(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """The rows of a bucket. To be asked for in ascending order; rows of earlier buckets are passed over, since a
        query that has failed reads no further."""
        while (batch := self._rest if self._rest is not None else next(self._batches, None)) is not None:
            numbers = batch.column(self._name).to_numpy()
            if len(numbers) > 1 and (np.diff(numbers) < 0).any():
                raise InvariantError("rows of several buckets are not sorted by bucket")
            first, last = np.searchsorted(numbers, [bucket, bucket + 1])
            ended = last < len(numbers)
            self._rest = batch.slice(last) if ended else None
            if first < last:
                yield batch.slice(first, last - first)
            if ended:
                return
