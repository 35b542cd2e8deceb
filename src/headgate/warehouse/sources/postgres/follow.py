"""Follows the changes of one PostgreSQL table: what a replication slot gives becomes numbered rows in blocks.

A transaction is cut into blocks where it is large, so that an update takes as much as the scheduler wants. Server and
stream agree on the place by two numbers, the place of the transaction's commit in the log and the number of a change in
it, which are the same whenever the server is asked again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.postgres.changes_offsets import (
    ChangesOffset,
    ChangesRange,
    LogPlace,
    SeenTransactions,
    lsn_text,
)
from headgate.warehouse.sources.postgres.followed import FollowedTable
from headgate.warehouse.sources.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    RelationMessage,
    RowMessage,
    TruncateMessage,
    Value,
    Values,
    parse,
)
from headgate.warehouse.sources.postgres.slot import MOST_AT_ONCE, HeldSnapshot, PostgresSlot, ReplicationSlotState

#: so many bytes of changes are held in memory ahead of what is loaded
MOST_AHEAD = 32 << 20
#: so many messages are asked for at once; the server goes on to the end of a transaction
MOST_MESSAGES = 20_000
#: so many bytes of the log are looked through at once
MOST_LOG = 256 << 20
#: if nothing of the table is in so many bytes of the log, that is committed, so that the server can remove them
QUIET_LOG = 16 << 20
#: a snapshot is cut into parts of about so many bytes
PART_BYTES = 4 << 20
#: after looking through the log comes a rest of so many times the time that it took
REST = 5.0


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """One row of the change stream: values of the declared columns, in order; ``at`` is microseconds since 1970."""

    change: str
    values: Values
    number: int
    lsn: int
    at: int
    moved: bool = False


@dataclass(frozen=True, slots=True)
class ChangesBlock:
    """A chunk: the changes from one place to another, or with ``range`` a part of a beginning."""

    begin: LogPlace
    end: LogPlace
    number: int
    rows: tuple[ChangedRow, ...]
    size: int
    arrived: float
    newest: float
    range: ChangesRange | None = None


@dataclass(frozen=True, slots=True)
class FollowedChanges:
    """What a look found: the blocks that are not loaded, in order, and what holds up others.

    ``is_stuck``: it does not go on by itself. ``known_until``: everything that was committed before that moment, in
    wall-clock seconds since the epoch, is in the blocks or loaded. A look that read only a part of the log, or none of
    it, does not move it on. ``followed`` is the table as it was then.
    """

    blocks: tuple[ChangesBlock, ...]
    note: str = ""
    is_stuck: bool = False
    known_until: float = -math.inf
    followed: FollowedTable | None = None


class ChangesReader:
    """Makes blocks of messages, in the order in which the server gives them.

    ``columns`` are the declared ones. ``is_new(name)`` says whether a column that is not declared must be waited for.
    """

    def __init__(
        self,
        table: tuple[str, str],
        key: Sequence[str],
        columns: Sequence[str],
        *,
        truncate: Literal["refuse", "row"],
        is_new: Callable[[str], bool],
        chunk_rows: int,
        start: LogPlace,
        number: int,
        seen: SeenTransactions | None,
    ) -> None:
        self._table, self._key, self._columns = table, key, [name.lower() for name in columns]
        self._truncate, self._is_new, self._chunk_rows = truncate, is_new, chunk_rows
        self._seen = seen
        #: {number of a relation that is the table: where its columns and its key are, and a column that is new}
        self._relations: dict[int, tuple[list[int | None], list[int], str]] = {}
        self._transaction: BeginMessage | None = None
        self._is_loaded = False
        self._index = 0
        self._place, self._number = start, number
        self._begin, self._rows, self._size = start, list[ChangedRow](), 0
        self.blocks: list[ChangesBlock] = []
        #: why no more messages are taken; empty if they are
        self.stopped = ""
        #: added to the server's time, it is about the time here, not later than that
        self.clock_shift = 0.0

    @property
    def place(self) -> LogPlace:
        """Up to where blocks were made."""
        return self._place

    @property
    def number(self) -> int:
        return self._number

    def take(self, data: bytes) -> None:
        """The next message; ``stopped`` says so if it is a change that cannot be loaded."""
        message = parse(data)
        match message:
            case BeginMessage():
                seen = self._seen is not None and self._seen.has(message.transaction, message.commit)
                self._transaction, self._index = message, 0
                self._is_loaded = seen or message.commit < self._place[1]
            case CommitMessage():
                if message.end > self._place[1]:
                    self._place = (self._place[0], message.end, 0)
                    self._reach_further()
                self._transaction = None
            case RelationMessage():
                self._describe(message)
            case RowMessage():
                if message.relation in self._relations:
                    self._row(message, len(data))
            case TruncateMessage():
                if any(number in self._relations for number in message.relations):
                    self._truncated(len(data))

    def _describe(self, relation: RelationMessage) -> None:
        if (relation.schema, relation.name) != self._table:
            self._relations.pop(relation.number, None)
            return
        found = {name.lower(): index for index, name in enumerate(relation.columns)}
        places = [found.get(name) for name in self._columns]
        key = [found[name.lower()] for name in self._key if name.lower() in found]
        undeclared = [name for name in relation.columns if name.lower() not in self._columns]
        new = next((name for name in undeclared if self._is_new(name)), "")
        self._relations[relation.number] = (places, key, new)

    def _begun(self) -> BeginMessage | None:
        """The transaction of a change that is to be loaded; None if it is loaded already."""
        begun = self._transaction
        if begun is None:
            raise SourceError("the server gives a change outside of a transaction")
        self._index += 1
        if self._is_loaded or (begun.commit == self._place[1] and self._index <= self._place[2]):
            return None
        return begun

    def _row(self, message: RowMessage, size: int) -> None:
        begun = self._begun()
        if begun is None:
            return
        places, key, new_column = self._relations[message.relation]
        if new_column:
            self.stopped = (
                f"the table has a new column {new_column!r} from {lsn_text(begun.commit)} of the log on. Save the "
                "pipeline file, or restart, to load it too; to leave it out, declare the source with schema="
            )
            return
        old, new = message.old, message.new
        if new is None:
            assert old is not None
            self._add(begun, "delete", old, places)
        elif message.change == "insert" or old is None:
            self._add(begun, message.change, new, places)
        else:
            if message.old_is_whole:
                new = tuple(o if n is UNCHANGED else n for o, n in zip(old, new, strict=True))
            if not message.old_is_whole or not key or any(old[i] != new[i] for i in key):
                self._add(begun, "delete", old, places)
                self._add(begun, "insert", new, places, moved=True)
            else:
                self._add(begun, "update", new, places)
        self._reached(begun, size)

    def _truncated(self, size: int) -> None:
        begun = self._begun()
        if begun is None:
            return
        if self._truncate == "refuse":
            self.stopped = (
                f"the table was truncated at {lsn_text(begun.commit)} of the log: all rows were removed, and the log "
                "does not say which. Declare the source with truncate='row' to have that as a row of its own"
            )
            return
        self._add(begun, "truncate", (), [None] * len(self._columns))
        self._reached(begun, size)

    def _add(
        self, begun: BeginMessage, change: str, values: Values, places: Sequence[int | None], moved: bool = False
    ) -> None:
        chosen: tuple[Value, ...] = tuple([None if at is None else values[at] for at in places])
        self._rows.append(ChangedRow(change, chosen, self._number, begun.commit, begun.at, moved))
        self._number += 1

    def _reached(self, begun: BeginMessage, size: int) -> None:
        self._place = (self._place[0], begun.commit, self._index)
        self._size += size
        if len(self._rows) >= self._chunk_rows:
            self.cut()

    def _reach_further(self) -> None:
        """The transaction has ended: so has the block that ends with its last change."""
        if not self._rows and self.blocks:
            self.blocks[-1] = replace(self.blocks[-1], end=self._place)
            self._begin = self._place

    def cut(self) -> None:
        """End the block."""
        if self._rows:
            moments = [row.at / 1e6 + self.clock_shift for row in self._rows]
            self.blocks.append(
                ChangesBlock(
                    self._begin,
                    self._place,
                    self._rows[0].number,
                    tuple(self._rows),
                    self._size,
                    min(moments),
                    max(moments),
                )
            )
            self._begin, self._rows, self._size = self._place, [], 0


@dataclass
class _KnownBlocks:
    """Blocks that are not loaded yet, and how they go on: ``reader`` has taken ``messages`` from ``confirmed`` on."""

    blocks: tuple[ChangesBlock, ...] = ()
    confirmed: int = -1
    messages: int = 0
    reader: ChangesReader | None = None
    last: bytes = b""
    stopped: str = ""
    rest_until: float = field(default=0.0)


class ChangesWatch:
    """Looks at the changes of one table. ``look`` is for one thread at a time; ``rows_of`` for any."""

    def __init__(
        self,
        slot: PostgresSlot,
        columns: Callable[[], Sequence[str]],
        *,
        takes_new_columns: bool,
        truncate: Literal["refuse", "row"],
        lost: Literal["refuse", "snapshot"],
        start: Literal["contents", "now"],
        chunk_rows: int,
        part_bytes: int = PART_BYTES,
        rest: float = REST,
    ) -> None:
        self._part_bytes = part_bytes
        self._slot, self._columns, self._rest = slot, columns, rest
        self._takes_new_columns, self._truncate, self._lost = takes_new_columns, truncate, lost
        self._start, self._chunk_rows = start, chunk_rows
        self._known = _KnownBlocks()
        self._described: tuple[str, str, tuple[str, ...]] | None = None
        self._log_end = -1
        self._known_until = -math.inf
        self._begun = time.time()
        #: the table as it was first seen; it counts for an offset without one
        self._first_seen: FollowedTable | None = None

    def look(self, offset: ChangesOffset) -> FollowedChanges:
        began = time.time()
        state = self._slot.state()
        if offset.place[0] == 0:
            return self._beginning(offset, state, resets=False)
        followed = offset.followed or self._first_seen or state.followed
        if followed is state.followed and followed.table:
            followed = self._first_seen = followed.with_columns(self._columns())
        names = self._slot.table, self._slot.publication
        if problem := followed.why_not_followed(state.followed, *names):
            return self._stuck(problem)
        other = followed.why_another(state.followed, *names)
        if missing := self._why_lost(offset, state, other):
            if self._lost == "refuse":
                return self._stuck(missing)
            upto = self._loaded_upto(offset)
            if state.server == offset.server and upto <= state.end and (state.confirmed or upto + 1) <= upto:
                # Its log is of the old table or publication. A new slot begins after all that is loaded.
                self._slot.drop()
                state = self._slot.state()
            self._described = None
            return self._beginning(offset, state, resets=True)
        if offset.is_in_snapshot:
            return self._beginning(offset, state, resets=False)
        self._slot.release()
        self._confirm(offset, state)
        return self._changes(offset, state, began)

    def _stuck(self, why: str) -> FollowedChanges:
        self._known = _KnownBlocks()
        return FollowedChanges((), why, is_stuck=True)

    @staticmethod
    def _loaded_upto(offset: ChangesOffset) -> int:
        """The place in the log from which on it is needed."""
        if offset.is_in_snapshot and offset.seen is not None:
            return offset.seen.since
        return offset.place[1]

    def _why_lost(self, offset: ChangesOffset, state: ReplicationSlotState, other: str) -> str:
        """Why the log cannot be gone on with, or ``other``; empty if it can."""
        place, name = self._loaded_upto(offset), self._slot.name
        if state.server != offset.server:
            why = f"this is another server than the one whose changes were loaded up to {lsn_text(place)}"
        elif state.end < place:
            why = f"the server was put back: its log ends at {lsn_text(state.end)}, before {lsn_text(place)}"
        elif state.confirmed is None:
            why = f"the replication slot {name!r} is not there any more, so changes after {lsn_text(place)} are unknown"
        elif state.lost:
            why = f"the server has removed the log of the slot {name!r}, so changes after {lsn_text(place)} are unknown"
        elif state.confirmed > place:
            why = (
                f"the replication slot {name!r} was moved on or made anew by somebody else: changes between "
                f"{lsn_text(place)} and {lsn_text(state.confirmed)} are unknown"
            )
        elif other:
            why = other
        else:
            return ""
        return f"{why}. To go on with a new snapshot of the table, declare the source with lost='snapshot'"

    # --- the beginning ----------------------------------------------------------------------------------------

    def _beginning(self, offset: ChangesOffset, state: ReplicationSlotState, *, resets: bool) -> FollowedChanges:
        """The parts of a snapshot, and nothing else until all of it is loaded: what has changed since is not known yet.

        If a snapshot was lost on the way, another one is loaded from its first row on, with higher numbers. Changes are
        those after the first of them: what they repeat of a later snapshot ends up the same.
        """
        if state.confirmed is None or state.lost:
            self._slot.release()
        self._slot.make(state, adds=resets)
        state = self._slot.state()
        generation = offset.place[0] + 1
        if self._start == "now" and offset.place[0] == 0:
            end, now = (generation, state.end, 0), time.time()
            begun = ChangesRange(
                offset.place,
                end,
                offset.number,
                0,
                server=state.server,
                followed=state.followed.with_columns(self._columns()),
                blocks=1,
                size=1,
                oldest=now,
                newest=now,
            )
            blocks: tuple[ChangesBlock, ...] = (_block(begun),)
        else:
            held = self._slot.snapshot(state)
            if held is None:
                waits = "waiting for transactions of the server that began before the snapshot"
                return FollowedChanges((), waits)
            blocks = tuple(_block(part) for part in self._parts(offset, state, held, resets))
        self._known = _KnownBlocks(blocks)
        return FollowedChanges(blocks)

    def _parts(
        self, offset: ChangesOffset, state: ReplicationSlotState, held: HeldSnapshot, resets: bool
    ) -> Iterator[ChangesRange]:
        """The parts of a snapshot that are not loaded."""
        goes_on = held.name == offset.snapshot and not resets
        generation = offset.place[0] if goes_on else offset.place[0] + 1
        number = offset.number + (2 if offset.is_in_snapshot and not goes_on else 0)
        first = offset.place[2] if goes_on else 0
        seen = offset.seen if offset.is_in_snapshot and offset.seen is not None and not resets else held.seen
        followed = state.followed.with_columns(self._columns())
        page_bytes = max(1, held.size // max(1, held.pages))
        step, begin = max(1, self._part_bytes // page_bytes), offset.place
        for page in range(first, max(held.pages, first + 1), step):
            is_last = page + step >= held.pages
            end = (generation, seen.since, 0) if is_last else (generation, 0, page + step)
            yield ChangesRange(
                begin=begin,
                end=end,
                number=number,
                count=2 if is_last else 0,
                blocks=1,
                size=page_bytes * min(step, max(1, held.pages - page)),
                # Its rows may be older than this run, and whoever waits for what has arrived waits for them.
                oldest=min(self._begun, held.at),
                newest=held.at,
                snapshot=held.name,
                seen=seen,
                server=state.server,
                pages=(page, None if is_last else page + step),
                resets=resets and page == 0,
                followed=followed,
            )
            begin = end

    # --- changes ----------------------------------------------------------------------------------------------

    def _confirm(self, offset: ChangesOffset, state: ReplicationSlotState) -> None:
        """Tell the server what was committed here: when nothing is left to load, or much of the log could go."""
        _, place, index = offset.place
        confirmed = state.confirmed or 0
        if index or place <= confirmed:
            return
        if place - confirmed > QUIET_LOG or not any(block.end > offset.place for block in self._known.blocks):
            self._slot.confirm(place)
            self._known.confirmed = -1

    def _changes(self, offset: ChangesOffset, state: ReplicationSlotState, began: float) -> FollowedChanges:
        known = self._known
        if known.blocks and known.blocks[-1].end[0] != offset.place[0]:
            known = self._known = _KnownBlocks()
        known.blocks = tuple(block for block in known.blocks if block.end > offset.place)
        has_room = sum(block.size for block in known.blocks) < MOST_AHEAD
        is_read = state.end == self._log_end and known.reader is not None
        may_read = has_room and (known.reader is None or time.monotonic() >= known.rest_until)
        if may_read and not is_read:
            before = time.monotonic()
            is_read = self._read_on(offset, state)
            now = time.monotonic()
            known.rest_until = now + self._rest * (now - before)
            self._log_end = state.end if is_read else -1
        if is_read:
            self._known_until = began
        return FollowedChanges(known.blocks, known.stopped, bool(known.stopped), self._known_until, self._first_seen)

    def _read_on(self, offset: ChangesOffset, state: ReplicationSlotState) -> bool:
        """Add blocks to those that are known; whether all of the log has been read."""
        known = self._known
        confirmed = self._slot.state().confirmed if known.confirmed == -1 else state.confirmed
        assert confirmed is not None
        reader = known.reader
        if reader is None or confirmed != known.confirmed or known.stopped:
            last = known.blocks[-1] if known.blocks else None
            start = offset.place if last is None else last.end
            number = offset.number if last is None else last.number + len(last.rows)
            reader = self._reader(start, number, offset.seen)
            known.reader, known.confirmed, known.messages, known.stopped = reader, confirmed, 0, ""
            known.last = b""
        reader.clock_shift = state.clock_shift
        upto = min(state.end, max(confirmed, reader.place[1]) + MOST_LOG)
        first, most = max(1, known.messages), known.messages + MOST_MESSAGES
        messages = self._slot.peek(upto, first, most)
        if known.messages:
            if not messages or messages[0] != known.last:
                known.reader = None
                raise SourceError("the server gives other changes than before; they are read again")
            messages = messages[1:]
        for message in messages:
            reader.take(message)
            if reader.stopped:
                known.stopped = reader.stopped
                break
            known.messages += 1
            known.last = message
        reader.cut()
        known.blocks += tuple(reader.blocks)
        reader.blocks = []
        all_read = not known.stopped and known.messages < most and sum(map(len, messages)) < MOST_AT_ONCE
        if all_read and not known.blocks and upto - offset.place[1] >= QUIET_LOG:
            now = time.time()
            end = (offset.place[0], upto, 0)
            known.blocks = (ChangesBlock(offset.place, end, offset.number, (), 1, now, now),)
            known.reader = None
        return all_read and upto == state.end

    def _reader(self, start: LogPlace, number: int, seen: SeenTransactions | None) -> ChangesReader:
        if self._described is None:
            self._described = self._slot.described()
        schema, name, key = self._described
        return ChangesReader(
            (schema, name),
            key,
            self._columns(),
            truncate=self._truncate,
            is_new=self._is_new,
            chunk_rows=self._chunk_rows,
            start=start,
            number=number,
            seen=seen,
        )

    def _is_new(self, column: str) -> bool:
        """Whether a column that is not declared is to be loaded: not if it was dropped since."""
        return self._takes_new_columns and column in self._slot.columns()

    def rows_of(self, wanted: ChangesRange) -> list[ChangedRow] | None:
        """The rows of a range that is not loaded yet; None if it was planned before the log was lost."""
        blocks = [block for block in self._known.blocks if wanted.begin <= block.begin and block.end <= wanted.end]
        rows = [row for block in blocks for row in block.rows]
        return rows if len(rows) == wanted.count else None


def _block(part: ChangesRange) -> ChangesBlock:
    return ChangesBlock(part.begin, part.end, part.number, (), part.size, part.oldest, part.newest, range=part)
