"""A query of cheap Arrow operators: numbers that are multiplied and added to, packet by packet.

One column of 8 bytes, one Arrow kernel an operator: what an operator touches is the packet and one of the same size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.stream import Output, Query, QuerySpec, from_batches, to_function
from headgate.stream.sources.source import Source

ROW_BYTES = 8
SCHEMA = pa.schema([("value", pa.float64())])
Kernel = Callable[[pa.Array], pa.Array]
#: one after the other, as often as there are operators; values stay what they are, so that none gets too large
KERNELS: tuple[Kernel, ...] = (
    lambda values: pc.multiply(values, 2.0),
    lambda values: pc.add(values, 1.0),
    lambda values: pc.subtract(values, 1.0),
    lambda values: pc.multiply(values, 0.5),
)


def numbers(count: int) -> pa.RecordBatch:
    """So many rows in one piece of memory."""
    return pa.record_batch([pa.array(np.linspace(0.0, 1.0, count))], schema=SCHEMA)


def endless(rows: pa.RecordBatch) -> Source:
    """The rows over and over."""
    return from_batches(lambda: itertools.repeat(rows))


def arithmetic(name: str, source: Source, operators: int, kernels: Iterator[Kernel] | None = None) -> QuerySpec:
    """A chain of so many operators, from a source to a sink that drops."""
    stream = Query(name).source(source)
    for kernel in itertools.islice(kernels or itertools.cycle(KERNELS), operators):
        stream = stream.stateless(_over_batches(kernel), name="compute", schema=SCHEMA)
    return stream.to(to_function(_drop)).spec()


def _over_batches(kernel: Kernel) -> Callable[[pa.RecordBatch], Output]:
    def compute(batch: pa.RecordBatch) -> Output:
        return Output(pa.record_batch([kernel(batch.column(0))], schema=SCHEMA))

    return compute


def _drop(batch: pa.RecordBatch) -> None:
    """What the sink does."""
