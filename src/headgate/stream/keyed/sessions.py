"""Aggregates over sessions: rows of a key that follow each other without a long pause.

A session closes at the first row of the stream, of any key, that comes more than the gap after the session's last row;
that row is the parent of the session's row. A flush closes what is open. So a key has at most one open session once a
packet is done, and two sessions of a key never close at the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Output, Part, Rejected, Snapshot
from headgate.stream.keyed.aggregate import Accumulators, Aggregate
from headgate.stream.keyed.arrays import TOLERATED_WASTE, Expiry, Flags, GrowingArray, RowGroups, run_starts
from headgate.stream.keyed.changed_slots import SlotState
from headgate.stream.keyed.rows import AcceptedRows, WindowRows, accept_rows, check_span, packet_times, time_field
from headgate.stream.packet import Ints
from headgate.stream.spec import EventTime


class SessionAggregate(SlotState):
    """The aggregates of each session, with the times of its first and last row as ``window_start`` and ``window_end``.

    ``gap`` is in units of the time column; rows exactly the gap apart are in one session. A row older than a row before
    it in the stream is rejected.
    """

    rows_table = "sessions"

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], time: str, gap: int, aggregates: Sequence[Aggregate]
    ) -> None:
        super().__init__(schema, keys)
        self._gap = check_span("gap", gap, 0)
        self._rows = WindowRows(self._keys, time_field(schema, time), Accumulators(schema, aggregates).fields)
        #: {slot: its latest session}; at most this one is open
        self._session = GrowingArray(np.int64)
        # Of each session, open or closed:
        self._totals = Accumulators(schema, aggregates)
        self._slot, self._first, self._last = GrowingArray(np.int64), GrowingArray(np.int64), GrowingArray(np.int64)
        self._over = GrowingArray(np.bool_, False)
        self._closed = 0
        self._expiry = Expiry()
        self._clock: int | None = None
        self.output_schema = self._rows.schema
        self._time = self.event_time = EventTime(time, self.crosses)

    @staticmethod
    def crosses(before: int | None, after: int) -> bool:
        """Whether a session may close between two times of the stream: when time goes on."""
        return before is not None and before != after

    def process(self, part: Part) -> Output:
        accepted = accept_rows(part, self._time, self._clock)
        if accepted.batch.num_rows:
            self._add(accepted)
        times = packet_times(part, self._time)
        if not len(times):
            return self._rows.nothing(accepted.rejected)
        self._clock = int(times[-1]) if self._clock is None else max(self._clock, int(times[-1]))
        sessions, last = self._expiry.pop(self._clock - self._gap)
        # A session that went on has a later entry; one with rows in two packets at the same time has two equal ones.
        sessions = np.sort(sessions[self._last.values[sessions] == last])
        sessions = sessions[run_starts(sessions)]
        if not len(sessions):
            return self._rows.nothing(accepted.rejected)
        parents = np.searchsorted(times, self._last.values[sessions] + self._gap, side="right")
        return self._close(sessions, parents.astype(np.int64, copy=False), accepted.rejected)

    def flush(self) -> Output:
        sessions = self._session.values[self._are_open()]
        return self._close(sessions, None, ()) if len(sessions) else self._rows.nothing()

    def _are_open(self) -> Flags:
        """Which slots have an open session."""
        return ~self._over.values[self._session.values]

    def _add(self, accepted: AcceptedRows) -> None:
        slots = self._keys.slots(accepted.batch)
        groups = RowGroups.of(slots)
        self._changed.add(groups.codes)
        times = accepted.times[groups.order]
        pieces = self._pieces(groups, times)
        sizes = np.diff(pieces, append=len(times))
        sessions = self._sessions(groups, times, pieces)
        piece_slots = slots[groups.order[pieces]]
        ends = times[pieces + sizes - 1]
        self._last.values[sessions] = ends
        self._session.grow(len(self._keys))
        # Pieces of a key follow each other in time, and of several assignments the last one stays.
        self._session.values[piece_slots] = sessions
        self._slot.values[sessions] = piece_slots
        self._expiry.push(sessions, ends)
        by_row = np.empty_like(slots)
        by_row[groups.order] = np.repeat(sessions, sizes)
        self._totals.add(by_row, accepted.batch)

    def _pieces(self, groups: RowGroups, times: Ints) -> Ints:
        """Where the rows of a session begin, in the groups' order."""
        begins = np.zeros(len(times), dtype=np.bool_)
        begins[1:] = self._is_pause(times[:-1], times[1:])
        begins[groups.starts] = True
        return np.flatnonzero(begins).astype(np.int64, copy=False)

    def _is_pause(self, earlier: Ints, later: Ints) -> Flags:
        """Whether more than the gap lies between two times. Without a sign, any difference fits into 64 bits."""
        return (later - earlier).view(np.uint64) > np.uint64(self._gap)

    def _sessions(self, groups: RowGroups, times: Ints, pieces: Ints) -> Ints:
        """The session of each piece: the open one of its key if it goes on, otherwise a new one."""
        sessions = np.full(len(pieces), -1, dtype=np.int64)
        # Codes ascend: known slots come first.
        known = int(np.searchsorted(groups.codes, len(self._session)))
        latest = self._session.values[groups.codes[:known]]
        pauses = self._is_pause(self._last.values[latest], times[groups.starts[:known]])
        going_on = ~self._over.values[latest] & ~pauses
        sessions[np.searchsorted(pieces, groups.starts[:known])] = np.where(going_on, latest, -1)
        new = np.flatnonzero(sessions < 0)
        begin = len(self._slot)
        sessions[new] = np.arange(begin, begin + len(new), dtype=np.int64)
        for array in (self._slot, self._first, self._last, self._over):
            array.grow(begin + len(new))
        self._totals.grow(begin + len(new))
        self._first.values[sessions[new]] = times[pieces[new]]
        return sessions

    def _close(self, sessions: Ints, parents: Ints | None, rejected: tuple[Rejected, ...]) -> Output:
        slots = self._slot.values[sessions]
        output = self._rows.output(
            slots,
            self._first.values[sessions],
            self._last.values[sessions],
            self._totals.results(sessions),
            parents,
            rejected,
        )
        self._over.values[sessions] = True
        if self._changed:
            self._changed.add(np.unique(slots))
        self._closed += len(sessions)
        if self._closed > TOLERATED_WASTE and 2 * self._closed > len(self._slot):
            self._drop_closed()
        return output

    def _drop_closed(self) -> None:
        self._changed.stop()
        live = self._are_open()
        sessions = self._session.values[live]
        for array in (self._slot, self._first, self._last, self._over):
            array.replace(array.values[sessions])
        self._totals.keep(sessions)
        self._hold(self._keys.keep(live)[self._slot.values])

    def _hold(self, slots: Ints) -> None:
        """Session i, open or closed, is now that of ``slots[i]``: index sessions by slot, and wait for the ends of open
        ones."""
        self._slot.replace(slots)
        sessions = np.arange(len(slots), dtype=np.int64)
        by_slot = np.empty_like(sessions)
        by_slot[slots] = sessions
        self._session.replace(by_slot)
        is_open = ~self._over.values
        self._closed = len(slots) - int(np.count_nonzero(is_open))
        self._expiry = Expiry()
        self._expiry.push(sessions[is_open], self._last.values[is_open])

    # --- snapshots ------------------------------------------------------------------------------------------

    def _row_count(self) -> int:
        return len(self._session)

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        """The latest session of each slot, open or closed: so a key has the same row for as long as it is known."""
        sessions = self._session.values[slots]
        return {
            "first": pa.array(self._first.values[sessions]),
            "last": pa.array(self._last.values[sessions]),
            "over": pa.array(self._over.values[sessions].astype(np.int8)),
            **self._totals.columns(sessions),
        }

    def _values(self) -> dict[str, Any]:
        return {"clock": self._clock}

    def _restore_rows(self, slots: Ints, snapshot: Snapshot) -> None:
        sessions = snapshot.tables[self.rows_table]
        self._first.replace(sessions.column("first").to_numpy())
        self._last.replace(sessions.column("last").to_numpy())
        self._over.replace(sessions.column("over").to_numpy())
        self._totals.remember(np.arange(sessions.num_rows, dtype=np.int64), sessions)
        self._hold(slots)
        self._clock = snapshot.values["clock"]
