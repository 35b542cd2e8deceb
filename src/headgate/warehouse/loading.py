"""One update of a base table: read a range of the source, set bad rows aside, commit.

Rows that do not parse or have no event time go to ``<stream>__rejected`` with the reason, so that rows in = rows in the
table + rows rejected. The two tables cannot be committed together, so the rejected rows are committed first, with the
range they came from: if the process dies in between, the next update finds that the rejected table is ahead, takes
exactly that range again and commits the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.warehouse.sources import Limit, Offset, Range
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.spec import StreamSpec
from headgate.warehouse.state import UpdateState
from headgate.warehouse.storage.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: every so many updates the whole offset is written, so that a restart reads back that many commits at most
OFFSET_EVERY = 50
NO_TIME = "it has no event time"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one update of a base table did."""

    update: int
    version: int
    rows: int
    rejected: int
    freshness: int | None
    span: tuple[int, int] | None


class StreamLoader:
    """Loads one stream. Used by one thread at a time.

    Invariant: ``offset`` is what the table's commits say has been loaded.
    """

    def __init__(self, spec: StreamSpec, table: TableStore, rejected: TableStore) -> None:
        self.spec = spec
        self.table = table
        self.rejected = rejected
        self.offset = self._stored_offset()

    @property
    def state(self) -> UpdateState:
        """What the newest commit of the table says."""
        return UpdateState.from_json(self.table.state, self.spec.name)

    def next_range(self, limit: Limit) -> Range | None:
        """What the next update loads: what an interrupted one had begun with, or else what is new."""
        rejected = UpdateState.from_json(self.rejected.state, self.spec.name)
        if rejected.update > self.state.update:
            return Range.from_json(rejected.range)
        return self.spec.source.next_range(self.offset, limit)

    def load(self, spark: SparkSession, wanted: Range) -> Loaded:
        """Load ``wanted`` and commit it."""
        rows: pa.Table = self.spec.source.read(spark, wanted).toArrow()
        self.spec.source.verify(wanted)
        good, bad = split(rows, self.spec.time)
        before = self.state
        update = before.update + 1
        if bad.num_rows and UpdateState.from_json(self.rejected.state).update < update:
            self._commit_rejected(update, bad, wanted)
        span = time_span(good, self.spec.time)
        known = [time for time in (before.freshness, span and span[1]) if time is not None]
        after = self.spec.source.advance(self.offset, wanted)
        state = UpdateState(
            update=update,
            kind="load",
            freshness=max(known, default=None),
            rows=good.num_rows,
            rejected=bad.num_rows,
            range=wanted.to_json(),
            offset=after.to_json() if update % OFFSET_EVERY == 1 else None,
            time=self.spec.time,
        )
        files = self.table.write_arrow(update, good, self.spec.partition)
        version = self.table.commit(update, files, replace=None, state=state.to_json(), schema=good.schema)
        self.offset = after
        return Loaded(update, version, good.num_rows, bad.num_rows, state.freshness, span)

    def _commit_rejected(self, update: int, bad: pa.Table, wanted: Range) -> None:
        state = UpdateState(update=update, kind="load", rows=bad.num_rows, range=wanted.to_json())
        files = self.rejected.write_arrow(update, bad, None)
        self.rejected.commit(update, files, replace=None, state=state.to_json(), schema=bad.schema)

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


def split(rows: pa.Table, time: str) -> tuple[pa.Table, pa.Table]:
    """Rows as read from a source, as (good ones with the declared columns, bad ones with reason, file and raw text)."""
    error = rows.column(ERROR_COLUMN)
    reason = pc.if_else(pc.and_(pc.is_null(error), pc.is_null(rows.column(time))), NO_TIME, error)
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


def time_span(rows: pa.Table, time: str) -> tuple[int, int] | None:
    """The least and the largest event time, in microseconds; None if there are no rows."""
    if rows.num_rows == 0:
        return None
    extremes = pc.min_max(pc.cast(rows.column(time), pa.int64()))
    return int(extremes["min"].as_py()), int(extremes["max"].as_py())
