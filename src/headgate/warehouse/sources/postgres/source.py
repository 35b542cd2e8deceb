"""A source of rows in PostgreSQL: a table that grows, by a key or a time, or the contents of a table or query.

Rows that were loaded are not looked at again: a stream takes what is added. ``growth`` says how far it can
read without missing a row. Rows come to the driver through ADBC, as Arrow, and are handed to Spark.
"""

from __future__ import annotations

import time as clocks
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.declare.durations import seconds
from headgate.warehouse.sources.arrow_rows import as_frame, refuse_large, with_chunk
from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.lookout import Lookout, Sight
from headgate.warehouse.sources.postgres.client import PostgresAddress, PostgresClient, relation
from headgate.warehouse.sources.postgres.growth import GrowingTable, Growth, GrowthWatch
from headgate.warehouse.sources.postgres.offsets import PostgresContents, PostgresOffset, PostgresRange
from headgate.warehouse.sources.postgres.types import asked_columns, declared_schema, plain_numbers, row_size
from headgate.warehouse.sources.protocol import Limit, Offset, Pending, Range, expect_kind, within
from headgate.warehouse.sources.schema import Column, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: a range of more than one chunk is at most this large: the driver holds its rows in memory
MOST_BYTES = 64 << 20
#: contents are compared again after so many times the time that it took
REST = 20.0


