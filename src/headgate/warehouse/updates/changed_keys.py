"""Computing a table again for the keys of changed rows only.

First the keys of the rows that have changed are collected. Then the user's query runs over the rows of its sources that
have these keys, and what it gives replaces the table's rows with these keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.warehouse.declare.keys import TableKeys, time_keys
from headgate.warehouse.declare.plan_tree import quoted
from headgate.warehouse.storage import HIDDEN_PREFIX
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.updates.derive_plan import DerivePlan, SourceTable, is_among, read_source, up_to_edge
from headgate.warehouse.updates.key_lookup import look_up
from headgate.warehouse.updates.replaced_rows import replaced, rows_with_keys
from headgate.warehouse.updates.spans import Span, join
from headgate.warehouse.updates.spark_files import FileReader, WrittenFiles
from headgate.warehouse.updates.table_writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


class KeyedTable:
    """Computes one table again for some of its keys."""

    def __init__(self, keys: TableKeys, sources: Sequence[SourceTable], writer: TableWriter) -> None:
        self._keys = keys
        self._sources = sources
        self._writer = writer

    def affected(self, spark: SparkSession, plan: DerivePlan, files: FileReader) -> pa.Table:
        """The keys of the rows that have changed, or have come to lie before the trailing edge; each once."""
        found: list[DataFrame] = []
        for source in self._sources:
            if source.name in plan.changed:
                changed = _changed_rows(spark, source, plan, files)
                found += [_keys_of(rows, self._keys, source.name) for rows in changed]
        if not found:
            return pa.table({})
        return self._writer.arrow(reduce(lambda one, other: one.unionAll(other), found).distinct())

    def with_files_of(self, affected: pa.Table, plan: DerivePlan) -> DerivePlan:
        """``plan`` without the files that have no rows with the affected keys, as far as event time tells."""
        chosen = {source.name: self._files_with(affected, source, plan) for source in self._sources}
        return replace(plan, files=chosen)

    def frames(
        self, affected: pa.Table, spark: SparkSession, plan: DerivePlan, files: FileReader
    ) -> Mapping[str, DataFrame]:
        """The sources' rows that have one of the affected keys; all rows of sources without keys."""
        wanted = spark.createDataFrame(affected)
        frames = {source.name: up_to_edge(spark, source, plan, files) for source in self._sources}
        return {
            name: _only_with(frame, self._keys, name, wanted) if name in self._keys.origins else frame
            for name, frame in frames.items()
        }

    def _files_with(self, affected: pa.Table, source: SourceTable, plan: DerivePlan) -> Sequence[DataFile]:
        there = plan.files[source.name]
        if source.time is None or source.name not in self._keys.origins:
            return there
        spans = _spans_of(affected, self._keys, source.name, source.time)
        if spans is None:
            return there
        ends = [last for _, last in spans]

        def may_have(file: DataFile) -> bool:
            if file.first is None or file.last is None:
                return True
            place = bisect_left(ends, file.first)  # the first span that does not end before the file begins
            return place < len(spans) and spans[place][0] <= file.last

        return [file for file in there if may_have(file)]

    def write(self, frame: DataFrame, number: int, affected: pa.Table) -> WrittenFiles:
        """Compute the rows of the affected keys, and let them replace those in the table."""
        rows = self._writer.rows(frame)
        # Sources without keys were read whole, so there may be rows of other keys.
        rows = rows.filter(pa.array(look_up(affected, rows.select(self._keys.columns)) >= 0))
        table = self._writer.table
        positions, old = rows_with_keys(table, self._own_files_with(affected), self._keys.columns, affected)
        return replaced(table, number, positions, old, rows, self._writer.spec.partition)

    def write_with_spark(self, frame: DataFrame, number: int, affected: pa.Table, files: FileReader) -> WrittenFiles:
        """The same, but the rows do not pass through the driver: files that may have such keys are written anew."""
        old = self._own_files_with(affected)
        keys = frame.sparkSession.createDataFrame(affected)
        rows = _with_keys(frame, self._keys.columns, keys, "left_semi")
        if old:
            there = files.parquet(frame.schema, [self._writer.table.path_of(file) for file in old])
            rows = rows.unionAll(_with_keys(there, self._keys.columns, keys, "left_anti"))
        return replace(self._writer.write_with_spark(number, rows), replaced=old)

    def _own_files_with(self, affected: pa.Table) -> Sequence[DataFile]:
        """The files of the table that may have rows with the affected keys."""
        table, columns, time = self._writer.table, self._keys.columns, self._writer.spec.time
        bounds = _bounds_of(affected.column(columns.index(time))) if time in columns else None
        return table.files() if bounds is None else table.files_in(table.partitions_between(*bounds))


