"""Computing an update of a derived table: run the user's query on Spark over the chosen files, write, commit.

From one update to the next only the list of files changes in the plan that Spark compiles. A literal that changes would
make Spark generate and compile code again, which takes as long as a small update. The trailing edge does change, so it
is compared as a decimal: Spark passes decimals by reference and does not write them into the code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Literal

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import HeadgateError, Update, UserCodeError
from headgate.stream.spark.update import HostedUpdate
from headgate.warehouse.declare.analysis import apply_query
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.session import tune
from headgate.warehouse.storage.files import ALL, DataFile, Everything
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.hosted import HostedQueries
from headgate.warehouse.updates.plan import RecomputePlan, SourceState, Span
from headgate.warehouse.updates.spark_files import LARGE_BYTES, FileReader, WrittenFiles, write_with_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


class MisplacedRowsError(HeadgateError):
    """A query returned rows with event times that were not being computed."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source as a query reads it; ``time`` is None for a dimension."""

    name: str
    store: TableStore
    schema: StructType
    time: str | None


#: the files to read, by the name of the source
SourceFiles = Mapping[str, Sequence[DataFile]]


@dataclass(frozen=True, slots=True)
class DerivePlan:
    """What one update of a derived table reads: the sources as they were when it began, and their files.

    After the update the table reflects its sources up to ``freshness``, except for ``dirty``, which is still to be
    recomputed. Rows beyond the trailing ``edge`` are not used. ``blocks`` is what to recompute, None if rows are
    appended. ``number_before`` is the number of the table's last commit. If the update fails, ``to_recompute`` is
    pending again.
    """

    kind: Literal["append", "rebuild", "recompute", "backfill"]
    sources: tuple[SourceState, ...]
    files: SourceFiles
    number_before: int
    to_recompute: tuple[Span, ...]
    edge: int
    freshness: int
    dirty: tuple[Span, ...]
    blocks: RecomputePlan | None = None

    @property
    def versions(self) -> dict[str, int]:
        """The source versions that the table will have consumed."""
        return {source.name: source.version for source in self.sources}

    @property
    def bytes(self) -> int:
        return sum(file.size for files in self.files.values() for file in files)

    @property
    def commit_kind(self) -> str:
        """What the commit is called in the table's log."""
        return "backfill" if self.kind == "rebuild" else self.kind

    @property
    def computes(self) -> bool:
        """Whether there is anything to compute; otherwise the update only commits the new freshness."""
        if self.blocks is not None:
            return bool(self.blocks.blocks)
        return self.kind == "rebuild" or any(self.files.values())


