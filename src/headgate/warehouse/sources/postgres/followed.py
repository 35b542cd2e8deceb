"""Which table a replication slot follows, and through which publication: by that it is seen that they were changed.

A log says nothing of a table that was made anew under the same name, or that a publication does not have any more: it
only ends to have changes. So what was followed at the beginning is kept with the place in the log, and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headgate.warehouse.sources.postgres.client import identifier, literal, relation

#: what a publication publishes, by the letters in which it is kept
_KINDS = {"i": "insert", "u": "update", "d": "delete", "t": "truncate"}


@dataclass(frozen=True, slots=True)
class FollowedColumn:
    """A column: its number in the table, which no other one of it ever gets, and its type."""

    number: int
    type: int
    modifier: int


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table and a publication as the server knows them. Numbers are the server's own (oid); 0 if it is not there.

    ``changed`` is the transaction that last changed the settings of the publication, ``member`` the entry of the table
    in it; an entry with another filter or list of columns is another one. ``file`` changes whenever the rows are
    written anew, also by VACUUM FULL, which changes none of them; 0 if the rows are in partitions.
    """

    table: int = 0
    name: str = ""
    file: int = 0
    publication: int = 0
    changed: str = ""
    is_member: bool = False
    member: int = 0
    publishes: str = ""
    is_filtered: bool = False
    only_columns: str = ""
    columns: Mapping[str, FollowedColumn] | None = None

    def with_columns(self, names: Collection[str]) -> FollowedTable:
        """The same with these columns only: others do not matter to a stream that does not have them."""
        wanted = {name.lower() for name in names}
        columns = {name: column for name, column in (self.columns or {}).items() if name.lower() in wanted}
        return replace(self, columns=columns)

    # --- what has changed -------------------------------------------------------------------------------------

    def why_not_followed(self, now: FollowedTable, table: str, publication: str) -> str:
        """What keeps changes out of the log from now on, and what to do; empty if they are in it."""
        name, published = relation(table), identifier(publication)
        again = "then go on with a new snapshot (lost='snapshot'), because changes of the time between are not known"
        if not now.table:
            return f"the table {name} is not there any more. Make it again or declare another one; {again}"
        if now.table != self.table or not now.publication:
            return ""  # ``why_another`` says it
        if not now.is_member:
            return (
                f"the publication {publication!r} does not have the table {name} any more: use ALTER PUBLICATION "
                f"{published} ADD TABLE {name}; {again}"
            )
        if missing := [_KINDS[kind] for kind in self.publishes if kind not in now.publishes]:
            before = ", ".join(_KINDS[kind] for kind in self.publishes)
            return (
                f"the publication {publication!r} does not publish {' and '.join(missing)} any more: use ALTER "
                f"PUBLICATION {published} SET (publish = '{before}'); {again}"
            )
        if (now.is_filtered and not self.is_filtered) or (now.only_columns and now.only_columns != self.only_columns):
            what = "some columns" if now.only_columns else "some rows"
            return (
                f"the publication {publication!r} publishes {what} of {name} only: use ALTER PUBLICATION {published} "
                f"SET TABLE with {name} as it was before; {again}"
            )
        return ""

    def why_another(self, now: FollowedTable, table: str, publication: str) -> str:
        """Why changes may be unknown although they are in the log from now on; empty if they are not."""
        name, published = relation(table), f"the publication {publication!r}"
        between = "so changes of the time between are unknown"
        kinds = (
            (
                now.table != self.table,
                f"{name} is another table than the one that was followed: it was made anew, or others were renamed",
            ),
            (now.name != self.name, f"the table {name} was renamed, from {self.name} to {now.name}"),
            (not now.publication, f"{published} is not there any more, {between}"),
            (now.publication != self.publication, f"{published} was made anew, {between}"),
            (now.member != self.member, f"{published} got the table {name} anew, or with another filter, {between}"),
            (now.changed != self.changed, f"the settings of {published} were changed and put back, {between}"),
        )
        return next((why for is_so, why in kinds if is_so), "") or self._why_other_columns(now, name)

    def _why_other_columns(self, now: FollowedTable, name: str) -> str:
        is_rewritten = now.file != self.file or not now.file
        for column, before in (self.columns or {}).items():
            found = (now.columns or {}).get(column, before)
            if found.number != before.number:
                return f"the column {column!r} of {name} is another one than before, and the log has no values for it"
            if found != before and is_rewritten:
                return f"the type of the column {column!r} of {name} was changed, and the log has no new values"
        return ""

    # --- as it is kept ----------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        columns = {name: [c.number, c.type, c.modifier] for name, c in (self.columns or {}).items()}
        return {
            "table": self.table,
            "name": self.name,
            "file": self.file,
            "publication": self.publication,
            "changed": self.changed,
            "member": self.member,
            "publishes": self.publishes,
            "is_filtered": self.is_filtered,
            "only_columns": self.only_columns,
            "columns": columns,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any] | None) -> FollowedTable | None:
        if content is None:
            return None
        return cls(
            table=int(content["table"]),
            name=str(content["name"]),
            file=int(content["file"]),
            publication=int(content["publication"]),
            changed=str(content["changed"]),
            is_member=True,
            member=int(content["member"]),
            publishes=str(content["publishes"]),
            is_filtered=bool(content["is_filtered"]),
            only_columns=str(content["only_columns"]),
            columns={name: FollowedColumn(*map(int, column)) for name, column in content["columns"].items()},
        )