def _changed_rows(spark: SparkSession, source: SourceTable, plan: DerivePlan, files: FileReader) -> list[DataFrame]:
    from pyspark.sql import functions as F

    parts = plan.changed[source.name]
    added, removed = (read_source(spark, source, part, files) for part in parts)
    if source.time is None and parts[1] and not _has_maps(source.schema):
        # Such a table is often written anew as a whole, with few changes.
        return [added.exceptAll(removed), removed.exceptAll(added)]
    changed = [rows for rows, part in zip((added, removed), parts, strict=True) if part]
    if source.time is not None and plan.several_sources:
        micros = F.unix_micros(F.col(quoted(source.time)))
        changed = [rows.where(micros <= F.lit(Decimal(plan.edge))) for rows in changed]
        assert plan.edge_before is not None
        between = (plan.edge_before + 1, plan.edge)
        # Of the files as planned: those that the source has now may belong to a later version.
        reached = [file for file in plan.files[source.name] if _overlaps(file, between)]
        if reached:
            rows = read_source(spark, source, reached, files)
            changed.append(rows.where(is_among(micros, [between])))
    return changed


def _overlaps(file: DataFile, span: Span) -> bool:
    """Whether a file may have rows with event times in ``span``, which may be empty."""
    if file.first is None or file.last is None:
        return span[0] <= span[1]
    return max(file.first, span[0]) <= min(file.last, span[1])


def _has_maps(schema: StructType) -> bool:
    """Whether there are values in it that Spark does not compare with each other."""
    text = schema.simpleString()
    return "map<" in text or "variant" in text


def _keys_of(rows: DataFrame, keys: TableKeys, source: str) -> DataFrame:
    """The keys of a source's rows, once for each way in which the query uses the source."""
    from pyspark.sql import functions as F

    frames = [
        rows.select(*(F.expr(sql).alias(_name(i)) for i, sql in enumerate(origin))) for origin in keys.origins[source]
    ]
    return reduce(lambda one, other: one.unionAll(other), frames)


def _only_with(frame: DataFrame, keys: TableKeys, source: str, affected: DataFrame) -> DataFrame:
    """The rows of a source whose keys are among ``affected``."""
    from pyspark.sql import functions as F

    def equal(origin: Sequence[str], prefix: str) -> Column:
        parts = [F.expr(sql).eqNullSafe(F.col(f"{prefix}{_name(i)}")) for i, sql in enumerate(origin)]
        return reduce(lambda one, other: one & other, parts)

    origins = keys.origins[source]
    if len(origins) == 1:
        return frame.join(F.broadcast(affected), equal(origins[0], ""), "left_semi")
    columns = frame.columns
    for use, origin in enumerate(origins):
        prefix = f"{HIDDEN_PREFIX}u{use}"
        named = affected.withColumnsRenamed({name: f"{prefix}{name}" for name in affected.columns})
        frame = frame.join(F.broadcast(named.withColumn(f"{prefix}in", F.lit(True))), equal(origin, prefix), "left")
    flags = [F.coalesce(F.col(f"{HIDDEN_PREFIX}u{use}in"), F.lit(False)) for use in range(len(origins))]
    return frame.where(reduce(lambda one, other: one | other, flags)).select(*(F.col(quoted(name)) for name in columns))


def _with_keys(rows: DataFrame, columns: Sequence[str], affected: DataFrame, how: str) -> DataFrame:
    """The rows of the table whose keys are among ``affected`` (``left_semi``), or are not (``left_anti``)."""
    from pyspark.sql import functions as F

    equal = [F.col(quoted(column)).eqNullSafe(F.col(_name(i))) for i, column in enumerate(columns)]
    return rows.join(affected, reduce(lambda one, other: one & other, equal), how)


def _spans_of(affected: pa.Table, keys: TableKeys, source: str, time: str) -> tuple[Span, ...] | None:
    """The event times of a source's rows that can have the ``affected`` keys; None if the keys do not tell."""
    spans: list[Span] = []
    for key, longest in time_keys(keys, source, time):
        times = None if key is None else affected.column(key)
        if times is None or times.null_count or not pa.types.is_timestamp(times.type):
            return None
        starts = pc.unique(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
        spans += [(start, start + longest) for start in starts.to_pylist()]
    return join(spans)


def _bounds_of(times: pa.ChunkedArray) -> Span | None:
    """The first and the last of some times, in microseconds; None if there are none, or nulls among them."""
    if times.null_count or not len(times) or not pa.types.is_timestamp(times.type):
        return None
    bounds = pc.min_max(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _name(key: int) -> str:
    return f"{HIDDEN_PREFIX}k{key}"
