"""Publishing a table to PostgreSQL: rows are upserted by key, in one transaction with the version that they are of.

The database has, beside the published tables, a table ``headgate_published`` with a row for each of them: its version,
its freshness, and when it was published. Whoever reads both in one transaction knows how fresh the rows are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError, HeadgateError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.publish.owner import refuse_others, refuse_unexpected
from headgate.warehouse.publish.postgres_table import TableThere, refusal
from headgate.warehouse.publish.protocol import PublishedVersion, TableChanges, TableRows
from headgate.warehouse.sources.postgres.client import PostgresAddress, PostgresClient, identifier, literal, relation
from headgate.warehouse.storage.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: the table that names the version of each published table
VERSIONS = "headgate_published"
#: the longest time that a statement may take, in seconds: so long, and longer for every so many rows
LONGEST_STATEMENT, ROWS_PER_SECOND = 60, 1000
#: the longest time that a lock of somebody else is waited for, in seconds
LONGEST_LOCK = 20
#: from so many rows on, PostgreSQL counts them before it joins them
_MANY_ROWS = 10_000


class PostgresSink:
    """A table of PostgreSQL that is kept equal to a table of the warehouse; needs the extra ``postgres``.

    - ``uri``: the database, as for ``headgate.Postgres``.
    - ``table``: the table there, as in ``"shop.totals"``; by default it has the name of the table here. It is made if
      it is not there; if it is, it must be empty the first time, and have the columns and a unique index of the key.
    - ``key``: the columns that tell rows apart. Of several rows with one key, one is published.
    - ``take_over``: publish also where another warehouse has published this table, or where it has rows or columns of
      somebody else: the rows are replaced. Leave it out again afterwards: two warehouses that both take over replace
      each other's rows.
    """

    #: the longest time that a lock of somebody else is waited for, in seconds
    longest_lock: float = LONGEST_LOCK

    @noting_a_mistake()
    def __init__(self, uri: str, table: str = "", *, key: str | Sequence[str], take_over: bool = False) -> None:
        where = f"PostgresSink({table!r})"
        self._address = PostgresAddress(uri, where)
        self._key = (key,) if isinstance(key, str) else tuple(key)
        if not self._key or not all(isinstance(name, str) and name for name in self._key):
            raise DeclarationError(f"{where}: key names the columns that tell rows apart; got {key!r}")
        self._table = table
        self.take_over = take_over
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
        wanted = {field.name: _type(field) for field in changes.added.schema}
        there: TableThere | None = None
        with self._client.transaction() as cursor:
            try:
                patience = longest_statement(changes)
                cursor.execute(f"SET LOCAL statement_timeout = '{patience}s'")
                # A process that is paused in here, or whose machine is gone, must not keep its locks from others.
                cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{patience}s'")
                cursor.execute(f"SET LOCAL lock_timeout = '{round(1000 * self.longest_lock)}ms'")
                # Before anything is locked: a server waits for rows of a process that is paused without any limit.
                gone, new = self._copied(cursor, changes)
                last = self._last(cursor, target, lock=True)
                refuse_others(last, changes.published.warehouse, self.take_over, table, repr(self))
                refuse_unexpected(last, changes, target, "table")
                there = TableThere.find(cursor, target)
                if there is not None:
                    there.demand_a_table()
                    if last is None and not self.take_over:
                        there.refuse_if_foreign(cursor, wanted)
                    there.demand_an_index(self._key)
                self._make_table(cursor, target, wanted)
                self._apply(cursor, target, changes, gone, new)
                self._note(cursor, target, changes)
            except HeadgateError:
                raise
            except Exception as error:
                said = self._address.without_secrets(str(error))
                if refused := refusal(error, target, there, wanted, said):
                    raise refused from None
                raise

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
        # As JSON, because a table that was made by an earlier version does not have the column.
        warehouse = "coalesce(to_jsonb(v) ->> 'warehouse', '')"
        cursor.execute(f"SELECT version, version_id, {warehouse} FROM {VERSIONS} v WHERE name = {literal(target)}")
        found = cursor.fetchone()
        return None if found is None else PublishedVersion(int(found[0]), str(found[1]), str(found[2]))

    def _make_table(self, cursor: Any, target: str, wanted: Mapping[str, str]) -> None:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {VERSIONS} (name text PRIMARY KEY, version bigint NOT NULL, "
            "version_id text NOT NULL, freshness timestamptz, published timestamptz NOT NULL, "
            "warehouse text NOT NULL DEFAULT '')"
        )
        self._add_columns(cursor, VERSIONS, {"warehouse": "text NOT NULL DEFAULT ''"})
        columns = ", ".join(f"{identifier(name)} {kind}" for name, kind in wanted.items())
        key = ", ".join(map(identifier, self._key))
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {relation(target)} ({columns}, PRIMARY KEY ({key}))")
        self._add_columns(cursor, target, wanted)  # tables grow

    def _add_columns(self, cursor: Any, target: str, columns: Mapping[str, str]) -> None:
        """Add those that are missing. ALTER TABLE keeps all readers out until the commit, also if it adds nothing."""
        cursor.execute(
            f"SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass({literal(relation(target))}) "
            "AND attnum > 0 AND NOT attisdropped"
        )
        there = {name for (name,) in cursor.fetchall()}
        for name, kind in columns.items():
            if name in there:
                continue
            cursor.execute(f"ALTER TABLE {relation(target)} ADD COLUMN IF NOT EXISTS {identifier(name)} {kind}")

    def _copied(self, cursor: Any, changes: TableChanges) -> tuple[str, str]:
        """The names of temporary tables with the keys that went and the rows that came; empty if there are none."""
        gone = new = ""
        if changes.before is not None and changes.removed.num_rows:
            gone = self._passed(cursor, changes.removed, self._key)
        if changes.added.num_rows:
            new = self._passed(cursor, changes.added, changes.added.column_names)
        return gone, new

    def _apply(self, cursor: Any, target: str, changes: TableChanges, gone: str, new: str) -> None:
        name, key = relation(target), ", ".join(map(identifier, self._key))
        same = " AND ".join(f"t.{identifier(k)} = n.{identifier(k)}" for k in self._key)
        is_whole = changes.before is None
        if gone:
            cursor.execute(f"DELETE FROM {name} AS t USING {gone} AS n WHERE {same}")
            cursor.execute(f"DROP TABLE {gone}")
        if not new:
            if is_whole:
                cursor.execute(f"DELETE FROM {name}")
            return
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

    def _passed(self, cursor: Any, rows: TableRows, columns: Sequence[str]) -> str:
        """The name of a temporary table with ``columns`` of ``rows``, which are copied as they are read."""
        import pyarrow as pa

        name = f"headgate_{secrets.token_hex(6)}"
        schema = pa.schema([rows.schema.field(each) for each in columns])
        failed: list[Exception] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in rows.batches():
                    yield batch.select(list(columns))
            except Exception as error:  # the driver passes on its text only
                failed.append(error)
                raise

        try:
            with pa.RecordBatchReader.from_batches(schema, batches()) as reader:
                cursor.adbc_ingest(name, reader, mode="create", temporary=True)
        except Exception:
            if failed and isinstance(failed[0], HeadgateError):
                raise failed[0] from None
            if failed:  # of the warehouse, and not of the database
                raise StorageError(f"the rows to be published cannot be read now: {failed[0]}") from failed[0]
            raise
        if rows.num_rows >= _MANY_ROWS:
            cursor.execute(f"ANALYZE {identifier(name)}")
        return identifier(name)

    def _note(self, cursor: Any, target: str, changes: TableChanges) -> None:
        moment = "NULL"
        if changes.freshness is not None:
            moment = f"timestamptz 'epoch' + {changes.freshness} * interval '1 microsecond'"
        version = changes.published
        cursor.execute(
            f"INSERT INTO {VERSIONS} (name, version, version_id, freshness, published, warehouse) VALUES "
            f"({literal(target)}, {version.version}, {literal(version.version_id)}, {moment}, now(), "
            f"{literal(version.warehouse)}) ON CONFLICT (name) DO UPDATE SET "
            "version = excluded.version, version_id = excluded.version_id, freshness = excluded.freshness, "
            "published = excluded.published, warehouse = excluded.warehouse"
        )


def longest_statement(changes: TableChanges) -> int:
    """The seconds that a statement may take."""
    return LONGEST_STATEMENT + (changes.added.num_rows + changes.removed.num_rows) // ROWS_PER_SECOND


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
