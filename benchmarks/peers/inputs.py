"""The rows of the two chains, laid out in the ways that the contenders read them, and what must come out.

All layouts hold the same rows. Event time goes by 20,000 rows an hour in both streams, which is what the workloads
suggest: 2 million clicks are 100 hourly windows. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from benchmarks.peers.protocol import CLICKS, HOUR, PARTS, PARTS_CSV, Q1, SLICES, TOP, WHOLE, WHOLE_CSV, WORKERS
from workloads.tpcxbb.clicks import web_clickstreams
from workloads.tpcxbb.sales import store_sales

#: sorted by all columns; the numbers of windows count hours
Result = NDArray[np.int64]

ROWS_PER_HOUR = 20_000
HOURS_PER_DAY = 24
#: files into which Spark's input is cut, in the order of time
SLICE_COUNT = 4
#: seconds by which the row that closes Spark's last window comes after all others
AFTER_THE_END = 86_400


@dataclass(frozen=True)
class Stream:
    """How the rows of a chain are made, which columns it needs, and the result that is right."""

    columns: tuple[str, ...]
    made: Callable[[int, int], pa.Table]
    oracle: Callable[[pa.Table], Result]


def _clicks(rows: int, seed: int) -> pa.Table:
    return web_clickstreams(rows, seed=seed, clicks_per_day=ROWS_PER_HOUR * HOURS_PER_DAY)


def _sales(rows: int, seed: int) -> pa.Table:
    return store_sales(rows, seed=seed, lines_per_hour=ROWS_PER_HOUR)


def _counts(clicks: pa.Table) -> Result:
    """Hour, item, count of clicks whose user and item are known."""
    ts, user, item = (_integers(clicks, name) for name in ("ts", "user", "item"))
    known = (user >= 0) & (item >= 0)
    cells, counts = np.unique(_packed(ts[known] // HOUR, item[known]), return_counts=True)
    return np.column_stack((*_unpacked(cells), counts))


def _top_pairs(lines: pa.Table) -> Result:
    """Hour, rank, smaller item, larger item, count of tickets that have both."""
    ts, ticket, item = (_integers(lines, name) for name in ("ts", "ticket", "item"))
    # Of each ticket its different items, ascending; the lines of a ticket share their time.
    distinct, first = np.unique(_packed(ticket, item), return_index=True)
    ticket, item = _unpacked(distinct)
    hour = ts[first] // HOUR
    starts = np.flatnonzero(np.diff(ticket, prepend=-1))
    lengths = np.diff(starts, append=len(ticket))
    after = np.repeat(starts + lengths, lengths) - np.arange(len(ticket)) - 1
    left = np.repeat(np.arange(len(ticket)), after)
    right = left + 1 + np.arange(len(left)) - np.repeat(np.cumsum(after) - after, after)
    pairs, hours = _packed(item[left], item[right]), hour[left]
    return np.concatenate([_ranked(number, pairs[hours == number]) for number in np.unique(hours)])


def _ranked(hour: int, pairs: Result) -> Result:
    pair, count = np.unique(pairs, return_counts=True)
    best = np.lexsort((pair, -count))[:TOP]
    a, b = _unpacked(pair[best])
    return np.column_stack((np.full(len(best), hour), np.arange(1, len(best) + 1), a, b, count[best]))


def _integers(table: pa.Table, name: str) -> Result:
    column: Result = table.column(name).to_numpy().astype(np.int64)
    return column


def _packed(high: Result, low: Result) -> Result:
    return (high << 32) | low


def _unpacked(both: Result) -> tuple[Result, Result]:
    return both >> 32, both & 0xFFFF_FFFF


STREAMS: Mapping[str, Stream] = {
    CLICKS: Stream(("ts", "user", "item"), _clicks, _counts),
    Q1: Stream(("ts", "ticket", "item", "store"), _sales, _top_pairs),
}


@dataclass(frozen=True)
class Inputs:
    """A folder with the first `rows` rows of a stream, and the right result."""

    chain: str
    rows: int
    folder: Path
    right: Result

    def schema(self) -> pa.Schema:
        """Of the columns that the chain needs."""
        schema = pq.read_schema(self.folder / WHOLE).remove_metadata()
        return pa.schema([schema.field(name) for name in STREAMS[self.chain].columns])


def write_inputs(chain: str, rows: int, seed: int, folder: Path) -> Inputs:
    """Parquet whole, in two parts that are each in the order of time, and in slices of time; text of what is needed."""
    stream = STREAMS[chain]
    table = stream.made(rows, seed)
    for layout in (PARTS, PARTS_CSV, SLICES):
        (folder / layout).mkdir(parents=True)
    pq.write_table(table, folder / WHOLE)
    _write_text(table.select(stream.columns), folder / WHOLE_CSV, header=True)
    for part in range(WORKERS):
        mine = table.take(np.arange(part, rows, WORKERS))
        pq.write_table(mine, folder / PARTS / f"{part}.parquet")
        _write_text(mine.select(stream.columns), folder / PARTS_CSV / f"{part}.csv", header=False)
    _write_slices(table, folder / SLICES)
    return Inputs(chain, rows, folder, stream.oracle(table))


def _write_slices(table: pa.Table, folder: Path) -> None:
    """Slices of time, and a row long after: only a later row can tell Spark that a window is over."""
    size = -(-table.num_rows // SLICE_COUNT)
    slices = [table.slice(start, size) for start in range(0, table.num_rows, size)]
    last = table.slice(table.num_rows - 1)
    later = pa.array([last.column("ts")[0].as_py() + AFTER_THE_END], type=pa.int64())
    known = {"ts": later, **({"user": pa.array([0], type=pa.int32())} if "user" in table.column_names else {})}
    for name, column in known.items():
        last = last.set_column(last.schema.get_field_index(name), name, column)
    slices[-1] = pa.concat_tables([slices[-1], last])
    for number, rows in enumerate(slices):
        path = folder / f"{number:02}.parquet"
        pq.write_table(rows, path)
        # Spark takes files in the order of their age.
        os.utime(path, (number + 1, number + 1))


def _write_text(table: pa.Table, path: Path, *, header: bool) -> None:
    pa_csv.write_csv(table, path, pa_csv.WriteOptions(include_header=header))


def read_result(folder: Path) -> Result:
    """What a peer has written, sorted. Names that begin with a dot or an underscore are the peer's own notes."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    files = [path for path in files if not any(part[0] in "._" for part in path.relative_to(folder).parts)]
    if not files:
        return np.empty((0, 0), dtype=np.int64)
    options = pa_csv.ReadOptions(autogenerate_column_names=True)
    table = pa.concat_tables([pa_csv.read_csv(file, options) for file in files])
    return sorted_rows(np.column_stack([_integers(table, name) for name in table.column_names]))


def sorted_rows(rows: Result) -> Result:
    return rows[np.lexsort(rows.T[::-1])]
