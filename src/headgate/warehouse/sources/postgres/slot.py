"""A replication slot of PostgreSQL, used through ordinary queries: the server keeps its log until it was confirmed.

Changes are *peeked* at, which confirms nothing: asked again, the server gives them again. They are confirmed by moving
the slot on, after what they became was committed here.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.postgres.changes_offsets import SeenTransactions, lsn_text
from headgate.warehouse.sources.postgres.client import PostgresAddress, PostgresClient, identifier, literal, relation
from headgate.warehouse.sources.postgres.followed import FollowedTable, followed, followed_sql

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: no more messages are asked for at once than have so many bytes
MOST_AT_ONCE = 32 << 20
#: values are printed alike, whatever the server's settings are
_AS_TEXTS = (
    "SET LOCAL datestyle = 'ISO'",
    "SET LOCAL intervalstyle = 'postgres'",
    "SET LOCAL extra_float_digits = 1",
    "SET LOCAL bytea_output = 'hex'",
)
_ONE_VIEW = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


def _number(lsn: str) -> str:
    """SQL for a place in the log as a whole number."""
    return f"({lsn} - '0/0'::pg_lsn)::bigint"


@dataclass(frozen=True, slots=True)
class ReplicationSlotState:
    """The server's name for itself, how far its log goes, and the slot.

    ``confirmed`` is None if there is no slot; ``lost``: it is there, but the server has removed the log that it needs.
    ``followed`` is the table as it is now.
    ``clock_shift`` is what to add to a time of the server to get the time here, at most by the length of a query less.
    """

    server: str
    end: int
    confirmed: int | None
    lost: bool
    clock_shift: float = 0.0
    followed: FollowedTable = field(default_factory=FollowedTable)


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """The table at one moment: ``name`` reads it as long as it is held; ``at`` is when, in seconds since 1970.

    ``size`` is about how many bytes it has, and ``pages`` in how many pages they are; 0 if it cannot be read by pages.
    """

    name: str
    seen: SeenTransactions
    at: float
    size: int
    pages: int


class PostgresSlot:
    """One slot, with the publication that says which table's changes it gives. For one thread at a time.

    Only ``peek`` and ``rows`` may be called from another thread.
    """

    def __init__(self, address: PostgresAddress, table: str, slot: str, publication: str) -> None:
        self.table, self.name, self.publication = table, slot, publication
        self._client = PostgresClient(address)
        self._reading = PostgresClient(address)
        self._holding = PostgresClient(address)
        #: the snapshot that a transaction of ``_holding`` holds
        self._held: HeldSnapshot | None = None
        #: all transactions with smaller numbers must have ended before a snapshot is taken
        self._after: int | None = None

    def explained(self, error: Exception) -> SourceError:
        return self._client.explained(error)

    def state(self) -> ReplicationSlotState:
        began = time.time()
        columns, joined = followed_sql(self.table, self.publication)
        found = self._client.query(
            "SELECT (SELECT system_identifier::text FROM pg_control_system()) AS server, "
            f"{_number('CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_flush_lsn() END')} AS at, "
            f"s.slot_name IS NOT NULL AS there, {_number('s.confirmed_flush_lsn')} AS confirmed, "
            "coalesce(s.wal_status, '') = 'lost' AS lost, s.plugin::text AS plugin, "
            "s.database::text AS database, current_database()::text AS here, "
            "extract(epoch FROM clock_timestamp())::float8 AS clock, "
            f"{columns} FROM (SELECT 1) AS one LEFT JOIN pg_replication_slots s ON s.slot_name = {literal(self.name)} "
            f"{joined}"
        ).to_pylist()[0]
        if found["at"] is None:
            raise SourceError("the changes of a table are read from the primary server; this one is a standby")
        if found["there"] and (found["plugin"], found["database"]) != ("pgoutput", found["here"]):
            raise SourceError(
                f"the replication slot {self.name!r} is used for something else ({found['plugin']} of the database "
                f"{found['database']!r}); declare another one with slot="
            )
        confirmed = None if not found["there"] else found["confirmed"] or 0
        clock_shift = began - found["clock"]
        return ReplicationSlotState(
            found["server"], found["at"], confirmed, found["lost"], clock_shift, followed(found)
        )

    def columns(self) -> frozenset[str]:
        """The names of the columns that the table has now."""
        found = self._client.query(f"SELECT * FROM {relation(self.table)} LIMIT 0")
        return frozenset(found.schema.names)

    def described(self) -> tuple[str, str, tuple[str, ...]]:
        """The schema and the name of the table, and the columns of its primary key."""
        found = self._client.query(
            "SELECT n.nspname::text AS schema, c.relname::text AS name, ARRAY(SELECT a.attname::text FROM pg_index i "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = c.oid AND i.indisprimary) AS key FROM pg_class c "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {literal(relation(self.table))}::regclass"
        ).to_pylist()[0]
        return found["schema"], found["name"], tuple(found["key"])

    # --- making it --------------------------------------------------------------------------------------------

    def make(self, state: ReplicationSlotState, *, adds: bool = False) -> None:
        """Make publication and slot, unless they are there. A slot whose log is lost is made anew.

        ``adds``: the table was made anew, and is added to the publication if that was made here, by its name.
        """
        self._publish(adds and self.publication == self.name)
        if state.confirmed is not None and state.lost:
            self.drop()
        elif state.confirmed is not None:
            return
        self._client.query(
            f"SELECT lsn::text FROM pg_create_logical_replication_slot({literal(self.name)}, 'pgoutput')"
        )

    def drop(self) -> None:
        """Drop the slot: what is in its log is not wanted any more."""
        self.release()
        self._client.query(f"SELECT pg_drop_replication_slot({literal(self.name)})::text")

    def _publish(self, adds: bool) -> None:
        table = f"{literal(relation(self.table))}::regclass"
        found = self._client.query(
            "SELECT p.oid IS NOT NULL AS there, c.relreplident::text AS identity, c.relkind::text AS kind, "
            "EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS key, "
            f"EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = {literal(self.publication)} "
            "AND t.schemaname = n.nspname AND t.tablename = c.relname) AS has_table "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"LEFT JOIN pg_publication p ON p.pubname = {literal(self.publication)} WHERE c.oid = {table}"
        ).to_pylist()[0]
        name = relation(self.table)
        if found["kind"] not in ("r", "p"):
            raise SourceError(f"{name} is not a table, so it has no changes of its own")
        if found["identity"] == "n" or (found["identity"] == "d" and not found["key"]):
            raise SourceError(
                f"{name} has no primary key by which the server could say which row was changed: as soon as it is "
                f"published, updates and deletes of it fail. Add a key, or use ALTER TABLE {name} REPLICA IDENTITY FULL"
            )
        if found["has_table"]:
            return
        if found["there"] and not adds:
            raise SourceError(
                f"the publication {self.publication!r} does not have the table {name}: use ALTER PUBLICATION "
                f"{identifier(self.publication)} ADD TABLE {name}, or declare another one with publication="
            )
        with self._client.transaction() as cursor:
            if found["there"]:
                cursor.execute(f"ALTER PUBLICATION {identifier(self.publication)} ADD TABLE {name}")
                return
            cursor.execute(
                f"CREATE PUBLICATION {identifier(self.publication)} FOR TABLE {name} "
                "WITH (publish_via_partition_root = true)"
            )

    # --- the rows at one moment -------------------------------------------------------------------------------

    def snapshot(self, state: ReplicationSlotState) -> HeldSnapshot | None:
        """The rows at one moment after the slot was made; None while older transactions are running.

        Transactions that were committed before the slot begins must be in it, and the slot gives the others. A
        transaction may be in the log as committed and still be invisible to queries, for as long as it waits for a
        standby. So all transactions that were running when the slot was there have to end before.
        """
        if self._held is not None:
            if self._held.seen.since >= (state.confirmed or 0) and self._holds():
                return self._held
            self.release()  # it was lost, or somebody has moved the slot on since
        if self._after is None:
            self._after = int(self._client.query("SELECT pg_current_xact_id()::text AS x").column("x")[0].as_py()) + 1
        table = f"{literal(relation(self.table))}::regclass"
        found = self._holding.query(
            _ONE_VIEW,
            "SELECT pg_export_snapshot() AS name, pg_snapshot_xmin(s)::text AS first, "
            "pg_snapshot_xmax(s)::text AS before, ARRAY(SELECT x::text FROM pg_snapshot_xip(s) x) AS running, "
            f"{_number('pg_current_wal_insert_lsn()')} AS until, extract(epoch FROM now())::float8 AS at, "
            f"pg_table_size({table}) AS size, pg_relation_size({table}) / current_setting('block_size')::int AS pages "
            "FROM pg_current_snapshot() s",
            stays_open=True,
        ).to_pylist()[0]
        if int(found["first"]) < self._after:
            self._holding.close()
            return None
        running = tuple(int(each) for each in found["running"])
        seen = SeenTransactions(int(found["before"]), running, state.confirmed or 0, int(found["until"]))
        # A server that was restarted may give the same name again.
        name = f"{found['name']}/{uuid.uuid4().hex[:8]}"
        self._held = HeldSnapshot(name, seen, found["at"], max(1, int(found["size"])), int(found["pages"]))
        return self._held

    def _holds(self) -> bool:
        try:
            self._holding.query("SELECT 1", stays_open=True)
        except SourceError:
            return False
        return True

    def release(self) -> None:
        """The snapshot is not needed any more."""
        if self._held is not None:
            self._holding.close()
        self._held, self._after = None, None

    def rows(self, snapshot: str, columns: str, pages: tuple[int, int | None]) -> pa.Table:
        """The rows of a snapshot that is held, from one page to before another."""
        first, end = pages
        bounds = [f"ctid >= '({first},0)'::tid"] if first else []
        bounds += [] if end is None else [f"ctid < '({end},0)'::tid"]
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        return self._reading.query(
            _ONE_VIEW,
            f"SET TRANSACTION SNAPSHOT {literal(snapshot.partition('/')[0])}",
            f"SELECT {columns} FROM {relation(self.table)}{where}",
        )

    # --- changes ----------------------------------------------------------------------------------------------

    def peek(self, upto: int, first: int, most: int) -> list[bytes]:
        """Messages number ``first``, counted from 1, to ``most`` of those after the confirmed place, up to ``upto``.

        They are fewer if they have ``MOST_AT_ONCE`` bytes.
        """
        found = self._client.query(
            *_AS_TEXTS,
            "SELECT data FROM (SELECT data, number, sum(length(data)) OVER (ORDER BY number) - length(data) AS before "
            "FROM pg_logical_slot_peek_binary_changes("
            f"{literal(self.name)}, '{lsn_text(upto)}', {most}, 'proto_version', '1', 'publication_names', "
            f"{literal(identifier(self.publication))}) WITH ORDINALITY AS changes(lsn, xid, data, number) "
            f"WHERE number BETWEEN {first} AND {most}) AS asked WHERE before < {MOST_AT_ONCE} ORDER BY number",
        )
        messages: list[bytes] = found.column("data").to_pylist()
        return messages

    def confirm(self, upto: int) -> None:
        """All changes up to ``upto`` are safe here: the server may forget them."""
        self._client.query(f"SELECT pg_replication_slot_advance({literal(self.name)}, '{lsn_text(upto)}')::text AS at")
