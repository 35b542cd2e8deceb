"""Checking rows against a schema: those that fit become a batch, the others are rejected, each with its reason.

Rows are parsed many at a time. If that fails, each half is tried, down to the single rows at fault. So the result for a
row does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.stream.errors import InputError
from headgate.stream.kernel import Rejected
from headgate.stream.sources.blocks import Block, concatenate_batches

#: a row in Python: a mapping, whose extra keys are ignored and missing ones are null; or all values in the order of
#: the schema
Row = Mapping[str, Any] | Sequence[Any]

_FRACTIONAL = (float, np.floating, Decimal)
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


class Misfit(ValueError):  # noqa: N818 - it never reaches users: what they see is a rejected row
    """Why a row is malformed. It may also take the place of a malformed row in a list; then it has the row's text."""

    def __init__(self, reason: str, raw: str = "") -> None:
        super().__init__(reason)
        self.raw = raw


def sift(
    items: Sequence[Any],
    parse: Callable[[list[Any]], pa.RecordBatch],
    schema: pa.Schema,
    place: Callable[[int], str],
    raw: Callable[[int], str] | None = None,
) -> Block:
    """Parse items into a block. Some of them may be misfits already.

    ``parse`` gives exactly one row for each item, or raises. ``place(i)`` says where item i came from, as the beginning
    of a sentence. ``raw(i)`` is its text, if that is not the item itself.
    """
    good: list[pa.RecordBatch] = []
    rejected: list[Rejected] = []
    rows = 0
    # A stack with the leftmost span on top, so that rows and rejected rows come in order.
    spans = [(0, len(items))] if items else []
    while spans:
        start, stop = spans.pop()
        try:
            good.append(parse(_all_fit(items[start:stop])))
            rows += stop - start
        except _MISFITS as error:
            if stop - start == 1:
                text = raw(start) if raw else _text_of(items[start])
                rejected.append(Rejected(rows, f"{place(start)}{_reason(error)}", text))
            else:
                middle = (start + stop) // 2
                spans += [(middle, stop), (start, middle)]
    return Block(concatenate_batches(good, schema), tuple(rejected))


def _all_fit(items: Sequence[Any]) -> list[Any]:
    fitting = []
    for item in items:
        if isinstance(item, Misfit):
            raise item
        fitting.append(item)
    return fitting


def sift_rows(
    rows: Sequence[Row | Misfit],
    schema: pa.Schema,
    place: Callable[[int], str],
    raw: Callable[[int], str] | None = None,
) -> Block:
    """Rows of Python values as a block."""
    return sift(rows, lambda part: _rows_to_batch(part, schema), schema, place, raw)


def _rows_to_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    names = schema.names
    columns = zip(*(_cells(row, names) for row in rows), strict=True)
    return checked_batch([_array(values, field) for values, field in zip(columns, schema, strict=True)], schema)


def _cells(row: Row, names: list[str]) -> Sequence[Any]:
    if isinstance(row, Mapping):
        return [row.get(name) for name in names]
    if not isinstance(row, tuple | list):
        raise Misfit(f"a row is a dict, a tuple or a list; got {type(row).__name__}")
    if len(row) != len(names):
        raise Misfit(f"expected {len(names)} values ({', '.join(names)}), got {len(row)}")
    return row


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        if pa.types.is_integer(field.type) or pa.types.is_temporal(field.type):
            _check_whole(values)
        return pa.array(values, type=field.type)
    except _MISFITS as error:
        raise Misfit(f"column {field.name!r} takes {field.type}: {_reason(error)}") from error


def _check_whole(values: Sequence[Any]) -> None:
    """Arrow would cut fractions off without a word."""
    for value in values:
        if isinstance(value, _FRACTIONAL) and value % 1:
            raise Misfit(f"{value} is not a whole number")


def checked_batch(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns, after a check that none is null that may not be."""
    for column, field in zip(columns, schema, strict=True):
        if column.null_count and not field.nullable:
            raise Misfit(_null_reason(field))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_columns(found: pa.Schema, schema: pa.Schema, where: str) -> None:
    """Raise unless what was found has all columns of the schema."""
    for field in schema:
        places = found.get_all_field_indices(field.name)
        if len(places) != 1 or found.field(places[0]).type != field.type:
            raise InputError(
                f"{where} does not have the column {field.name!r} as declared. Expected: {schema_text(schema)}. "
                f"Got: {schema_text(found)}. Correct the schema, or convert the data."
            )


def fit_columns(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> Block:
    """The schema's columns of a batch. Rows with a null where none may be are rejected."""
    check_columns(batch.schema, schema, where)
    wanted = pa.RecordBatch.from_arrays([batch.column(field.name) for field in schema], schema=schema)
    strict = [field for field in schema if not field.nullable and wanted.column(field.name).null_count]
    if not strict:
        return Block(wanted)
    good = pc.is_valid(wanted.column(strict[0].name))
    for field in strict[1:]:
        good = pc.and_(good, pc.is_valid(wanted.column(field.name)))
    return Block(wanted.filter(good), tuple(_null_rows(wanted, good.to_pylist(), strict, where)))


def _null_rows(batch: pa.RecordBatch, good: list[bool], strict: list[pa.Field], where: str) -> list[Rejected]:
    rejected: list[Rejected] = []
    for index, fits in enumerate(good):
        if not fits:
            row = batch.slice(index, 1).to_pylist()[0]
            field = next(field for field in strict if row[field.name] is None)
            rejected.append(Rejected(index - len(rejected), f"{where}: {_null_reason(field)}", as_text(row)))
    return rejected


def _null_reason(field: pa.Field) -> str:
    return f"column {field.name!r} is null, and the schema says that it never is"


def _reason(error: Exception) -> str:
    # Arrow numbers rows within the text that it parses, which means nothing to users.
    return str(error).removesuffix(" in row 0").replace("Row #1: ", "")


def _text_of(item: object) -> str:
    return item.raw if isinstance(item, Misfit) else as_text(item)


def as_text(item: object) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)


def schema_text(schema: pa.Schema) -> str:
    """A schema in one line."""
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
