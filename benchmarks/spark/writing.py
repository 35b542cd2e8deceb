"""Writing a small result into a folder of Parquet files: by Spark, or by the driver from Arrow data.

For results of a few hundred rows the driver takes half the time. Headgate writes that way, so contenders may as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from benchmarks.spark.task import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Columns that folders add: the number of the batch that wrote a result, and the minute that a result is all of.
BATCH, MINUTE_FOLDER = "batch", "minute_folder"


def write_by_spark(frame: DataFrame, folder: Path) -> None:
    """Writes `frame` into `folder`, replacing what an attempt that failed has left there."""
    frame.write.mode("overwrite").parquet(str(folder))


def write_by_driver(frame: DataFrame, folder: Path) -> None:
    """The same; readers see the one file when it is complete."""
    rows = frame.toArrow()
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / "_part.parquet"
    pq.write_table(rows, hidden)
    hidden.rename(folder / "part.parquet")


WRITERS: Mapping[Writer, Callable[[DataFrame, Path], None]] = {"driver": write_by_driver, "spark": write_by_spark}


def parquet_files(folder: Path) -> list[Path]:
    """The files of a folder that readers see."""
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith(("_", ".")))


def time_span(files: list[Path], column: str) -> tuple[float, float] | None:
    """The least and the greatest value of a column of timestamps, in epoch seconds, from the files' statistics."""
    lows, highs = [], []
    for file in files:
        footer = pq.read_metadata(file)
        index = footer.schema.names.index(column)
        for group in range(footer.num_row_groups):
            statistics = footer.row_group(group).column(index).statistics
            if statistics is not None and statistics.has_min_max:
                lows.append(statistics.min.timestamp())
                highs.append(statistics.max.timestamp())
    return (min(lows), max(highs)) if lows else None
