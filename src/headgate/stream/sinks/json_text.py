"""Rows as JSON texts, one object each, such that the JSON source reads the same values.

JSON has no bytes, which are written as base64, and no lengths of time, which are written as seconds.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]


def json_rows(batch: pa.RecordBatch) -> list[str]:
    """Each row as a JSON object without newlines. JSON has no NaN and no infinity: they become null."""
    columns = [_finite(column) for column in batch.columns]
    rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return [json.dumps(row, default=_plain, ensure_ascii=False, separators=(",", ":")) for row in rows]


def _finite(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def _plain(value: Any) -> str | float:
    """What JSON does not have a form for."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON; convert the column in the query")
