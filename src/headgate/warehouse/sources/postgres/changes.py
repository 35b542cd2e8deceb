"""The changes of a PostgreSQL table as a stream: its rows at first, then what is inserted, updated and deleted.

The server writes its log out through a replication slot (``slot``), ``follow`` makes numbered rows of
it. A place in the log is part of each commit of the stream; the slot is moved on after that commit, so that the server
keeps what is not safe here, and what it gives a second time is recognised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.declare.durations import seconds
from headgate.warehouse.sources.arrow_rows import PROBLEM_NAME, as_frame, with_chunk
from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.lookout import Lookout, Sight
from headgate.warehouse.sources.postgres.changes_offsets import ChangesOffset, ChangesRange, lsn_text
from headgate.warehouse.sources.postgres.client import PostgresAddress, PostgresClient, relation
from headgate.warehouse.sources.postgres.follow import (
    PART_BYTES,
    REST,
    ChangedRow,
    ChangesBlock,
    ChangesWatch,
    FollowedChanges,
)
from headgate.warehouse.sources.postgres.pgoutput import UNCHANGED
from headgate.warehouse.sources.postgres.slot import PostgresSlot
from headgate.warehouse.sources.postgres.texts import column_of
from headgate.warehouse.sources.postgres.types import asked_columns, declared_schema, plain_numbers
from headgate.warehouse.sources.protocol import Limit, Offset, Pending, Range, expect_kind, within
from headgate.warehouse.sources.schema import Column, parse_schema
from headgate.warehouse.sources.sql import sql_text

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

#: a range of more than one part of a snapshot is at most this large: the driver holds its rows in memory
MOST_BYTES = 64 << 20
#: what every row of the stream has beside the columns of the table
ADDED_COLUMNS = "_change string, _position bigint, _lsn string, _committed timestamp, _unchanged array<string>"


class PostgresChanges:
    """The changes of a table of PostgreSQL, by logical replication; needs the extra ``postgres``.

    - ``uri``, ``table``: as for ``Postgres``. The server needs ``wal_level = logical``, the user the right to
      replication, and the table a primary key or ``REPLICA IDENTITY FULL``.
    - ``slot``: the replication slot, by default ``headgate_`` and the name of the table. It is made if it is not there.
      Every stream needs one of its own.
    - ``publication``: by default of the same name as the slot. It is made if it is not there.
    - ``schema``: the columns to read; by default all of them, as they are when the warehouse is opened.
    - ``start``: ``"contents"``, with all rows that are there, or ``"now"``, with what changes after that.
    - ``truncate``: what to do when the table is truncated: ``"refuse"`` waits there and says so, ``"row"`` makes it a
      row of the stream.
    - ``lost``: what to do when the server has lost its log or the slot, or the table was made anew: ``"refuse"`` waits
      and says so, ``"snapshot"`` goes on with a truncation and all rows that are there then.
    - ``every``: the time between two looks at the server.

    The stream has the columns of the table and these: ``_change`` (``snapshot``, ``insert``, ``update``, ``delete``,
    ``truncate``), ``_position`` (changes are numbered in their order), ``_lsn`` (the place of the commit in the log of
    the server), ``_committed`` (when), and ``_unchanged`` (the names of columns that are null because a large value in
    them was not changed by an update, so that the log does not have it).
    """

    @noting_a_mistake()
    def __init__(
        self,
        uri: str,
        table: str,
        *,
        slot: str = "",
        publication: str = "",
        schema: str = "",
        start: Literal["contents", "now"] = "contents",
        truncate: Literal["refuse", "row"] = "refuse",
        lost: Literal["refuse", "snapshot"] = "refuse",
        every: str | float = "200 ms",
        chunk_rows: int = 10_000,
        part_bytes: int = PART_BYTES,
        in_background: bool = True,
    ) -> None:
        where = f"PostgresChanges({table!r})"
        self._address = PostgresAddress(uri, where)
        if not table:
            raise DeclarationError(f"{where} needs the name of a table")
        slot = slot or f"headgate_{re.sub('[^a-z0-9]+', '_', table.lower()).strip('_')}"
        if not re.fullmatch("[a-z0-9_]{1,63}", slot):
            raise DeclarationError(f"{where}: slot has small letters, digits and '_', at most 63; got {slot!r}")
        options = (("start", start, ("contents", "now")), ("truncate", truncate, ("refuse", "row")))
        for name, value, known in (*options, ("lost", lost, ("refuse", "snapshot"))):
            if value not in known:
                raise DeclarationError(f"{where}: {name} takes {known[0]!r} or {known[1]!r}; got {value!r}")
        if not isinstance(chunk_rows, int) or chunk_rows < 1:
            raise DeclarationError(f"{where}: chunk_rows is a whole number above 0; got {chunk_rows!r}")
        self._where, self._table, self._slot_name = where, table, slot
        self._handles_truncate = truncate == "row" or lost == "snapshot"
        self._columns = parse_schema(schema, where) if schema else None
        self._reading = PostgresClient(self._address)
        self._slot = PostgresSlot(self._address, table, slot, publication or slot)
        self._watch = ChangesWatch(
            self._slot,
            lambda: [column.name for column in self._table_columns],
            takes_new_columns=not schema,
            truncate=truncate,
            lost=lost,
            start=start,
            chunk_rows=chunk_rows,
            part_bytes=part_bytes,
            rest=REST if in_background else 0.0,
        )
        self._lookout = Lookout[ChangesOffset, FollowedChanges](
            self._watch.look,
            lambda error: str(self._slot.explained(error)),
            every=seconds(every, f"{where}: every"),
            name="headgate-postgres",
            inline=not in_background,
        )
        self._declared = (self._address, table, slot, publication, schema, start, truncate, lost, every, chunk_rows)

    def __repr__(self) -> str:
        return f"PostgresChanges({self._address!r}, {self._table!r}, slot={self._slot_name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PostgresChanges) and self._declared == other._declared

    def __hash__(self) -> int:
        return hash((self._address, self._slot_name))

    @property
    def schema(self) -> str:
        columns = ", ".join(f"{column.quoted} {column.type}" for column in self._table_columns)
        return f"{columns}, {ADDED_COLUMNS}"

    @property
    def _table_columns(self) -> tuple[Column, ...]:
        if self._columns is None:
            try:
                found = self._reading.query(f"SELECT * FROM {relation(self._table)} LIMIT 0").schema
            except SourceError as error:
                raise SourceError(
                    f"{error}. The columns of {self._table} cannot be known without it: declare the source with "
                    "schema=, and it waits for the server"
                ) from None
            self._columns = parse_schema(declared_schema(found), self._where)
        return self._columns

    @property
    def _all_columns(self) -> tuple[Column, ...]:
        return (*self._table_columns, *parse_schema(ADDED_COLUMNS, self._where))

    def resolve(self, base: Path) -> PostgresChanges:
        return self

    def current_rows(self, stream: str, key: str | Sequence[str]) -> str:
        """A query over the stream of this source, by the name it was declared under: the rows of the table as it is.

        ``key`` are the columns that tell its rows apart. The query is for ``Warehouse.sql(..., time=None)``.
        """
        keys = [key] if isinstance(key, str) else list(key)
        columns = [column for column in self._table_columns if column.name not in keys]
        for name in keys:
            if name not in {column.name for column in self._table_columns}:
                raise DeclarationError(f"{self._where} has no column {name!r} that could be the key")
        grouped = ", ".join(Column(name, "").quoted for name in keys)
        chosen = [
            f"max_by({column.quoted}, _position) FILTER (WHERE _unchanged IS NULL OR "
            f"NOT array_contains(_unchanged, {sql_text(column.name)})) AS {column.quoted}"
            for column in columns
        ]
        name = ".".join(Column(part, "").quoted for part in stream.split("."))
        after = ""
        if self._handles_truncate:
            after = (
                f" WHERE _change <> 'truncate' AND _position > "
                f"(SELECT coalesce(max(_position), -1) FROM {name} WHERE _change = 'truncate')"
            )
        return (
            f"SELECT {', '.join([grouped, *chosen])} FROM {name}{after} GROUP BY {grouped} "
            "HAVING max_by(_change, _position) <> 'delete'"
        )

    # --- the stream -------------------------------------------------------------------------------------------

    def start(self) -> ChangesOffset:
        return ChangesOffset()

    def latest(self, offset: Offset) -> Pending:
        blocks, sight = self._pending(offset)
        followed = sight.seen
        if followed is None:
            return Pending(note=sight.problem, missing=bool(sight.problem), looked_at=sight.at)
        return Pending(
            chunks=len(blocks),
            bytes=sum(block.size for block in blocks),
            oldest=min((block.arrived for block in blocks), default=None),
            newest=max((block.newest for block in blocks), default=None),
            note=sight.problem or followed.note,
            missing=(bool(sight.problem) or followed.is_stuck) and not blocks,
            looked_at=followed.known_until,
        )

    def next_range(self, offset: Offset, limit: Limit) -> ChangesRange | None:
        here = expect_kind(offset, ChangesOffset, self)
        blocks, sight = self._pending(offset)
        if not blocks:
            return None
        parts = [block.range for block in blocks if block.range is not None]
        if parts:
            return _together(limit, parts)
        taken = within(limit, blocks)
        return ChangesRange(
            begin=here.place,
            end=taken[-1].end,
            number=here.number,
            count=sum(len(block.rows) for block in taken),
            blocks=len(taken),
            size=sum(block.size for block in taken),
            oldest=min(block.arrived for block in taken),
            newest=max(block.newest for block in taken),
            followed=sight.seen.followed if sight.seen is not None and here.followed is None else None,
        )

    def _pending(self, offset: Offset) -> tuple[list[ChangesBlock], Sight[FollowedChanges]]:
        here = expect_kind(offset, ChangesOffset, self)
        sight = self._lookout.ask(here)
        blocks = () if sight.seen is None else sight.seen.blocks
        return [block for block in blocks if block.end > here.place], sight

    def advance(self, offset: Offset, loaded: Range) -> ChangesOffset:
        return expect_kind(offset, ChangesOffset, self).after(expect_kind(loaded, ChangesRange, self))

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        part = expect_kind(wanted, ChangesRange, self)
        tables = [with_chunk(rows, f"changes up to {lsn_text(part.end[1])}") for rows in self.arrow(part)]
        return as_frame(spark, self._all_columns, tables, self._table)

    def arrow(self, wanted: ChangesRange) -> list[pa.Table]:
        """The rows of a range as Arrow tables."""
        if wanted.snapshot:
            return self._snapshot(wanted)
        rows = self._watch.rows_of(wanted) if wanted.count else []
        if rows is None:
            raise SourceError(f"changes of {self._table} were planned to be loaded before their log was lost")
        return [self._changed(rows)] if rows else []

    def verify(self, loaded: Range) -> None:
        """The log of a server never changes, and a snapshot is read in one statement."""

    def _snapshot(self, wanted: ChangesRange) -> list[pa.Table]:
        import pyarrow as pa

        asked = asked_columns(self._table_columns)
        rows = plain_numbers(self._slot.rows(wanted.snapshot, asked, wanted.pages))
        at = round(wanted.newest * 1_000_000)
        nothing = (None,) * len(self._table_columns)
        first = ChangedRow("truncate", nothing, wanted.number, wanted.end[1], at)
        values = [
            pa.repeat(pa.scalar("snapshot"), rows.num_rows),
            pa.repeat(pa.scalar(wanted.number + 1, pa.int64()), rows.num_rows),
            pa.repeat(pa.scalar(lsn_text(wanted.end[1])), rows.num_rows),
            pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), rows.num_rows),
            pa.nulls(rows.num_rows, pa.list_(pa.string())),
            pa.nulls(rows.num_rows, pa.string()),
        ]
        for name, array in zip([*_ADDED_NAMES, PROBLEM_NAME], values, strict=True):
            rows = rows.append_column(name, array)
        return [self._changed([first]), rows] if wanted.resets else [rows]

    def _changed(self, rows: Sequence[ChangedRow]) -> pa.Table:
        import pyarrow as pa

        columns = self._table_columns
        problems: dict[int, str] = {}
        arrays = []
        for index, column in enumerate(columns):
            texts = [None if (value := row.values[index]) is UNCHANGED else value for row in rows]
            array, misfits = column_of(texts, column)
            arrays.append(array)
            problems = misfits | problems
        unchanged = [[c.name for c, v in zip(columns, row.values, strict=True) if v is UNCHANGED] for row in rows]
        for number, (row, names) in enumerate(zip(rows, unchanged, strict=True)):
            if row.moved and names:
                problems[number] = (
                    f"the key of the row was changed, and the log does not have its large value in {names[0]!r}; "
                    f"ALTER TABLE {self._table} REPLICA IDENTITY FULL helps for later changes"
                )
        arrays += [
            pa.array([row.change for row in rows]),
            pa.array([row.number for row in rows], pa.int64()),
            pa.array([lsn_text(row.lsn) for row in rows]),
            pa.array([row.at for row in rows], pa.timestamp("us", "UTC")),
            pa.array([names or None for names in unchanged], pa.list_(pa.string())),
            pa.array([problems.get(number) for number in range(len(rows))], pa.string()),
        ]
        return pa.table(arrays, names=[*(column.name for column in columns), *_ADDED_NAMES, PROBLEM_NAME])


_ADDED_NAMES = [column.name for column in parse_schema(ADDED_COLUMNS, "PostgresChanges")]


def _together(limit: Limit, parts: Sequence[ChangesRange]) -> ChangesRange:
    """As many parts of a snapshot, from the first on, as ``limit`` and the memory of the driver allow."""
    most = MOST_BYTES if limit.bytes is None else min(limit.bytes, MOST_BYTES)
    chosen, size = [parts[0]], parts[0].size
    for part in parts[1 : limit.chunks]:
        size += part.size
        if size > most:
            break
        chosen.append(part)
    last = chosen[-1]
    return replace(
        chosen[0],
        end=last.end,
        count=last.count,
        blocks=len(chosen),
        size=sum(part.size for part in chosen),
        pages=(chosen[0].pages[0], last.pages[1]),
    )
