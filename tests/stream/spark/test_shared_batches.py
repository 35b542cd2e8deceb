"""Rows for several readers: each gets all of them, or hears why not."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.stream.spark.task import SharedBatches

BATCHES = [pa.RecordBatch.from_pydict({"n": [number]}) for number in range(3)]


@pytest.mark.parametrize("readers", [1, 3])
def test_every_reader_gets_every_batch_at_its_own_pace(readers: int) -> None:
    shared = SharedBatches(iter(BATCHES), readers)
    assert [list(shared.of(reader)) for reader in range(readers)] == [BATCHES] * readers


def test_no_reader_takes_a_source_that_has_failed_for_one_that_has_ended() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from BATCHES
        raise ValueError("interrupted")

    shared = SharedBatches(failing(), 2)
    for reader in range(2):
        rows = shared.of(reader)
        assert [next(rows) for _ in BATCHES] == BATCHES
        with pytest.raises(ValueError, match="interrupted"):
            next(rows)
