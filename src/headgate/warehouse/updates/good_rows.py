"""Which rows of a source are good: they parse, and have an event time that can be stored and is not in the future.

Small loads are split in the driver, large ones inside Spark; both go by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.warehouse.declare.durations import readable
from headgate.warehouse.declare.plan_tree import quoted
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_TIME = "it has no event time"
#: Names of partitions and statistics are written with four digits for the year. The first year is left out, because a
#: partition begins before the event times in it.
FIRST_TIME = int(datetime(2, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
LAST_TIME = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000 + 999_999
NOT_STORABLE = "its event time is not in the years 2 to 9999"
#: the columns of a table of rejected rows
REJECTED_SCHEMA = pa.schema([("reason", pa.string()), ("file", pa.string()), ("raw", pa.string())])


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Which event times of a stream are accepted: those in ``column`` up to ``latest``, in microseconds.

    ``latest`` is ``max_future`` seconds from when the rows are loaded; both are None if there is no limit.
    """

    column: str
    latest: int | None = None
    max_future: float | None = None

    @property
    def reason(self) -> str:
        """Why a row beyond ``latest`` is rejected."""
        return f"its event time is more than {readable(self.max_future or 0.0)} in the future"


def _reason(times: EventTimes | None) -> Column:
    """Why a row is bad; null for a good one."""
    from pyspark.sql import functions as F

    reason = F.col(ERROR_COLUMN)
    if times is None:
        return reason
    moment = F.unix_micros(F.col(quoted(times.column)))
    reason = F.coalesce(
        reason,
        F.when(moment.isNull(), F.lit(NO_TIME)),
        F.when((moment < F.lit(FIRST_TIME)) | (moment > F.lit(LAST_TIME)), F.lit(NOT_STORABLE)),
    )
    if times.latest is None:
        return reason
    # A decimal, because the limit changes with every update: see ``headgate.warehouse.updates.derive_plan``.
    too_late = moment > F.lit(Decimal(times.latest))
    return F.coalesce(reason, F.when(too_late, F.lit(times.reason)))


def without_text_of_good_rows(rows: DataFrame, times: EventTimes | None, *, keeps_file: bool = False) -> DataFrame:
    """Without the raw text of good rows, which nobody reads and which is most of a row's bytes, and mostly their file.

    With ``keeps_file``, here and below, good rows keep the file that they come from.
    """
    from pyspark.sql import functions as F

    bad = _reason(times).isNotNull()
    dropped = (RAW_COLUMN,) if keeps_file else (FILE_COLUMN, RAW_COLUMN)
    return rows.withColumns({name: F.when(bad, F.col(name)) for name in dropped})


def split_frame(rows: DataFrame, times: EventTimes | None, *, keeps_file: bool = False) -> tuple[DataFrame, DataFrame]:
    """As ``split_rows``, inside Spark: (bad, good)."""
    from pyspark.sql import functions as F

    reason = _reason(times)
    bad = rows.where(reason.isNotNull()).select(
        reason.alias("reason"), F.col(FILE_COLUMN).alias("file"), F.col(RAW_COLUMN).alias("raw")
    )
    return bad, rows.where(reason.isNull()).drop(*_not_declared(keeps_file))


def _not_declared(keeps_file: bool) -> tuple[str, ...]:
    """The columns that good rows are freed of."""
    return (RAW_COLUMN, ERROR_COLUMN) if keeps_file else (FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)


def split_rows(rows: pa.Table, times: EventTimes | None, *, keeps_file: bool = False) -> tuple[pa.Table, pa.Table]:
    """(good rows with the declared columns, bad rows with reason, file and raw text), of rows read from a source."""
    reason = rows.column(ERROR_COLUMN)
    if times is not None:
        moments = pc.cast(rows.column(times.column), pa.int64())
        reason = pc.if_else(pc.and_(pc.is_null(reason), pc.is_null(moments)), NO_TIME, reason)
        storable = pc.and_(pc.greater_equal(moments, FIRST_TIME), pc.less_equal(moments, LAST_TIME))
        reason = pc.if_else(pc.and_(pc.is_null(reason), pc.fill_null(pc.invert(storable), False)), NOT_STORABLE, reason)
        if times.latest is not None:
            too_late = pc.fill_null(pc.greater(moments, times.latest), False)
            reason = pc.if_else(pc.and_(pc.is_null(reason), too_late), times.reason, reason)
    is_good = pc.is_null(reason)
    columns = [name for name in rows.column_names if name not in _not_declared(keeps_file)]
    bad_rows = rows.filter(pc.invert(is_good))
    bad = pa.table(
        {
            "reason": reason.filter(pc.invert(is_good)),
            "file": bad_rows.column(FILE_COLUMN),
            "raw": bad_rows.column(RAW_COLUMN),
        }
    )
    return rows.select(columns).filter(is_good), bad
