"""Q4: how many pages users look at in sessions in which they left a shopping basket behind.

Clicks -> those of known users that bought nothing -> their sessions -> abandoned ones -> count and sum of pages.
Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import AUTOMATIC_BUCKETS, Function, Ints, KeyIndex, Output, Part, QuerySpec, Sink, Snapshot, Source
from workloads.tpcxbb.arrays import grown, nothing, record, table, values
from workloads.tpcxbb.chain import linear, partitioned, stateful, stateless
from workloads.tpcxbb.dims import PAGE_TYPES, Dims
from workloads.tpcxbb.runs import NEVER, KeyRuns

NAME = "q4"
ORDER, DYNAMIC = PAGE_TYPES.index("order"), PAGE_TYPES.index("dynamic")
_CLICKS = pa.schema([("user", pa.int32()), ("ts", pa.int64()), ("type", pa.int8())])
_SESSIONS = pa.schema(
    [("user", pa.int32()), ("pages", pa.int64()), ("last_dynamic", pa.int64()), ("last_order", pa.int64())]
)
_PAGES = pa.schema([("pages", pa.int64())])
SCHEMA = pa.schema([("count", pa.int64()), ("sum", pa.int64())])
#: the position of a page type that a session has not seen
_NOWHERE = -1


@dataclass(frozen=True)
class Q4Parameters:
    """``timeout`` in seconds."""

    timeout: int


TPC = Q4Parameters(timeout=3_600)
PAPER = Q4Parameters(timeout=3_600)


def query(
    source: Source, sink: Sink, parameters: Q4Parameters, buckets: int = AUTOMATIC_BUCKETS, dims: Dims | None = None
) -> QuerySpec:
    """``dims`` are those of the source's rows: of seed 0 and scale factor 1 unless given."""
    operators = (
        stateless("looking", _looking(dims or Dims())),
        partitioned("sessions", "user", partial(SessionPages, parameters.timeout), buckets),
        stateless("abandoned", abandoned),
        stateful("average", RunningAverage),
    )
    return linear(NAME, source, operators, sink)


def _looking(dims: Dims) -> Function:
    types = dims.page_type

    def kept(batch: pa.RecordBatch) -> Output:
        user, page = values(batch, "user"), values(batch, "page")
        rows = np.flatnonzero((user >= 0) & (page >= 0) & (values(batch, "sale") < 0))
        return Output(record(_CLICKS, user[rows], values(batch, "ts")[rows], types[page[rows]]), rows)

    return kept


def abandoned(batch: pa.RecordBatch) -> Output:
    """Sessions whose last dynamic page comes after their last order page, if there is one."""
    rows = np.flatnonzero(values(batch, "last_dynamic") > values(batch, "last_order"))
    return Output(record(_PAGES, values(batch, "pages")[rows]), rows)


class SessionPages:
    """Partitioned by user: a click that comes too late for its user's session gives that session out.

    A session is the number of its pages, and where among them, from 1, the last dynamic and the last order page stood.
    At the end all open sessions go out, by user. State is kept of every user ever seen.
    """

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._users = KeyIndex()
        self._last: Ints = np.full(1024, NEVER, dtype=np.int64)
        #: of each user pages, last dynamic and last order page of the open session
        self._open: Ints = np.empty((1024, 3), dtype=np.int64)

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return nothing(_SESSIONS)
        user, ts, page_type = (values(part.batch, name) for name in ("user", "ts", "type"))
        slots = self._users.slots(user.astype(np.int64))
        self._make_room()
        runs = KeyRuns.by_key(slots)
        times = ts[runs.order]
        closing = runs.gaps(times, self._last[runs.keys], self._timeout)
        before = self._open[runs.keys]
        before[self._last[runs.keys] == NEVER] = _EMPTY

        # Sessions of this part begin where a run does, and at each close.
        begins = closing.copy()
        begins[runs.starts] = True
        starts = np.flatnonzero(begins)
        run, closes = runs.of[starts], closing[starts]
        first_of_run = starts == runs.starts[run]
        goes_on = (first_of_run & ~closes)[:, np.newaxis]
        sessions = _sessions(page_type[runs.order], starts, np.where(goes_on, before[run], _EMPTY))
        self._last[runs.keys] = times[runs.ends - 1]
        self._open[runs.keys] = sessions[np.append(first_of_run[1:], True)]

        # A close gives out the session before it, in this part or from earlier ones.
        closed = np.where(first_of_run[:, np.newaxis], before[run], np.roll(sessions, 1, axis=0))[closes]
        rows = runs.order[starts[closes]]
        by_row = np.argsort(rows)
        rows, closed = rows[by_row], closed[by_row]
        return Output(record(_SESSIONS, user[rows], *closed.T), part.rows[rows])

    def _make_room(self) -> None:
        self._last = grown(self._last, len(self._users), NEVER)
        self._open = grown(self._open, len(self._users), 0)

    def flush(self) -> Output:
        users = self._users.keys
        by_user = np.argsort(users)
        batch = record(_SESSIONS, users[by_user].astype(np.int32), *self._open[by_user].T)
        return Output(batch, order=(batch.column("user"),))

    def snapshot(self) -> Snapshot:
        users = self._users.keys
        pages, dynamic, order = self._open[: len(users)].T
        last = self._last[: len(users)]
        return Snapshot({"users": table(user=users, last=last, pages=pages, last_dynamic=dynamic, last_order=order)})

    def restore(self, snapshot: Snapshot) -> None:
        users = snapshot.tables["users"]
        if not users.num_rows:
            return
        slots = self._users.slots(values(users, "user"))
        self._make_room()
        self._last[slots] = values(users, "last")
        columns = [values(users, name) for name in ("pages", "last_dynamic", "last_order")]
        self._open[slots] = np.stack(columns, axis=1)


#: pages, last dynamic and last order page of a session that begins
_EMPTY = np.array([0, _NOWHERE, _NOWHERE], dtype=np.int64)


def _sessions(page_type: Ints, starts: Ints, before: Ints) -> Ints:
    """What sessions come to that begin at ``starts``, or go on there from what they were ``before``."""
    lengths = np.diff(starts, append=len(page_type))
    position = np.arange(1, len(page_type) + 1) + np.repeat(before[:, 0] - starts, lengths)
    last_dynamic = np.maximum.reduceat(np.where(page_type == DYNAMIC, position, _NOWHERE), starts)
    last_order = np.maximum.reduceat(np.where(page_type == ORDER, position, _NOWHERE), starts)
    columns = (before[:, 0] + lengths, np.maximum(last_dynamic, before[:, 1]), np.maximum(last_order, before[:, 2]))
    return np.stack(columns, axis=1)


class RunningAverage:
    """Stateful: after each session how many there were, and the sum of their pages; the average is exact as these."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0

    def process(self, part: Part) -> Output:
        pages = values(part.batch, "pages")
        if not len(pages):
            return nothing(SCHEMA)
        counts = np.arange(self._count + 1, self._count + 1 + len(pages), dtype=np.int64)
        sums = np.cumsum(pages) + self._sum
        self._count, self._sum = int(counts[-1]), int(sums[-1])
        return Output(record(SCHEMA, counts, sums), part.rows)

    def flush(self) -> Output:
        return nothing(SCHEMA)

    def snapshot(self) -> Snapshot:
        return Snapshot(values={"count": self._count, "sum": self._sum})

    def restore(self, snapshot: Snapshot) -> None:
        self._count, self._sum = snapshot.values["count"], snapshot.values["sum"]
