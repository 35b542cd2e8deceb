"""Loading streams and dimensions from their sources: one commit for each update, bad rows to a table of their own.

Rows that do not parse, have no event time or one too far in the future go to ``<stream>__rejected`` with the reason:
every row of the source is in the table or in the table of rejected rows. The two tables cannot be committed together.
So the rejected rows are committed first, with the range that they came from and the latest event time that was still
accepted. If the process dies in between, the next update finds the table of rejected rows ahead, loads exactly that
range again, rejects the same rows and commits the good ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import Update
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.declare.spec import DimensionSpec, StreamSpec
from headgate.warehouse.session import tune
from headgate.warehouse.sources import Limit, Offset, Pending, Range
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.plan import MICROS
from headgate.warehouse.updates.spark_files import LARGE_BYTES, WrittenFiles, write_with_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader

#: every so many updates the whole offset is written, so that a restart reads back that many commits at most
OFFSET_EVERY = 50
#: from so many bytes on, the file and the text of good rows are dropped by Spark: for less, the longer plan costs more
DROP_TEXT_BYTES = 1 << 20
NO_TIME = "it has no event time"


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Which event times of a stream are accepted: those in ``column`` up to ``latest``, in microseconds.

    ``latest`` is ``max_future`` seconds from when the rows are loaded; both are None if there is no limit.
    """

    column: str
    latest: int | None = None
    max_future: float | None = None

    @property
    def reason(self) -> str:
        """Why a row beyond ``latest`` is rejected."""
        return f"its event time is more than {readable(self.max_future or 0.0)} in the future"


class LoadedNode(Node):
    """What streams and dimensions have in common: a source, and a table for rejected rows."""

    def __init__(self, spec: StreamSpec | DimensionSpec, store: TableStore, rejected: TableStore) -> None:
        self.table = spec.name
        self.store = store
        self.source = spec.source
        self._rejected = self.rejected = rejected
        self._time = spec.time if isinstance(spec, StreamSpec) else None
        self._partition = spec.partition if isinstance(spec, StreamSpec) else None

    @staticmethod
    def _loads(update: Update, wanted: Range | None) -> bool:
        """Make ``wanted`` what an update loads; False if that is nothing."""
        if wanted is None:
            return False
        update.plan = wanted
        update.arrived = (wanted.oldest, wanted.newest, wanted.chunks)
        return True

    def _write(
        self, spark: SparkSession, wanted: Range, number: int, replace: bool, times: EventTimes | None = None
    ) -> tuple[WrittenFiles, int]:
        """Write the good rows of ``wanted`` and commit the bad ones; the files, and how many rows were bad."""
        if not self.store.exists and self._rejected.exists:
            self._rejected.drop()  # of a table that was deleted; all of its rows are loaded again
        tune(spark, wanted.bytes)
        frame = self.source.read(spark, wanted)
        if wanted.bytes > LARGE_BYTES:
            bad_frame, good_frame = split_frame(frame, times)
            bad = write_with_spark(bad_frame, self._rejected, number, None, None)
            good = write_with_spark(good_frame, self.store, number, self._time, self._partition)
        else:
            if wanted.bytes > DROP_TEXT_BYTES:
                frame = without_text_of_good_rows(frame, times)
            good_rows, bad_rows = split_rows(frame.toArrow(), times)
            bad_files = self._rejected.write_arrow(number, bad_rows, None) if bad_rows.num_rows else []
            bad = WrittenFiles(bad_files, bad_rows.num_rows, bad_rows.schema)
            good_files = self.store.write_arrow(number, good_rows, self._partition)
            good = WrittenFiles(good_files, good_rows.num_rows, good_rows.schema)
        self.source.verify(wanted)
        known = CommitState.from_json(self._rejected.state).update
        if known < number and (bad.rows or (replace and known)):
            latest = None if times is None else times.latest
            state = CommitState(update=number, kind="load", rows=bad.rows, range=wanted.to_json(), latest=latest)
            replaced = ALL if replace else None
            self._rejected.commit(number, bad.files, replace=replaced, state=state.to_json(), schema=bad.schema)
        return good, bad.rows


