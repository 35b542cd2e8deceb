"""The statistics of a data file for the log, taken from the Parquet footer.

Readers skip files by them, so a bound that is too narrow would hide rows: whatever is not certain is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.warehouse.storage.partitions import format_time

#: as in other Delta writers; the time column is described wherever it stands
DESCRIBED_COLUMNS = 32
_LONGEST_TEXT = 32
_EPOCH_DAY = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """``text`` is the JSON for the log; ``first`` and ``last`` are the bounds of the time column, in microseconds."""

    rows: int
    first: int | None
    last: int | None
    text: str


def file_statistics(footer: pq.FileMetaData, schema: pa.Schema, time_column: str | None) -> FileStatistics:
    """What ``footer`` says of the top-level columns of ``schema`` that have a simple type."""
    least: dict[str, object] = {}
    largest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    time_bounds: tuple[int, int] | None = None
    for index in _described(footer, schema, time_column):
        name = footer.schema.column(index).name
        chunks = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if not all(chunk is not None and chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        bounds = _bounds(chunks)
        if bounds is None:
            continue
        if name == time_column:
            time_bounds = bounds
        written = tuple(_written(bound, schema.field(name).type) for bound in bounds)
        if None not in written:
            least[name], largest[name] = written
    text = json.dumps(
        {"numRecords": footer.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls},
        separators=(",", ":"),
    )
    first, last = time_bounds or (None, None)
    return FileStatistics(footer.num_rows, first, last, text)


def _described(footer: pq.FileMetaData, schema: pa.Schema, time_column: str | None) -> list[int]:
    top_level = [
        index
        for index in range(footer.num_columns)
        if footer.schema.column(index).path == footer.schema.column(index).name
        and not pa.types.is_nested(schema.field(footer.schema.column(index).name).type)
    ]
    chosen = top_level[:DESCRIBED_COLUMNS]
    return chosen + [i for i in top_level[DESCRIBED_COLUMNS:] if footer.schema.column(i).name == time_column]


def _bounds(chunks: list[Any]) -> tuple[Any, Any] | None:
    """The physical bounds over all row groups; row groups that are entirely null have none and need none."""
    bounded = [chunk for chunk in chunks if chunk.has_min_max]
    if not bounded or not all(chunk.has_min_max or chunk.num_values == 0 for chunk in chunks):
        return None
    return min(chunk.min_raw for chunk in bounded), max(chunk.max_raw for chunk in bounded)


def _written(bound: Any, kind: pa.DataType) -> object | None:
    """``bound`` as the log writes it; None if it cannot be written so that every reader understands the same.

    No bounds for floats: Parquet leaves NaN out of them, while Spark takes NaN for the largest number.
    """
    try:
        if pa.types.is_integer(kind):
            return int(bound)
        if pa.types.is_timestamp(kind):
            return format_time(bound)
        if pa.types.is_date(kind):
            return (_EPOCH_DAY + timedelta(days=bound)).isoformat()
        if pa.types.is_string(kind):
            text = bound.decode() if isinstance(bound, bytes) else bound
            return text if len(text) <= _LONGEST_TEXT else None
    except (OverflowError, UnicodeDecodeError):
        return None
    return None
