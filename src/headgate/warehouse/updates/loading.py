"""One update of a base table or of a dimension: read a range of the source, set bad rows aside, commit.

Rows that do not parse or have no event time go to ``<stream>__rejected`` with the reason, so that rows in = rows in the
table + rows rejected. The two tables cannot be committed together, so the rejected rows are committed first, with the
range they came from: if the process dies in between, the next update finds that the rejected table is ahead, takes
exactly that range again and commits the rest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.warehouse.declare.spec import DimensionSpec, StreamSpec
from headgate.warehouse.run.session import suit
from headgate.warehouse.sources import Limit, Offset, Range
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.state import UpdateState
from headgate.warehouse.updates.writing import LARGE_BYTES, Written, write_with_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: every so many updates the whole offset is written, so that a restart reads back that many commits at most
OFFSET_EVERY = 50
#: what is read is worth being made lighter when it is more than this: the longer plan costs some milliseconds
BULKY_BYTES = 1 << 20
NO_TIME = "it has no event time"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one update did. ``work`` are the seconds in which data was read and written."""

    update: int
    version: int
    rows: int
    rejected: int
    freshness: int | None
    span: tuple[int, int] | None
    work: float


class Loader:
    """What loading a stream and loading a dimension have in common. Used by one thread at a time."""

    def __init__(self, spec: StreamSpec | DimensionSpec, table: TableStore, rejected: TableStore) -> None:
        self.spec = spec
        self.table = table
        self.rejected = rejected
        self._time = spec.time if isinstance(spec, StreamSpec) else None
        self._partition = spec.partition if isinstance(spec, StreamSpec) else None

    @property
    def state(self) -> UpdateState:
        """What the newest commit of the table says."""
        return UpdateState.from_json(self.table.state, self.spec.name)

    def interrupted(self) -> Range | None:
        """The range whose rejected rows are committed, but not its good ones."""
        rejected = UpdateState.from_json(self.rejected.state, self.spec.name)
        return Range.from_json(rejected.range) if rejected.update > self.state.update else None

    def _written(self, spark: SparkSession, wanted: Range, update: int, replace_rejected: bool) -> tuple[Written, int]:
        """Read ``wanted``, write its good rows and commit its bad ones; the good ones, and how many were bad."""
        suit(spark, wanted.bytes)
        frame = self.spec.source.read(spark, wanted)
        if wanted.bytes > LARGE_BYTES:
            bad_frame, good_frame = split_frame(frame, self._time)
            bad = write_with_spark(bad_frame, self.rejected, update, None, None)
            good = write_with_spark(good_frame, self.table, update, self._time, self._partition)
        else:
            if wanted.bytes > BULKY_BYTES:
                frame = lightened(frame, self._time)
            good_rows, bad_rows = split(frame.toArrow(), self._time)
            bad_files = self.rejected.write_arrow(update, bad_rows, None) if bad_rows.num_rows else []
            bad = Written(bad_files, bad_rows.num_rows, bad_rows.schema)
            good_files = self.table.write_arrow(update, good_rows, self._partition)
            good = Written(good_files, good_rows.num_rows, good_rows.schema)
        self.spec.source.verify(wanted)
        known = UpdateState.from_json(self.rejected.state).update
        if known < update and (bad.rows or (replace_rejected and known)):
            state = UpdateState(update=update, kind="load", rows=bad.rows, range=wanted.to_json())
            replaced = ALL if replace_rejected else None
            self.rejected.commit(update, bad.files, replace=replaced, state=state.to_json(), schema=bad.schema)
        return good, bad.rows


