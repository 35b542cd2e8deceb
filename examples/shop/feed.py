"""Lets clicks and sales arrive: a file of each, covering two hours of the shop's life, every second.

The rows are those of ``workloads.tpcxbb``, the same for the same seed. Each carries what the benchmark looks up in its
dimension tables: the category of its item, the type of its page. Rows of one second are told apart by their
microseconds. Derived from TPCx-BB, unofficial, not comparable.
"""

import argparse
import itertools
import os
import sys
import threading
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# The generators lie beside the examples in the repository, not in the package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from workloads.tpcxbb.clicks import Clicks
from workloads.tpcxbb.dims import FIRST_SECOND, PAGE_TYPES, Dims
from workloads.tpcxbb.sales import Sales

SECONDS_PER_FILE = 2 * 3_600
#: the clicks of a visit are spread over so long, and made together
SPREAD = 3 * SECONDS_PER_FILE
#: from 1900-01-01, where the benchmark counts from, to 1970-01-01
SECONDS_BEFORE_1970 = 25_567 * 86_400
STREAMS = ("clicks", "sales")


class Feed:
    """Files of both streams, numbered in the order of event time."""

    def __init__(
        self, seed: int = 0, customers: int = 1_500, clicks_per_day: float = 12_000.0, lines_per_hour: float = 150.0
    ) -> None:
        self._dims = Dims(seed, customers=customers)
        self._clicks = Clicks(self._dims, clicks_per_day, SPREAD)
        self._sales = Sales(self._dims, lines_per_hour)
        self._block = lru_cache(maxsize=4)(self._made)

    def rows(self, stream: str, number: int) -> pa.Table:
        """The rows of file ``number`` of a stream."""
        begin = (FIRST_SECOND - SECONDS_BEFORE_1970 + number * SECONDS_PER_FILE) * 1_000_000
        block = self._block(stream, number * SECONDS_PER_FILE // SPREAD if stream == "clicks" else 0)
        ts = block.column("ts").cast(pa.int64()).to_numpy()
        first, last = np.searchsorted(ts, (begin, begin + SECONDS_PER_FILE * 1_000_000))
        return block.slice(first, last - first)

    def _made(self, stream: str, number: int) -> pa.Table:
        """All rows of a block. One block of sales is enough for some hundred days."""
        block = (self._clicks if stream == "clicks" else self._sales).block(number)
        columns = {name: block.column(name).to_numpy() for name in block.schema.names}
        ids = np.arange(block.num_rows, dtype=np.int64)
        seconds = columns["ts"] - SECONDS_BEFORE_1970
        micros = seconds * 1_000_000 + ids - np.searchsorted(seconds, seconds)
        made = {
            "id": pa.array((number << 32) + ids),
            "ts": pa.array(micros).cast(pa.timestamp("us", "UTC")),
            "item": columns["item"],
            "category": self._dims.category[columns["item"]].astype(np.int32),
        }
        if stream == "sales":
            return pa.table({**made, "ticket": columns["ticket"], "net_cents": columns["net_cents"]})
        types = [None if page < 0 else PAGE_TYPES[self._dims.page_type[page]] for page in columns["page"]]
        return pa.table({**made, "user": columns["user"], "page": types, "sale": columns["sale"]})


def land(rows: pa.Table, folder: Path, stream: str, name: str) -> None:
    """Put a file where its stream looks for it, whole from the first moment on."""
    target = folder / "landing" / stream
    target.mkdir(parents=True, exist_ok=True)
    written = target / f".{name}.parquet"
    pq.write_table(rows, written)
    os.replace(written, target / f"{name}.parquet")


def feed(folder: Path, stop: threading.Event, every: float = 1.0) -> None:
    """Land file after file until told to stop, going on behind those that are there."""
    made = Feed()
    for number in itertools.count():
        new = [stream for stream in STREAMS if not (folder / "landing" / stream / f"{number:06}.parquet").exists()]
        for stream in new:
            land(made.rows(stream, number), folder, stream, f"{number:06}")
        if new and stop.wait(every):
            break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two files (default: 1)")
    feed(Path(__file__).parent, threading.Event(), parser.parse_args().every)
