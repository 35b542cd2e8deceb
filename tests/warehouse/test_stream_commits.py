"""What the commits of a stream say: every chunk is loaded once, whoever else commits and whenever it starts again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.core import CostModel, Update
from headgate.warehouse import Generator, Warehouse
from headgate.warehouse.declare.spec import Place, StreamSpec
from headgate.warehouse.schedule.kept_costs import KnownPace
from headgate.warehouse.schedule.limits import UpdateLimit
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.sources import Limit, Offset, Pending, Range
from headgate.warehouse.sources.kafka.offsets import KafkaOffset, KafkaRange, Run
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.storage.errors import StorageError
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates import load
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.good_rows import REJECTED_SCHEMA
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


class Settings(dict[str, str]):
    """The settings of a Spark that has nothing to do: rows are read without it."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


class NoSpark:
    conf = Settings()


@dataclass
class Records:
    """A source of numbered records, of which ``end`` are there; those that wait came between two moments."""

    end: int = 10
    came: tuple[float, float] = (1.0, 1.0)
    schema: str = "ts timestamp, v long"
    starts: list[int] = field(default_factory=list)

    def resolve(self, base: Path) -> Records:
        return self

    def start(self) -> KafkaOffset:
        self.starts.append(self.end)
        return KafkaOffset()

    def _waiting(self, offset: Offset) -> tuple[int, int]:
        assert isinstance(offset, KafkaOffset)
        return offset.position.get(0, 0), self.end

    def latest(self, offset: Offset) -> Pending:
        at, end = self._waiting(offset)
        oldest, newest = self.came
        return Pending(chunks=end - at, bytes=end - at, oldest=oldest, newest=newest) if at < end else Pending()

    def next_range(self, offset: Offset, limit: Limit) -> KafkaRange | None:
        at, end = self._waiting(offset)
        begin = {} if at else {0: 0}
        end = end if limit.bytes is None else min(end, at + limit.bytes)
        oldest, newest = self.came
        return KafkaRange("topic", (Run(0, at, end),), begin, oldest=oldest, newest=newest) if at < end else None

    def advance(self, offset: Offset, loaded: Range) -> KafkaOffset:
        assert isinstance(offset, KafkaOffset) and isinstance(loaded, KafkaRange)
        return offset.after(loaded)

    def verify(self, loaded: Range) -> None:
        pass

    def read(self, spark: Any, wanted: Range) -> Any:
        raise AssertionError("rows are read without Spark")

    def read_arrow(self, spark: Any, wanted: Range) -> pa.Table:
        assert isinstance(wanted, KafkaRange)
        numbers = [number for run in wanted.runs for number in range(run.first, run.end)]
        return pa.table(
            {
                "ts": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * len(numbers), pa.timestamp("us", "UTC")),
                "v": pa.array(numbers, pa.int64()),
                FILE_COLUMN: ["f"] * len(numbers),
                RAW_COLUMN: ["r"] * len(numbers),
                ERROR_COLUMN: pa.nulls(len(numbers), pa.string()),
            }
        )


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[Any], StreamNode]:
    """Open the stream, as another process does: of what was done before it has what is in the folder."""

    def open_again(source: Any) -> StreamNode:
        spec = StreamSpec(
            name="s",
            source=source,
            time="ts",
            partition=3600.0,
            place=Place("x", 1),
            period=None,
            priority=1.0,
            target_lag=None,
            importance_class=0,
            patience=None,
            catch_up="oldest",
            max_future=None,
            comment="",
        )
        stores = (TableStore(tmp_path / "s", "ts", syncs=False), TableStore(tmp_path / "s__rejected", syncs=False))
        return StreamNode(spec, *stores)

    return open_again


def begun(node: StreamNode) -> Update:
    update = node.plan()
    assert update is not None and node.begin(update)
    return update


def numbers(node: StreamNode) -> list[int]:
    found: list[int] = sorted(node.store.arrow().column("v").to_pylist())
    return found


@pytest.mark.parametrize("loaded_before", [False, True], ids=["the first update", "a later update"])
def test_what_a_predecessor_commits_between_begin_and_run_is_not_loaded_again(
    opened: Callable[[Any], StreamNode], loaded_before: bool
) -> None:
    source = Records()
    if loaded_before:
        assert opened(source).update(NoSpark()) is not None  # type: ignore[arg-type]
        source.end = 20
    old, new = opened(source), opened(source)
    late, update = begun(old), begun(new)
    old.run(late, NoSpark())  # type: ignore[arg-type]
    new.store.look()  # as a derived table does when it begins
    with pytest.raises(StorageError):
        new.run(update, NoSpark())  # type: ignore[arg-type]
    assert numbers(new) == list(range(source.end))
    source.end += 5
    assert new.update(NoSpark()) is not None  # type: ignore[arg-type]
    assert numbers(new) == list(range(source.end))


