"""A stream of a source with parts is complete up to where all parts are of which more is waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.declare.spec import Place, StreamSpec
from headgate.warehouse.reading import query, read
from headgate.warehouse.sources import Limit, Offset, Pending, Range
from headgate.warehouse.sources.kafka.offsets import KafkaOffset, KafkaRange, Run
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.derive_planner import DerivePlanner, Unconsumed
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.parts import Reached, reached_in_frame, reached_in_rows
from headgate.warehouse.updates.plan import TableState
from headgate.warehouse.updates.source_changes import SourceChanges

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def micros(second: int) -> int:
    return round((BEGIN + timedelta(seconds=second)).timestamp()) * 1_000_000


# --- the rule -------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=8), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), max_size=8),
)
def test_freshness_is_never_beyond_a_part_of_which_more_waits_and_all_of_it_counts_in_the_end(
    parts: list[list[int]], loads: list[list[int]]
) -> None:
    position = [0] * len(parts)
    reached, before = Reached(), None
    for load in [*loads, [100] * 4]:
        new = [times[at : at + count] for times, at, count in zip(parts, position, load, strict=False)]
        position = [at + len(rows) for at, rows in zip(position, new, strict=True)]
        by_part = {str(number): max(rows) for number, rows in enumerate(new) if rows}
        left = [str(n) for n, (times, at) in enumerate(zip(parts, position, strict=True)) if at < len(times)]
        reached = reached.after(max(by_part.values(), default=None), by_part if left else {}, left)
        given = [parts[int(number)][: position[int(number)]] for number in left]
        # What was complete before stays so: the rest is late.
        bounds = [max([*rows, *([] if before is None else [before])], default=None) for rows in given]
        every = [moment for times, at in zip(parts, position, strict=True) for moment in times[:at]]
        if left:
            known = [bound for bound in bounds if bound is not None]
            assert reached.freshness == (min(known) if len(known) == len(bounds) else before)
        else:
            assert reached.freshness == max(every, default=None)
        assert all(reached.freshness is None or moment > reached.freshness for moment in reached.ahead.values())
        before = reached.freshness


def test_the_newest_event_time_of_each_part_is_found() -> None:
    rows = pa.table(
        {
            "ts": pa.chunked_array(
                [[BEGIN + timedelta(seconds=n) for n in part] for part in ([5, 3, 9], [1, 2])],
                pa.timestamp("us", "UTC"),
            ),
            FILE_COLUMN: pa.chunked_array([["t/0@5", "t/12@1", "t/0@77"], ["t/3@0", "t/12@2"]]),
        }
    )
    assert reached_in_rows(rows, "ts") == {"t/0": micros(9), "t/3": micros(1), "t/12": micros(3)}
    assert reached_in_rows(rows.slice(0, 0), "ts") == {}


@pytest.mark.spark
def test_spark_finds_the_same(spark: Any) -> None:
    rows = [(BEGIN + timedelta(seconds=n), f"t/{part}@{n}") for part, n in ((0, 5), (12, 3), (0, 9), (12, 1))]
    frame = spark.createDataFrame(rows, f"`a time` timestamp, {FILE_COLUMN} string")
    assert reached_in_frame(frame, "a time") == {"t/0": micros(9), "t/12": micros(3)}


# --- a stream -------------------------------------------------------------------------------------------------------


class Settings(dict[str, str]):
    """The settings of a Spark that has nothing to do: rows are read without it."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


class NoSpark:
    conf = Settings()


