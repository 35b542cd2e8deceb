"""Q3: which items users looked at shortly before they bought one.

Clicks -> those of known users -> (bought, viewed) pairs from each user's last clicks -> count per pair, and in the end
the most viewed of each bought item. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream import AUTOMATIC_BUCKETS, Function, Ints, KeyIndex, Output, Part, QuerySpec, Sink, Snapshot, Source
from workloads.tpcxbb.arrays import grown, lookup, nothing, packed, record, table, unpacked, values
from workloads.tpcxbb.chain import linear, partitioned, stateless
from workloads.tpcxbb.counting import PairCounter
from workloads.tpcxbb.dims import CATEGORIES, SECONDS_PER_DAY, Dims
from workloads.tpcxbb.runs import KeyRuns

NAME = "q3"
_CLICKS = pa.schema(
    [("user", pa.int32()), ("ts", pa.int64()), ("item", pa.int32()), ("is_sale", pa.bool_()), ("ok", pa.bool_())]
)
_VIEWS = pa.schema([("purchased", pa.int32()), ("viewed", pa.int32())])
SCHEMA = pa.schema([("purchased", pa.int32()), ("viewed", pa.int32()), ("count", pa.int64()), ("rank", pa.int32())])
#: in the place of an item in a ring: no click yet, or one of an item that is not asked for
_NOTHING = -1


@dataclass(frozen=True)
class Q3Parameters:
    """``bought`` are the purchases asked for, None for all; ``horizon`` in seconds."""

    views: int
    horizon: int
    bought: tuple[int, ...] | None
    categories: tuple[int, ...]
    top: int


TPC = Q3Parameters(views=5, horizon=10 * SECONDS_PER_DAY, bought=(10_001,), categories=(2, 3), top=30)
PAPER = Q3Parameters(views=5, horizon=10 * SECONDS_PER_DAY, bought=None, categories=(2, 3), top=30)


def query(
    source: Source, sink: Sink, parameters: Q3Parameters, buckets: int = AUTOMATIC_BUCKETS, dims: Dims | None = None
) -> QuerySpec:
    """``dims`` are those of the source's rows: of seed 0 and scale factor 1 unless given."""
    dims = dims or Dims()
    bought = lookup(parameters.bought, dims.items)
    operators = (
        stateless("known", _known(parameters, dims)),
        partitioned("views", "user", partial(LastViews, parameters.views, parameters.horizon, bought), buckets),
        partitioned("count", "purchased", partial(ViewCounts, parameters.top), buckets),
    )
    return linear(NAME, source, operators, sink)


def _known(parameters: Q3Parameters, dims: Dims) -> Function:
    wanted = lookup(parameters.categories, 1 + len(CATEGORIES))[dims.category]

    def kept(batch: pa.RecordBatch) -> Output:
        user, item = values(batch, "user"), values(batch, "item")
        rows = np.flatnonzero((user >= 0) & (item >= 0))
        item = item[rows]
        is_sale = values(batch, "sale")[rows] >= 0
        return Output(record(_CLICKS, user[rows], values(batch, "ts")[rows], item, is_sale, wanted[item]), rows)

    return kept