def test_a_stream_that_is_opened_again_knows_when_what_tables_lack_has_arrived(
    opened: Callable[[Any], StreamNode],
) -> None:
    source = Records()
    assert opened(source).loads_beyond(None) == []
    assert opened(source).update(NoSpark()) is not None  # type: ignore[arg-type]
    again = opened(source)
    reached = again.freshness
    assert reached is not None
    assert again.loads_beyond(None) == [(1.0, reached)]
    assert again.loads_beyond(reached - 1) == [(1.0, reached)]
    assert again.loads_beyond(reached) == []


def test_the_first_commit_has_the_offset_whatever_its_number_is(opened: Callable[[Any], StreamNode]) -> None:
    source = Records()
    rows = pa.table({"reason": ["x"], "file": ["f"], "raw": ["r"]}, schema=REJECTED_SCHEMA)
    rejected = opened(source).rejected
    assert rejected is not None
    # The folder of the stream was deleted, that of its rejected rows was not.
    state = CommitState(7, "load", rows=1).to_json()
    rejected.commit(7, rejected.write_arrow(7, rows), state=state, schema=REJECTED_SCHEMA)
    assert opened(source).update(NoSpark()) is not None  # type: ignore[arg-type]
    source.starts.clear()
    again = opened(source)
    assert (again.offset, source.starts) == (KafkaOffset("topic", {0: 10}), [])


def test_the_whole_offset_is_in_every_so_many_commits(
    opened: Callable[[Any], StreamNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "OFFSET_EVERY", 3)
    source = Records(0)
    for end in range(1, 9):
        source.end = end
        node = opened(source)
        assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    assert ["offset" in state for state in reversed(list(node.store.states()))] == [True, False, False] * 2 + [
        True,
        False,
    ]


class FromNow(Records):
    """The same source for records that come from now on."""

    def start(self) -> KafkaOffset:
        return KafkaOffset("topic", {0: self.end})

    def fixed_start(self, offset: Offset) -> Offset | None:
        return offset


class Columns:
    """As much of Spark as it takes to know the columns of a stream."""

    conf = Settings()

    def createDataFrame(self, rows: list[Any], schema: str) -> Any:  # noqa: N802 - Spark's name
        from pyspark.sql.types import LongType, StructType, TimestampType

        assert (rows, schema) == ([], "ts timestamp, v long")
        self.schema = StructType().add("ts", TimestampType()).add("v", LongType())
        return self


def test_a_stream_from_now_on_goes_on_where_it_was_opened_first(opened: Callable[[Any], StreamNode]) -> None:
    source = FromNow()
    first = opened(source)
    assert first.update(Columns()) is not None  # type: ignore[arg-type]
    assert first.plan() is None, "it is written once"
    source.end = 15  # while nobody runs the warehouse
    again = opened(source)
    assert again.update(Columns()) is not None  # type: ignore[arg-type]
    assert numbers(again) == list(range(10, 15))


def test_a_stream_that_does_not_start_now_writes_nothing_before_there_are_rows(
    opened: Callable[[Any], StreamNode],
) -> None:
    assert opened(Records(0)).plan() is None


class Standing(Node):
    """A table that is complete up to a moment, and is not updated; only what is said of it matters."""

    reached: int | None = None

    def __init__(self, table: str, store: TableStore) -> None:
        self.table = table
        self.store = store

    @property
    def freshness(self) -> int | None:
        return self.reached

    def plan(self) -> Update | None:
        return None

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        return False

    def run(self, update: Update, *others: Any) -> None:
        raise NotImplementedError


REACHED = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("reached", "lag", "target_met"),
    [
        pytest.param(REACHED - 1, 19.0, 0.0, id="a table that is behind"),
        pytest.param(None, 0.0, 1.0, id="a table that never had rows"),
        pytest.param(REACHED, 0.0, 1.0, id="a table that has everything"),
    ],
)
@pytest.mark.parametrize("is_declared_again", [False, True], ids=["a restart", "and a later declaration"])
def test_what_an_earlier_run_has_loaded_waits_for_a_table_since_it_arrived(
    opened: Callable[[Any], StreamNode],
    tmp_path: Path,
    is_declared_again: bool,
    reached: int | None,
    lag: float,
    target_met: float,
) -> None:
    source = Records(came=(1.0, 1.0))
    assert opened(source).update(NoSpark()) is not None  # type: ignore[arg-type]
    scheduler = scheduler_over(opened(source), reached, tmp_path, 10.0)
    if is_declared_again:
        scheduler = scheduler_over(opened(source), reached, tmp_path, 15.0, before=scheduler)
    scheduler.poll(15.0)
    table = {row.name: row for row in scheduler.statistics(20.0)}["t"]
    assert (table.lag, table.target_met) == (lag, target_met)


