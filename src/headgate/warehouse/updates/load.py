"""Loading streams and dimensions from their sources: one commit for each update, bad rows to a table of their own.

Rows that do not parse, have no event time or one too far in the future go to ``<stream>__rejected`` with the reason:
every row of the source is in the table or in the table of rejected rows. The two tables cannot be committed together.
So rejected rows are written to files first, the commit of the table names these files, and then they are committed to
the table of rejected rows. If the process dies in between, the next update does it: the newest commit of the table
still names the files. If it dies before the first commit, nothing has happened.

A chunk of the source that cannot be read is left out and, after some tries, set aside: see ``bad_chunks``.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from headgate.core import DeclarationError, Update
from headgate.warehouse.declare.analysis import stored_columns
from headgate.warehouse.declare.spec import DimensionSpec, StreamSpec
from headgate.warehouse.session import tune
from headgate.warehouse.sources import Limit, Offset, Pending, Range, SourceBroken
from headgate.warehouse.sources.protocol import (
    FILE_COLUMN,
    HasContents,
    HasParts,
    MovingStart,
    ReadsArrow,
    ReadsOnExecutors,
)
from headgate.warehouse.storage.files import ALL, DATA_DIRECTORY, directory_of
from headgate.warehouse.storage.store import MOST_ENTRIES, TableStore
from headgate.warehouse.updates.bad_chunks import TRIES, BadChunks
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.good_rows import (
    REJECTED_SCHEMA,
    EventTimes,
    split_frame,
    split_rows,
    without_text_of_good_rows,
)
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.parts import Reached, reached_in_frame, reached_in_rows
from headgate.warehouse.updates.plan import MICROS
from headgate.warehouse.updates.spark_files import LARGE_BYTES, WrittenFiles, is_too_large, write_with_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader

#: after so many updates the whole offset is written again, so that a restart reads back that many commits at most
OFFSET_EVERY = 50
#: from so many bytes on, the file and the text of good rows are dropped by Spark: for less, the longer plan costs more
DROP_TEXT_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class LoadedNode(Node):
    """What streams and dimensions have in common: a source, and a table for rejected rows."""

    def __init__(self, spec: StreamSpec | DimensionSpec, store: TableStore, rejected: TableStore) -> None:
        self.table = spec.name
        self.store = store
        self._check_that_it_is_ours(spec.time if isinstance(spec, StreamSpec) else None)
        self.source = spec.source
        self._rejected = self.rejected = rejected
        #: the last update whose rejected rows are committed
        self._rejected_after = CommitState.from_json(rejected.state, self.table).update
        self._bad_chunks = BadChunks(spec.source)
        self._time = spec.time if isinstance(spec, StreamSpec) else None
        self._partition = spec.partition if isinstance(spec, StreamSpec) else None

    def _check_that_it_is_ours(self, time_column: str | None) -> None:
        """Raise if the table on disk was declared as something else: its rows must not mix with those of the source."""
        state = self.state
        if not state.update:
            return
        if state.sources:
            raise DeclarationError("it is declared with a source, but the table that is there was computed from others")
        if state.time is not None and state.time != time_column:
            raise DeclarationError(
                f"its event time is declared as {time_column!r}, but the table that is there goes by {state.time!r}"
            )

    @staticmethod
    def _loads(update: Update, wanted: Range | None) -> bool:
        """Make ``wanted`` what an update loads; False if that is nothing."""
        if wanted is None:
            return False
        update.plan = wanted
        update.arrived = (wanted.oldest, wanted.newest, wanted.chunks)
        return True

    def _write(
        self, spark: SparkSession, wanted: Range, number: int, times: EventTimes | None = None
    ) -> tuple[WrittenFiles, WrittenFiles]:
        """Write the rows of ``wanted``: the good ones, and the bad ones beside the table of rejected rows."""
        if not self.store.exists and self._rejected.exists:
            self._rejected.drop()  # of a table that was deleted; all of its rows are loaded again
            self._rejected_after = 0
        tune(spark, wanted.bytes)
        by_part = times is not None and bool(self._parts_left(wanted))
        if isinstance(self.source, ReadsOnExecutors) and self.source.is_spread(wanted):
            try:
                good, bad = self._written_by_spark(self.source.read(spark, wanted), number, times, by_part)
            finally:
                self.source.release()
            self.source.verify(wanted)
            return good, bad
        rows = self.source.read_arrow(spark, wanted) if isinstance(self.source, ReadsArrow) else None
        frame = self.source.read(spark, wanted) if rows is None else None
        if frame is not None and wanted.bytes <= LARGE_BYTES:
            small = wanted.bytes <= DROP_TEXT_BYTES
            try:
                rows = (frame if small else without_text_of_good_rows(frame, times, keeps_file=by_part)).toArrow()
            except Exception as error:
                if not is_too_large(error):  # as the rows of a compressed file may be
                    raise
        if rows is None:
            assert frame is not None
            good, bad = self._written_by_spark(frame, number, times, by_part)
        else:
            good_rows, bad_rows = split_rows(rows, times, keeps_file=by_part)
            reached: Mapping[str, int] = {}
            if by_part and times is not None:
                reached, good_rows = reached_in_rows(good_rows, times.column), good_rows.drop_columns(FILE_COLUMN)
            bad_files = self._rejected.write_arrow(number, bad_rows, None) if bad_rows.num_rows else []
            bad = WrittenFiles(bad_files, bad_rows.num_rows, bad_rows.schema)
            good_files = self.store.write_arrow(number, good_rows, self._partition)
            good = WrittenFiles(good_files, good_rows.num_rows, good_rows.schema, by_part=reached)
        self.source.verify(wanted)
        return good, bad

    def _written_by_spark(
        self, frame: DataFrame, number: int, times: EventTimes | None, by_part: bool
    ) -> tuple[WrittenFiles, WrittenFiles]:
        """As ``_write``, by executors: no row comes to the driver."""
        bad_frame, good_frame = split_frame(frame, times, keeps_file=by_part)
        bad = write_with_spark(bad_frame, self._rejected, number, None, None)
        reached: Mapping[str, int] = {}
        if by_part and times is not None:
            reached, good_frame = reached_in_frame(good_frame, times.column), good_frame.drop(FILE_COLUMN)
        good = write_with_spark(good_frame, self.store, number, self._time, self._partition)
        return dataclasses.replace(good, by_part=reached), bad

    def _parts_left(self, wanted: Range) -> Collection[str]:
        """The parts of the source of which more is waiting than ``wanted``."""
        return self.source.parts_left(wanted) if isinstance(self.source, HasParts) else ()

    def _commit(self, good: WrittenFiles, bad: WrittenFiles, state: CommitState, after: int | None = None) -> None:
        """Commit the table, then its rejected rows: added to those after update ``after``, or in place of all."""
        replace = after is None
        folders = sorted({directory_of(new.file.path) for new in bad.files})
        self._rejected.bring_to_disk(self._rejected.path_of(new.file) for new in bad.files)
        if folders or (replace and self._rejected.exists):
            state = dataclasses.replace(
                state, rejected_files={"update": state.update, "files": folders, "anew": replace}
            )
        replaced = ALL if replace else None
        stored = state.to_json()
        self.store.commit(state.update, good.files, replace=replaced, state=stored, schema=good.schema, after=after)
        try:
            self._commit_rejected()
        except Exception:
            _log.warning("the rejected rows of %s are committed later", self.table, exc_info=True)

    def _drop_rejected_of_lost_updates(self) -> None:
        """Remove the rejected rows of updates that the table has not: the end of its log was lost, or never written.

        What they have loaded is loaded again, and so are its rejected rows.
        """
        mine = self.state.update
        if not self.store.exists or self._rejected_after <= mine:
            return
        live = {file.path: file for file in self._rejected.files()}
        entries = self._rejected.versions(max(-1, self._rejected.version - MOST_ENTRIES))
        lost = [live[f.path] for entry in entries if (entry.update or 0) > mine for f in entry.added if f.path in live]
        if lost:
            number = self._rejected_after + 1
            state = CommitState(number, "note").to_json()
            self._rejected.commit(number, (), replace=lost, state=state, schema=REJECTED_SCHEMA)
            self._rejected_after = number

    def _owes_rejected(self) -> bool:
        """Whether the newest commit of the table names rejected rows that are not committed yet."""
        named = self.state.rejected_files
        return named is not None and self._rejected_after < int(named["update"])

    def _commit_rejected(self) -> None:
        """Commit the rejected rows that the newest commit of the table names, unless that is done already."""
        named = self.state.rejected_files
        if named is None or not self._owes_rejected():
            return
        number, data = int(named["update"]), self._rejected.directory / DATA_DIRECTORY
        if CommitState.from_json(self._rejected.state, self.table).update < number:
            files = [new for folder in named["files"] for new in self._rejected.adopt(data / str(folder))]
            state = CommitState(number, "load", rows=sum(new.file.rows for new in files)).to_json()
            replaced = ALL if named["anew"] and self._rejected.exists else None
            self._rejected.commit(number, files, replace=replaced, state=state, schema=REJECTED_SCHEMA)
        self._rejected_after = number


@dataclasses.dataclass(frozen=True, slots=True)
class LoadPlan:
    """What an update of a stream loads: ``range``, which comes after ``offset``, what update number ``after`` had left.

    Without a range, the update only writes the offset down, because where the stream begins would move. All three are
    of the same moment. If there is another commit before this update's own, perhaps of a process that ran the warehouse
    before, what it loads may be in the table already. So its commit is refused then.
    """

    range: Range | None
    offset: Offset
    after: int


class StreamNode(LoadedNode):
    """A stream: a table loaded from a source.

    ``period`` is declared, or learned from what comes while the stream is polled, whether that is loaded at once or has
    to wait. What was waiting at first tells nothing: files of a backlog may have been copied in a moment. It is None
    until it is known.

    Invariant: ``_known`` is what had been loaded after update number ``_known_after``, and ``_unwritten`` how many
    commits since the one that has the whole offset; None if there is none.
    """

    #: the weight of the latest arrivals when a period is learned, and the least seconds between the newest of two looks
    LEARNING, LEAST_LOOK = 0.3, 1.0
    #: so many commits are looked at to find since when tables have been waiting
    MOST_LOADS = 50

    def __init__(
        self, spec: StreamSpec, store: TableStore, rejected: TableStore, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(spec, store, rejected)
        self.spec = spec
        self._clock = clock
        self.period = spec.period
        self._last_arrival: float | None = None
        #: the last arrival of what another process has loaded last; what came before that may still be waiting
        self._arrived_before = None if self.state.range is None else Range.from_json(self.state.range).newest or None
        #: the newest arrival at the last look, and how many of the chunks seen then still wait, less those loaded since
        self._looked: tuple[float, int] | None = None
        #: the update that has begun does not load all that was waiting
        self._is_cut = False
        #: the last update left data that comes after what it loaded, whenever that arrived
        self._newer_is_left = False
        self._unwritten: int | None = None
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
                offset, self._unwritten = Offset.from_json(state.offset), len(ranges)
                break
            if state.range is not None:
                ranges.append(Range.from_json(state.range))
        else:
            offset, self._unwritten = self.source.start(), None
        for loaded in reversed(ranges):
            offset = self.source.advance(offset, loaded)
        return offset

    def loads_beyond(self, freshness: int | None) -> list[tuple[float, int]]:
        """When the data of the last commits arrived, and the event time that each reached, the oldest first.

        They go back to the one that reached ``freshness``, but not further than ``MOST_LOADS``.
        """
        loads: list[tuple[float, int]] = []
        for stored in self.store.states():  # newest first
            state = CommitState.from_json(stored, self.table)
            if state.range is None or state.freshness is None:
                continue
            if len(loads) == self.MOST_LOADS or (freshness is not None and state.freshness <= freshness):
                break
            loads.append((Range.from_json(state.range).oldest, state.freshness))
        return loads[::-1]

    def plan(self) -> Update | None:
        waiting = self.last_poll = self.source.latest(self.offset)
        if not waiting.chunks and not self._owes_rejected() and self._start_to_keep() is None:
            return None
        arrived = None
        if waiting.oldest is not None and waiting.newest is not None:
            arrived = (waiting.oldest, waiting.newest, waiting.chunks)
        gap = self._gap(waiting)
        update = self._planned(gap + self._gain(waiting), arrived)
        update.gap, update.size, update.unit = gap, float(waiting.bytes), "bytes"
        if waiting.newest is not None:  # last: after a gap, the period that is learned from it would make it shorter
            self._learn_period(waiting.newest, waiting.chunks)
        return update

    def _start_to_keep(self) -> Offset | None:
        """Where the stream begins, if that would be another place after a restart and is not written down yet."""
        if self.state.update or not isinstance(self.source, MovingStart):
            return None
        return self.source.fixed_start(self.offset)

    def note_death(self, update: Update, reason: str) -> None:
        """Spark died while it ran an update of this stream; called before ``end``.

        Its chunks are loaded one by one then, and one that Spark dies of again and again is set aside.
        """
        if update.plan is not None and update.plan.range is not None:
            self._bad_chunks.note_death(update.plan.range, reason)

    def go_on_from(self, before: StreamNode) -> None:
        """Take over what is known of bad chunks and of arrivals; ``before`` is this stream as it was opened before."""
        if self.source == before.source:
            self._bad_chunks = before._bad_chunks
            self._last_arrival, self._looked = before._last_arrival, before._looked
            self.period = self.spec.period or before.period

    def expect_period(self, period: float | None) -> None:
        """Go by the period that an earlier run has learned, until this one has."""
        self.period = self.period or period

    def _learn_period(self, newest: float, chunks: int) -> None:
        """Learn the period from the chunks that have come since the last look; ``chunks`` wait now."""
        if self.spec.period is not None:
            return
        if self._looked is not None:
            before, waited = self._looked
            came = chunks - waited
            if came == 0 or newest - before < self.LEAST_LOOK:
                return  # perhaps the last chunk grows, as those of a topic do
            if came > 0:
                seen = (newest - before) / came
                self.period = seen if self.period is None else self.period + self.LEARNING * (seen - self.period)
        self._looked = newest, chunks

    def _gain(self, waiting: Pending) -> float:
        """How much event time is waiting, after a gap: about as much as the time over which the data arrived.

        Event times themselves are not known before the data is read.
        """
        oldest, newest = waiting.oldest or 0.0, waiting.newest or 0.0
        if self._last_arrival is not None and not self._newer_is_left:
            if newest <= self._last_arrival:
                return 0.0  # older than what has been loaded already
            oldest = max(oldest, self._last_arrival)
        return max(newest - oldest, 0.0) + (self.period or 0.0)

    def _gap(self, waiting: Pending) -> float:
        """The time in which nothing came, from the last arrival that was loaded to the first that waits.

        It is 0 if some of what waits came before that arrival.
        """
        last = self._arrived_before if self._last_arrival is None else self._last_arrival
        if last is None or waiting.oldest is None:
            return 0.0
        return max(0.0, waiting.oldest - last - (self.period or 0.0))

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        limit = Limit(
            bytes=None if update.most == math.inf else round(update.most),
            seconds=None if most_seconds == math.inf else most_seconds,
            first=self.spec.catch_up,
        )
        waiting = update.arrived
        after = self.state.update  # before the offset: that of a later update would be refused, not loaded twice
        offset = self.offset
        wanted = self.source.next_range(offset, self._bad_chunks.limited(limit))
        if wanted is None:
            start = self._start_to_keep()
            update.plan, update.arrived = None if start is None else LoadPlan(None, start, after), None
            return start is not None or self._owes_rejected()
        wanted = self._bad_chunks.without_deadly(wanted)
        self._loads(update, wanted)
        update.plan = LoadPlan(wanted, offset, after)
        self._is_cut = (waiting is not None and wanted.chunks < waiting[2]) or bool(self._parts_left(wanted))
        if self._is_cut and self.spec.catch_up == "oldest" and update.size > 0:
            update.gained = update.gain_of(min(1.0, wanted.bytes / update.size))
        update.size = float(wanted.bytes)
        return True

    def _event_times(self) -> EventTimes:
        """What the update that begins now accepts."""
        ahead = self.spec.max_future
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
        self._drop_rejected_of_lost_updates()
        self._commit_rejected()  # left undone by a process that died, or by a commit that failed
        before = Reached(self.state.freshness, self.state.ahead)
        plan: LoadPlan | None = update.plan
        if plan is None:
            update.work, update.freshness = time.perf_counter() - started, before.freshness
            return
        number = max(plan.after, self._rejected_after) + 1
        if plan.range is None:
            self._write_start(plan, number, spark)
            update.work, update.freshness = time.perf_counter() - started, before.freshness
            return
        wanted, good, bad = self._written(spark, plan.range, number)
        update.work = time.perf_counter() - started
        reached = before.after(good.last, good.by_part, self._parts_left(wanted))
        after = self.source.advance(plan.offset, wanted)
        # The first commit has it, too: asked again, the source may have another one to start with.
        written = self._unwritten is None or self._unwritten + 1 >= OFFSET_EVERY
        state = CommitState(
            update=number,
            kind="load",
            freshness=reached.freshness,
            rows=good.rows,
            rejected=bad.rows,
            range=wanted.to_json(),
            offset=after.to_json() if written else None,
            time=self.spec.time,
            ahead=reached.ahead,
        )
        self._commit(good, bad, state, after=plan.after)
        self._known, self._known_after = after, number
        self._unwritten = 0 if written else (self._unwritten or 0) + 1
        update.rows, update.rejected, update.freshness = good.rows, bad.rows, state.freshness

    def _write_start(self, plan: LoadPlan, number: int, spark: SparkSession) -> None:
        """Commit where the stream begins, and no rows."""
        columns = stored_columns(spark.createDataFrame([], self.source.schema).schema)
        state = CommitState(update=number, kind="start", offset=plan.offset.to_json(), time=self.spec.time)
        self._commit(WrittenFiles([], 0, columns), WrittenFiles([], 0, REJECTED_SCHEMA), state, after=plan.after)
        self._known, self._known_after, self._unwritten = plan.offset, number, 0

    def _written(self, spark: SparkSession, wanted: Range, number: int) -> tuple[Range, WrittenFiles, WrittenFiles]:
        """Write the rows of ``wanted`` without the chunks that cannot be read: what it is then, and its files."""
        times = self._event_times()
        while True:
            try:
                return wanted, *self._write(spark, wanted, number, times)
            except Exception as error:
                wanted = self._bad_chunks.left_out(spark, wanted, error)

    def end(self, update: Update) -> None:
        if not update.committed or update.arrived is None:
            return
        self._bad_chunks.note_load()
        _, newest, chunks = update.arrived
        self._newer_is_left = self._is_cut and self.spec.catch_up == "oldest"
        self._last_arrival = max(newest, self._last_arrival or newest)
        if self._looked is not None:
            self._looked = self._looked[0], self._looked[1] - chunks


class DimensionNode(LoadedNode):
    """A table without event time, replaced as a whole when its source has changed.

    If a chunk cannot be read, the table stays as it was: without the rows of that chunk it would be wrong.
    """

    def __init__(self, spec: DimensionSpec, store: TableStore, rejected: TableStore) -> None:
        super().__init__(spec, store, rejected)
        #: contents that could not be loaded, how often that was tried, and why; not tried again until they change
        self._failed: tuple[Range, int, str] | None = None

    def plan(self) -> Update | None:
        wanted, self.last_poll = self._wanted()
        if wanted is None:
            return self._planned(0.0) if self._owes_rejected() else None
        return self._planned(0.0, (wanted.newest, wanted.newest, wanted.chunks))

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        wanted, _ = self._wanted()
        update.plan = None
        return self._loads(update, wanted) or self._owes_rejected()

    def _wanted(self) -> tuple[Range | None, Pending]:
        """All that the source has now, unless it is what was loaded last; None as long as it has nothing."""
        stored = self.state.range
        loaded = None if stored is None else Range.from_json(stored)
        if isinstance(self.source, HasContents):
            found, said = self.source.contents(loaded)
        else:
            found = self.source.next_range(self.source.start(), Limit())
            said = self.source.latest(self.source.start()) if found is None else Pending()
        if found is None or (loaded is not None and found.names_the_same_as(loaded)):
            return None, said
        if self._failed is not None and found.names_the_same_as(self._failed[0]):
            _, tries, reason = self._failed
            if tries >= TRIES:
                return None, dataclasses.replace(said, note=f"the table stays as it was: {reason}")
        return found, said

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        started = time.perf_counter()
        self._commit_rejected()
        wanted: Range | None = update.plan
        if wanted is None:
            update.work = time.perf_counter() - started
            return
        # Tables of rejected rows that an older version of Headgate wrote may be ahead.
        number = max(self.state.update, self._rejected_after) + 1
        try:
            good, bad = self._write(spark, wanted, number)
        except Exception as error:
            self._note_failure(wanted, error, self._bad_chunks.found(spark, wanted, error)[0])
            raise
        update.work = time.perf_counter() - started
        state = CommitState(update=number, kind="replace", rows=good.rows, rejected=bad.rows, range=wanted.to_json())
        self._commit(good, bad, state)
        update.rows, update.rejected = good.rows, bad.rows
        self._failed = None

    def _note_failure(self, wanted: Range, error: Exception, bad: Mapping[str, str]) -> None:
        if not bad:
            return
        name, reason = min(bad.items())
        tries = 0
        if self._failed is not None and wanted.names_the_same_as(self._failed[0]):
            tries = self._failed[1]
        tries = TRIES if isinstance(error, SourceBroken) else tries + 1
        self._failed = (wanted, tries, f"{name} cannot be loaded: {reason}")
