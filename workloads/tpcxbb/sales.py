"""Lines of tickets of the shop's stores, in the order of event time, made block by block from a seed.

The same seed gives the same rows however many are asked for: more rows only go on. Derived from TPCx-BB, unofficial,
not comparable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import ParameterError
from workloads.tpcxbb.dims import FIRST_SECOND, SALES_TABLE, Dims, block_generator

TICKETS_PER_BLOCK = 65_536
MOST_LINES = 14
LINES_PER_TICKET = (1 + MOST_LINES) / 2

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("ticket", pa.int64()),
        ("item", pa.int32()),
        ("store", pa.int16()),
        ("net_cents", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Sales:
    """An endless stream of lines; all lines of a ticket are neighbours and share time and store."""

    dims: Dims = field(default_factory=Dims)
    lines_per_hour: float = 20_000.0
    t0: int = FIRST_SECOND

    def __post_init__(self) -> None:
        if not self.lines_per_hour > 0:
            raise ParameterError(f"lines_per_hour={self.lines_per_hour}: event time needs a rate above 0")

    def block(self, number: int) -> pa.RecordBatch:
        """All lines of 65,536 tickets. Draws: times, lines, stores, items, then those of the prices."""
        generator = block_generator(self.dims.seed, SALES_TABLE, number)
        tickets = np.arange(TICKETS_PER_BLOCK, dtype=np.int64) + number * TICKETS_PER_BLOCK
        # One ticket in each of equal spans, anywhere in it: uniform over the day, and in order without a sort.
        seconds_per_ticket = 3_600 * LINES_PER_TICKET / self.lines_per_hour
        ts = self.t0 + np.floor((tickets + generator.random(len(tickets))) * seconds_per_ticket).astype(np.int64)
        lines = generator.integers(1, MOST_LINES, size=len(tickets), endpoint=True)
        store = generator.integers(self.dims.stores, size=len(tickets), dtype=np.int16)
        count = int(lines.sum())
        item = self.dims.bought_items(generator, count)
        columns = [ts.repeat(lines), tickets.repeat(lines), item, store.repeat(lines), _net_cents(generator, count)]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The first ``rows`` lines, a block at a time."""
        number = 0
        while rows > 0:
            block = self.block(number).slice(0, rows)
            yield block
            rows -= block.num_rows
            number += 1


def store_sales(
    rows: int,
    *,
    seed: int = 0,
    sf: float = 1.0,
    lines_per_hour: float = 20_000.0,
    t0: int = FIRST_SECOND,
) -> pa.Table:
    """The first ``rows`` lines as one table."""
    return pa.Table.from_batches(Sales(Dims(seed, sf), lines_per_hour, t0).batches(rows), schema=SCHEMA)


def _net_cents(generator: np.random.Generator, count: int) -> NDArray[np.int32]:
    """What was paid for a line. Draws: wholesale, markup, discount, quantity, whether a coupon, its share."""
    wholesale = generator.integers(100, 10_000, size=count, endpoint=True)
    markup = generator.integers(0, 100, size=count, endpoint=True)
    discount = generator.integers(0, 100, size=count, endpoint=True)
    quantity = generator.integers(1, 100, size=count, endpoint=True)
    has_coupon = generator.random(count) >= 0.8
    coupon = generator.integers(0, 100, size=count, endpoint=True)
    listed = _percent_of(wholesale, 100 + markup)
    extended = _percent_of(listed, 100 - discount) * quantity
    net = extended - _percent_of(extended, np.where(has_coupon, coupon, 0))
    return net.astype(np.int32)


def _percent_of(cents: NDArray[np.int64], percent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Half a cent is rounded up."""
    return (cents * percent + 50) // 100