class StreamLoader(Loader):
    """Loads one stream.

    Invariant: ``_known`` is what had been loaded after update number ``_known_after``.
    """

    spec: StreamSpec

    def __init__(self, spec: StreamSpec, table: TableStore, rejected: TableStore) -> None:
        super().__init__(spec, table, rejected)
        self._known = self._stored_offset()
        self._known_after = self.state.update

    @property
    def offset(self) -> Offset:
        """What the table's commits say has been loaded, also if one was made whose answer was lost."""
        update = self.state.update
        if update != self._known_after:
            self._known, self._known_after = self._stored_offset(), update
        return self._known

    def next_range(self, limit: Limit) -> Range | None:
        """What the next update loads: what an interrupted one had begun with, or else what is new."""
        return self.interrupted() or self.spec.source.next_range(self.offset, limit)

    def load(self, spark: SparkSession, wanted: Range) -> Loaded:
        """Load ``wanted`` and commit it."""
        started = time.perf_counter()
        before = self.state
        update = before.update + 1
        good, rejected = self._written(spark, wanted, update, replace_rejected=False)
        work = time.perf_counter() - started
        span = (good.spans[0][0], good.spans[-1][1]) if good.spans else None
        known = [moment for moment in (before.freshness, span and span[1]) if moment is not None]
        after = self.spec.source.advance(self.offset, wanted)
        state = UpdateState(
            update=update,
            kind="load",
            freshness=max(known, default=None),
            rows=good.rows,
            rejected=rejected,
            range=wanted.to_json(),
            offset=after.to_json() if update % OFFSET_EVERY == 1 else None,
            time=self.spec.time,
        )
        version = self.table.commit(update, good.files, replace=None, state=state.to_json(), schema=good.schema)
        self._known, self._known_after = after, update
        return Loaded(update, version, good.rows, rejected, state.freshness, span, work)

    def _stored_offset(self) -> Offset:
        """The offset that the commits of the table add up to."""
        ranges: list[Range] = []
        for stored in self.table.states():  # newest first
            state = UpdateState.from_json(stored, self.spec.name)
            if state.offset is not None:
                offset = Offset.from_json(state.offset)
                break
            if state.range is not None:
                ranges.append(Range.from_json(state.range))
        else:
            offset = self.spec.source.start()
        for loaded in reversed(ranges):
            offset = self.spec.source.advance(offset, loaded)
        return offset


class DimensionLoader(Loader):
    """Loads one dimension: always everything that its source has."""

    spec: DimensionSpec

    def everything(self) -> Range | None:
        """All that the source has now; None as long as it has nothing."""
        return self.spec.source.next_range(self.spec.source.start(), Limit())

    def is_loaded(self, wanted: Range) -> bool:
        loaded = self.state.range
        return loaded is not None and wanted.names_the_same_as(Range.from_json(loaded))

    def load(self, spark: SparkSession, wanted: Range) -> Loaded:
        """Replace the table, and what was rejected, by the rows of ``wanted``."""
        started = time.perf_counter()
        # The rejected table may be ahead of a load that was interrupted; this one replaces what that left.
        update = max(self.state.update, UpdateState.from_json(self.rejected.state).update) + 1
        good, rejected = self._written(spark, wanted, update, replace_rejected=True)
        work = time.perf_counter() - started
        state = UpdateState(
            update=update, kind="replace", rows=good.rows, rejected=rejected, range=wanted.to_json()
        ).to_json()
        version = self.table.commit(update, good.files, replace=ALL, state=state, schema=good.schema)
        return Loaded(update, version, good.rows, rejected, None, None, work)


def lightened(rows: DataFrame, time: str | None) -> DataFrame:
    """Without file and text of rows that are good: nobody asks for them, and they are mostly larger than the rest."""
    from pyspark.sql import functions as F

    bad = F.col(ERROR_COLUMN).isNotNull()
    if time is not None:
        bad = bad | F.col(time).isNull()
    return rows.withColumns({name: F.when(bad, F.col(name)) for name in (FILE_COLUMN, RAW_COLUMN)})


def split_frame(rows: DataFrame, time: str | None) -> tuple[DataFrame, DataFrame]:
    """As ``split``, inside Spark: (bad, good)."""
    from pyspark.sql import functions as F

    reason = F.col(ERROR_COLUMN)
    if time is not None:
        reason = F.coalesce(reason, F.when(F.col(time).isNull(), F.lit(NO_TIME)))
    bad = rows.where(reason.isNotNull()).select(
        reason.alias("reason"), F.col(FILE_COLUMN).alias("file"), F.col(RAW_COLUMN).alias("raw")
    )
    return bad, rows.where(reason.isNull()).drop(FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)


def split(rows: pa.Table, time: str | None) -> tuple[pa.Table, pa.Table]:
    """Rows as read from a source, as (good ones with the declared columns, bad ones with reason, file and raw text)."""
    reason = rows.column(ERROR_COLUMN)
    if time is not None:
        reason = pc.if_else(pc.and_(pc.is_null(reason), pc.is_null(rows.column(time))), NO_TIME, reason)
    is_good = pc.is_null(reason)
    columns = [name for name in rows.column_names if name not in (FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)]
    set_aside = rows.filter(pc.invert(is_good))
    bad = pa.table(
        {
            "reason": reason.filter(pc.invert(is_good)),
            "file": set_aside.column(FILE_COLUMN),
            "raw": set_aside.column(RAW_COLUMN),
        }
    )
    return rows.filter(is_good).select(columns), bad
