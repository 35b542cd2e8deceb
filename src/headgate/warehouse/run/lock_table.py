"""Contents that are written on a condition, in a table of PostgreSQL: for object stores that have no such writes.

A row has a name, a content and a random tag, which changes whenever it is written. Of two that write at once over the
same tag, or create the same row, the database lets one succeed.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headgate.core import HeadgateError
from headgate.warehouse.sources.postgres.client import PostgresAddress, PostgresClient

#: the table, which is made if it is not there
TABLE = "headgate_locks"
#: the row that tells this database from others, under whatever address it is reached
_ID = "headgate.id"
#: the longest time that a statement may take, in seconds
_PATIENCE = 5


class LockTable:
    """The table in the database at ``uri``, over one connection, made when it is needed."""

    def __init__(self, uri: str) -> None:
        self._address = lock_address(uri)
        self._client = PostgresClient(self._address)
        self._is_there = False

    def __str__(self) -> str:
        return str(self._address)

    def row(self, name: str) -> LockRow:
        return LockRow(self, name)

    def id(self) -> str:
        """A random text, the same for everybody who uses this table; made the first time."""
        row = self.row(_ID)
        row.create(secrets.token_hex(8).encode())
        return row.read_with_tag()[0].decode()

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def transaction(self, name: str) -> Iterator[Any]:
        """A cursor in a transaction on the table; OSError, as of a file, if the database does not do it."""
        try:
            with self._client.transaction() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = '{_PATIENCE}s'")
                # A process that is paused in here, or whose machine is gone, must not keep its rows from others.
                cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_PATIENCE}s'")
                if not self._is_there:
                    _make(cursor)
                yield cursor
            self._is_there = True
        except HeadgateError as error:
            self._is_there = False
            raise OSError(errno.EIO, f"Input/output error: {error}", name) from None


class LockRow:
    """One content, which is written on a condition: see `GuardedObject`."""

    def __init__(self, table: LockTable, name: str) -> None:
        self._table = table
        self._name = name

    def __str__(self) -> str:
        return f"the row {self._name!r} of {TABLE} in {self._table}"

    def read_with_tag(self) -> tuple[bytes, str]:
        with self._table.transaction(self._name) as cursor:
            cursor.execute(f"SELECT content, tag FROM {TABLE} WHERE name = $1", (self._name,))
            found = cursor.fetchone()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, f"there is no such row in {TABLE}", self._name)
        return bytes(found[0]), str(found[1])

    def create(self, content: bytes) -> str | None:
        return self._write(
            f"INSERT INTO {TABLE} (name, content, tag) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING tag",
            content,
        )

    def replace(self, content: bytes, tag: str) -> str | None:
        return self._write(
            f"UPDATE {TABLE} SET content = $2, tag = $3, changed = now() WHERE name = $1 AND tag = $4 RETURNING tag",
            content,
            tag,
        )

    def _write(self, statement: str, content: bytes, *over: str) -> str | None:
        with self._table.transaction(self._name) as cursor:
            cursor.execute(statement, (self._name, content, secrets.token_hex(8), *over))
            found = cursor.fetchone()
        return None if found is None else str(found[0])


def lock_address(uri: str) -> PostgresAddress:
    """The database that a user names as ``lock``; DeclarationError if it is none."""
    return PostgresAddress(uri, "lock=")


def _make(cursor: Any) -> None:
    # Two that make a table at once disturb each other, also with IF NOT EXISTS.
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('headgate'), hashtext('locks'))::text")
    cursor.fetchall()
    cursor.execute(f"SELECT to_regclass('{TABLE}') IS NOT NULL")
    if not cursor.fetchone()[0]:
        cursor.execute(
            f"CREATE TABLE {TABLE} (name text PRIMARY KEY, content bytea NOT NULL, tag text NOT NULL, "
            "changed timestamptz NOT NULL DEFAULT now())"
        )
