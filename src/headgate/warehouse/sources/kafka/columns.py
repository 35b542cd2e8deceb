"""The columns of a record as it is read: where it lies in its topic, its value, and its other parts if wanted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.core import DeclarationError
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, Column
from headgate.warehouse.sources.sql import sql_text

PARTITION, OFFSET, VALUE = (f"{PRIVATE_PREFIX}{name}" for name in ("partition", "offset", "value"))
TIMESTAMP, KEY, HEADERS = (f"{PRIVATE_PREFIX}{name}" for name in ("timestamp", "key", "headers"))
#: who has set the timestamp, as Spark numbers it: -1 nobody, 0 the producer, 1 the broker
TIMESTAMP_TYPE = f"{PRIVATE_PREFIX}timestamp_type"
#: why a value could not be decoded
PROBLEM = f"{PRIVATE_PREFIX}problem"
#: whether Arrow has made a row of a record already
TAKEN = f"{PRIVATE_PREFIX}taken"

_SPARK_TYPES = {
    PARTITION: "int",
    OFFSET: "bigint",
    VALUE: "binary",
    TIMESTAMP: "timestamp",
    TIMESTAMP_TYPE: "int",
    KEY: "binary",
    HEADERS: "array<struct<key: string, value: binary>>",
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a record that can be a column: its type, what is read for it, and how it is computed from that."""

    type: str
    read: str
    sql: str


_KEY_TEXT = f"CAST({KEY} AS STRING)"
_PARTS = {
    "key": _Part("string", KEY, f"make_valid_utf8({_KEY_TEXT})"),
    "key_bytes": _Part("binary", KEY, KEY),
    "timestamp": _Part("timestamp", TIMESTAMP, TIMESTAMP),
    "timestamp_type": _Part("int", TIMESTAMP_TYPE, TIMESTAMP_TYPE),
    "partition": _Part("int", PARTITION, PARTITION),
    "offset": _Part("bigint", OFFSET, OFFSET),
    "headers": _Part(_SPARK_TYPES[HEADERS], HEADERS, HEADERS),
    "tombstone": _Part("boolean", VALUE, f"({VALUE} IS NULL)"),
}


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Which columns of a stream come from parts of a record: {column: part}."""

    parts: Mapping[str, str]

    @classmethod
    def of(cls, declared: Mapping[str, str] | Iterable[str], where: str) -> RecordColumns:
        """From a mapping, or from the names of parts that are also those of the columns."""
        example = "record takes parts of a record by the names of columns, as in {'sent': 'timestamp', 'id': 'key'}"
        if isinstance(declared, str):
            raise DeclarationError(f"{where}: {example}; got {declared!r}")
        parts = dict(declared) if isinstance(declared, Mapping) else {name: name for name in declared}
        for column, part in parts.items():
            if not isinstance(column, str) or not column:
                raise DeclarationError(f"{where}: {example}; got the column {column!r}")
            if part not in _PARTS:
                close = difflib.get_close_matches(str(part), _PARTS, n=1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                raise DeclarationError(f"{where}: a record has the parts {', '.join(_PARTS)}; got {part!r}{meant}")
        return cls(parts)

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, _PARTS[part].type) for name, part in self.parts.items())

    @property
    def read(self) -> tuple[str, ...]:
        """What is to be read of each record."""
        wanted = {PARTITION, OFFSET, VALUE, *(_PARTS[part].read for part in self.parts.values())}
        return tuple(name for name in _SPARK_TYPES if name in wanted)

    @property
    def read_columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, _SPARK_TYPES[name]) for name in self.read)

    def finished(self, topic: str, columns: Mapping[str, str], *, raw: str, error: str) -> dict[str, str]:
        """SQL by the quoted names of all columns of a stream: ``columns`` of the value, those of the record, its place.

        ``error`` says what is wrong with a value that is there.
        """
        parts = set(self.parts.values())
        tombstone = (
            "NULL"
            if "tombstone" in parts
            else sql_text(
                "it has no value (a tombstone); to load such records, declare record={'deleted': 'tombstone'}"
            )
        )
        bad_key = f"WHEN NOT is_valid_utf8({_KEY_TEXT}) THEN 'the key is not valid UTF-8' " if "key" in parts else ""
        return {
            **columns,
            **{Column(name, "").quoted: _PARTS[part].sql for name, part in self.parts.items()},
            FILE_COLUMN: f"concat({sql_text(f'{topic}/')}, {PARTITION}, '@', {OFFSET})",
            RAW_COLUMN: raw,
            ERROR_COLUMN: f"CAST(CASE {bad_key}WHEN {VALUE} IS NULL THEN {tombstone} ELSE {error} END AS STRING)",
        }


def selected(columns: Mapping[str, str]) -> list[str]:
    """SQL that selects columns by their quoted names."""
    return [f"{sql} AS {name}" for name, sql in columns.items()]
