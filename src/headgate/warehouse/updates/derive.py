"""Computing an update of a derived table: run the user's query on Spark over the chosen files, write, commit.

How the rows are computed and what they replace depends on the kind of the update: appended rows, merged groups,
recomputed blocks of time, recomputed keys, or everything.

From one update to the next only the list of files changes in the plan that Spark compiles. A literal that changes would
make Spark generate and compile code again, which takes as long as a small update. The trailing edge does change, so it
is compared as a decimal: Spark passes decimals by reference and does not write them into the code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Literal

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import HeadgateError, Update, UserCodeError
from headgate.stream.spark.update import HostedUpdate
from headgate.warehouse.declare.analysis import apply_query
from headgate.warehouse.declare.modes import TableMode
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.session import tune
from headgate.warehouse.storage.files import ALL, DataFile
from headgate.warehouse.storage.parquet import visible
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.changed_keys import bounds_of, collected, keys_of, only_with, span_of
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.hosted import HostedQueries
from headgate.warehouse.updates.key_lookup import look_up
from headgate.warehouse.updates.merge import GroupMerger
from headgate.warehouse.updates.plan import RecomputePlan, SourceState, Span, join
from headgate.warehouse.updates.replaced_rows import all_rows, merge_groups, replaced, rows_with_keys
from headgate.warehouse.updates.spark_files import LARGE_BYTES, FileReader, WrittenFiles, write_with_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


#: what an update does: add rows, merge groups, recompute blocks (live or behind live updates) or keys, or compute
#: everything (live, or behind live updates)
PlanKind = Literal["append", "merge", "recompute", "backfill", "keys", "whole", "rebuild"]


class MisplacedRowsError(HeadgateError):
    """A query returned rows with event times that were not being computed."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source as a query reads it; ``time`` is None for a dimension, and for a table without event time."""

    name: str
    store: TableStore
    schema: StructType
    time: str | None
    is_dimension: bool = False


#: the files to read, by the name of the source
SourceFiles = Mapping[str, Sequence[DataFile]]


@dataclass(frozen=True, slots=True)
class DerivePlan:
    """What one update of a derived table reads: the sources as they were when it began, and their files.

    After the update the table reflects its sources up to ``freshness``, except for ``dirty``, which is still to be
    recomputed. Rows beyond the trailing ``edge`` are not used. ``blocks`` is what to recompute, if that is blocks of
    time. ``changed`` are files with the rows that were added to and removed from each source, if keys are recomputed;
    rows that were there, but beyond ``edge_before``, count as added. ``number_before`` is the number of the table's
    last commit. If the update fails, ``to_recompute`` is pending again.
    """

    kind: PlanKind
    sources: tuple[SourceState, ...]
    files: SourceFiles
    number_before: int
    to_recompute: tuple[Span, ...]
    edge: int
    freshness: int
    dirty: tuple[Span, ...]
    blocks: RecomputePlan | None = None
    changed: Mapping[str, tuple[Sequence[DataFile], Sequence[DataFile]]] = field(default_factory=dict)
    edge_before: int | None = None

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
        if self.kind in ("append", "merge"):
            return any(self.files[source.name] for source in self.sources if not source.is_dimension)
        return True


