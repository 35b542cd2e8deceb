"""Writing recomputed blocks of time: they replace whatever the table has in these blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import HeadgateError
from headgate.warehouse.declare.plan_tree import quoted
from headgate.warehouse.updates.derive_plan import is_among, is_covered
from headgate.warehouse.updates.plan import RecomputePlan
from headgate.warehouse.updates.spans import Span
from headgate.warehouse.updates.spark_files import WrittenFiles
from headgate.warehouse.updates.table_writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MisplacedRowsError(HeadgateError):
    """A query returned rows with event times that were not being computed."""


def write_blocks(
    writer: TableWriter, number: int, frame: DataFrame, plan: RecomputePlan, is_large: bool
) -> WrittenFiles:
    """Compute and write the rows of the plan's blocks."""
    labels = sorted({label for span in plan.spans for label in writer.table.partitions_between(*span)})
    if is_large:
        written = _write_with_spark(writer, number, frame, plan, labels)
    else:
        rows = _inside_blocks(writer, writer.rows(frame), plan)
        rows = pa.concat_tables([rows, *_neighbours(writer, rows.schema, labels, plan)])
        written = writer.write_rows(number, rows)
    return replace(written, replaced=labels)


def _inside_blocks(writer: TableWriter, rows: pa.Table, plan: RecomputePlan) -> pa.Table:
    """The rows inside the plan's blocks. With lookback there may be others; otherwise these are an error."""
    if rows.num_rows == 0:
        return rows
    times = rows.column(writer.spec.time)
    inside = _are_inside(times, plan.spans)
    kept = rows.filter(inside)
    if kept.num_rows < rows.num_rows and not writer.spec.lookback:
        raise _misplaced(writer, times.filter(pc.invert(inside))[0])
    return kept


def _misplaced(writer: TableWriter, moment: object) -> MisplacedRowsError:
    spec = writer.spec
    return MisplacedRowsError(
        f"{spec.place}: table {spec.name!r} made a row with {spec.time} = {moment}, outside of "
        f"the event times that were being computed (partitions of {spec.partition:g} s). If its time is "
        "rounded down, make partition at least that long; if it reaches back, state lookback."
    )


def _neighbours(writer: TableWriter, schema: pa.Schema, replaced: Sequence[str], plan: RecomputePlan) -> list[pa.Table]:
    """The rows of replaced partitions that lie outside the plan's blocks, which must be written again.

    There are such rows because maintenance merges old partitions into longer ones.
    """
    kept = []
    for file in writer.table.files_in(replaced):
        if file.first is None or file.last is None or is_covered(file, plan.spans):
            continue
        there = writer.table.rows([file]).select(schema.names)
        outside = pc.invert(_are_inside(there.column(writer.spec.time), plan.spans))
        kept.append(there.filter(outside).cast(schema))
    return kept


def _write_with_spark(
    writer: TableWriter, number: int, frame: DataFrame, plan: RecomputePlan, replaced: Sequence[str]
) -> WrittenFiles:
    """The same as for small results, but the rows do not pass through the driver."""
    from pyspark.sql import functions as F

    if writer.spec.lookback:
        assert writer.spec.time is not None
        # The rows of earlier times are there for later ones only. Nulls stay: they are an error.
        micros = F.unix_micros(F.col(quoted(writer.spec.time)))
        frame = frame.where(is_among(micros, plan.spans) | micros.isNull())
    written = writer.write_with_spark(number, frame)
    strays = [file for file in written.files if not is_covered(file.file, plan.spans)]
    if strays:
        raise _misplaced(writer, min(file.file.first for file in strays if file.file.first is not None))
    neighbours = _neighbours(writer, written.schema, replaced, plan)
    kept = pa.concat_tables(neighbours) if neighbours else None
    if kept is not None and kept.num_rows:
        files = [*written.files, *writer.table.write_arrow(number, kept, writer.spec.partition)]
        written = WrittenFiles(files, written.rows + kept.num_rows, written.schema)
    return written


def _are_inside(times: pa.ChunkedArray, spans: Sequence[Span]) -> pa.ChunkedArray:
    """Which of ``times`` lie in one of ``spans``."""
    micros = pc.cast(times, pa.int64())
    inside = pc.greater(micros, micros)  # false everywhere
    for first, last in spans:
        inside = pc.or_(inside, pc.and_(pc.greater_equal(micros, first), pc.less_equal(micros, last)))
    return inside
