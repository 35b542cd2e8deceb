"""One update of a derived table: choose source files, run the user's query on Spark, replace or append, commit.

Nothing in the plan that Spark compiles changes from one update to the next but the list of files: a literal that
changes would make Spark compile the generated code again, which takes as long as a small update. The trailing edge,
which does change, is compared as a decimal, because Spark passes decimals by reference instead of writing them into the
code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core.errors import HeadgateError, UserCodeError
from headgate.warehouse.analysis import apply_query
from headgate.warehouse.loading import time_span
from headgate.warehouse.plan import RecomputePlan, Span
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.state import UpdateState
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class MisplacedRowsError(HeadgateError):
    """A query made rows that belong to event times which were not being computed."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source as a query reads it; ``time`` is None for a dimension."""

    name: str
    store: TableStore
    schema: StructType
    time: str | None


@dataclass(frozen=True, slots=True)
class Derived:
    """What one update of a derived table did. ``spans`` are the event times that changed, for those built on it."""

    update: int
    version: int
    rows: int
    freshness: int | None
    spans: tuple[Span, ...]


class TableDeriver:
    """Computes one derived table. Used by one thread at a time."""

    def __init__(self, spec: TableSpec, table: TableStore, sources: Sequence[SourceTable]) -> None:
        self.spec = spec
        self.table = table
        self.sources = tuple(sources)

    @property
    def update(self) -> int:
        """The number of the last update."""
        return UpdateState.from_json(self.table.state, self.spec.name).update

    # --- recompute ------------------------------------------------------------------------------------------

    def recompute(self, spark: SparkSession, plan: RecomputePlan) -> Derived:
        """Compute the blocks of ``plan`` from the sources' newest files and replace them."""
        frames = {source.name: self._frame(spark, source, self._files(source, plan), plan) for source in self.sources}
        replaced = sorted({label for span in plan.spans for label in self.table.partitions_between(*span)})
        rows = self._in_blocks(self._run(spark, frames), plan)
        rows = self._with_neighbours(rows, replaced, plan)
        update = self.update + 1
        files = self.table.write_arrow(update, rows, self.spec.partition)
        state = UpdateState(
            update,
            "recompute",
            plan.freshness,
            rows.num_rows,
            sources=plan.versions,
            dirty=plan.dirty,
            time=self.spec.time,
        )
        version = self.table.commit(update, files, replace=replaced, state=state.to_json(), schema=rows.schema)
        return Derived(update, version, rows.num_rows, plan.freshness, plan.spans)

    def _files(self, source: SourceTable, plan: RecomputePlan) -> Sequence[DataFile]:
        if source.time is None:
            return source.store.files()
        last = plan.blocks[-1] + plan.block - 1
        wanted = {
            label
            for first, end in plan.spans
            for label in source.store.partitions_between(first - (plan.blocks[0] - plan.read_from), min(end, last))
        }
        return source.store.files_in(sorted(wanted))

    def _in_blocks(self, rows: pa.Table, plan: RecomputePlan) -> pa.Table:
        """The rows that belong to the plan's blocks; others may come from looking back, and from nothing else."""
        if rows.num_rows == 0:
            return rows
        inside = _inside(rows.column(self.spec.time), plan.spans)
        kept = rows.filter(inside)
        if kept.num_rows < rows.num_rows and not self.spec.lookback:
            strayed = rows.filter(pc.invert(inside)).column(self.spec.time)[0]
            raise MisplacedRowsError(
                f"{self.spec.place}: table {self.spec.name!r} made a row with {self.spec.time} = {strayed}, outside of "
                f"the event times that were being computed (partitions of {self.spec.partition:g} s). If its time is "
                "rounded down, make partition at least that long; if it reaches back, state lookback."
            )
        return kept

    def _with_neighbours(self, rows: pa.Table, replaced: Sequence[str], plan: RecomputePlan) -> pa.Table:
        """``rows`` and those that share a partition with them but lie outside of the plan: old partitions are rolled
        up into longer ones, and replacing one must not lose what was not computed again."""
        parts = [rows]
        for file in self.table.files_in(replaced):
            if (
                file.first is None
                or file.last is None
                or any(a <= file.first and file.last <= b for a, b in plan.spans)
            ):
                continue
            there = self.table.rows([file]).select(rows.column_names)
            parts.append(there.filter(pc.invert(_inside(there.column(self.spec.time), plan.spans))).cast(rows.schema))
        return pa.concat_tables(parts)

    # --- append ---------------------------------------------------------------------------------------------

    def append(self, spark: SparkSession, files: Sequence[DataFile], versions: Mapping[str, int], edge: int) -> Derived:
        """Transform rows of ``files``, which were added to the one source since, and append them."""
        (source,) = (source for source in self.sources if source.time is not None)
        frames = {source.name: self._frame(spark, source, files, None)}
        frames |= {s.name: self._frame(spark, s, s.store.files(), None) for s in self.sources if s.time is None}
        rows = self._run(spark, frames)
        update = self.update + 1
        written = self.table.write_arrow(update, rows, self.spec.partition)
        state = UpdateState(update, "append", edge, rows.num_rows, sources=versions, time=self.spec.time)
        version = self.table.commit(update, written, replace=None, state=state.to_json(), schema=rows.schema)
        span = time_span(rows, self.spec.time)
        return Derived(update, version, rows.num_rows, edge, (span,) if span else ())

    # --- both -----------------------------------------------------------------------------------------------

    def _frame(
        self, spark: SparkSession, source: SourceTable, files: Sequence[DataFile], plan: RecomputePlan | None
    ) -> DataFrame:
        from pyspark.sql import functions as F

        if not files:
            return spark.createDataFrame([], source.schema)
        paths = [str(source.store.path_of(file)) for file in files]
        frame = spark.read.schema(source.schema).parquet(*paths)
        several = sum(s.time is not None for s in self.sources) > 1
        if plan is not None and several and source.time is not None:
            frame = frame.where(F.unix_micros(F.col(source.time)) <= F.lit(Decimal(plan.edge)))
        return frame

    def _run(self, spark: SparkSession, frames: Mapping[str, DataFrame]) -> pa.Table:
        try:
            rows: pa.Table = apply_query(self.spec, frames, spark).toArrow()
        except Exception as error:
            raise UserCodeError(f"{self.spec.place}: table {self.spec.name!r} failed: {error}") from error
        if rows.column(self.spec.time).null_count:
            raise UserCodeError(
                f"{self.spec.place}: table {self.spec.name!r} made {rows.column(self.spec.time).null_count} rows "
                f"without {self.spec.time}; every row needs an event time: filter them out or fill it in"
            )
        return rows


def _inside(times: pa.ChunkedArray, spans: Sequence[Span]) -> pa.ChunkedArray:
    """Which of ``times`` lie in one of ``spans``."""
    micros = pc.cast(times, pa.int64())
    inside = pc.greater(micros, micros)  # nowhere
    for first, last in spans:
        inside = pc.or_(inside, pc.and_(pc.greater_equal(micros, first), pc.less_equal(micros, last)))
    return inside
