"""The table of PostgreSQL that is published to, as it is there: whether it may be written, and why it could not be.

A table that nothing was published to yet belongs to somebody. It is taken only if nothing is lost by it: if it has no
rows, and the very columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.postgres.client import identifier, literal, relation

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}
_WHO_LOCKS = (
    "SELECT pid, state, query FROM pg_stat_activity "
    "WHERE pid IN (SELECT pid FROM pg_locks WHERE relation = '{}'::regclass)"
)


@dataclass(frozen=True, slots=True)
class TableThere:
    """A relation of this name: its kind, the types of its columns, and the columns of each of its unique indexes."""

    target: str
    kind: str
    columns: Mapping[str, str]
    unique: Collection[frozenset[str]]

    @classmethod
    def find(cls, cursor: Any, target: str) -> TableThere | None:
        """What there is by this name; None if there is nothing."""
        regclass = f"to_regclass({literal(relation(target))})"
        cursor.execute(f"SELECT relkind::text FROM pg_class WHERE oid = {regclass}")
        found = cursor.fetchone()
        if found is None:
            return None
        cursor.execute(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
            f"WHERE attrelid = {regclass} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        columns = {str(name): str(kind) for name, kind in cursor.fetchall()}
        # A partial index, one of expressions, or one that is checked at the commit cannot tell which row is replaced.
        cursor.execute(
            "SELECT i.indexrelid::text, a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            f"AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) WHERE i.indrelid = {regclass} "
            "AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL"
        )
        indexes: dict[str, set[str]] = {}
        for index, name in cursor.fetchall():
            indexes.setdefault(index, set()).add(name)
        return cls(target, str(found[0]), columns, [frozenset(names) for names in indexes.values()])

    def demand_a_table(self) -> None:
        """PublishError if rows cannot be written to it, as to a view."""
        if self.kind not in ("r", "p"):
            raise PublishError(
                f"{self.target} is {_KINDS.get(self.kind, 'no table')} there, and rows are published to tables only. "
                "Give the sink another table=, or drop what is there, and the table is made"
            )

    def demand_an_index(self, key: Sequence[str]) -> None:
        """PublishError unless rows can be upserted by ``key``."""
        if frozenset(key) not in self.unique:
            columns = ", ".join(map(identifier, key))
            raise PublishError(
                f"{self.target} has no unique index of the key ({columns}), by which rows are replaced. Make one: "
                f"ALTER TABLE {relation(self.target)} ADD PRIMARY KEY ({columns})"
            )

    def refuse_if_foreign(self, cursor: Any, wanted: Mapping[str, str]) -> None:
        """PublishError if rows would be deleted or columns added in a table that nothing was published to yet."""
        name = relation(self.target)
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {name})")
        found = ["rows"] if cursor.fetchone()[0] else []
        if others := [each for each in self.columns if each not in wanted]:
            found.append(f"other columns ({', '.join(others)})")
        if missing := [each for each in wanted if each not in self.columns]:
            found.append(f"no column {', '.join(missing)}")
        if found:
            raise PublishError(
                f"{self.target} is there already, with {' and '.join(found)}, and nothing was published to it yet: "
                "it may be somebody else's. Expected: no table of this name, or an empty one with the columns "
                f"{', '.join(wanted)}. Nothing was changed. Give the sink another table=; or, if this table is to be "
                "replaced, empty it (and give it these columns), or start once with take_over=True: rows that are "
                "not in the warehouse are deleted then, and columns are added"
            )

    def differences(self, wanted: Mapping[str, str]) -> str:
        """The columns whose types there are others than those that are made here."""
        differing = [
            f"{name} is {self.columns[name]} there and {kind} here"
            for name, kind in wanted.items()
            if name in self.columns and self.columns[name] != _as_shown(kind)
        ]
        return "; ".join(differing)


def refusal(
    error: Exception, target: str, there: TableThere | None, wanted: Mapping[str, str], said: str
) -> Exception | None:
    """What the server refused, for people; None if there is nothing to add to what it ``said``."""
    state = getattr(error, "sqlstate", None) or ""
    if state == "55P03":
        return ServerUnreachable(
            f"{target} is locked by another session, and was waited for in vain; it is tried again. Who has it says: "
            + _WHO_LOCKS.format(relation(target))
        )
    if state == "22021" or "0x00" in said:
        return PublishError(
            f"{target} cannot take a text with a NUL character, as no table of PostgreSQL can. Take it out in the "
            f"query, as by replace(name, char(0), ''). The server says: {said}"
        )
    if state == "42804" or (state.startswith("22") and there is not None and there.differences(wanted)):
        differing = there.differences(wanted) if there is not None else ""
        return PublishError(
            f"{target} has columns of other types: {differing or said}. Change them there by ALTER TABLE, turn the "
            f"columns into these types in the query, or give the sink another table=. The server says: {said}"
        )
    if state == "23502":
        return PublishError(
            f"{target} demands a value (NOT NULL) where the rows have none. Take NOT NULL from the column there or "
            f"give it a DEFAULT; a column of the key must have a value in every row. The server says: {said}"
        )
    return None


def _as_shown(kind: str) -> str:
    """A type as the server names it."""
    base, brackets = (kind[:-2], "[]") if kind.endswith("[]") else (kind, "")
    long = {"timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone"}
    return long.get(base, base).replace(", ", ",") + brackets
