"""Q1: which pairs of items are bought together on most tickets, hour by hour.

Store sales -> filter -> pairs of each ticket -> count of each pair -> top pairs of each window. Derived from TPCx-BB,
unofficial, not comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream import (
    AUTOMATIC_BUCKETS,
    Function,
    Ints,
    Output,
    Part,
    QuerySpec,
    Sink,
    Snapshot,
    Source,
    stable_order,
)
from workloads.tpcxbb.arrays import lookup, nothing, packed, record, spread, table, values
from workloads.tpcxbb.chain import linear, partitioned, stateful, stateless
from workloads.tpcxbb.counting import CountPairs
from workloads.tpcxbb.dims import CATEGORIES, Dims
from workloads.tpcxbb.ranking import TopPairs

NAME = "q1"
_LINES = pa.schema([("window", pa.int64()), ("ts", pa.int64()), ("ticket", pa.int64()), ("item", pa.int32())])
_PAIRS = pa.schema([("window", pa.int64()), ("pair", pa.int64())])


@dataclass(frozen=True)
class Q1Parameters:
    """``window`` in seconds, None for one that never closes; ``stores`` and ``categories`` None for all."""

    window: int | None
    top: int
    min_count: int
    stores: tuple[int, ...] | None
    categories: tuple[int, ...] | None


TPC = Q1Parameters(window=None, top=100, min_count=51, stores=(10, 20, 33, 40, 50), categories=(1, 2, 3))
PAPER = Q1Parameters(window=3_600, top=100, min_count=1, stores=None, categories=None)


def query(
    source: Source, sink: Sink, parameters: Q1Parameters, buckets: int = AUTOMATIC_BUCKETS, dims: Dims | None = None
) -> QuerySpec:
    """``dims`` are those of the source's rows: of seed 0 and scale factor 1 unless given."""
    top = partial(TopPairs, "window", 1, parameters.top, parameters.min_count, resets=True)
    operators = (
        stateless("filter", _filter(parameters, dims or Dims())),
        partitioned("pairs", "ticket", TicketPairs, buckets),
        partitioned("count", "pair", partial(CountPairs, "window", resets=True), buckets),
        stateful("top", top),
    )
    return linear(NAME, source, operators, sink)


def _filter(parameters: Q1Parameters, dims: Dims) -> Function:
    stores = lookup(parameters.stores, dims.stores)
    # No item, -1, has no category.
    items = np.append(lookup(parameters.categories, 1 + len(CATEGORIES))[dims.category], False)
    window = parameters.window

    def kept(batch: pa.RecordBatch) -> Output:
        ts, item = values(batch, "ts"), values(batch, "item")
        rows = np.flatnonzero(stores[values(batch, "store")] & items[item])
        ts = ts[rows]
        windows = np.zeros_like(ts) if window is None else ts // window
        return Output(record(_LINES, windows, ts, values(batch, "ticket")[rows], item[rows]), rows)

    return kept


class TicketPairs:
    """Partitioned by ticket: each item that is new on its ticket goes out with every item that was there before.

    Lines of a ticket share their time, so all that is kept between parts is the different lines of the latest second.
    A pair has the smaller item first; those of one line come in the order of the earlier items' numbers.
    """

    def __init__(self) -> None:
        self._second: int | None = None
        self._ticket: Ints = np.empty(0, dtype=np.int64)
        self._item: NDArray[np.int32] = np.empty(0, dtype=np.int32)

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return nothing(_PAIRS)
        ts, ticket, item = (values(part.batch, name) for name in ("ts", "ticket", "item"))
        window = values(part.batch, "window")
        if ts[0] != self._second:
            self._ticket, self._item = self._ticket[:0], self._item[:0]
        kept = len(self._ticket)
        ticket, item = np.concatenate((self._ticket, ticket)), np.concatenate((self._item, item))
        ts = np.concatenate((np.full(kept, ts[0]), ts))
        rows, others = self._pairs(ts, ticket, item, kept)
        mine = item[rows]
        pairs = packed(np.minimum(mine, others), np.maximum(mine, others))
        rows -= kept
        return Output(record(_PAIRS, window[rows], pairs), part.rows[rows])

    def _pairs(self, ts: Ints, ticket: Ints, item: NDArray[np.int32], kept: int) -> tuple[Ints, NDArray[np.int32]]:
        """Rows and the items they meet. The first ``kept`` rows were there before; they meet nobody any more."""
        # Tickets come in ascending order as a rule, which makes this sort a mere look through.
        order = np.argsort(ticket, kind="stable")
        by_ticket, when, what = ticket[order], ts[order], item[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (by_ticket[1:] != by_ticket[:-1]) | (when[1:] != when[:-1])
        places = np.arange(len(order), dtype=np.int64)
        start = np.maximum.accumulate(np.where(first, places, 0))
        later, number = spread(np.where(order < kept, 0, places - start))
        earlier = start[later] + number
        repeated = np.zeros(len(order), dtype=np.bool_)
        repeated[later[what[later] == what[earlier]]] = True
        latest = np.flatnonzero((when == ts[-1]) & ~repeated)
        self._second, self._ticket, self._item = int(ts[-1]), by_ticket[latest], what[latest]
        meets = np.flatnonzero(~(repeated[later] | repeated[earlier]))
        # Row and other item in one number: sorted by both in one go.
        both = packed(order[later[meets]], what[earlier[meets]])
        both = both[stable_order(both)]
        return both >> 32, (both & 0xFFFF_FFFF).astype(np.int32)

    def flush(self) -> Output:
        return nothing(_PAIRS)

    def snapshot(self) -> Snapshot:
        return Snapshot({"lines": table(ticket=self._ticket, item=self._item)}, {"second": self._second})

    def restore(self, snapshot: Snapshot) -> None:
        self._second = snapshot.values["second"]
        lines = snapshot.tables["lines"]
        self._ticket, self._item = values(lines, "ticket").copy(), values(lines, "item").copy()
