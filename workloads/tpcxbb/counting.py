"""Running counts of pairs: how often each has been seen, up to and including every single row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import Ints, KeyIndex, Output, Part, Snapshot
from workloads.tpcxbb.arrays import grown, nothing, record, stretches, table, values
from workloads.tpcxbb.runs import KeyRuns


class PairCounter:
    """Counts of packed pairs."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._index = KeyIndex()
        self._counts = np.zeros(1024, dtype=np.int64)

    def add(self, pairs: Ints) -> Ints:
        """Count each of these; the answer is the count of each row's pair after that row."""
        if not len(pairs):
            return pairs
        # Different pairs are what the index takes in fastest, and they are wanted anyway.
        runs = KeyRuns.by_key(pairs)
        slots = self._index.slots_of_different(runs.keys)
        self._counts = grown(self._counts, len(self._index), 0)
        running = np.empty(len(pairs), dtype=np.int64)
        base = self._counts[slots] - runs.starts + 1
        running[runs.order] = base[runs.of] + np.arange(len(pairs))
        self._counts[slots] += runs.lengths
        return running

    @property
    def totals(self) -> tuple[Ints, Ints]:
        """All pairs, in no stated order, and their counts."""
        pairs: Ints = self._index.keys
        return pairs, self._counts[: len(pairs)]

    def snapshot(self) -> pa.Table:
        pairs, counts = self.totals
        return table(pair=pairs, count=counts)

    def restore(self, kept: pa.Table) -> None:
        self.clear()
        if kept.num_rows:
            slots = self._index.slots(values(kept, "pair"))
            self._counts = grown(self._counts, len(self._index), 0)
            self._counts[slots] = values(kept, "count")


class CountPairs:
    """Partitioned by ``pair``: one row out for each row in, with the pair's count so far.

    Rows also have a column of time, which goes through. With ``resets`` counting begins again whenever its value
    changes: it is then the number of a window. What was counted in an earlier window is forgotten as a whole.
    """

    def __init__(self, time: str, resets: bool) -> None:
        self._time = time
        self._resets = resets
        self._window: int | None = None
        self._counter = PairCounter()
        self.schema = pa.schema([(time, pa.int64()), ("pair", pa.int64()), ("count", pa.int64())])

    def process(self, part: Part) -> Output:
        times, pairs = values(part.batch, self._time), values(part.batch, "pair")
        if not len(pairs):
            return nothing(self.schema)
        counts = self._by_window(times, pairs) if self._resets else self._counter.add(pairs)
        return Output(record(self.schema, times, pairs, counts), part.rows)

    def _by_window(self, windows: Ints, pairs: Ints) -> Ints:
        counts = []
        for start, end in stretches(windows):
            if windows[start] != self._window:
                self._window = int(windows[start])
                self._counter.clear()
            counts.append(self._counter.add(pairs[start:end]))
        return np.concatenate(counts)

    def flush(self) -> Output:
        return nothing(self.schema)

    def snapshot(self) -> Snapshot:
        return Snapshot({"counts": self._counter.snapshot()}, {"window": self._window})

    def restore(self, snapshot: Snapshot) -> None:
        self._window = snapshot.values["window"]
        self._counter.restore(snapshot.tables["counts"])