class TableDeriver:
    """Computes one derived table. Used by one thread at a time.

    ``hosted`` are the stream queries that the table's function puts on Spark.
    """

    def __init__(
        self,
        spec: TableSpec,
        table: TableStore,
        sources: Sequence[SourceTable],
        hosted: HostedQueries,
        mode: TableMode,
        columns: Sequence[str],
    ) -> None:
        self.spec = spec
        self.table = table
        self.sources = tuple(sources)
        self.hosted = hosted
        self.mode = mode
        self._several = sum(source.time is not None for source in sources) > 1
        self._merger = None if mode.merge is None else GroupMerger(mode.merge, columns)

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
        return self._apply(spark, plan, frames)

    def _apply(self, spark: SparkSession, plan: DerivePlan, frames: Mapping[str, DataFrame]) -> HostedUpdate:
        try:
            result = apply_query(self.spec, frames, spark)
            hosted = self._hosted_update(plan)
            hosted.take(result)
        except Exception as error:
            raise self._failed(error) from error
        return hosted

    def _hosted_update(self, plan: DerivePlan) -> HostedUpdate:
        if not self._keeps_states(plan):
            return HostedUpdate.without_states(self.spec.name)
        (source,) = (source for source in self.sources if source.time is not None)
        assert source.time is not None
        read = [(str(source.store.path_of(file)), file) for file in plan.files[source.name]]
        return self.hosted.next_update((source.time, plan.edge), read, rebuild=plan.kind == "rebuild")

    @staticmethod
    def _keeps_states(plan: DerivePlan) -> bool:
        """Whether stream queries in the table go on from the states that the last update left."""
        return plan.kind in ("append", "rebuild")

    def run(self, update: Update, spark: SparkSession, files: FileReader, hosted: HostedUpdate | None) -> None:
        """Compute, write and commit; ``hosted`` is what ``call_function`` returned, if it was called before."""
        started = time.perf_counter()
        plan: DerivePlan = update.plan
        if not plan.computes and self.table.exists:
            self._commit_freshness(plan)
            update.freshness = plan.freshness
            return
        affected = self._affected_keys(spark, plan, files) if plan.kind == "keys" else None
        if affected is not None and not affected.num_rows:
            self._commit_freshness(plan)
            update.freshness = plan.freshness
            return
        if hosted is not None:  # other tables have been asked for their queries since, which may read more or less
            tune(spark, plan.bytes)
        elif affected is not None:
            hosted = self._apply(spark, plan, self._frames_with(affected, spark, plan, files))
        else:
            hosted = self.call_function(spark, plan, files)
        number = self._state.update + 1
        try:
            written = self._write(hosted, number, plan, affected)
        except UserCodeError as error:
            raise self.hosted.with_reason(error, hosted) from error.__cause__
        self.hosted.check(hosted)
        update.work = time.perf_counter() - started
        fields = self.hosted.commit_fields(hosted, plan.kind == "rebuild") if self._keeps_states(plan) else {}
        state = CommitState(
            number,
            plan.commit_kind,
            plan.freshness,
            written.rows,
            sources=plan.versions,
            dirty=plan.dirty,
            time=self.spec.time,
            mode=self.mode.name,
            **fields,
        ).to_json()
        self.table.commit(
            number,
            written.files,
            replace=written.replaced,
            state=state,
            schema=written.schema,
            changes=written.changes,
        )
        if self._keeps_states(plan):
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
            mode=self.mode.name,
        )
        self.table.commit(number, (), replace=None, state=state.to_json(), schema=self.table.schema)

    def _write(self, hosted: HostedUpdate, number: int, plan: DerivePlan, affected: pa.Table | None) -> WrittenFiles:
        """Compute and write the rows of an update."""
        frame = self._resolved(hosted)
        if plan.blocks is not None:
            return self._write_blocks(frame, number, plan, plan.blocks)
        match plan.kind:
            case "append":
                return self._write_frame(frame, number, plan)
            case "merge":
                return self._write_merged(frame, number, plan)
            case "keys":
                assert affected is not None
                return self._write_keys(frame, number, affected)
        return self._write_everything(frame, number, plan)

    def _write_frame(self, frame: DataFrame, number: int, plan: DerivePlan) -> WrittenFiles:
        if plan.bytes > LARGE_BYTES:
            return self._write_with_spark(frame, number)
        return self._write_rows(number, self._rows(frame))

    def _write_rows(self, number: int, rows: pa.Table) -> WrittenFiles:
        files = self.table.write_arrow(number, rows, self.spec.partition)
        return WrittenFiles(files, rows.num_rows, visible(rows.schema))

    def _write_everything(self, frame: DataFrame, number: int, plan: DerivePlan) -> WrittenFiles:
        """Replace the whole table; rows that stay the same are left alone, if the table is small enough to compare."""
        existing = ALL if self.table.exists else None
        if self._merger is not None:
            states = self._merger.states(frame)
            if plan.bytes > LARGE_BYTES:
                return replace(
                    self._write_with_spark(self._merger.complete_on_spark(states, frame), number), replaced=existing
                )
            rows = self._checked(self._merger.complete(self._arrow(states), frame))
            return replace(self._write_rows(number, rows), replaced=existing)
        if plan.kind == "rebuild" or plan.bytes > LARGE_BYTES or self.table.statistics().size > LARGE_BYTES:
            return replace(self._write_frame(frame, number, plan), replaced=existing)
        positions, old = all_rows(self.table) if self.table.exists else ({}, [])
        return replaced(self.table, number, positions, old, self._rows(frame), self.spec.partition)

    def _write_merged(self, frame: DataFrame, number: int, plan: DerivePlan) -> WrittenFiles:
        assert self._merger is not None
        new = self._arrow(self._merger.states(frame))
        positions, states = merge_groups(self.table, self._files_of_groups(plan), self._merger, new)
        rows = self._checked(self._merger.complete(states, frame))
        return replaced(self.table, number, positions, None, rows, self.spec.partition)

    def _files_of_groups(self, plan: DerivePlan) -> Sequence[DataFile]:
        """The files of the table that can hold groups of new rows."""
        block = self.mode.block
        if not self.table.exists or block is None:
            return self.table.files() if self.table.exists else ()
        (growing,) = (source.name for source in self.sources if not source.is_dimension)
        spans = join(
            (file.first // block * block, file.last // block * block + block - 1)
            for file in plan.files[growing]
            if file.first is not None and file.last is not None
        )
        labels = {label for span in spans for label in self.table.partitions_between(*span)}
        return self.table.files_in(sorted(labels))

    # --- recomputed keys ------------------------------------------------------------------------------------

    def _affected_keys(self, spark: SparkSession, plan: DerivePlan, files: FileReader) -> pa.Table:
        """The keys of the rows that have changed, or have come to lie before the trailing edge."""
        assert self.mode.keys is not None
        tune(spark, sum(file.size for parts in plan.changed.values() for part in parts for file in part))
        found = []
        for source in self.sources:
            if source.name in plan.changed:
                changed = self._changed_rows(spark, source, plan, files)
                found += [keys_of(rows, self.mode.keys, source.name) for rows in changed]
        if not found:
            return pa.table({})
        try:
            return collected(found)
        except Exception as error:
            raise self._failed(error) from error

    def _changed_rows(
        self, spark: SparkSession, source: SourceTable, plan: DerivePlan, files: FileReader
    ) -> list[DataFrame]:
        from pyspark.sql import functions as F

        added, removed = (self._read(spark, source, part, files) for part in plan.changed[source.name])
        if source.time is None:
            # Such a table is often written anew as a whole, with few changes.
            return [added.exceptAll(removed), removed.exceptAll(added)] if plan.changed[source.name][1] else [added]
        changed = [rows for rows, part in zip((added, removed), plan.changed[source.name], strict=True) if part]
        if self._several:
            micros = F.unix_micros(F.col(source.time))
            changed = [rows.where(micros <= F.lit(Decimal(plan.edge))) for rows in changed]
            assert plan.edge_before is not None
            between = (plan.edge_before + 1, plan.edge)
            labels = source.store.partitions_between(*between)
            if between[0] <= between[1] and labels:
                rows = self._read(spark, source, source.store.files_in(labels), files)
                changed.append(rows.where(_among(micros, [between])))
        return changed

    def _frames_with(
        self, affected: pa.Table, spark: SparkSession, plan: DerivePlan, files: FileReader
    ) -> Mapping[str, DataFrame]:
        """The sources' rows that have one of the affected keys; all rows of sources without keys."""
        keys = self.mode.keys
        assert keys is not None
        chosen = {source.name: self._files_with(affected, source, plan) for source in self.sources}
        narrowed = replace(plan, files=chosen)
        tune(spark, narrowed.bytes)
        wanted = spark.createDataFrame(affected)
        frames = {source.name: self._frame(spark, source, narrowed, files) for source in self.sources}
        return {
            name: only_with(frame, keys, name, wanted) if name in keys.origins else frame
            for name, frame in frames.items()
        }

    def _files_with(self, affected: pa.Table, source: SourceTable, plan: DerivePlan) -> Sequence[DataFile]:
        keys = self.mode.keys
        assert keys is not None
        if source.time is None or source.name not in keys.origins:
            return plan.files[source.name]
        span = span_of(affected, keys, source.name, source.time)
        if span is None:
            return plan.files[source.name]
        return [
            f for f in plan.files[source.name] if f.first is None or (f.first <= span[1] and span[0] <= (f.last or 0))
        ]

    def _write_keys(self, frame: DataFrame, number: int, affected: pa.Table) -> WrittenFiles:
        assert self.mode.keys is not None
        columns = self.mode.keys.columns
        rows = self._rows(frame)
        # Sources without keys were read whole, so there may be rows of other keys.
        rows = rows.filter(pa.array(look_up(affected, rows.select(columns)) >= 0))
        files = self.table.files()
        if self.spec.time in columns:
            bounds = bounds_of(affected.column(columns.index(self.spec.time)))
            if bounds is not None:
                files = self.table.files_in(self.table.partitions_between(*bounds))
        positions, old = rows_with_keys(self.table, files, columns, affected)
        return replaced(self.table, number, positions, old, rows, self.spec.partition)

    # --- recomputed blocks ----------------------------------------------------------------------------------

    def _write_blocks(self, frame: DataFrame, number: int, plan: DerivePlan, blocks: RecomputePlan) -> WrittenFiles:
        labels = sorted({label for span in blocks.spans for label in self.table.partitions_between(*span)})
        if plan.bytes > LARGE_BYTES:
            return replace(self._write_blocks_with_spark(frame, number, blocks, labels), replaced=labels)
        rows = self._in_blocks(self._rows(frame), blocks)
        rows = pa.concat_tables([rows, *self._neighbours(rows.schema, labels, blocks)])
        return replace(self._write_rows(number, rows), replaced=labels)

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
            assert self.spec.time is not None
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
        frame = self._read(spark, source, chosen, files)
        if source.time is None or not chosen:
            return frame
        micros = F.unix_micros(F.col(source.time))
        if self._several:
            frame = frame.where(micros <= F.lit(Decimal(plan.edge)))
        if plan.blocks is not None and not all(_covered(file, plan.blocks.read) for file in chosen):
            # A partition that maintenance has merged holds more than the plan reads.
            frame = frame.where(_among(micros, plan.blocks.read))
        return frame

    @staticmethod
    def _read(spark: SparkSession, source: SourceTable, chosen: Sequence[DataFile], files: FileReader) -> DataFrame:
        if not chosen:
            return spark.createDataFrame([], source.schema)
        return files.parquet(source.schema, [str(source.store.path_of(file)) for file in chosen])

    def _resolved(self, hosted: HostedUpdate) -> DataFrame:
        try:
            return hosted.frame
        except Exception as error:
            raise self._failed(error) from error

    def _rows(self, frame: DataFrame) -> pa.Table:
        return self._checked(self._arrow(frame))

    def _arrow(self, frame: DataFrame) -> pa.Table:
        try:
            return frame.toArrow()
        except Exception as error:
            raise self._failed(error) from error

    def _checked(self, rows: pa.Table) -> pa.Table:
        if self.spec.time is not None and (nulls := rows.column(self.spec.time).null_count):
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
