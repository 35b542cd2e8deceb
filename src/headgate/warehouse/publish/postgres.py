"""Publishing a table to PostgreSQL: rows are upserted by key, in one transaction with the version that they are of.

The database has, beside the published tables, a table ``headgate_published`` with a row for each of them: its version,
its freshness, and when it was published. Whoever reads both in one transaction knows how fresh the rows are.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.publish.protocol import PublishedVersion, TableChanges
from headgate.warehouse.sources.postgres_client import PostgresAddress, PostgresClient, identifier, literal, relation

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: the table that names the version of each published table
VERSIONS = "headgate_published"
#: the longest time that a statement may take: a table is not updated while it is published
LONGEST_STATEMENT = "60s"


class PostgresSink:
    """A table of PostgreSQL that is kept equal to a table of the warehouse; needs the extra ``postgres``.

    - ``uri``: the database, as for ``headgate.Postgres``.
    - ``table``: the table there, as in ``"shop.totals"``; by default it has the name of the table here. It is made if
      it is not there; if it is, it must have the columns and a unique index of the key.
    - ``key``: the columns that tell rows apart. Of several rows with one key, one is published.
    """

    @noting_a_mistake()
    def __init__(self, uri: str, table: str = "", *, key: str | Sequence[str]) -> None:
        where = f"PostgresSink({table!r})"
        self._address = PostgresAddress(uri, where)
        self._key = (key,) if isinstance(key, str) else tuple(key)
        if not self._key or not all(isinstance(name, str) and name for name in self._key):
            raise DeclarationError(f"{where}: key names the columns that tell rows apart; got {key!r}")
        self._table = table
        self._client = PostgresClient(self._address)

    def __repr__(self) -> str:
        return f"PostgresSink({self._address!r}, {self._table!r}, key={list(self._key)!r})"

    def resolve(self, base: Path) -> PostgresSink:
        return self

    def last(self, table: str) -> PublishedVersion | None:
        with self._client.transaction() as cursor:
            return self._last(cursor, self._table or table, lock=False)

    def publish(self, table: str, changes: TableChanges) -> None:
        target = self._table or table
        missing = [name for name in self._key if name not in changes.added.column_names]
        if missing:
            raise PublishError(
                f"{table!r} cannot be published by its key: it has no column {missing[0]!r}. It has "
                f"{', '.join(changes.added.column_names)}"
            )
        with self._client.transaction() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = '{LONGEST_STATEMENT}'")
            there = self._last(cursor, target, lock=True)
            if changes.before is not None and there != changes.before:
                raise PublishError(
                    f"{target} was to be brought from version {changes.before.version} to "
                    f"{changes.published.version}, but it has {'none' if there is None else there.version}: somebody "
                    "else publishes to it. Give each warehouse a table of its own"
                )
            self._make_table(cursor, target, changes.added.schema)
            self._apply(cursor, target, changes)
            self._note(cursor, target, changes)

    # --- inside a transaction ---------------------------------------------------------------------------------

    def _last(self, cursor: Any, target: str, *, lock: bool) -> PublishedVersion | None:
        if lock:  # two that publish at once wait for each other, also before there is a row
            cursor.execute(f"SELECT pg_advisory_xact_lock(hashtext('headgate'), hashtext({literal(target)}))::text")
            cursor.fetchall()
        is_there = f"to_regclass({literal(relation(target))}) IS NOT NULL"
        cursor.execute(f"SELECT to_regclass('{VERSIONS}') IS NOT NULL, {is_there}")
        has_versions, has_table = cursor.fetchone()
        if not has_versions or not has_table:
            return None
        cursor.execute(f"SELECT version, version_id FROM {VERSIONS} WHERE name = {literal(target)}")
        found = cursor.fetchone()
        return None if found is None else PublishedVersion(int(found[0]), str(found[1]))

    def _make_table(self, cursor: Any, target: str, schema: pa.Schema) -> None:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {VERSIONS} (name text PRIMARY KEY, version bigint NOT NULL, "
            "version_id text NOT NULL, freshness timestamptz, published timestamptz NOT NULL)"
        )
        columns = ", ".join(f"{identifier(field.name)} {_type(field)}" for field in schema)
        key = ", ".join(map(identifier, self._key))
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {relation(target)} ({columns}, PRIMARY KEY ({key}))")
        for field in schema:  # tables grow
            cursor.execute(
                f"ALTER TABLE {relation(target)} ADD COLUMN IF NOT EXISTS {identifier(field.name)} {_type(field)}"
            )

    def _apply(self, cursor: Any, target: str, changes: TableChanges) -> None:
        name, key = relation(target), ", ".join(map(identifier, self._key))
        same = " AND ".join(f"t.{identifier(k)} = n.{identifier(k)}" for k in self._key)
        is_whole = changes.before is None
        if not is_whole and changes.removed.num_rows:
            gone = self._passed(cursor, changes.removed.select(list(self._key)))
            cursor.execute(f"DELETE FROM {name} AS t USING {gone} AS n WHERE {same}")
            cursor.execute(f"DROP TABLE {gone}")
        if not changes.added.num_rows:
            if is_whole:
                cursor.execute(f"DELETE FROM {name}")
            return
        new = self._passed(cursor, changes.added)
        if is_whole:
            cursor.execute(f"DELETE FROM {name} AS t WHERE NOT EXISTS (SELECT 1 FROM {new} AS n WHERE {same})")
        columns = ", ".join(map(identifier, changes.added.column_names))
        others = [identifier(each) for each in changes.added.column_names if each not in self._key]
        action = "DO NOTHING"
        if others:
            sets = ", ".join(f"{each} = excluded.{each}" for each in others)
            current = ", ".join(f"t.{each}" for each in others)
            wanted = ", ".join(f"excluded.{each}" for each in others)
            action = f"DO UPDATE SET {sets} WHERE ROW({current}) IS DISTINCT FROM ROW({wanted})"
        cursor.execute(
            f"INSERT INTO {name} AS t ({columns}) SELECT DISTINCT ON ({key}) {columns} FROM {new} "
            f"ON CONFLICT ({key}) {action}"
        )
        cursor.execute(f"DROP TABLE {new}")

    def _passed(self, cursor: Any, rows: pa.Table) -> str:
        """The name of a temporary table with ``rows``."""
        name = f"headgate_{secrets.token_hex(6)}"
        cursor.adbc_ingest(name, rows.combine_chunks(), mode="create", temporary=True)
        return identifier(name)

    def _note(self, cursor: Any, target: str, changes: TableChanges) -> None:
        moment = "NULL"
        if changes.freshness is not None:
            moment = f"timestamptz 'epoch' + {changes.freshness} * interval '1 microsecond'"
        cursor.execute(
            f"INSERT INTO {VERSIONS} VALUES ({literal(target)}, {changes.published.version}, "
            f"{literal(changes.published.version_id)}, {moment}, now()) ON CONFLICT (name) DO UPDATE SET "
            "version = excluded.version, version_id = excluded.version_id, freshness = excluded.freshness, "
            "published = excluded.published"
        )


def _type(field: pa.Field) -> str:
    """The type of a column in PostgreSQL."""
    import pyarrow as pa

    kind = field.type
    plain = {
        pa.bool_(): "boolean",
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.date32(): "date",
        pa.string(): "text",
        pa.large_string(): "text",
        pa.binary(): "bytea",
        pa.large_binary(): "bytea",
    }
    if kind in plain:
        return plain[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind) and kind.value_type in plain:
        return f"{plain[kind.value_type]}[]"
    raise PublishError(
        f"the column {field.name!r} is {kind}, which is not published to PostgreSQL; turn it into text with to_json"
    )
