"""One update of a derived table: run the user's query on Spark over chosen files, replace or append, commit.

Nothing in the plan that Spark compiles changes from one update to the next but the list of files: a literal that
changes would make Spark compile the generated code again, which takes as long as a small update. The trailing edge,
which does change, is compared as a decimal, because Spark passes decimals by reference instead of writing them into the
code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core.errors import HeadgateError, UserCodeError
from headgate.core.trace import OperatorFigures
from headgate.stream.spark.update import Update, working_on
from headgate.warehouse.declare.analysis import apply_query
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.run.session import suit
from headgate.warehouse.storage.files import ALL, DataFile
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.inside import QueriesInside
from headgate.warehouse.updates.plan import RecomputePlan, Span
from headgate.warehouse.updates.reads import Reads
from headgate.warehouse.updates.state import UpdateState
from headgate.warehouse.updates.writing import LARGE_BYTES, Written, write_with_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
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


#: the files to read, by the name of the source
Chosen = Mapping[str, Sequence[DataFile]]


@dataclass(frozen=True, slots=True)
class Derived:
    """What one update of a derived table did.

    ``spans`` are the event times that changed. ``work`` are the seconds in which data was read, computed and written.
    ``operators`` tell of the stream queries inside the table, and ``rejected`` how many rows those could not take.
    """

    update: int
    version: int
    rows: int
    freshness: int | None
    spans: tuple[Span, ...]
    work: float
    rejected: int = 0
    operators: tuple[OperatorFigures, ...] = ()


class TableDeriver:
    """Computes one derived table. Used by one thread at a time.

    ``inside`` are the stream queries that the table's function puts on Spark.
    """

    def __init__(
        self,
        spec: TableSpec,
        table: TableStore,
        sources: Sequence[SourceTable],
        inside: QueriesInside,
    ) -> None:
        self.spec = spec
        self.table = table
        self.sources = tuple(sources)
        self.inside = inside
        self._several = sum(source.time is not None for source in sources) > 1

    @property
    def update(self) -> int:
        """The number of the last update."""
        return self._state.update

    @property
    def _state(self) -> UpdateState:
        return UpdateState.from_json(self.table.state, self.spec.name)

    # --- recompute ------------------------------------------------------------------------------------------

    def choose(self, source: SourceTable, plan: RecomputePlan) -> Sequence[DataFile]:
        """The files of a source that matter to a plan, as the source is now."""
        if source.time is None:
            return source.store.files()
        wanted = {label for first, last in plan.read for label in source.store.partitions_between(first, last)}
        return source.store.files_in(sorted(wanted))

    def recompute(self, spark: SparkSession, plan: RecomputePlan, chosen: Chosen, kind: str, reads: Reads) -> Derived:
        """Compute the blocks of ``plan`` from the chosen files and replace them."""
        started = time.perf_counter()
        if not plan.blocks and self.table.exists:
            return self._note_freshness(kind, plan.freshness, plan.versions, plan.dirty)
        suit(spark, _bytes(chosen))
        hosted = Update.without_states(self.spec.name)
        with working_on(hosted):
            frame = self._query(
                spark, {s.name: self._frame(spark, s, chosen[s.name], plan, reads) for s in self.sources}
            )
        replaced = sorted({label for span in plan.spans for label in self.table.partitions_between(*span)})
        update = self.update + 1
        if _bytes(chosen) > LARGE_BYTES:
            written = self._write_large(spark, frame, update, plan, replaced)
        else:
            rows = self._in_blocks(self._rows(frame), plan)
            rows = pa.concat_tables([rows, *self._neighbours(rows.schema, replaced, plan)])
            written = Written(self.table.write_arrow(update, rows, self.spec.partition), rows.num_rows, rows.schema)
        self.inside.check(hosted)
        work = time.perf_counter() - started
        state = UpdateState(
            update,
            kind,
            plan.freshness,
            written.rows,
            sources=plan.versions,
            dirty=plan.dirty,
            time=self.spec.time,
        )
        version = self.table.commit(
            update, written.files, replace=replaced, state=state.to_json(), schema=written.schema
        )
        return Derived(
            update,
            version,
            written.rows,
            plan.freshness,
            plan.spans,
            work,
            hosted.rejected_rows(),
            hosted.figures(),
        )

    def _note_freshness(
        self, kind: str, freshness: int, versions: Mapping[str, int], dirty: tuple[Span, ...]
    ) -> Derived:
        """The sources have come further and there is nothing new in them for the table: no need for Spark."""
        before = self._state
        update = before.update + 1
        state = replace(
            before, update=update, kind=kind, freshness=freshness, rows=0, rejected=0, sources=versions, dirty=dirty
        )
        version = self.table.commit(update, (), replace=None, state=state.to_json(), schema=self.table.schema)
        return Derived(update, version, 0, freshness, (), 0.0)

    def _in_blocks(self, rows: pa.Table, plan: RecomputePlan) -> pa.Table:
        """The rows that belong to the plan's blocks; others may come from looking back, and from nothing else."""
        if rows.num_rows == 0:
            return rows
        inside = _inside(rows.column(self.spec.time), plan.spans)
        kept = rows.filter(inside)
        if kept.num_rows < rows.num_rows and not self.spec.lookback:
            raise self._misplaced(rows.filter(pc.invert(inside)).column(self.spec.time)[0])
        return kept

    def _misplaced(self, moment: object) -> MisplacedRowsError:
        return MisplacedRowsError(
            f"{self.spec.place}: table {self.spec.name!r} made a row with {self.spec.time} = {moment}, outside of "
            f"the event times that were being computed (partitions of {self.spec.partition:g} s). If its time is "
            "rounded down, make partition at least that long; if it reaches back, state lookback."
        )

    def _neighbours(self, schema: pa.Schema, replaced: Sequence[str], plan: RecomputePlan) -> list[pa.Table]:
        """The rows that share a partition with the plan's but lie outside of it: old partitions are rolled up into
        longer ones, and replacing one must not lose what was not computed again."""
        kept = []
        for file in self.table.files_in(replaced):
            if file.first is None or file.last is None or _covered(file, plan.spans):
                continue
            there = self.table.rows([file]).select(schema.names)
            outside = pc.invert(_inside(there.column(self.spec.time), plan.spans))
            kept.append(there.filter(outside).cast(schema))
        return kept

    def _write_large(
        self, spark: SparkSession, frame: DataFrame, update: int, plan: RecomputePlan, replaced: Sequence[str]
    ) -> Written:
        """As ``recompute`` does for small results, but nothing passes through the driver."""
        from pyspark.sql import functions as F

        written = self._write(frame, update)
        strays = [file for file in written.files if not _covered(file.file, plan.spans)]
        if strays and not self.spec.lookback:
            raise self._misplaced(min(file.file.first for file in strays if file.file.first is not None))
        if strays:
            micros = F.unix_micros(F.col(self.spec.time))
            written = self._write(frame.where(_among(micros, plan.spans)), update)
        neighbours = self._neighbours(written.schema, replaced, plan)
        kept = pa.concat_tables(neighbours) if neighbours else None
        if kept is not None and kept.num_rows:
            files = [*written.files, *self.table.write_arrow(update, kept, self.spec.partition)]
            written = Written(files, written.rows + kept.num_rows, written.schema)
        return written

    # --- append ---------------------------------------------------------------------------------------------

    def append(
        self,
        spark: SparkSession,
        chosen: Chosen,
        versions: Mapping[str, int],
        edge: int,
        dirty: tuple[Span, ...],
        reads: Reads,
        rebuild: bool = False,
    ) -> Derived:
        """Transform the rows of files that were added to the one source since, and append them.

        To ``rebuild`` is to begin anew: all files are given, no states are gone on from, and all rows are replaced.
        """
        started = time.perf_counter()
        kind = "backfill" if rebuild else "append"
        if self.table.exists and not rebuild and not any(chosen.values()):
            return self._note_freshness(kind, edge, versions, dirty)
        suit(spark, _bytes(chosen))
        hosted = reads.hosted.pop(self.spec.name, None) or self._update(chosen, edge, rebuild)
        with working_on(hosted):
            frame = self._query(spark, self._frames(spark, chosen, reads))
        try:
            if _bytes(chosen) > LARGE_BYTES:
                written = self._write(frame, hosted.number)
            else:
                rows = self._rows(frame)
                files = self.table.write_arrow(hosted.number, rows, self.spec.partition)
                written = Written(files, rows.num_rows, rows.schema)
        except UserCodeError as error:
            raise self.inside.explained(error, hosted) from error.__cause__
        self.inside.check(hosted)
        work = time.perf_counter() - started
        state = UpdateState(
            hosted.number,
            kind,
            edge,
            written.rows,
            sources=versions,
            dirty=dirty,
            time=self.spec.time,
            **self.inside.named(hosted, rebuild),
        ).to_json()
        replaced = ALL if rebuild and self.table.exists else None
        version = self.table.commit(hosted.number, written.files, replace=replaced, state=state, schema=written.schema)
        self.inside.committed()
        rejected, figures = hosted.rejected_rows(), hosted.figures()
        return Derived(hosted.number, version, written.rows, edge, written.spans, work, rejected, figures)

    def queries(self, spark: SparkSession, chosen: Chosen, edge: int, reads: Reads) -> Update | None:
        """The update that ``append`` would make, with the stream queries that it would put on Spark; None if there are
        none, or if the function fails: then the update itself will tell."""
        if not self.inside.any or not any(chosen.values()):
            return None
        update = self._update(chosen, edge, rebuild=False)
        update.collecting = True
        try:
            with working_on(update):
                apply_query(self.spec, self._frames(spark, chosen, reads), spark)
        except Exception:
            return None
        update.collecting = False
        return update if update.requests else None

    def _update(self, chosen: Chosen, edge: int, rebuild: bool) -> Update:
        (source,) = (source for source in self.sources if source.time is not None)
        assert source.time is not None
        return self.inside.next_update((source.time, edge), chosen[source.name], rebuild)

    def _frames(self, spark: SparkSession, chosen: Chosen, reads: Reads) -> dict[str, DataFrame]:
        return {s.name: self._frame(spark, s, chosen[s.name], None, reads) for s in self.sources}

    # --- both -----------------------------------------------------------------------------------------------

    def _frame(
        self,
        spark: SparkSession,
        source: SourceTable,
        files: Sequence[DataFile],
        plan: RecomputePlan | None,
        reads: Reads,
    ) -> DataFrame:
        from pyspark.sql import functions as F

        if not files:
            return spark.createDataFrame([], source.schema)
        frame = reads.parquet(source.schema, [str(source.store.path_of(file)) for file in files])
        if plan is None or source.time is None:
            return frame
        micros = F.unix_micros(F.col(source.time))
        if self._several:
            frame = frame.where(micros <= F.lit(Decimal(plan.edge)))
        if not all(_covered(file, plan.read) for file in files):
            # a partition that was rolled up holds more than was asked for
            frame = frame.where(_among(micros, plan.read))
        return frame

    def _query(self, spark: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        try:
            return apply_query(self.spec, frames, spark)
        except Exception as error:
            raise self._failed(error) from error

    def _rows(self, frame: DataFrame) -> pa.Table:
        try:
            rows: pa.Table = frame.toArrow()
        except Exception as error:
            raise self._failed(error) from error
        if nulls := rows.column(self.spec.time).null_count:
            raise UserCodeError(
                f"{self.spec.place}: table {self.spec.name!r} made {nulls} rows without {self.spec.time}; every row "
                "needs an event time: filter them out or fill it in"
            )
        return rows

    def _write(self, frame: DataFrame, update: int) -> Written:
        try:
            return write_with_spark(frame, self.table, update, self.spec.time, self.spec.partition)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> UserCodeError:
        return UserCodeError(f"{self.spec.place}: table {self.spec.name!r} failed: {error}")


def _bytes(chosen: Chosen) -> int:
    return sum(file.size for files in chosen.values() for file in files)


def _covered(file: DataFile, spans: Sequence[Span]) -> bool:
    """Whether all rows of a file lie in one of ``spans``."""
    if file.first is None or file.last is None:
        return False
    first, last = file.first, file.last
    return any(a <= first and last <= b for a, b in spans)


def _among(micros: Column, spans: Sequence[Span]) -> Column:
    from pyspark.sql import functions as F

    inside = [(micros >= F.lit(Decimal(first))) & (micros <= F.lit(Decimal(last))) for first, last in spans]
    return reduce(lambda a, b: a | b, inside)


def _inside(times: pa.ChunkedArray, spans: Sequence[Span]) -> pa.ChunkedArray:
    """Which of ``times`` lie in one of ``spans``."""
    micros = pc.cast(times, pa.int64())
    inside = pc.greater(micros, micros)  # nowhere
    for first, last in spans:
        inside = pc.or_(inside, pc.and_(pc.greater_equal(micros, first), pc.less_equal(micros, last)))
    return inside