class LastViews:
    """Partitioned by user: a purchase that is asked for goes out with what the user clicked on just before.

    That is the wanted ones, not older than the horizon, among the user's last few clicks of any kind, oldest first.
    """

    def __init__(self, views: int, horizon: int, bought: NDArray[np.bool_]) -> None:
        self._views = views
        self._horizon = horizon
        self._bought = bought
        self._users = KeyIndex()
        #: of each user the last clicks, oldest first
        self._item: NDArray[np.int32] = np.full((1024, views), _NOTHING, dtype=np.int32)
        self._ts: Ints = np.zeros((1024, views), dtype=np.int64)

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return nothing(_VIEWS)
        user, ts, item, is_sale, ok = (values(part.batch, name) for name in _CLICKS.names)
        slots = self._users.slots(user.astype(np.int64))
        self._make_room()
        runs = KeyRuns.by_key(slots)
        # Each run behind what is remembered of its user: then the clicks before any row are those at its left.
        back = np.arange(-self._views, 0, dtype=np.int64)
        shifts = self._views * np.arange(1, len(runs.starts) + 1, dtype=np.int64)
        places = np.arange(len(ts), dtype=np.int64) + shifts[runs.of]
        viewed = np.where(ok, item, np.int32(_NOTHING))
        items = self._laid_out(runs, places, shifts, back, self._item, viewed)
        times = self._laid_out(runs, places, shifts, back, self._ts, ts)
        newest = (runs.ends + shifts)[:, np.newaxis] + back
        self._item[runs.keys], self._ts[runs.keys] = items[newest], times[newest]

        place_of_row = np.empty_like(places)
        place_of_row[runs.order] = places
        rows = np.flatnonzero(is_sale & self._bought[item])
        before = place_of_row[rows][:, np.newaxis] + back
        seen = items[before]
        recent = times[before] >= (ts[rows] - self._horizon)[:, np.newaxis]
        purchase, which = np.nonzero(recent & (seen != _NOTHING))
        rows = rows[purchase]
        return Output(record(_VIEWS, item[rows], seen[purchase, which]), part.rows[rows])

    def _laid_out(
        self, runs: KeyRuns, places: Ints, shifts: Ints, back: Ints, remembered: NDArray[Any], column: NDArray[Any]
    ) -> NDArray[Any]:
        line = np.empty(len(places) + self._views * len(runs.starts), dtype=column.dtype)
        line[(runs.starts + shifts)[:, np.newaxis] + back] = remembered[runs.keys]
        line[places] = column[runs.order]
        return line

    def _make_room(self) -> None:
        self._item = grown(self._item, len(self._users), _NOTHING)
        self._ts = grown(self._ts, len(self._users), 0)

    def flush(self) -> Output:
        return nothing(_VIEWS)

    def snapshot(self) -> Snapshot:
        users = self._users.keys
        rings: dict[str, NDArray[Any]] = {}
        for view in range(self._views):
            rings[f"item{view}"] = self._item[: len(users), view]
            rings[f"ts{view}"] = self._ts[: len(users), view]
        return Snapshot({"users": table(user=users, **rings)})

    def restore(self, snapshot: Snapshot) -> None:
        users = snapshot.tables["users"]
        if not users.num_rows:
            return
        slots = self._users.slots(values(users, "user"))
        self._make_room()
        for view in range(self._views):
            self._item[slots, view] = values(users, f"item{view}")
            self._ts[slots, view] = values(users, f"ts{view}")


class ViewCounts:
    """Partitioned by purchased item: the count of each pair so far, with rank 0; in the end the top of each item.

    Counts have to be kept of all pairs, so the top is found by sorting them once, when it is asked for.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._counter = PairCounter()

    def process(self, part: Part) -> Output:
        purchased, viewed = values(part.batch, "purchased"), values(part.batch, "viewed")
        if not len(purchased):
            return nothing(SCHEMA)
        counts = self._counter.add(packed(purchased, viewed))
        return Output(record(SCHEMA, purchased, viewed, counts, np.zeros(len(counts), dtype=np.int32)), part.rows)

    def flush(self) -> Output:
        pairs, counts = self._counter.totals
        if not len(pairs):
            return nothing(SCHEMA)
        order = np.lexsort((pairs, -counts, pairs >> 32))
        purchased, viewed = unpacked(pairs[order])
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = purchased[1:] != purchased[:-1]
        places = np.arange(len(order), dtype=np.int64)
        rank = (places - np.maximum.accumulate(np.where(first, places, 0)) + 1).astype(np.int32)
        chosen = np.flatnonzero(rank <= self._top)
        batch = record(SCHEMA, purchased[chosen], viewed[chosen], counts[order[chosen]], rank[chosen])
        return Output(batch, order=(batch.column("purchased"), batch.column("rank")))

    def snapshot(self) -> Snapshot:
        return Snapshot({"counts": self._counter.snapshot()})

    def restore(self, snapshot: Snapshot) -> None:
        self._counter.restore(snapshot.tables["counts"])