def test_what_an_earlier_run_has_loaded_waits_since_the_start_if_no_commit_says_when_it_arrived(
    opened: Callable[[Any], StreamNode], tmp_path: Path
) -> None:
    node = opened(Records())
    assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    silent = CommitState(node.state.update + 1, "note", freshness=REACHED + 1, time="ts").to_json()
    node.store.commit(node.state.update + 1, (), state=silent, schema=node.store.schema)
    scheduler = scheduler_over(opened(Records()), REACHED, tmp_path, 10.0)
    assert {row.name: row.lag for row in scheduler.statistics(20.0)} == {"s": 0.0, "t": 10.0}


def scheduler_over(
    stream: StreamNode, reached: int | None, folder: Path, now: float, before: Scheduler | None = None
) -> Scheduler:
    """A table with a target on a stream; it is complete up to ``reached``."""
    wh = Warehouse("w", folder / "w")
    wh.stream("s", Generator(), time="ts")
    wh.sql("t", "select ts from s", time="ts", target_lag="5 s")
    spec = wh.spec()
    table = Standing("t", TableStore(folder / "t"))
    table.reached = reached
    return Scheduler(OpenWarehouse(spec, spec.graph(), {"s": stream, "t": table}), RunOptions(), now, before)


def test_what_waits_for_a_paused_stream_is_known(opened: Callable[[Any], StreamNode], tmp_path: Path) -> None:
    source = Records()
    wh = Warehouse("w", tmp_path)
    wh.stream("s", source, time="ts")  # type: ignore[arg-type]
    spec = wh.spec()
    scheduler = Scheduler(OpenWarehouse(spec, spec.graph(), {"s": opened(source)}), RunOptions(tracks=1), 0.0)
    scheduler.poll(10.0)
    ((update,),) = scheduler.decide(10.0)
    scheduler.pause("s", 11.0)
    update.work = 1.0
    scheduler._nodes.by_name["s"].run(update, NoSpark())  # type: ignore[arg-type]
    update.commits(1.0)
    scheduler.ended(update, 12.0)
    assert scheduler.statistics(13.0)[0].lag == 0.0, "the update that was running has loaded all"
    source.end += 5
    scheduler.poll(20.0)
    assert scheduler.statistics(21.0)[0].lag == 20.0, "since the moment that the source says"
    assert scheduler.decide(21.0) == []


# --- how much fresher a load makes the stream -----------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "the same run"])
@pytest.mark.parametrize(
    ("came", "gained"),
    [
        pytest.param((1900.0, 1906.0), 906.0, id="after a gap"),
        pytest.param((1002.0, 1006.0), 8.0, id="without a gap"),
        pytest.param((1003.0, 1003.0), 4.0, id="within a period"),
        pytest.param((998.0, 1006.0), None, id="some came before what was loaded"),
    ],
)
def test_a_load_gains_all_of_the_time_since_what_was_loaded_before(
    opened: Callable[[Any], StreamNode], is_restarted: bool, came: tuple[float, float], gained: float | None
) -> None:
    source = Records(came=(990.0, 1000.0))
    node = opened(source)
    assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    if is_restarted:
        node = opened(source)
    node.expect_period(4.0)
    source.end, source.came = 20, came
    update = node.plan()
    assert update is not None
    if gained is None:  # what of it the table has is not known after a restart
        gained = 12.0 if is_restarted else 10.0
    assert update.gained == gained
    assert update.seconds_of_data == min(gained, came[1] - came[0] + 4.0), "in which data came"


def test_a_part_of_what_came_after_a_gap_gains_the_gap(opened: Callable[[Any], StreamNode]) -> None:
    source = Records(came=(990.0, 1000.0))
    node = opened(source)
    assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    node.expect_period(4.0)
    source.end, source.came = 20, (1900.0, 1906.0)
    update = node.plan()
    assert update is not None
    limit = UpdateLimit(seconds=5.0)
    assert (limit.part_of(update), update.gain_of(0.5)) == (0.5, 896.0 + 5.0)
    update.most = 5.0
    assert node.begin(update)
    assert (update.size, update.gained) == (5.0, 896.0 + 5.0)


def test_a_stream_is_ranked_by_its_gain_after_a_gap_and_its_pace_is_that_of_the_data(
    opened: Callable[[Any], StreamNode], tmp_path: Path
) -> None:
    source = Records(came=(990.0, 1000.0))
    assert opened(source).update(NoSpark()) is not None  # type: ignore[arg-type]
    source.end, source.came = 30, (1900.0, 1906.0)
    wh = Warehouse("w", tmp_path / "w")
    wh.stream("s", Generator(), time="ts")
    spec, node = wh.spec(), opened(source)
    costs, paces = {"s": ("bytes", CostModel.fitted([(1.0, 0.5), (9.0, 2.5)]))}, {"s": KnownPace(7.0, 4.0)}
    scheduler = Scheduler(
        OpenWarehouse(spec, spec.graph(), {"s": node}), RunOptions(), 1906.0, costs=costs, paces=paces
    )
    scheduler.poll(1906.0)
    assert scheduler._nodes.matrix.columns["freshness_delta"][0] == pytest.approx(906.0)
    assert scheduler.paces()["s"].per_second == pytest.approx(20 / 10)