@dataclass
class Partitions:
    """Partitions with records whose event times are given in seconds; ``steps`` says how many each load takes."""

    times: Sequence[Sequence[int | None]]
    steps: list[Sequence[int]] = field(default_factory=list)
    schema: str = "ts timestamp, v long"

    def resolve(self, base: Path) -> Partitions:
        return self

    def start(self) -> KafkaOffset:
        return KafkaOffset()

    def _at(self, offset: Offset) -> list[int]:
        assert isinstance(offset, KafkaOffset)
        return [offset.position.get(number, 0) for number in range(len(self.times))]

    def latest(self, offset: Offset) -> Pending:
        left = sum(len(times) - at for times, at in zip(self.times, self._at(offset), strict=True))
        return Pending(chunks=1, bytes=left, oldest=1.0, newest=1.0) if left else Pending()

    def next_range(self, offset: Offset, limit: Limit) -> KafkaRange | None:
        step = self.steps.pop(0)
        ends = [min(len(t), at + n) for t, at, n in zip(self.times, self._at(offset), step, strict=True)]
        runs = tuple(
            Run(n, at, end) for n, (at, end) in enumerate(zip(self._at(offset), ends, strict=True)) if at < end
        )
        left = tuple(n for n, times in enumerate(self.times) if ends[n] < len(times))
        return KafkaRange("id", runs, oldest=1.0, newest=1.0, left=left)

    def parts_left(self, loaded: Range) -> list[str]:
        assert isinstance(loaded, KafkaRange)
        return [f"topic/{number}" for number in loaded.left]

    def advance(self, offset: Offset, loaded: Range) -> KafkaOffset:
        assert isinstance(offset, KafkaOffset) and isinstance(loaded, KafkaRange)
        return offset.after(loaded)

    def verify(self, loaded: Range) -> None:
        pass

    def read(self, spark: Any, wanted: Range) -> Any:
        raise AssertionError("rows are read without Spark")

    def read_arrow(self, spark: Any, wanted: Range) -> pa.Table:
        assert isinstance(wanted, KafkaRange)
        places = [(run.partition, at) for run in wanted.runs for at in range(run.first, run.end)]
        seconds = [self.times[partition][at] for partition, at in places]
        moments = [None if second is None else BEGIN + timedelta(seconds=second) for second in seconds]
        return pa.table(
            {
                "ts": pa.array(moments, pa.timestamp("us", "UTC")),
                "v": pa.array([at for _, at in places], pa.int64()),
                FILE_COLUMN: pa.array([f"topic/{partition}@{at}" for partition, at in places], pa.string()),
                RAW_COLUMN: pa.array(["r"] * len(places), pa.string()),
                ERROR_COLUMN: pa.nulls(len(places), pa.string()),
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
        folder = tmp_path / "tables"
        stores = (TableStore(folder / "s", "ts", syncs=False), TableStore(folder / "s__rejected", syncs=False))
        return StreamNode(spec, *stores)

    return open_again


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "restarted"])
def test_a_stream_is_complete_up_to_the_partition_that_is_furthest_behind(
    opened: Callable[[Any], StreamNode], tmp_path: Path, restarts: bool
) -> None:
    source = Partitions(times=[[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]])
    expected = [((4, 0, 0), None), ((0, 2, 1), 2), ((0, 0, 1), 4), ((0, 1, 0), 5), ((0, 0, 1), 9)]  # up to which second
    node = opened(source)
    for step, second in expected:
        node = opened(source) if restarts else node
        source.steps = [step]
        update = node.update(NoSpark())  # type: ignore[arg-type]
        assert update is not None and update.committed
        reached = None if second is None else micros(second)
        assert node.freshness == update.freshness == reached
        # Readers see what is complete, and nothing else.
        seen = read(tmp_path, ["s"])["s"]["ts"].to_pylist()
        times = [] if second is None else [BEGIN + timedelta(seconds=n) for n in range(second + 1)]
        assert sorted(seen) == times
        assert query(tmp_path, "select count(*) as n from s").rows["n"].to_pylist() == [len(times)]
    assert node.state.ahead == {}


def test_records_without_an_event_time_do_not_bring_a_partition_further(opened: Callable[[Any], StreamNode]) -> None:
    source = Partitions(times=[[0, 1, 2], [0, None, 5]])
    node = opened(source)
    for step, second in [((3, 1), 0), ((0, 1), 0), ((0, 1), 5)]:
        source.steps = [step]
        assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
        assert node.freshness == micros(second)


def test_late_records_are_late_as_in_every_stream(opened: Callable[[Any], StreamNode]) -> None:
    source = Partitions(times=[[10], [20]], steps=[(1, 1)])
    node = opened(source)
    assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    assert node.freshness == micros(20)
    source.times, source.steps = [[10, 11, 30], [20, 40]], [(1, 1), (1, 0)]
    assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    assert node.freshness == micros(20)
    assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    assert node.freshness == micros(40)


def test_a_table_takes_in_rows_that_came_before_the_stream_had_a_freshness(opened: Callable[[Any], StreamNode]) -> None:
    source = Partitions(times=[[0, 100, 200], [50, 150, 250]], steps=[(3, 0), (0, 1), (0, 2)])
    node = opened(source)
    for _ in range(3):
        assert node.update(NoSpark()) is not None  # type: ignore[arg-type]
    changes = SourceChanges("s", node.store, -1, "")
    changes.read()
    assert [version.freshness for version in changes.pending] == [None, micros(50), micros(250)]
    waiting = Unconsumed({"s": changes}, (), TableState(None), 0, ())
    taken = DerivePlanner._first_versions(waiting, "s", most_seconds=1.0)
    assert [version.freshness for version in taken] == [None, micros(50)], "without the second, it would wait for ever"
