"""Clicks of the shop's web site, in the order of event time, made block by block from a seed.

A block is a slice of event time with all clicks of its visits: four visitors, then one buyer, and so on. The length of
the slice is how far the clicks of a visit are spread, and with it how long sessions are; a day is TPCx-BB's own. The
same seed gives the same rows however many are asked for. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import ParameterError
from workloads.tpcxbb.dims import CLICKS_TABLE, FIRST_SECOND, SECONDS_PER_DAY, Dims, block_generator

VISITS_PER_BUYER = 5
MOST_VISITS_PER_BLOCK = 130_000
MOST_BOUGHT = 14
#: four visitors with 11 to 21 clicks, and a buyer with 3 to 6 and those of what is bought
CLICKS_PER_VISIT = (4 * 16 + 4.5 + (1 + MOST_BOUGHT) / 2) / VISITS_PER_BUYER
#: the share of bought items' clicks that have no page
_NO_PAGE = 0.00025

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("user", pa.int32()),
        ("item", pa.int32()),
        ("page", pa.int16()),
        ("sale", pa.int32()),
    ]
)

#: ts, user, item, page, sale
_Columns = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int16], NDArray[np.int32]]


@dataclass(frozen=True)
class Clicks:
    """An endless stream of clicks; ``spread`` is the length of a block in seconds. -1 stands for NULL."""

    dims: Dims = field(default_factory=Dims)
    clicks_per_day: float = 3_706.0
    spread: int = SECONDS_PER_DAY
    t0: int = FIRST_SECOND

    def __post_init__(self) -> None:
        if not 1 <= self.visits_per_block <= MOST_VISITS_PER_BLOCK:
            raise ParameterError(
                f"clicks_per_day={self.clicks_per_day} with spread={self.spread} makes {self.visits_per_block} visits "
                f"a block, which must be 1 to {MOST_VISITS_PER_BLOCK}: change the rate or the spread"
            )

    @property
    def visits_per_block(self) -> int:
        return round(self.clicks_per_day * self.spread / SECONDS_PER_DAY / CLICKS_PER_VISIT)

    def block(self, number: int) -> pa.RecordBatch:
        """All clicks of a slice of event time, by time, user, sale and item. Draws: visitors', then buyers'."""
        generator = block_generator(self.dims.seed, CLICKS_TABLE, number)
        visits = np.arange(self.visits_per_block, dtype=np.int64) + number * self.visits_per_block
        buys = visits % VISITS_PER_BUYER == VISITS_PER_BUYER - 1
        orders = (visits[buys] // VISITS_PER_BUYER).astype(np.int32)
        parts = [
            self._visitors(generator, int(np.count_nonzero(~buys))),
            *self._buyers(generator, orders),
        ]
        ts, user, item, page, sale = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((item, sale, user, ts))
        ts += self.t0 + number * self.spread
        columns = [column[order] for column in (ts, user, item, page, sale)]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)

    def _visitors(self, generator: np.random.Generator, count: int) -> _Columns:
        """Half of them are unknown. Draws: clicks, whether known, who, then of each click time, item, page."""
        clicks = generator.integers(11, 21, size=count, endpoint=True)
        known = generator.random(count) < 0.5
        user = np.where(known, generator.integers(self.dims.customers, size=count, dtype=np.int32), np.int32(-1))
        return self._looking(generator, user.repeat(clicks))

    def _buyers(self, generator: np.random.Generator, orders: NDArray[np.int32]) -> tuple[_Columns, _Columns]:
        """They look around, then buy at one moment. Draws: who, when, how much they look and buy, looks, what."""
        user = self.dims.buying_customers(generator, len(orders))
        moment = generator.integers(self.spread, size=len(orders))
        looks = generator.integers(3, 6, size=len(orders), endpoint=True)
        lines = generator.integers(1, MOST_BOUGHT, size=len(orders), endpoint=True)
        looking = self._looking(generator, user.repeat(looks))
        count = int(lines.sum())
        item = self.dims.bought_items(generator, count)
        page = generator.integers(self.dims.pages, size=count, dtype=np.int16)
        page[generator.random(count) < _NO_PAGE] = -1
        return looking, (moment.repeat(lines), user.repeat(lines), item, page, orders.repeat(lines))

    def _looking(self, generator: np.random.Generator, user: NDArray[np.int32]) -> _Columns:
        count = len(user)
        ts = generator.integers(self.spread, size=count)
        item = generator.integers(self.dims.items, size=count, dtype=np.int32)
        page = generator.integers(self.dims.pages, size=count, dtype=np.int16)
        return ts, user, item, page, np.full(count, -1, dtype=np.int32)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The first ``rows`` clicks, a block at a time."""
        number = 0
        while rows > 0:
            block = self.block(number).slice(0, rows)
            yield block
            rows -= block.num_rows
            number += 1


def web_clickstreams(
    rows: int,
    *,
    seed: int = 0,
    sf: float = 1.0,
    customers: int = 0,
    clicks_per_day: float = 3_706.0,
    spread: int = SECONDS_PER_DAY,
    t0: int = FIRST_SECOND,
) -> pa.Table:
    """The first ``rows`` clicks as one table."""
    clicks = Clicks(Dims(seed, sf, customers), clicks_per_day, spread, t0)
    return pa.Table.from_batches(clicks.batches(rows), schema=SCHEMA).combine_chunks()
