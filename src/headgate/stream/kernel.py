"""Kernels: what an operator computes, as a function without state or as a state that processes part after part.

The engine owns threads, queues and order; a kernel owns none of them. A *function* may be called by several threads at
once. A *state* belongs to one bucket of keys (a stateful operator has only one), gets the parts of its bucket in the
order of their serial numbers, and is never called by two threads at once. Kernels should work on whole packets: Arrow's
and NumPy's loops leave the interpreter to the other workers.
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
    """The result of a packet, or of a bucket's part of it.

    ``parents[i]`` is the row of the *packet* that row i of the batch comes from; it must never decrease. None means
    one row out for each row in, in the same order.

    ``order`` is for states whose rows can share a parent with rows of other buckets, such as windows, which a row of
    any key closes. It has arrays of the batch's length, by which such rows are sorted, ascending. Flushed rows are
    sorted by it alone. It must not depend on the number of buckets: use the key.
    """

    batch: pa.RecordBatch
    parents: Ints | None = None
    order: tuple[pa.Array, ...] = ()
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A bucket's share of a packet: its rows, and their places in the packet.

    ``times`` are for operators that declare a time: the event times of *all* rows of the packet, made non-decreasing,
    since a row of another bucket may close a window. Such operators may get parts without rows.
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
    """All that a state must remember, in a form that can be written to a file: Arrow tables and JSON values."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one table of a snapshot: the rows that are new or different.

    1. ``positions`` ascend, without repetition; ``rows`` has one row for each.
    2. Every position lies below ``length``, that of the table afterwards.
    3. Every row below ``length`` that the table did not have before is among them.
    """

    positions: Ints
    rows: pa.Table
    length: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two snapshots: the change of each table, and all values anew."""

    tables: Mapping[str, TableChange] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


class State(Protocol):
    """The state of one bucket."""

    def process(self, part: Part) -> Output:
        """Take the next part. Rows of the output come from rows of the part, or from windows that its times close."""

    def flush(self) -> Output:
        """The stream has ended: give out what was kept, in the order of keys. ``parents`` is ignored."""

    def snapshot(self) -> Snapshot:
        """What ``restore`` needs to continue from here. It must not change when the state does."""

    def restore(self, snapshot: Snapshot) -> None:
        """Become what the snapshot was taken of; the state is new and has seen nothing."""


@runtime_checkable
class IncrementalState(State, Protocol):
    """A state that can tell what has changed, at a cost that grows with the changes and not with the state."""

    def changes(self) -> Changes | None:
        """What has changed since the last call of ``snapshot``, ``restore`` or this: see ``patching.patched``.

        None: it cannot tell, and only a whole snapshot will do. This is so before the first snapshot, after much has
        changed, and after rows of the tables have moved, until a snapshot is taken.
        """


#: a function without state: called by several threads at once, so it must not change anything it shares
Function = Callable[[pa.RecordBatch], Output]
StateFactory = Callable[[], State]
