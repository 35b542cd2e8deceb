"""Computing and writing the rows of one derived table: small results through the driver, large ones by Spark alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import UserCodeError, said_by
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.storage.errors import LostRowsError
from headgate.warehouse.storage.parquet import visible
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.spark_files import MOST_RESULT, WrittenFiles, is_too_large, write_with_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LargeResultError(UserCodeError):
    """A result is larger than the driver may have. The same rows can be written by Spark (``TableDeriver``)."""


class TableWriter:
    """Writes the rows of one table. Errors of Spark are the user's, with the place of the declaration.

    Errors of the system (``OSError``) stay what they are, and so do rows that Spark has lost.
    """

    def __init__(self, spec: TableSpec, table: TableStore) -> None:
        self.spec = spec
        self.table = table

    def arrow(self, frame: DataFrame) -> pa.Table:
        """What a frame computes."""
        try:
            return frame.toArrow()
        except OSError:
            raise  # as of a full disk, which is nobody's query
        except Exception as error:
            raise self.failed(error) from error

    def rows(self, frame: DataFrame) -> pa.Table:
        """What a frame computes, as rows of the table."""
        return self.checked(self.arrow(frame))

    def checked(self, rows: pa.Table) -> pa.Table:
        """``rows``; raises if one has no event time, in a table with event time."""
        if self.spec.time is not None and (nulls := rows.column(self.spec.time).null_count):
            raise UserCodeError(
                f"{self.spec.place}: table {self.spec.name!r} made {nulls} rows without {self.spec.time}; every row "
                "needs an event time: filter them out or fill it in"
            )
        return rows

    def write_rows(self, number: int, rows: pa.Table) -> WrittenFiles:
        files = self.table.write_arrow(number, rows, self.spec.partition)
        return WrittenFiles(files, rows.num_rows, visible(rows.schema))

    def write_frame(self, number: int, frame: DataFrame, is_large: bool) -> WrittenFiles:
        """Compute and write a frame; if it is large, the rows do not pass through the driver."""
        return self.write_with_spark(number, frame) if is_large else self.write_rows(number, self.rows(frame))

    def write_with_spark(self, number: int, frame: DataFrame) -> WrittenFiles:
        try:
            return write_with_spark(frame, self.table, number, self.spec.time, self.spec.partition)
        except (OSError, LostRowsError):
            raise
        except Exception as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> UserCodeError:
        where = f"{self.spec.place}: table {self.spec.name!r} failed"
        if is_too_large(error):
            return LargeResultError(
                f"{where}: Spark has to send the driver more than it may have. Raise it with --conf {MOST_RESULT}=4g, "
                f"and with it the driver's memory (--conf spark.driver.memory=...): {said_by(error)}"
            )
        return UserCodeError(f"{where}: {said_by(error)}")