class StreamNode(LoadedNode):
    """A stream: a table loaded from a source. ``period`` is declared, or learned; None before there were two arrivals.

    Invariant: ``_known`` is what had been loaded after update number ``_known_after``.
    """

    #: the weight of the latest arrivals when a period is learned
    LEARNING = 0.3

    def __init__(
        self, spec: StreamSpec, store: TableStore, rejected: TableStore, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(spec, store, rejected)
        self.spec = spec
        self._clock = clock
        self.period = spec.period
        self._last_arrival: float | None = None
        #: the update that has begun does not load all that was waiting
        self._is_cut = False
        #: the last update left data that comes after what it loaded, whenever that arrived
        self._newer_is_left = False
        self._known = self._stored_offset()
        self._known_after = self.state.update

    @property
    def offset(self) -> Offset:
        """What has been loaded, by the table's commits; right even after a commit that seemed to have failed."""
        number = self.state.update
        if number != self._known_after:
            self._known, self._known_after = self._stored_offset(), number
        return self._known

    def _stored_offset(self) -> Offset:
        """The offset that the commits of the table add up to."""
        ranges: list[Range] = []
        for stored in self.store.states():  # newest first
            state = CommitState.from_json(stored, self.table)
            if state.offset is not None:
                offset = Offset.from_json(state.offset)
                break
            if state.range is not None:
                ranges.append(Range.from_json(state.range))
        else:
            offset = self.source.start()
        for loaded in reversed(ranges):
            offset = self.source.advance(offset, loaded)
        return offset

    def plan(self) -> Update | None:
        waiting = self.last_poll = self.source.latest(self.offset)
        if not waiting.chunks:
            return None
        arrived = None
        if waiting.oldest is not None and waiting.newest is not None:
            arrived = (waiting.oldest, waiting.newest, waiting.chunks)
        update = self._planned(self._gain(waiting), arrived)
        update.size, update.unit = float(waiting.bytes), "bytes"
        return update

    def _gain(self, waiting: Pending) -> float:
        """How much event time is waiting: about as much as the time over which the data arrived.

        Event times themselves are not known before the data is read.
        """
        oldest, newest = waiting.oldest or 0.0, waiting.newest or 0.0
        if self._last_arrival is not None and not self._newer_is_left:
            if newest <= self._last_arrival:
                return 0.0  # older than what has been loaded already
            oldest = max(oldest, self._last_arrival)
        return max(newest - oldest, 0.0) + (self.period or 0.0)

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        limit = Limit(
            bytes=None if update.most == math.inf else round(update.most),
            seconds=None if most_seconds == math.inf else most_seconds,
            first=self.spec.catch_up,
        )
        waiting = update.arrived
        wanted = self._interrupted() or self.source.next_range(self.offset, limit)
        if wanted is None or not self._loads(update, wanted):
            return False
        self._is_cut = waiting is not None and wanted.chunks < waiting[2]
        if self._is_cut and self.spec.catch_up == "oldest" and update.size > 0:
            update.gained *= min(1.0, wanted.bytes / update.size)
        update.size = float(wanted.bytes)
        return True

    def _interrupted(self) -> Range | None:
        """The range whose rejected rows are committed, but not its good ones."""
        rejected = CommitState.from_json(self._rejected.state, self.table)
        # Further ahead, the table was put back from a copy, and continues from what that has loaded.
        is_ahead = self.store.exists and rejected.update == self.state.update + 1
        return Range.from_json(rejected.range) if is_ahead else None

    def _event_times(self) -> EventTimes:
        """What the update that begins now accepts; after an interrupted load, what that one did."""
        rejected = CommitState.from_json(self._rejected.state, self.table)
        ahead = self.spec.max_future
        if rejected.update > self.state.update:
            return EventTimes(self.spec.time, rejected.latest, ahead)
        latest = None if ahead is None else round((self._clock() + ahead) * MICROS)
        return EventTimes(self.spec.time, latest, ahead)

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        started = time.perf_counter()
        wanted: Range = update.plan
        before = self.state
        number = before.update + 1
        good, update.rejected = self._write(spark, wanted, number, replace=False, times=self._event_times())
        update.work = time.perf_counter() - started
        known = [moment for moment in (before.freshness, good.last) if moment is not None]
        after = self.source.advance(self.offset, wanted)
        state = CommitState(
            update=number,
            kind="load",
            freshness=max(known, default=None),
            rows=good.rows,
            rejected=update.rejected,
            range=wanted.to_json(),
            offset=after.to_json() if number % OFFSET_EVERY == 1 else None,
            time=self.spec.time,
        )
        self.store.commit(number, good.files, replace=None, state=state.to_json(), schema=good.schema)
        self._known, self._known_after = after, number
        update.rows, update.freshness = good.rows, state.freshness

    def end(self, update: Update) -> None:
        if not update.committed or update.arrived is None:
            return
        _, newest, chunks = update.arrived
        catches_up = self._is_cut or self._newer_is_left
        self._newer_is_left = self._is_cut and self.spec.catch_up == "oldest"
        before, self._last_arrival = self._last_arrival, max(newest, self._last_arrival or newest)
        # Files of a backlog may have been copied in a moment, which tells nothing about how often data comes.
        if self.spec.period is None and before is not None and newest > before and not catches_up:
            seen = (newest - before) / chunks
            self.period = seen if self.period is None else self.period + self.LEARNING * (seen - self.period)


class DimensionNode(LoadedNode):
    """A table without event time, replaced as a whole when its source has changed."""

    def plan(self) -> Update | None:
        # All files are compared, because one may be replaced by another of the same name.
        found = self.source.next_range(self.source.start(), Limit())
        self.last_poll = self.source.latest(self.source.start()) if found is None else Pending()
        wanted = self._unless_loaded(found)
        return None if wanted is None else self._planned(0.0, (wanted.newest, wanted.newest, wanted.chunks))

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        return self._loads(update, self._unless_loaded(self.source.next_range(self.source.start(), Limit())))

    def _unless_loaded(self, wanted: Range | None) -> Range | None:
        """All that the source has now, unless it is what was loaded last; None as long as it has nothing."""
        loaded = self.state.range
        if wanted is None or (loaded is not None and wanted.names_the_same_as(Range.from_json(loaded))):
            return None
        return wanted

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        started = time.perf_counter()
        wanted: Range = update.plan
        # After an interrupted load the table of rejected rows is ahead; this update replaces what it holds.
        number = max(self.state.update, CommitState.from_json(self._rejected.state).update) + 1
        good, update.rejected = self._write(spark, wanted, number, replace=True)
        update.work = time.perf_counter() - started
        state = CommitState(
            update=number, kind="replace", rows=good.rows, rejected=update.rejected, range=wanted.to_json()
        ).to_json()
        self.store.commit(number, good.files, replace=ALL, state=state, schema=good.schema)
        update.rows = good.rows


# --- good rows and bad ones -------------------------------------------------------------------------------------


def _reason(times: EventTimes | None) -> Column:
    """Why a row is bad; null for a good one."""
    from pyspark.sql import functions as F

    reason = F.col(ERROR_COLUMN)
    if times is None:
        return reason
    reason = F.coalesce(reason, F.when(F.col(times.column).isNull(), F.lit(NO_TIME)))
    if times.latest is None:
        return reason
    # A decimal, because the limit changes with every update: see ``headgate.warehouse.updates.derive_plan``.
    too_late = F.unix_micros(F.col(times.column)) > F.lit(Decimal(times.latest))
    return F.coalesce(reason, F.when(too_late, F.lit(times.reason)))


def without_text_of_good_rows(rows: DataFrame, times: EventTimes | None) -> DataFrame:
    """Without the file and the raw text of good rows, which nobody reads and which are most of a row's bytes."""
    from pyspark.sql import functions as F

    bad = _reason(times).isNotNull()
    return rows.withColumns({name: F.when(bad, F.col(name)) for name in (FILE_COLUMN, RAW_COLUMN)})


def split_frame(rows: DataFrame, times: EventTimes | None) -> tuple[DataFrame, DataFrame]:
    """As ``split_rows``, inside Spark: (bad, good)."""
    from pyspark.sql import functions as F

    reason = _reason(times)
    bad = rows.where(reason.isNotNull()).select(
        reason.alias("reason"), F.col(FILE_COLUMN).alias("file"), F.col(RAW_COLUMN).alias("raw")
    )
    return bad, rows.where(reason.isNull()).drop(FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)


def split_rows(rows: pa.Table, times: EventTimes | None) -> tuple[pa.Table, pa.Table]:
    """(good rows with the declared columns, bad rows with reason, file and raw text), of rows read from a source."""
    reason = rows.column(ERROR_COLUMN)
    if times is not None:
        moments = pc.cast(rows.column(times.column), pa.int64())
        reason = pc.if_else(pc.and_(pc.is_null(reason), pc.is_null(moments)), NO_TIME, reason)
        if times.latest is not None:
            too_late = pc.fill_null(pc.greater(moments, times.latest), False)
            reason = pc.if_else(pc.and_(pc.is_null(reason), too_late), times.reason, reason)
    is_good = pc.is_null(reason)
    columns = [name for name in rows.column_names if name not in (FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)]
    bad_rows = rows.filter(pc.invert(is_good))
    bad = pa.table(
        {
            "reason": reason.filter(pc.invert(is_good)),
            "file": bad_rows.column(FILE_COLUMN),
            "raw": bad_rows.column(RAW_COLUMN),
        }
    )
    return rows.filter(is_good).select(columns), bad
