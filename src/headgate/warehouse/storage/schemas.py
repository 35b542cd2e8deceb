"""Which columns a table may have, and how they may change.

Every column is stored as one of the types that all Delta readers share (reader version 1): no timestamps without a
time zone, no nanoseconds, no unsigned numbers. Every column may be null, at every depth. A table may gain columns; it
loses one, and a column changes its type, only when all rows are replaced. The partition column is Delta's and is in
none of these schemas.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.warehouse.storage import PARTITION_COLUMN
from headgate.warehouse.storage.errors import SchemaError

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_SAME = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32()),
)
_STORED_AS = {
    **{kind: kind for kind in _SAME},
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
            "A table may gain columns only, unless all of it is replaced; to change it otherwise, rebuild it or give "
            "the new table another name."
        )
    gained = [field for field in update if field.name not in current.names]
    return pa.schema([*current, *gained]) if gained else current


def check_file(schema: pa.Schema, table: pa.Schema, path: str) -> None:
    """Refuse a data file of columns ``schema`` that does not fit a table of columns ``table``."""
    for field in schema:
        if field.name not in table.names:
            raise SchemaError(f"{path} has a column {field.name!r} that the table is not to have; got {table.names}")
        if field.type != table.field(field.name).type:
            expected = table.field(field.name).type
            raise SchemaError(f"{path}: column {field.name!r} must be {expected}, as in the table; got {field.type}")


def with_partition(schema: pa.Schema) -> pa.Schema:
    """The columns of a partitioned table as Delta declares them."""
    return schema.append(pa.field(PARTITION_COLUMN, pa.string()))


def is_stored_as_is(kind: pa.DataType) -> bool:
    """Whether files may store ``kind`` without a cast. Nullability does not matter: readers expect nulls anyway."""
    if pa.types.is_nested(kind):
        return all(is_stored_as_is(kind.field(i).type) for i in range(kind.num_fields))
    return bool(_stored(kind, "") == kind)


def _stored(kind: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_nested(kind):
        return _stored_nested(kind, name)
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type, name)
    stored = _stored_simple(kind)
    if stored is None:
        raise SchemaError(f"column {name!r} is {kind}, a type that not every Delta reader knows; {_advice(kind)}")
    return stored


def _stored_simple(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP if kind.tz is not None else None
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind if pa.types.is_decimal128(kind) else _STORED_AS.get(kind)


def _stored_nested(kind: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _stored(child.type, f"{name}.{child.name}")) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type, f"{name}.key"), _stored(kind.item_type, f"{name}.value"))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _stored(kind.value_type, f"{name}.element")))
    raise SchemaError(f"column {name!r} is {kind}, a type that not every Delta reader knows; {_advice(kind)}")


def _advice(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return (
            "make it a timestamp with a time zone (for files that Spark wrote, see that its session has "
            "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS)"
        )
    if pa.types.is_null(kind):
        return "give its nulls a type, with a cast"
    return "cast it to another type"
