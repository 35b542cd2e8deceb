"""What an operator computes: functions without state, and states that take part after part.

The engine owns threads, queues and order; a kernel owns none of them. A *stateless* function may be called by several
threads at once. A *state* belongs to one bucket of keys (of a stateful operator: the only one), sees the parts of its
bucket in the order of their serial numbers, and is never called by two threads at once. Kernels should do per packet
what can be done per packet: Arrow's and NumPy's loops leave the interpreter to the other workers meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.packet import Ints


class Rejected(NamedTuple):
    """A row that an operator could not take: its number in the packet, why, and the row itself as text."""

    row: int
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class Output:
    """What becomes of a packet, or of a bucket's part of it.

    ``parents[i]`` is the row of the *packet* that row i of the batch comes from; it must never decrease. None means
    one row out for each row in, in the same order.

    ``order`` is for states whose rows can share a parent with rows of other buckets, as windows do that a row of
    any key closes: arrays of the batch's length by which such rows are sorted, ascending. Flushed rows are sorted by
    it alone. It must be the same for any number of buckets, so: the key.
    """

    batch: pa.RecordBatch
    parents: Ints | None = None
    order: tuple[pa.Array, ...] = ()
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A bucket's share of a packet: its rows, and where in the packet they stand.

    ``times`` are the event times of *all* rows of the packet, each at least that before it, for operators that declare
    a time: a window may have to be closed by a row of another bucket. Such operators may get parts without rows.
    """

    batch: pa.RecordBatch
    rows: Ints
    times: Ints | None = None

    @classmethod
    def whole(cls, batch: pa.RecordBatch, times: Ints | None = None) -> Part:
        """The part of the only bucket there is."""
        return cls(batch, np.arange(batch.num_rows, dtype=np.int64), times)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a state must remember, in a form that can be kept: Arrow tables and JSON values, nothing else."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableChange:
    """What has become of one table of a snapshot: the rows that are new or other than they were.

    1. ``positions`` ascend, without repetition; ``rows`` has one row for each.
    2. Every position lies below ``length``, that of the table afterwards.
    3. Every row below ``length`` that the table did not have before is among them.
    """

    positions: Ints
    rows: pa.Table
    length: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What makes a snapshot out of an earlier one: of each of its tables what has changed, and all values anew."""

    tables: Mapping[str, TableChange] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


class State(Protocol):
    """The state of one bucket."""

    def process(self, part: Part) -> Output:
        """Take the next part; the output's rows stand for rows of the part, or for windows that its times close."""

    def flush(self) -> Output:
        """The stream has ended: give out what was kept, in the order of keys. ``parents`` is not looked at."""

    def snapshot(self) -> Snapshot:
        """What ``restore`` needs to go on from here. It must not change when the state does."""

    def restore(self, snapshot: Snapshot) -> None:
        """Become what the snapshot was taken of; the state is new and has seen nothing."""


@runtime_checkable
class IncrementalState(State, Protocol):
    """A state that can tell what has changed, at a cost that grows with that and not with all that it holds."""

    def changes(self) -> Changes | None:
        """What has changed since the last call of ``snapshot``, ``restore`` or this: see ``patching.patched``.

        None: it cannot tell, and only a whole snapshot will do. So it is before the first snapshot, after much has
        changed, and after rows of the tables have moved. It stays so until a snapshot is taken.
        """


#: a function without state: called by several threads at once, so it must not change anything it shares
Function = Callable[[pa.RecordBatch], Output]
StateFactory = Callable[[], State]
