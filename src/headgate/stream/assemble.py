"""Putting together again what buckets made of their parts of a packet, in the order of the packet's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Output, Part, Rejected
from headgate.stream.packet import Ints
from headgate.stream.sorting import sorted_places


def parents_of(output: Output, part: Part) -> Ints:
    """The rows of the packet that an output's rows come from, written out."""
    return part.rows if output.parents is None else output.parents


def assembled(outputs: Sequence[Output], parts: Sequence[Part]) -> Output:
    """One output of several buckets: rows in the order of their parents, then of what the outputs sort by.

    Rows with the same parent come from one bucket, where they are in order already, unless outputs say how to sort.
    """
    rejected = tuple(each for output in outputs for each in output.rejected)
    if len(outputs) > 1 and rejected:
        rejected = tuple(sorted(rejected, key=_row_of))
    with_rows = [place for place, output in enumerate(outputs) if output.batch.num_rows]
    if len(with_rows) <= 1:
        place = with_rows[0] if with_rows else 0
        return Output(outputs[place].batch, parents_of(outputs[place], parts[place]), (), rejected)
    batch = pa.concat_batches([outputs[place].batch for place in with_rows])
    parents = np.concatenate([parents_of(outputs[place], parts[place]) for place in with_rows])
    sorted_by = [outputs[place].order for place in with_rows]
    if sorted_by[0]:
        order = sorted_places([pa.array(parents), *_joined(sorted_by)])
    else:
        order = np.argsort(parents, kind="stable")
    return Output(batch.take(pa.array(order)), parents[order], (), rejected)


def flushed(outputs: Sequence[Output]) -> pa.RecordBatch:
    """One batch of what several buckets had kept, in the order of keys."""
    with_rows = [output for output in outputs if output.batch.num_rows]
    if len(with_rows) <= 1:
        return (with_rows or outputs)[0].batch
    batch = pa.concat_batches([output.batch for output in with_rows])
    if not with_rows[0].order:
        return batch
    return batch.take(pa.array(sorted_places(_joined([output.order for output in with_rows]))))


def merged(batches: Sequence[pa.RecordBatch], origins: Sequence[Ints]) -> tuple[pa.RecordBatch, Ints]:
    """Rows of several branches by the row they come from, those of an earlier branch first."""
    batch = pa.concat_batches(batches)
    origin = np.concatenate(origins)
    order = np.argsort(origin, kind="stable")
    return batch.take(pa.array(order)), origin[order]


def _row_of(rejected: Rejected) -> int:
    return rejected.row


def _joined(orders: Sequence[tuple[pa.Array, ...]]) -> list[pa.ChunkedArray]:
    return [pa.chunked_array(column) for column in zip(*orders, strict=True)]
