"""Q2: which items are looked at together in most sessions.

Clicks -> those of known users -> their sessions -> pairs of each session -> count of each pair -> top pairs so far,
each time a period ends. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream import (
    AUTOMATIC_BUCKETS,
    Function,
    Ints,
    KeyIndex,
    Output,
    Part,
    QuerySpec,
    Sink,
    Snapshot,
    Source,
    run_starts,
    stable_order,
)
from workloads.tpcxbb.arrays import grown, nothing, packed, record, spread, table, unpacked, values
from workloads.tpcxbb.chain import linear, partitioned, stateful, stateless
from workloads.tpcxbb.chains import Chains
from workloads.tpcxbb.counting import CountPairs
from workloads.tpcxbb.dims import SECONDS_PER_DAY, Dims
from workloads.tpcxbb.ranking import END, TopPairs
from workloads.tpcxbb.runs import NEVER, KeyRuns

NAME = "q2"
Flags = NDArray[np.bool_]
Items = NDArray[np.int32]
_CLICKS = pa.schema([("user", pa.int32()), ("ts", pa.int64()), ("item", pa.int32())])
_SESSIONS = pa.schema([("trigger", pa.int64()), ("items", pa.list_(pa.int32()))])
_PAIRS = pa.schema([("trigger", pa.int64()), ("pair", pa.int64())])


@dataclass(frozen=True)
class Q2Parameters:
    """``given`` is the item whose company is asked for, None for all pairs; times are in seconds."""

    timeout: int
    given: int | None
    top: int
    period: int = SECONDS_PER_DAY


TPC = Q2Parameters(timeout=3_600, given=10_001, top=30)
PAPER = Q2Parameters(timeout=3_600, given=None, top=30)


def query(
    source: Source, sink: Sink, parameters: Q2Parameters, buckets: int = AUTOMATIC_BUCKETS, dims: Dims | None = None
) -> QuerySpec:
    """``dims`` are not looked at: this query is the same for every shop."""
    top = partial(TopPairs, "trigger", parameters.period, parameters.top, 1, resets=False)
    operators = (
        stateless("known", known_clicks),
        partitioned("sessions", "user", partial(SessionItems, parameters.timeout), buckets),
        stateless("pairs", _pairs(parameters.given)),
        partitioned("count", "pair", partial(CountPairs, "trigger", resets=False), buckets),
        stateful("top", top),
    )
    return linear(NAME, source, operators, sink)


def known_clicks(batch: pa.RecordBatch) -> Output:
    """Clicks of which user and item are known."""
    user, item = values(batch, "user"), values(batch, "item")
    rows = np.flatnonzero((user >= 0) & (item >= 0))
    return Output(record(_CLICKS, user[rows], values(batch, "ts")[rows], item[rows]), rows)


def _pairs(given: int | None) -> Function:
    """Of each session all pairs, or those of every other item with the given one; in ascending order."""

    def expanded(batch: pa.RecordBatch) -> Output:
        if not batch.num_rows:
            return nothing(_PAIRS)
        sessions = batch.column("items")
        bounds = sessions.offsets.to_numpy().astype(np.int64)
        items = sessions.values.to_numpy()[bounds[0] : bounds[-1]]
        starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
        session, number = spread(lengths)
        if given is None:
            left, step = spread(lengths[session] - 1 - number)
            pairs = packed(items[left], items[left + step + 1])
        else:
            has_it = np.zeros(len(starts), dtype=np.bool_)
            has_it[session[items == given]] = True
            left = np.flatnonzero(has_it[session] & (items != given))
            pairs = packed(items[left], np.full(len(left), given))
        rows = session[left]
        return Output(record(_PAIRS, values(batch, "trigger")[rows], pairs), rows)

    return expanded


class SessionItems:
    """Partitioned by user: a click that comes too late for its user's session gives out that session's items.

    Items are ascending, each once; ``trigger`` is the time of the click. At the end all open sessions go out, by user,
    with trigger -1. State is kept of every user ever seen.
    """

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._users = KeyIndex()
        self._last: Ints = np.full(1024, NEVER, dtype=np.int64)
        self._open = Chains()

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return nothing(_SESSIONS)
        user, ts, item = (values(part.batch, name) for name in ("user", "ts", "item"))
        slots = self._users.slots(user.astype(np.int64))
        self._last = grown(self._last, len(self._users), NEVER)
        runs = KeyRuns.by_key(slots)
        times, items = ts[runs.order], item[runs.order]
        closing = runs.gaps(times, self._last[runs.keys], self._timeout)
        self._last[runs.keys] = times[runs.ends - 1]
        closed, content = self._divide(runs, closing, items)
        rows = runs.order[closing]
        if not len(rows):
            return nothing(_SESSIONS)
        by_row = np.argsort(rows)
        rank = np.empty_like(by_row)
        rank[by_row] = np.arange(len(by_row))
        sessions = _sets(rank[closed], content, len(rows))
        rows = rows[by_row]
        return Output(record(_SESSIONS, ts[rows], sessions), part.rows[rows])

    def _divide(self, runs: KeyRuns, closing: Flags, items: Items) -> tuple[Ints, Items]:
        """Items of sessions that are closed, with the number of the close; the others are put to what is open."""
        closes = np.flatnonzero(closing)
        if not len(closes):
            self._open.append(runs.keys[runs.of], items)
            return closes, items[:0]
        # A row goes into the session that the next close of its run closes, if there is one.
        run_of_close = runs.of[closes]
        upcoming = np.cumsum(closing)
        closed = upcoming < len(closes)
        closed &= run_of_close[np.minimum(upcoming, len(closes) - 1)] == runs.of
        # What was open before this part is closed by the first close of a run.
        firsts = np.flatnonzero(np.diff(run_of_close, prepend=-1))
        owner, earlier = self._open.take(runs.keys[run_of_close[firsts]])
        still_open = np.flatnonzero(~closed)
        self._open.append(runs.keys[runs.of[still_open]], items[still_open])
        return np.concatenate((upcoming[closed], firsts[owner])), np.concatenate((items[closed], earlier))

    def flush(self) -> Output:
        users = self._users.keys
        by_user = np.argsort(users)
        session, items = self._open.look(by_user)
        content = _sets(session, items, len(users))
        batch = record(_SESSIONS, np.full(len(users), END), content)
        return Output(batch, order=(pa.array(users[by_user]),))

    def snapshot(self) -> Snapshot:
        users = self._users.keys
        owner, items = self._open.look(np.arange(len(users), dtype=np.int64))
        tables = {
            "users": table(user=users, last=self._last[: len(users)]),
            "open": table(user=users[owner], item=items),
        }
        return Snapshot(tables)

    def restore(self, snapshot: Snapshot) -> None:
        users, still_open = snapshot.tables["users"], snapshot.tables["open"]
        if not users.num_rows:
            return
        slots = self._users.slots(values(users, "user"))
        self._last = grown(self._last, len(self._users), NEVER)
        self._last[slots] = values(users, "last")
        owners = self._users.slots(values(still_open, "user"))
        order = np.argsort(owners, kind="stable")
        self._open.append(owners[order], values(still_open, "item")[order])


def _sets(session: Ints, items: Items, count: int) -> pa.ListArray:
    """A list for each of ``count`` sessions, of its different items in ascending order."""
    both = packed(session, items)
    both = both[stable_order(both)]
    owners, contents = unpacked(both[run_starts(both)])
    bounds = np.searchsorted(owners, np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), pa.array(contents))
