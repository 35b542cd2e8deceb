"""Writing large results with Spark, straight into the table's partitions.

Small results come to the driver as Arrow and are written there, which takes half the time of a small Spark job. From
``LARGE_BYTES`` of input on, only file names and statistics pass through the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.warehouse.storage import PARTITION_COLUMN
from headgate.warehouse.storage.files import NewFile
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.plan import Span, join

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: updates that read more than this are written by Spark
LARGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files of an update that are on disk but not committed yet."""

    files: Sequence[NewFile]
    rows: int
    schema: pa.Schema

    @property
    def spans(self) -> tuple[Span, ...]:
        """The event times in them."""
        files = [new.file for new in self.files]
        return join((file.first, file.last) for file in files if file.first is not None and file.last is not None)

    @property
    def last(self) -> int | None:
        """The newest event time in them."""
        return max((new.file.last for new in self.files if new.file.last is not None), default=None)


def write_with_spark(
    frame: DataFrame, store: TableStore, update: int, time: str | None, partition: float | None
) -> WrittenFiles:
    """Let Spark compute and write ``frame``, one directory for each partition of ``partition`` seconds."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema

    directory = store.stage(update)
    if time is not None and partition is not None:
        labelled = frame.withColumn(PARTITION_COLUMN, _label(F.col(time), partition))
        labelled.repartition(PARTITION_COLUMN).write.partitionBy(PARTITION_COLUMN).parquet(str(directory))
    else:
        frame.write.parquet(str(directory))
    files = store.adopt(directory)
    schema = files[0].schema if files else to_arrow_schema(frame.schema, timezone="UTC")
    return WrittenFiles(files, sum(new.file.rows for new in files), schema)


def _label(moment: Column, length: float) -> Column:
    """The name of the partition that a moment belongs to, as ``storage.partitions`` has it."""
    from pyspark.sql import functions as F

    seconds = F.floor(F.unix_micros(moment) / F.lit(round(length * 1_000_000))) * F.lit(round(length))
    return F.date_format(F.timestamp_seconds(seconds), "yyyy-MM-dd'T'HH:mm:ss'Z'")
