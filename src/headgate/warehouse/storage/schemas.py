"""Which columns a table may have, and how they may change.

Every column is stored as one of the types that all Delta readers share (reader version 1): no timestamps without a
time zone, no nanoseconds, no unsigned numbers. Every column may be null, at every depth. A table may gain columns; it
never loses one and no column changes its type. The partition column is Delta's and is in none of these schemas.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.warehouse.spec import PARTITION_COLUMN
from headgate.warehouse.storage.errors import SchemaError

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_AS_THEY_ARE = frozenset(
    (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    + (pa.string(), pa.binary(), pa.date32(), _TIMESTAMP)
)
_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_ADVICE: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (
        lambda kind: pa.types.is_timestamp(kind),
        "cast it to a timestamp with time zone (if Spark wrote it as one: set spark.sql.parquet.outputTimestampType "
        "to TIMESTAMP_MICROS)",
    ),
    (pa.types.is_null, "give the column a type, for example with a cast of null"),
    (pa.types.is_unsigned_integer, "cast it to a signed or decimal type"),
    (lambda _: True, "cast it to another type"),
)


def storable(schema: pa.Schema) -> pa.Schema:
    """``schema`` with each type replaced by the one it is stored as; refuses types that have none."""
    if PARTITION_COLUMN in schema.names:
        raise SchemaError(f"the column name {PARTITION_COLUMN!r} is taken; give the column another name")
    if not schema.names or len(set(schema.names)) < len(schema.names):
        raise SchemaError(f"a table needs at least one column, each of its own name; got {schema.names}")
    return pa.schema([(field.name, _stored(field.type, field.name)) for field in schema])


def merge(current: pa.Schema, update: pa.Schema) -> pa.Schema:
    """``current`` with the columns that ``update`` gains at its end; refuses to lose or change one. Both storable."""
    lost = [name for name in current.names if name not in update.names]
    changed = [
        f"{field.name!r} from {field.type} to {update.field(field.name).type}"
        for field in current
        if field.name in update.names and update.field(field.name).type != field.type
    ]
    if lost or changed:
        what = [f"lost {', '.join(map(repr, lost))}"] * bool(lost) + [f"changed {', '.join(changed)}"] * bool(changed)
        raise SchemaError(
            f"the columns of the update do not fit the table: it {' and '.join(what)}. "
            "A table may gain columns only; to change it otherwise, give the new table another name."
        )
    gained = [field for field in update if field.name not in current.names]
    return pa.schema([*current, *gained]) if gained else current


def check_file(schema: pa.Schema, table: pa.Schema, path: str) -> None:
    """Refuse a data file of columns ``schema`` that readers of a table of columns ``table`` would trip over."""
    for field in schema:
        if field.name not in table.names:
            raise SchemaError(f"{path} has a column {field.name!r} that the table is not to have; got {table.names}")
        if field.type != table.field(field.name).type:
            expected = table.field(field.name).type
            raise SchemaError(f"{path}: column {field.name!r} must be {expected}, as in the table; got {field.type}")


def with_partition(schema: pa.Schema) -> pa.Schema:
    """The columns of a partitioned table as Delta declares them."""
    return schema.append(pa.field(PARTITION_COLUMN, pa.string()))


def _stored(kind: pa.DataType, name: str) -> pa.DataType:
    if kind in _AS_THEY_ARE or pa.types.is_decimal128(kind):
        return kind
    if kind in _WIDENED:
        return _WIDENED[kind]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _TIMESTAMP
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type, name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _stored(kind.value_type, f"{name}.element")))
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _stored(child.type, f"{name}.{child.name}")) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type, f"{name}.key"), _stored(kind.item_type, f"{name}.value"))
    advice = next(text for applies, text in _ADVICE if applies(kind))
    raise SchemaError(f"column {name!r} is {kind}, a type that not every Delta reader knows; {advice}")
