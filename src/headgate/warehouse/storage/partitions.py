"""How event time is cut into partitions, and how partitions are named.

A partition is named by its start, written ``2026-11-15T10:00:00Z``, so that names sort by time. The name does not
contain the length of the partition: maintenance merges old partitions into longer ones that are named in the same way.
Times are whole microseconds since the epoch. Lengths are whole seconds; partitions are aligned to the epoch.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.warehouse.storage.errors import StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SECOND = 1_000_000
EVENT_TIME = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1)
_EXAMPLE = "2026-11-15T10:00:00Z"


def partition_label(micros: int, length_seconds: float) -> str:
    """The partition that an event at ``micros`` belongs to.

    >>> partition_label(1_794_737_400_000_000, 3600)
    '2026-11-15T10:00:00Z'
    """
    length = _in_micros(length_seconds)
    return _label(micros // length * length)


def partition_start(label: str) -> int:
    """The first microsecond of the partition called ``label``; it must be written exactly as `partition_label` does.

    >>> partition_start("2026-11-15T10:00:00Z")
    1794736800000000
    """
    try:
        start = parse_time(label)
    except ValueError:
        start = None
    if start is None or start % SECOND or _label(start) != label:
        raise StorageError(f"{label!r} is not the name of a partition; expected its start, such as {_EXAMPLE!r}")
    return start


def split_by_partition(rows: pa.Table, time_column: str, length_seconds: float) -> list[tuple[str, pa.Table]]:
    """``rows`` split by partition, earliest first; rows of one partition stay in their order."""
    if rows.num_rows == 0:
        return []
    row_starts = _starts(rows.column(time_column), length_seconds)
    if (row_starts == row_starts[0]).all():
        return [(_label(int(row_starts[0])), rows)]
    order = np.argsort(row_starts, kind="stable")
    starts, offsets = np.unique(row_starts[order], return_index=True)
    ordered = rows.take(pa.array(order))
    ends = [*offsets[1:], rows.num_rows]
    return [
        (_label(int(start)), ordered.slice(begin, end - begin))
        for start, begin, end in zip(starts, offsets, ends, strict=True)
    ]


def format_time(micros: int) -> str:
    """A time as it is written in the statistics of a Delta log."""
    return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> int:
    """The inverse of `format_time`; any ISO 8601 time with an offset is understood."""
    moment = datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _starts(times: pa.Array | pa.ChunkedArray, length_seconds: float) -> NDArray[np.int64]:
    if times.type != EVENT_TIME:
        raise StorageError(f"event times must be {EVENT_TIME}; got {times.type}")
    if times.null_count:
        raise StorageError(
            f"{times.null_count} of {len(times)} rows have no event time, so they belong to no partition; "
            "reject such rows before they are stored"
        )
    length = _in_micros(length_seconds)
    micros: Any = pc.cast(times, pa.int64()).to_numpy()
    starts: NDArray[np.int64] = np.floor_divide(micros, length) * length
    return starts


def _label(start: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=start)).isoformat(timespec="seconds") + "Z"
    except OverflowError as error:
        raise StorageError(
            f"an event time {start} microseconds from the epoch is outside the years 1 to 9999; reject such rows"
        ) from error


def _in_micros(length_seconds: float) -> int:
    if length_seconds < 1 or length_seconds != int(length_seconds):
        raise StorageError(f"a partition takes a whole number of seconds, at least 1; got {length_seconds!r}")
    return int(length_seconds) * SECOND
