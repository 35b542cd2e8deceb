"""Rows kept by key and time so that ranges of times of many keys can be looked up at once, and old rows forgotten.

Rows come in the order of time. Each lot that comes is sorted by key and kept as a *run*; runs of about the same size
are merged, so there are never more than about log2(rows) of them and a row is moved about as many times. A lookup
searches every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.keyed.arrays import expand, one_batch
from headgate.stream.packet import Ints


class Matches(NamedTuple):
    """Pairs of a question and a row found: its arrival number and the row itself."""

    questions: Ints
    arrivals: Ints
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Run:
    """Rows sorted by slot, rows of a slot by arrival, which is also by time."""

    slots: Ints
    times: Ints
    arrivals: Ints
    rows: pa.RecordBatch
    #: the different times in order, and what rows are found by: slot and place of the time in one integer
    moments: Ints
    standing: Ints

    @classmethod
    def of(cls, slots: Ints, times: Ints, arrivals: Ints, rows: pa.RecordBatch) -> Run:
        """Of rows in any order."""
        order = np.lexsort((arrivals, slots))
        slots, times = slots[order], times[order]
        moments, place = np.unique(times, return_inverse=True)
        standing = slots * (len(moments) + 1) + place
        return cls(slots, times, arrivals[order], rows.take(pa.array(order)), moments, standing)

    def __len__(self) -> int:
        return len(self.slots)

    def find(self, slots: Ints, earliest: Ints, latest: Ints) -> Matches:
        """The rows of each slot asked for whose times lie from ``earliest`` to ``latest``, both included."""
        base = slots * (len(self.moments) + 1)
        begin = np.searchsorted(self.standing, base + np.searchsorted(self.moments, earliest, side="left"))
        end = np.searchsorted(self.standing, base + np.searchsorted(self.moments, latest, side="right"))
        questions, places = expand(begin, np.maximum(end - begin, 0))
        return Matches(questions, self.arrivals[places], self.rows.take(pa.array(places)))

    def after(self, oldest: int) -> Run:
        """Without the rows of times before ``oldest``."""
        kept = np.flatnonzero(self.times >= oldest)
        if len(kept) == len(self):
            return self
        return Run.of(self.slots[kept], self.times[kept], self.arrivals[kept], self.rows.take(pa.array(kept)))


class Runs:
    """All rows of one side."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.runs: list[Run] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs)

    def add(self, run: Run, oldest: int) -> None:
        """Take a run of later arrivals; rows of times before ``oldest`` may be forgotten."""
        self.runs = [each for each in self.runs if int(each.moments[-1]) >= oldest]
        if len(run):
            self.runs.append(run)
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            newer, older = self.runs.pop().after(oldest), self.runs.pop().after(oldest)
            merged = self._merged([older, newer])
            if len(merged):
                self.runs.append(merged)

    def whole(self) -> Run:
        """All rows as one run."""
        return self._merged(self.runs)

    def renumber(self, moved: Ints) -> None:
        """Slots have got other numbers."""
        self.runs = [Run.of(moved[run.slots], run.times, run.arrivals, run.rows) for run in self.runs]

    def _merged(self, runs: list[Run]) -> Run:
        none = np.empty(0, dtype=np.int64)
        return Run.of(
            np.concatenate([none, *(run.slots for run in runs)]),
            np.concatenate([none, *(run.times for run in runs)]),
            np.concatenate([none, *(run.arrivals for run in runs)]),
            one_batch(pa.Table.from_batches([run.rows for run in runs], schema=self._schema)),
        )
