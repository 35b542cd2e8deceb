"""Types of PostgreSQL and of Spark: what a query's columns are declared as, and how they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.warehouse.sources.postgres.client import identifier
from headgate.warehouse.sources.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: {type of PostgreSQL: the type that a column is declared as, unless a schema is stated}; others are texts
_DECLARED = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "date": "date",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
    "bytea": "binary",
    "_int2": "array<smallint>",
    "_int4": "array<int>",
    "_int8": "array<bigint>",
    "_float4": "array<float>",
    "_float8": "array<double>",
    "_bool": "array<boolean>",
    "_text": "array<string>",
    "_varchar": "array<string>",
}
#: {declared type: the type that the server is asked for}; others are asked for as they are
_ASKED = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "decimal": "numeric",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
#: bytes that a value counts as when the size of rows is estimated
_SIZES = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4, "string": 24, "binary": 64}


def declared_schema(columns: pa.Schema) -> str:
    """The columns of a result as Spark writes them."""
    return ", ".join(f"{Column(field.name, '').quoted} {_declared(field)}" for field in columns)


def _declared(field: pa.Field) -> str:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind = metadata.get("POSTGRESQL:type", "")
    if kind == "numeric":
        modifier = int(metadata.get("POSTGRESQL:typmod", -1)) - 4
        if modifier >= 0:
            precision, scale = modifier >> 16 & 0xFFFF, modifier & 0x7FF
            if scale <= precision <= 38:
                return f"decimal({precision}, {scale})"
    return _DECLARED.get(kind, "string")


def asked_columns(columns: Sequence[Column]) -> str:
    """A select list that gives the declared columns in their declared types."""
    return ", ".join(
        f"{identifier(column.name)}{f'::{_ASKED[column.kind]}' if column.kind in _ASKED else ''}" for column in columns
    )


def row_size(columns: Sequence[Column]) -> int:
    """About how many bytes a row has."""
    return max(1, sum(_SIZES.get(column.kind, 8) for column in columns))


def plain_numbers(rows: pa.Table) -> pa.Table:
    """Rows whose columns of numbers with decimal places, which the driver gives as texts of its own type, are texts."""
    import pyarrow as pa

    for index, field in enumerate(rows.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            values = rows.column(index)
            stored = pa.chunked_array([chunk.storage for chunk in values.chunks], field.type.storage_type)
            rows = rows.set_column(index, field.name, stored)
    return rows