class TableDeriver:
    """Computes one derived table. Used by one thread at a time.

    ``hosted`` are the stream queries that the table's function puts on Spark.
    """

    def __init__(
        self, spec: TableSpec, table: TableStore, sources: Sequence[SourceTable], hosted: HostedQueries
    ) -> None:
        self.spec = spec
        self.table = table
        self.sources = tuple(sources)
        self.hosted = hosted
        #: the fingerprint of the query, which every commit carries
        self.query: Mapping[str, str] = {}
        self._several = sum(source.time is not None for source in sources) > 1

    @property
    def _state(self) -> CommitState:
        return CommitState.from_json(self.table.state, self.spec.name)

    def choose(self, source: SourceTable, plan: RecomputePlan) -> Sequence[DataFile]:
        """The files of a source that a plan has to read, as the source is now."""
        if source.time is None:
            return source.store.files()
        wanted = {label for first, last in plan.read for label in source.store.partitions_between(first, last)}
        return source.store.files_in(sorted(wanted))

    # --- an update ------------------------------------------------------------------------------------------

    def call_function(self, spark: SparkSession, plan: DerivePlan, files: FileReader) -> HostedUpdate:
        """Call the table's function or SQL, once for an update, and give its stream queries their states."""
        tune(spark, plan.bytes)
        frames = {source.name: self._frame(spark, source, plan, files) for source in self.sources}
        try:
            result = apply_query(self.spec, frames, spark)
            hosted = self._hosted_update(plan)
            hosted.take(result)
        except Exception as error:
            raise self._failed(error) from error
        return hosted

    def _hosted_update(self, plan: DerivePlan) -> HostedUpdate:
        if plan.blocks is not None or not self.hosted.any:
            return HostedUpdate.without_states(self.spec.name)
        (source,) = (source for source in self.sources if source.time is not None)
        assert source.time is not None
        read = [(str(source.store.path_of(file)), file) for file in plan.files[source.name]]
        return self.hosted.next_update((source.time, plan.edge), read, rebuild=plan.kind == "rebuild")

    def run(self, update: Update, spark: SparkSession, files: FileReader, hosted: HostedUpdate | None) -> None:
        """Compute, write and commit; ``hosted`` is what ``call_function`` returned, if it was called before."""
        started = time.perf_counter()
        plan: DerivePlan = update.plan
        if not plan.computes and self.table.exists:
            self._commit_freshness(plan)
            update.freshness = plan.freshness
            return
        if hosted is None:
            hosted = self.call_function(spark, plan, files)
        else:  # other tables have been asked for their queries since, which may read more or less
            tune(spark, plan.bytes)
        number = self._state.update + 1
        try:
            written, replaced = self._write(hosted, number, plan)
        except UserCodeError as error:
            raise self.hosted.with_reason(error, hosted) from error.__cause__
        self.hosted.check(hosted)
        update.work = time.perf_counter() - started
        hosts = plan.blocks is None and self.hosted.any
        fields = self.hosted.commit_fields(hosted, plan.kind == "rebuild") if hosts else {}
        state = CommitState(
            number,
            plan.commit_kind,
            plan.freshness,
            written.rows,
            sources=plan.versions,
            dirty=plan.dirty,
            time=self.spec.time,
            query=self.query,
            **fields,
        ).to_json()
        self.table.commit(number, written.files, replace=replaced, state=state, schema=written.schema)
        if hosts:
            self.hosted.commit_rejected()
        update.rows, update.freshness = written.rows, plan.freshness
        update.rejected, update.operators = hosted.rejected_rows(), hosted.figures()

    def _commit_freshness(self, plan: DerivePlan) -> None:
        """Commit a new freshness without rows: the sources advanced, but have no new rows for this table."""
        before = self._state
        number = before.update + 1
        state = replace(
            before,
            update=number,
            kind=plan.commit_kind,
            freshness=plan.freshness,
            rows=0,
            rejected=0,
            sources=plan.versions,
            dirty=plan.dirty,
            query=self.query,
        )
        self.table.commit(number, (), replace=None, state=state.to_json(), schema=self.table.schema)

    def _write(
        self, hosted: HostedUpdate, number: int, plan: DerivePlan
    ) -> tuple[WrittenFiles, Sequence[str] | Everything | None]:
        """Compute and write the rows; returns the files, and the partitions of the table that they replace."""
        frame = self._resolved(hosted)
        large = plan.bytes > LARGE_BYTES
        if plan.blocks is None:
            written = self._write_with_spark(frame, number) if large else self._write_rows(number, self._rows(frame))
            return written, ALL if plan.kind == "rebuild" and self.table.exists else None
        blocks = plan.blocks
        replaced = sorted({label for span in blocks.spans for label in self.table.partitions_between(*span)})
        if large:
            return self._write_blocks_with_spark(frame, number, blocks, replaced), replaced
        rows = self._in_blocks(self._rows(frame), blocks)
        rows = pa.concat_tables([rows, *self._neighbours(rows.schema, replaced, blocks)])
        return self._write_rows(number, rows), replaced

    def _write_rows(self, number: int, rows: pa.Table) -> WrittenFiles:
        return WrittenFiles(self.table.write_arrow(number, rows, self.spec.partition), rows.num_rows, rows.schema)

    # --- recomputed blocks ----------------------------------------------------------------------------------

    def _in_blocks(self, rows: pa.Table, plan: RecomputePlan) -> pa.Table:
        """The rows inside the plan's blocks. With lookback there may be others; otherwise these are an error."""
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
        """The rows of replaced partitions that lie outside the plan's blocks, which must be written again.

        There are such rows because maintenance merges old partitions into longer ones.
        """
        kept = []
        for file in self.table.files_in(replaced):
            if file.first is None or file.last is None or _covered(file, plan.spans):
                continue
            there = self.table.rows([file]).select(schema.names)
            outside = pc.invert(_inside(there.column(self.spec.time), plan.spans))
            kept.append(there.filter(outside).cast(schema))
        return kept

    def _write_blocks_with_spark(
        self, frame: DataFrame, number: int, plan: RecomputePlan, replaced: Sequence[str]
    ) -> WrittenFiles:
        """The same as for small results, but the rows do not pass through the driver."""
        from pyspark.sql import functions as F

        written = self._write_with_spark(frame, number)
        strays = [file for file in written.files if not _covered(file.file, plan.spans)]
        if strays and not self.spec.lookback:
            raise self._misplaced(min(file.file.first for file in strays if file.file.first is not None))
        if strays:
            micros = F.unix_micros(F.col(self.spec.time))
            written = self._write_with_spark(frame.where(_among(micros, plan.spans)), number)
        neighbours = self._neighbours(written.schema, replaced, plan)
        kept = pa.concat_tables(neighbours) if neighbours else None
        if kept is not None and kept.num_rows:
            files = [*written.files, *self.table.write_arrow(number, kept, self.spec.partition)]
            written = WrittenFiles(files, written.rows + kept.num_rows, written.schema)
        return written

    # --- Spark ----------------------------------------------------------------------------------------------

    def _frame(self, spark: SparkSession, source: SourceTable, plan: DerivePlan, files: FileReader) -> DataFrame:
        from pyspark.sql import functions as F

        chosen = plan.files.get(source.name, ())
        if not chosen:
            return spark.createDataFrame([], source.schema)
        frame = files.parquet(source.schema, [str(source.store.path_of(file)) for file in chosen])
        if source.time is None:
            return frame
        micros = F.unix_micros(F.col(source.time))
        if self._several:
            frame = frame.where(micros <= F.lit(Decimal(plan.edge)))
        if plan.blocks is not None and not all(_covered(file, plan.blocks.read) for file in chosen):
            # A partition that maintenance has merged holds more than the plan reads.
            frame = frame.where(_among(micros, plan.blocks.read))
        return frame

    def _resolved(self, hosted: HostedUpdate) -> DataFrame:
        try:
            return hosted.frame
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

    def _write_with_spark(self, frame: DataFrame, number: int) -> WrittenFiles:
        try:
            return write_with_spark(frame, self.table, number, self.spec.time, self.spec.partition)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> UserCodeError:
        return UserCodeError(f"{self.spec.place}: table {self.spec.name!r} failed: {error}")


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
    inside = pc.greater(micros, micros)  # false everywhere
    for first, last in spans:
        inside = pc.or_(inside, pc.and_(pc.greater_equal(micros, first), pc.less_equal(micros, last)))
    return inside
