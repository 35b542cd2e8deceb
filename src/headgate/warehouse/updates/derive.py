"""Computing an update of a derived table: run the user's query on Spark over the chosen files, write, commit.

How the rows are computed and what they replace depends on the kind of the update: appended rows, merged groups,
recomputed blocks of time, recomputed keys, or everything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import Update, UserCodeError
from headgate.stream.spark.state_files import SnapshotError
from headgate.stream.spark.update import HostedUpdate
from headgate.warehouse.declare.analysis import Analysis, apply_query
from headgate.warehouse.declare.modes import TableMode
from headgate.warehouse.declare.spec import TableSpec
from headgate.warehouse.session import tune
from headgate.warehouse.storage.files import ALL, DataFile
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.changed_keys import KeyedTable
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.derive_plan import DerivePlan, SourceTable, up_to_edge
from headgate.warehouse.updates.hosted import HostedQueries
from headgate.warehouse.updates.merge import GroupMerger
from headgate.warehouse.updates.plan import RecomputePlan
from headgate.warehouse.updates.recomputed_blocks import write_blocks
from headgate.warehouse.updates.replaced_rows import all_rows, merge_groups, replaced
from headgate.warehouse.updates.spans import join
from headgate.warehouse.updates.spark_files import LARGE_BYTES, FileReader, WrittenFiles, is_too_large
from headgate.warehouse.updates.table_writer import LargeResultError, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        analysis: Analysis,
    ) -> None:
        self.spec = spec
        self.table = table
        self.sources = tuple(sources)
        self.hosted = hosted
        self.mode = mode
        self._writer = TableWriter(spec, table)
        #: the fingerprint of the query, which every commit carries
        self.query = analysis.fingerprint
        self._merger = None if mode.merge is None else GroupMerger(mode.merge, analysis.schema.names)
        self._keyed = None if mode.keys is None else KeyedTable(mode.keys, sources, self._writer)

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
        frames = {source.name: up_to_edge(spark, source, plan, files) for source in self.sources}
        return self._apply(spark, plan, frames, files)

    def _apply(
        self, spark: SparkSession, plan: DerivePlan, frames: Mapping[str, DataFrame], files: FileReader
    ) -> HostedUpdate:
        try:
            result = apply_query(self.spec, frames, spark)
            hosted = self._hosted_update(plan, files)
            hosted.take(result)
        except SnapshotError:
            raise
        except Exception as error:
            raise self._writer.failed(error) from error
        return hosted

    def _hosted_update(self, plan: DerivePlan, files: FileReader) -> HostedUpdate:
        if not self._keeps_states(plan):
            return HostedUpdate.without_states(self.spec.name)
        (source,) = (source for source in self.sources if source.time is not None)
        assert source.time is not None
        chosen = plan.files[source.name]
        read = list(zip(files.names([source.store.path_of(file) for file in chosen]), chosen, strict=True))
        return self.hosted.next_update((source.time, plan.edge), read, rebuild=plan.kind == "rebuild")

    def _keeps_states(self, plan: DerivePlan) -> bool:
        """Whether there are stream queries in the table that may keep states."""
        return self.hosted.any and plan.kind in ("append", "rebuild")

    def run(self, update: Update, spark: SparkSession, files: FileReader, hosted: HostedUpdate | None) -> None:
        """Compute, write and commit; ``hosted`` is what ``call_function`` returned, if it was called before."""
        started = time.perf_counter()
        plan: DerivePlan = update.plan
        affected = None
        if plan.kind == "keys" and self._keyed is not None:
            tune(spark, plan.changed_bytes)
            try:
                affected = self._keyed.affected(spark, plan, files)
            except LargeResultError:  # of so many keys, everything is computed
                update.plan = plan = replace(plan, kind="whole", changed={}, edge_before=None)
        nothing_changes = not plan.computes or (affected is not None and not affected.num_rows)
        if nothing_changes and self.table.exists:
            self._commit_freshness(plan)
            update.freshness = plan.freshness
            return
        if hosted is not None:  # other tables have been asked for their queries since, which may read more or less
            tune(spark, plan.bytes)
        elif affected is not None and self._keyed is not None:
            update.plan = plan = self._keyed.with_files_of(affected, plan)
            tune(spark, plan.bytes)
            hosted = self._apply(spark, plan, self._keyed.frames(affected, spark, plan, files), files)
        else:
            hosted = self.call_function(spark, plan, files)
        number = plan.number_before + 1
        try:
            written = self._write(hosted, number, plan, affected, files)
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
            source_ids=plan.source_ids,
            dirty=plan.dirty,
            time=self.spec.time,
            mode=self.mode.name,
            query=self.query,
            **fields,
        ).to_json()
        self.table.commit(
            number,
            written.files,
            replace=written.replaced,
            state=state,
            schema=written.schema,
            changes=written.changes,
            after=plan.number_before,
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
            source_ids=plan.source_ids,
            dirty=plan.dirty,
            mode=self.mode.name,
            query=self.query,
        )
        self.table.commit(
            number, (), replace=None, state=state.to_json(), schema=self.table.schema, after=plan.number_before
        )

    def _write(
        self, hosted: HostedUpdate, number: int, plan: DerivePlan, affected: pa.Table | None, files: FileReader
    ) -> WrittenFiles:
        """Compute and write the rows of an update: in the driver, or by Spark if they are too many for that."""
        try:
            frame = hosted.frame
        except Exception as error:
            raise self._writer.failed(error) from error
        # Keys and groups of an update are few, as a rule; the first groups of a long history may be many.
        merges = plan.kind == "merge" and self.table.statistics().files > 0
        if plan.bytes <= LARGE_BYTES or affected is not None or merges:
            try:
                return self._written(frame, number, plan, affected, files, is_large=False)
            except LargeResultError:  # the query makes far more rows than it reads
                tune(frame.sparkSession, LARGE_BYTES)
        return self._written(frame, number, plan, affected, files, is_large=True)

    def _written(
        self,
        frame: DataFrame,
        number: int,
        plan: DerivePlan,
        affected: pa.Table | None,
        files: FileReader,
        is_large: bool,
    ) -> WrittenFiles:
        """The rows of an update, written; if it ``is_large``, they do not pass through the driver."""
        if plan.blocks is not None:
            return write_blocks(self._writer, number, frame, plan.blocks, is_large)
        if affected is not None and self._keyed is not None:
            if is_large:
                return self._keyed.write_with_spark(frame, number, affected, files)
            return self._keyed.write(frame, number, affected)
        if plan.kind == "append":
            return self._writer.write_frame(number, frame, is_large)
        if plan.kind == "merge" and self._merger is not None:
            merge = self._merge_with_spark if is_large else self._write_merged
            return merge(frame, number, self._files_of_groups(plan), self._merger, files)
        written = self._write_everything(frame, number, plan, is_large)
        return replace(written, replaced=ALL) if written.replaced is None and self.table.exists else written

    def _write_everything(self, frame: DataFrame, number: int, plan: DerivePlan, is_large: bool) -> WrittenFiles:
        """Compute everything; rows that stay the same are left alone, if the table is small enough to compare."""
        if self._merger is not None:
            states = self._merger.states(frame)
            if is_large:
                return self._writer.write_with_spark(number, self._merger.complete_on_spark(states, frame))
            rows = self._completed(self._merger, self._writer.arrow(states), frame)
            return self._writer.write_rows(number, self._writer.checked(rows))
        if plan.kind == "rebuild" or is_large or self.table.statistics().size > LARGE_BYTES:
            return self._writer.write_frame(number, frame, is_large)
        positions, old = all_rows(self.table)
        return replaced(self.table, number, positions, old, self._writer.rows(frame), self.spec.partition)

    def _write_merged(
        self, frame: DataFrame, number: int, old: Sequence[DataFile], merger: GroupMerger, files: FileReader
    ) -> WrittenFiles:
        new = self._writer.arrow(merger.states(frame))
        try:
            positions, states = merge_groups(self.table, old, merger, new)
        except OverflowError as error:
            raise self._writer.failed(error) from error
        rows = self._writer.checked(self._completed(merger, states, frame))
        return replaced(self.table, number, positions, None, rows, self.spec.partition)

    def _merge_with_spark(
        self, frame: DataFrame, number: int, old: Sequence[DataFile], merger: GroupMerger, files: FileReader
    ) -> WrittenFiles:
        """The same, but groups do not pass through the driver: files that may have some of them are written anew."""
        states = merger.states(frame)
        rows = merger.complete_on_spark(states, frame)
        if old:
            there = files.parquet(rows.schema, [self.table.path_of(file) for file in old])
            rows = merger.complete_on_spark(merger.merged_on_spark(states, there), frame)
        return replace(self._writer.write_with_spark(number, rows), replaced=old or None)

    def _completed(self, merger: GroupMerger, states: pa.Table, frame: DataFrame) -> pa.Table:
        try:
            return merger.complete(states, frame)
        except Exception as error:  # columns that Spark computes may be more than their states
            if is_too_large(error):
                raise self._writer.failed(error) from error
            raise

    def _files_of_groups(self, plan: DerivePlan) -> Sequence[DataFile]:
        """The files of the table that can hold groups of new rows."""
        block = self.mode.block
        if block is None:
            return self.table.files()
        (growing,) = (source.name for source in self.sources if not source.is_dimension)
        spans = join(
            (file.first // block * block, file.last // block * block + block - 1)
            for file in plan.files[growing]
            if file.first is not None and file.last is not None
        )
        labels = {label for span in spans for label in self.table.partitions_between(*span)}
        return self.table.files_in(sorted(labels))