class Postgres:
    """Rows of a PostgreSQL database; needs the extra ``postgres``.

    - ``uri``: the database, ``postgresql://user@host:5432/database``. A password in it is never printed; better is one
      in ``PGPASSWORD`` or a password file.
    - ``table`` or ``query``: the table, as in ``"orders"`` or ``"shop.orders"``, or a SELECT.
    - ``key`` or ``time``: for a stream, the column by which it grows: a whole number that the database gives out in the
      transaction that adds the row (``serial``, ``identity``), or a time that is not before the beginning of that
      transaction (``DEFAULT now()``). It needs an index. A dimension needs neither: it is all rows that are there.
    - ``late``: with ``time``, how long rows are waited for whose times are set by clocks that go after the server's.
    - ``schema``: the columns to read, as Spark writes them; by default all of them, as they are when the warehouse is
      opened. With it, the warehouse also opens while the server cannot be reached.
    - ``start``: ``"beginning"``, ``"now"``, or the key or time after which to begin.
    - ``every``: the time between two looks at the server. The contents of a dimension are compared as a whole, at most
      a twentieth of the time.

    Rows are loaded in the order of the column, the oldest first.
    """

    @noting_a_mistake()
    def __init__(
        self,
        uri: str,
        table: str = "",
        *,
        query: str = "",
        key: str = "",
        time: str = "",
        late: str | float = "1 second",
        schema: str = "",
        start: int | datetime | Literal["beginning", "now"] = "beginning",
        every: str | float = "200 ms",
        chunk_rows: int = 10_000,
        in_background: bool = True,
    ) -> None:
        where = f"Postgres({table or query!r})"
        self._address = PostgresAddress(uri, where)
        if bool(table) == bool(query):
            raise DeclarationError(f"{where} needs a table or a query, one of them")
        if key and time:
            raise DeclarationError(f"{where}: a stream grows by key or by time; got both")
        if isinstance(start, str) and start not in ("beginning", "now"):
            raise DeclarationError(f"{where}: start takes 'beginning', 'now', a key or a time; got {start!r}")
        if isinstance(start, datetime) != bool(time) and not isinstance(start, str):
            raise DeclarationError(f"{where}: start is of the kind of the column by which it grows; got {start!r}")
        if not isinstance(chunk_rows, int) or chunk_rows < 1:
            raise DeclarationError(f"{where}: chunk_rows is a whole number above 0; got {chunk_rows!r}")
        self._where, self._table, self._query = where, table, query
        self._growing_by, self._start = key or time, start
        self._schema = schema
        self._columns = parse_schema(schema, where) if schema else None
        self._rows = f"{relation(table)}" if table else f"({query.strip().rstrip(';')}) AS headgate_rows"
        self._reading = PostgresClient(self._address)
        looking = PostgresClient(self._address)
        self._looking = looking
        late_seconds = seconds(late, f"{where}: late")
        between = seconds(every, f"{where}: every")
        self._grows = GrowingTable(self._rows, table, self._growing_by, bool(time), late_seconds, chunk_rows)
        self._watch = GrowthWatch(looking, self._grows)
        explained = self._explained
        self._growth = Lookout[PostgresOffset, Growth](
            self._watch.look, explained, every=between, name="headgate-postgres", inline=not in_background
        )
        self._contents = Lookout[str, PostgresContents](
            self._look_at_contents, explained, every=between, name="headgate-postgres", inline=not in_background
        )
        #: the snapshot of the server when contents were last compared, and when they may be again
        self._compared: tuple[str, float] = ("", 0.0)
        #: when contents were last looked at: a change that is found has come after that
        self._looked_at = clocks.time()
        self._declared = (self._address, table, query, key, time, late, schema, start, every, chunk_rows)

    def __repr__(self) -> str:
        what = f"table={self._table!r}" if self._table else f"query={self._query!r}"
        by = f", {'time' if self._grows.by_time else 'key'}={self._growing_by!r}" if self._growing_by else ""
        return f"Postgres({self._address!r}, {what}{by})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Postgres) and self._declared == other._declared

    def __hash__(self) -> int:
        return hash((self._address, self._rows))

    @property
    def schema(self) -> str:
        if not self._schema:
            try:
                self._schema = declared_schema(self._reading.query(f"SELECT * FROM {self._rows} LIMIT 0").schema)
            except SourceError as error:
                raise SourceError(
                    f"{error}. The columns of {self._rows} cannot be known without it: declare the source with "
                    "schema=, and it waits for the server"
                ) from None
        return self._schema

    @property
    def _all_columns(self) -> tuple[Column, ...]:
        if self._columns is None:
            self._columns = parse_schema(self.schema, self._where)
        return self._columns

    def resolve(self, base: Path) -> Postgres:
        return self

    # --- the stream -------------------------------------------------------------------------------------------

    def start(self) -> PostgresOffset:
        if self._start == "now":
            return PostgresOffset(self._watch.newest())
        if isinstance(self._start, datetime):
            moment = self._start if self._start.tzinfo else self._start.replace(tzinfo=UTC)
            return PostgresOffset(round(moment.timestamp() * 1_000_000))
        return PostgresOffset(None if self._start == "beginning" else int(self._start))

    def fixed_start(self, offset: Offset) -> Offset | None:
        return offset if self._start == "now" else None

    def latest(self, offset: Offset) -> Pending:
        here, sight = self._grown(offset)
        growth, problem = sight.seen, sight.problem
        if growth is None:
            return Pending(note=problem, missing=bool(problem), looked_at=sight.at)
        blocks = [block for block in growth.blocks if here.after is None or block.upto > here.after]
        return Pending(
            chunks=len(blocks),
            bytes=sum(block.size for block in blocks) * self._row_size,
            oldest=min((block.arrived for block in blocks), default=None),
            newest=max((block.arrived for block in blocks), default=None),
            note=problem or growth.note,
            missing=bool(problem) and not blocks,
            looked_at=sight.at,
        )

    def next_range(self, offset: Offset, limit: Limit) -> PostgresRange | None:
        here, sight = self._grown(offset)
        growth = sight.seen
        blocks = [] if growth is None else [b for b in growth.blocks if here.after is None or b.upto > here.after]
        if not blocks:
            return None
        size = self._row_size
        most = MOST_BYTES if limit.bytes is None else min(limit.bytes, MOST_BYTES)
        taken = within(replace(limit, bytes=most // size), blocks)
        return PostgresRange(
            after=here.after,
            upto=taken[-1].upto,
            blocks=len(taken),
            size=sum(block.size for block in taken) * size,
            oldest=min(block.arrived for block in taken),
            newest=max(block.arrived for block in taken),
        )

    def _grown(self, offset: Offset) -> tuple[PostgresOffset, Sight[Growth]]:
        here = expect_kind(offset, PostgresOffset, self)
        if not self._growing_by:
            raise SourceError(
                f"{self!r} is the source of a stream, which grows: state the column by which it does, with key= or "
                "time=; without, it is a dimension"
            )
        return here, self._growth.ask(here)

    @property
    def _row_size(self) -> int:
        return row_size(self._all_columns)

    def advance(self, offset: Offset, loaded: Range) -> PostgresOffset:
        here, upto = expect_kind(offset, PostgresOffset, self), expect_kind(loaded, PostgresRange, self).upto
        return here if here.after is not None and here.after >= upto else PostgresOffset(upto)

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        columns = self._all_columns
        query = f"SELECT {asked_columns(columns)} FROM {self._rows}"
        if isinstance(wanted, PostgresContents):
            refuse_large(wanted.bytes, repr(self))
            chunk = "contents"
        else:
            part = expect_kind(wanted, PostgresRange, self)
            query += f" WHERE {self._grows.between(part.after, part.upto, self._watch.kind)}"
            chunk = f"{self._growing_by} up to {self._shown(part.upto)}"
        rows = plain_numbers(self._reading.query(query))
        return as_frame(spark, columns, [with_chunk(rows, chunk)], self._rows)

    def _shown(self, key: int) -> str:
        return datetime.fromtimestamp(key / 1e6, UTC).isoformat() if self._grows.by_time else str(key)

    def verify(self, loaded: Range) -> None:
        """Rows were read in one statement; that others are changed meanwhile cannot be known."""

    # --- contents of dimensions -------------------------------------------------------------------------------

    def contents(self, loaded: Range | None) -> tuple[PostgresContents | None, Pending]:
        if loaded is not None:
            expect_kind(loaded, PostgresContents, self)
        sight = self._contents.ask(self._rows)
        found = sight.seen
        if found is not None and not found.rows and loaded is None:
            found = None
        return found, Pending(note=sight.problem, missing=bool(sight.problem) and loaded is None, looked_at=sight.at)

    def _look_at_contents(self, rows: str) -> PostgresContents:
        known, now = self._contents.last, clocks.monotonic()
        before, self._looked_at = self._looked_at, clocks.time()
        snapshot, again = self._compared
        if known is not None and now < again:
            return known
        newest = str(self._looking.query("SELECT pg_current_snapshot()::text AS s").column("s")[0].as_py())
        if known is not None and newest == snapshot:
            return known  # no transaction has ended since
        columns = asked_columns(self._all_columns)
        found = self._looking.query(
            "SELECT count(*) AS n, coalesce(sum(hashtextextended(r::text, 0)::numeric), 0)::text AS digest "
            f"FROM (SELECT {columns} FROM {rows}) AS r"
        ).to_pylist()[0]
        self._compared = (newest, now + REST * (clocks.monotonic() - now))
        size = int(found["n"]) * self._row_size
        contents = PostgresContents(int(found["n"]), str(found["digest"]), size=size, newest=before)
        return known if known is not None and contents.names_the_same_as(known) else contents

    def _explained(self, error: Exception) -> str:
        return str(self._looking.explained(error))