def followed_sql(table: str, publication: str) -> tuple[str, str]:
    """SQL for what ``followed`` takes, as columns and as what comes after ``FROM (SELECT 1) AS one``."""
    listed = f"pg_publication_tables t WHERE t.pubname = {literal(publication)}"
    # Columns that older servers do not have are asked for by name.
    columns = (
        "coalesce(c.oid::bigint, 0) AS table, coalesce(n.nspname || '.' || c.relname, '') AS name, "
        "coalesce(pg_relation_filenode(c.oid)::bigint, 0) AS file, "
        "coalesce(p.oid::bigint, 0) AS publication, coalesce(p.xmin::text, '') AS changed, "
        "coalesce(CASE WHEN c.relkind = 'r' AND (p.puballtables OR r.oid IS NOT NULL) THEN true "
        f"ELSE EXISTS (SELECT FROM {listed} AND t.schemaname = n.nspname AND t.tablename = c.relname) END, false) "
        "AS is_member, "
        "coalesce(r.oid::bigint, 0) AS member, "
        "CASE WHEN p.pubinsert THEN 'i' ELSE '' END || CASE WHEN p.pubupdate THEN 'u' ELSE '' END || "
        "CASE WHEN p.pubdelete THEN 'd' ELSE '' END || CASE WHEN p.pubtruncate THEN 't' ELSE '' END AS publishes, "
        "to_jsonb(r) ->> 'prqual' IS NOT NULL AS is_filtered, coalesce(to_jsonb(r) ->> 'prattrs', '') AS only_columns, "
        "ARRAY(SELECT a.attnum || ' ' || a.atttypid::bigint || ' ' || a.atttypmod || ' ' || a.attname "
        "FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns"
    )
    joined = (
        f"LEFT JOIN pg_class c ON c.oid = to_regclass({literal(relation(table))}) "
        "LEFT JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"LEFT JOIN pg_publication p ON p.pubname = {literal(publication)} "
        "LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid"
    )
    return columns, joined


def followed(found: Mapping[str, Any]) -> FollowedTable:
    """What a row of the answer to ``followed_sql`` says."""
    columns = {}
    for text in found["columns"]:
        number, kind, modifier, name = text.split(" ", 3)
        columns[name] = FollowedColumn(int(number), int(kind), int(modifier))
    return FollowedTable(
        table=found["table"],
        name=found["name"],
        file=found["file"],
        publication=found["publication"],
        changed=found["changed"],
        is_member=found["is_member"],
        member=found["member"],
        publishes=found["publishes"],
        is_filtered=found["is_filtered"],
        only_columns=found["only_columns"],
        columns=columns,
    )
