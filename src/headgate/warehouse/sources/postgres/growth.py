"""How far a growing table of PostgreSQL can be read without missing a row that is committed later.

Keys are given out in order, but transactions are not committed in that order: when the row with key 8 is there, the one
with key 7 may still be on its way. So the newest key that is visible is only a *candidate*. It is *settled* when every
transaction that may hold an earlier key has ended. These are known from the server's locks, looked at after the key:

- by key: who has taken a key from the sequence, or has begun to insert, holds a lock on the sequence or on the table
  until the transaction ends. All locks that could be of such a transaction are noted with the candidate.
- by time, or for a query: a row may carry the time at which its transaction began, long before it touched the table. So
  all transactions of the database that are running are noted with the candidate.

The server makes a commit visible before it releases its locks. So when none of the noted transactions is running any
more, everything up to the candidate is visible or will never be. Transactions that begin later take later keys.

What this cannot know are keys that a program takes in advance, in another transaction or in blocks: a sequence with a
cache or an increment above 1 is refused.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.postgres.client import PostgresClient, identifier, literal, relation
from headgate.warehouse.sources.postgres.offsets import PostgresOffset

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: so many chunks are looked at ahead of what is loaded
MOST_AHEAD = 64
#: so many candidates are kept; of more, every other one is dropped, which costs nothing but time
MOST_CANDIDATES = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS = {"int2", "int4", "int8"}
_TIMES = {"timestamp", "timestamptz"}


@dataclass(frozen=True, slots=True)
class GrowingTable:
    """What grows: a table or a query as it is written after FROM, and the column by which it grows.

    ``table`` is the name of the table, empty for a query. ``by_time``: the column is a time; rows are waited for
    ``late`` seconds. ``chunk_rows`` is how many rows make a chunk.
    """

    rows: str
    table: str
    column: str
    by_time: bool
    late: float
    chunk_rows: int

    def bound(self, key: int, kind: str) -> str:
        """A key as it is written in SQL."""
        if not self.by_time:
            return str(key)
        return f"'{(_EPOCH + timedelta(microseconds=key)).isoformat()}'::{kind}"

    def between(self, after: int | None, upto: int, kind: str) -> str:
        """A condition for the rows above ``after`` up to ``upto``."""
        column = identifier(self.column)
        above = "" if after is None else f"{column} > {self.bound(after, kind)} AND "
        return f"{above}{column} <= {self.bound(upto, kind)}"


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """A chunk: the rows up to a key, from the one before; ``size`` is their number.

    ``arrived`` is not after they did: it is when the look before the one that found them began.
    """

    upto: int
    size: int
    arrived: float


@dataclass(frozen=True, slots=True)
class Growth:
    """What a look found: the chunks that are not loaded, in order, and what holds up others."""

    blocks: tuple[KeyBlock, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    key: int
    holders: frozenset[str]
    since: float = field(default_factory=time.monotonic)


class GrowthWatch:
    """Looks at one growing table. ``look`` is for one thread at a time."""

    def __init__(self, client: PostgresClient, grows: GrowingTable) -> None:
        self._client = client
        self._grows = grows
        self._candidates: deque[_Candidate] = deque()
        self._settled: int | None = None
        self._blocks: tuple[KeyBlock, ...] = ()
        self._is_checked = False
        self._looked_at = time.time()
        self._kind = ""

    @property
    def kind(self) -> str:
        """The type of the column; asked for once."""
        if not self._kind:
            grows = self._grows
            column = identifier(grows.column)
            found = self._client.query(f"SELECT {column} FROM {grows.rows} LIMIT 0").schema.field(0)
            kind = (found.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
            if kind not in (_TIMES if grows.by_time else _INTEGERS):
                wanted = "time= takes a timestamp" if grows.by_time else "key= takes a whole number"
                raise SourceError(f"the column {grows.column!r} of {grows.rows} is of the type {kind}; {wanted}")
            self._kind = kind
        return self._kind

    def newest(self) -> int | None:
        """The newest key that is visible now; None if there are no rows."""
        grows, column = self._grows, identifier(self._grows.column)
        where = ""
        if grows.by_time:
            where = (
                f" WHERE {column} <= now() - interval '{round(grows.late * 1e6)} microseconds' AND isfinite({column})"
            )
        kind = self.kind
        return _number(self._client.query(f"SELECT max({column})::{kind} AS key FROM {grows.rows}{where}"))

    def look(self, offset: PostgresOffset) -> Growth:
        before, self._looked_at = self._looked_at, time.time()
        newest = self.newest()
        running = self._holders()  # after the key: see the module's docstring
        self._settle(newest, running)
        blocks = tuple(block for block in self._blocks if offset.after is None or block.upto > offset.after)
        first = blocks[-1].upto if blocks else offset.after
        while self._settled is not None and (first is None or first < self._settled) and len(blocks) < MOST_AHEAD:
            found = self._block(first, self._settled, before)
            if found is None:
                break
            blocks, first = (*blocks, found), found.upto
        self._blocks = blocks
        return Growth(blocks, self._note(offset, newest))

    def _settle(self, newest: int | None, running: frozenset[str]) -> None:
        candidates = self._candidates
        known = candidates[-1].key if candidates else self._settled
        if newest is not None and (known is None or newest > known):
            candidates.append(_Candidate(newest, running))
        for candidate in list(candidates):
            if not candidate.holders & running:
                self._settled = candidate.key
                while candidates and candidates[0].key <= candidate.key:
                    candidates.popleft()
        if len(candidates) > MOST_CANDIDATES:
            self._candidates = deque(list(candidates)[::2])

    def _block(self, after: int | None, upto: int, arrived: float) -> KeyBlock | None:
        grows, column = self._grows, identifier(self._grows.column)
        condition = grows.between(after, upto, self.kind)
        inner = f"SELECT {column} AS key FROM {grows.rows} WHERE {condition} ORDER BY 1 LIMIT {grows.chunk_rows}"
        found = self._client.query(f"SELECT max(key)::{self.kind} AS key, count(*) AS n FROM ({inner}) AS block")
        key = _number(found)
        return None if key is None else KeyBlock(key, int(found.column("n")[0].as_py()), arrived)

    def _note(self, offset: PostgresOffset, newest: int | None) -> str:
        grows = self._grows
        if newest is not None and offset.after is not None and newest < offset.after:
            return (
                f"the newest row of {grows.rows} by {grows.column!r} comes before the last one that was loaded. Rows "
                "that are added before that one are not loaded: if the keys have begun again, declare the stream under "
                "a new name"
            )
        if self._candidates and time.monotonic() - self._candidates[0].since > 60.0:
            waiting = time.monotonic() - self._candidates[0].since
            return (
                f"new rows of {grows.rows} wait for a transaction that has been running for {waiting:.0f} s and may "
                f"still add earlier ones: see pg_locks, virtualtransaction {min(self._candidates[0].holders)}"
            )
        return ""

    # --- who may still add rows -------------------------------------------------------------------------------

    def _holders(self) -> frozenset[str]:
        """The transactions that may hold a key that is not visible yet."""
        if not self._is_checked:
            self._check()
            self._is_checked = True
        if self._grows.by_time or not self._grows.table:
            return self._asked(
                "SELECT virtualtransaction FROM pg_locks JOIN pg_stat_activity USING (pid) "
                "WHERE locktype = 'virtualxid' AND granted AND pid <> pg_backend_pid() "
                "AND backend_type IS DISTINCT FROM 'autovacuum worker' "
                "AND datid = (SELECT oid FROM pg_database WHERE datname = current_database()) "
                "UNION SELECT '-1/' || transaction FROM pg_prepared_xacts WHERE database = current_database()"
            )
        # By name, because the table may be made anew; with its partitions, because rows may be added to one directly.
        name, column = literal(relation(self._grows.table)), literal(self._grows.column)
        return self._asked(
            "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND pid IS DISTINCT FROM pg_backend_pid() AND mode IN "
            "('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AND relation IN ("
            f"SELECT {name}::regclass::oid UNION SELECT pg_get_serial_sequence({name}, {column})::regclass::oid UNION "
            f"SELECT relid::oid FROM pg_partition_tree({name}::regclass) UNION "
            f"SELECT inhrelid FROM pg_inherits WHERE inhparent = {name}::regclass)"
        )

    def _asked(self, query: str) -> frozenset[str]:
        return frozenset(self._client.query(query).column(0).to_pylist())

    def _check(self) -> None:
        """Raise if it cannot be told which rows may still be added before those that are there."""
        grows = self._grows
        if self._client.query("SELECT pg_is_in_recovery() AS standby").column("standby")[0].as_py():
            raise SourceError(
                f"{grows.table or 'the query'} is read from a standby server, which does not know the transactions "
                "that are still adding rows; give the address of the primary server"
            )
        if grows.by_time or not grows.table:
            return
        name, column = literal(relation(grows.table)), literal(grows.column)
        facts = self._client.query(
            "SELECT c.relkind::text AS kind, coalesce(s.seqcache, 1) AS cache, "
            "coalesce(s.seqincrement, 1) AS step FROM pg_class c LEFT JOIN pg_sequence s "
            f"ON s.seqrelid = pg_get_serial_sequence({name}, {column})::regclass WHERE c.oid = {name}::regclass"
        ).to_pylist()[0]
        if facts["kind"] not in ("r", "p"):
            raise SourceError(f"{grows.table} is not a table; give a view or a foreign table as query='SELECT ...'")
        if facts["cache"] > 1 or facts["step"] != 1:
            raise SourceError(
                f"the sequence of {grows.table}.{grows.column} gives keys out in blocks (CACHE {facts['cache']}, "
                f"INCREMENT {facts['step']}), so that rows may be added with keys below ones that were loaded. "
                "Use ALTER SEQUENCE ... CACHE 1 INCREMENT 1, or follow the table with time= or by its changes"
            )


def _number(found: pa.Table) -> int | None:
    """The value of the column ``key`` as a whole number."""
    import pyarrow as pa

    value = found.column("key").cast(pa.int64())[0].as_py()
    return None if value is None else int(value)
