"""The pairs with the highest counts, of each window or so far, in state of the size of the answer.

Exact although only K pairs are held: rows tell the full count of their pair, which only grows, so a pair that was put
out comes back as soon as its count is high enough, and one that was not at its last row does not belong to the K.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import Ints, Output, Part, Snapshot
from workloads.tpcxbb.arrays import nothing, record, stretches, table, unpacked, values

SCHEMA = pa.schema(
    [("window", pa.int64()), ("rank", pa.int32()), ("a", pa.int32()), ("b", pa.int32()), ("count", pa.int64())]
)
#: the window of rows, and of a ranking, that stand for the end of the stream
END = -1


class Best:
    """The ``size`` best pairs, best first: higher count, then smaller pair."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.clear()

    def clear(self) -> None:
        self.pairs: Ints = np.empty(0, dtype=np.int64)
        self.counts: Ints = np.empty(0, dtype=np.int64)

    def offer(self, pairs: Ints, counts: Ints) -> None:
        """Counts of a pair must not fall from one row to the next."""
        pairs, counts = self._beating_the_worst(pairs, counts)
        # The worst held is a better sieve the more has been seen: small bites first, then larger ones.
        start, bite = 0, 4 * self._size
        while start < len(pairs):
            self._merge(*self._beating_the_worst(pairs[start : start + bite], counts[start : start + bite]))
            start += bite
            bite *= 2

    def _beating_the_worst(self, pairs: Ints, counts: Ints) -> tuple[Ints, Ints]:
        if len(self.pairs) < self._size:
            return pairs, counts
        worst, count = self.pairs[-1], self.counts[-1]
        better = np.flatnonzero((counts > count) | ((counts == count) & (pairs < worst)))
        return pairs[better], counts[better]

    def _merge(self, pairs: Ints, counts: Ints) -> None:
        if not len(pairs):
            return
        pairs, counts = np.concatenate((self.pairs, pairs)), np.concatenate((self.counts, counts))
        order = np.lexsort((pairs, -counts))
        # The first row of a pair has its highest count; the others are out of date.
        _, firsts = np.unique(pairs[order], return_index=True)
        chosen = order[np.sort(firsts)[: self._size]]
        self.pairs, self.counts = pairs[chosen], counts[chosen]


class TopPairs:
    """Stateful: when the first row of another window comes, the ranking of the one before goes out as one unit.

    A window is the column ``time`` divided by ``length``. With ``resets`` every window begins anew and the last is
    given out at the end; without, counts go on, and after the last window comes a ranking of all, with window -1.
    """

    def __init__(self, time: str, length: int, size: int, min_count: int, resets: bool) -> None:
        self._time = time
        self._length = length
        self._min_count = min_count
        self._resets = resets
        self._window: int | None = None
        self._best = Best(size)

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return nothing(SCHEMA)
        windows = values(part.batch, self._time) // self._length
        pairs, counts = values(part.batch, "pair"), values(part.batch, "count")
        rankings, parents = [], []
        for start, end in stretches(windows):
            window = int(windows[start])
            if window != self._window:
                rankings.append(self._ranking(self._window))
                parents.append(np.full(rankings[-1].num_rows, part.rows[start]))
                self._window = window
                if self._resets:
                    self._best.clear()
            self._best.offer(pairs[start:end], counts[start:end])
        if not rankings:
            return nothing(SCHEMA)
        return Output(pa.concat_batches(rankings), np.concatenate(parents))

    def _ranking(self, window: int | None) -> pa.RecordBatch:
        wanted = np.count_nonzero(self._best.counts >= self._min_count)
        a, b = unpacked(self._best.pairs[:wanted])
        ranks = np.arange(1, wanted + 1, dtype=np.int32)
        return record(
            SCHEMA, np.full(wanted, END if window is None else window), ranks, a, b, self._best.counts[:wanted]
        )

    def flush(self) -> Output:
        if self._resets:
            return Output(self._ranking(self._window))
        # Rows of the end, if any came, have already closed the last window.
        last = [] if self._window == END else [self._ranking(self._window)]
        return Output(pa.concat_batches([*last, self._ranking(END)]))

    def snapshot(self) -> Snapshot:
        best = table(pair=self._best.pairs, count=self._best.counts)
        return Snapshot({"best": best}, {"window": self._window})

    def restore(self, snapshot: Snapshot) -> None:
        self._window = snapshot.values["window"]
        best = snapshot.tables["best"]
        self._best.pairs, self._best.counts = values(best, "pair").copy(), values(best, "count").copy()
