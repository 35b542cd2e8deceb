"""Q15: in which categories sales do not grow, by a line fitted through the sums of days.

Store sales -> those of the stores and days asked for -> category, day and amount -> least squares per category, anew
after each day. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import AUTOMATIC_BUCKETS, Function, Output, Part, QuerySpec, Sink, Snapshot, Source
from workloads.tpcxbb.arrays import lookup, nothing, record, values
from workloads.tpcxbb.chain import linear, partitioned, stateless
from workloads.tpcxbb.dims import FIRST_DAY, SECONDS_PER_DAY, Dims
from workloads.tpcxbb.runs import KeyRuns

NAME = "q15"
_LINES = pa.schema([("ts", pa.int64()), ("item", pa.int32()), ("net_cents", pa.int32())])
_AMOUNTS = pa.schema([("category", pa.int8()), ("day", pa.int64()), ("cents", pa.int32())])
#: slope in cents per day; the intercept, in cents, is that of day 0, 1900-01-01
SCHEMA = pa.schema(
    [
        ("category", pa.int8()),
        ("day", pa.int64()),
        ("days", pa.int64()),
        ("slope", pa.float64()),
        ("intercept", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Q15Parameters:
    """``stores`` None for all; both days belong to what is asked for."""

    stores: tuple[int, ...] | None
    first_day: int
    last_day: int


TPC = Q15Parameters(stores=(10,), first_day=FIRST_DAY, last_day=FIRST_DAY + 365)
PAPER = Q15Parameters(stores=None, first_day=FIRST_DAY, last_day=FIRST_DAY + 365)


def query(
    source: Source, sink: Sink, parameters: Q15Parameters, buckets: int = AUTOMATIC_BUCKETS, dims: Dims | None = None
) -> QuerySpec:
    """``dims`` are those of the source's rows: of seed 0 and scale factor 1 unless given."""
    dims = dims or Dims()
    operators = (
        stateless("filter", _filter(parameters, dims)),
        stateless("category", _category(dims)),
        partitioned("fit", "category", DailyFit, buckets),
    )
    return linear(NAME, source, operators, sink)


def _filter(parameters: Q15Parameters, dims: Dims) -> Function:
    stores = lookup(parameters.stores, dims.stores)
    begin, end = parameters.first_day * SECONDS_PER_DAY, (parameters.last_day + 1) * SECONDS_PER_DAY

    def kept(batch: pa.RecordBatch) -> Output:
        ts = values(batch, "ts")
        rows = np.flatnonzero((ts >= begin) & (ts < end) & stores[values(batch, "store")])
        return Output(record(_LINES, ts[rows], values(batch, "item")[rows], values(batch, "net_cents")[rows]), rows)

    return kept


def _category(dims: Dims) -> Function:
    categories = dims.category

    def mapped(batch: pa.RecordBatch) -> Output:
        item = values(batch, "item")
        rows = np.flatnonzero((item >= 0) & (item < len(categories)))
        day = values(batch, "ts")[rows] // SECONDS_PER_DAY
        return Output(record(_AMOUNTS, categories[item[rows]], day, values(batch, "net_cents")[rows]), rows)

    return mapped


@dataclass
class _Fit:
    """One category: the day that is being summed, and the sums over the days before it. Integers, so exact."""

    day: int
    cents: int = 0
    days: int = 0
    x: int = 0
    y: int = 0
    xy: int = 0
    xx: int = 0

    def close(self) -> tuple[int, int, float, float] | None:
        """Fold the day in. The day, the number of days, slope and intercept; None while one day makes no line."""
        self.days += 1
        self.x += self.day
        self.y += self.cents
        self.xy += self.day * self.cents
        self.xx += self.day * self.day
        spread = self.days * self.xx - self.x * self.x
        if not spread:
            return None
        slope = (self.days * self.xy - self.x * self.y) / spread
        return self.day, self.days, slope, (self.y * self.xx - self.x * self.xy) / spread

    def begin(self, day: int) -> None:
        self.day, self.cents = day, 0


class DailyFit:
    """Partitioned by category: the first row of a later day closes the day before and gives out the line so far."""

    def __init__(self) -> None:
        self._fits: dict[int, _Fit] = {}

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return nothing(SCHEMA)
        categories, days, cents = (values(part.batch, name) for name in _AMOUNTS.names)
        runs = KeyRuns.by_key(categories)
        days = days[runs.order]
        begins = np.flatnonzero(np.diff(days, prepend=days[0] - 1))
        starts = np.union1d(begins, runs.starts)
        sums = np.add.reduceat(cents[runs.order].astype(np.int64), starts)
        rows, lines = [], []
        # A turn for each category and day that the part has rows of, not for each row.
        for category, day, amount, row in zip(
            runs.keys[runs.of[starts]].tolist(), days[starts].tolist(), sums.tolist(), runs.order[starts], strict=True
        ):
            fit = self._fits.setdefault(category, _Fit(day))
            if day != fit.day:
                line = fit.close()
                fit.begin(day)
                if line is not None:
                    rows.append(row)
                    lines.append((category, *line))
            fit.cents += amount
        if not lines:
            return nothing(SCHEMA)
        by_row = np.argsort(rows)
        batch = _batch([lines[place] for place in by_row])
        return Output(batch, part.rows[np.asarray(rows)[by_row]])

    def flush(self) -> Output:
        lines = []
        for category in sorted(self._fits):
            line = self._fits[category].close()
            if line is not None:
                lines.append((category, *line))
        batch = _batch(lines)
        return Output(batch, order=(batch.column("category"),))

    def snapshot(self) -> Snapshot:
        return Snapshot(values={"fits": {str(category): list(astuple(fit)) for category, fit in self._fits.items()}})

    def restore(self, snapshot: Snapshot) -> None:
        self._fits = {int(category): _Fit(*fit) for category, fit in snapshot.values["fits"].items()}


def _batch(lines: list[tuple[int, int, int, float, float]]) -> pa.RecordBatch:
    columns = list(zip(*lines, strict=True)) if lines else [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, type=wanted.type) for column, wanted in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
