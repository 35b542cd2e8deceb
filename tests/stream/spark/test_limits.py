"""User code that does not come back, or takes all memory, fails by name, and other queries go on."""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import UserCodeError
from headgate.stream import Stream, on_spark
from headgate.stream.spark.limits import own_memory
from headgate.stream.spark.update import HostedUpdate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema([("user", pa.int64())])


def sleeping(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(3600)
    return batch


def spinning(batch: pa.RecordBatch) -> pa.RecordBatch:
    while True:
        pass


_leaked: list[bytearray] = []


def leaking(batch: pa.RecordBatch) -> pa.RecordBatch:
    while True:
        _leaked.append(bytearray(b"x" * (1 << 22)))


def of_other_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns(["usr"]) if batch.num_rows else batch


def raising(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows:
        raise ZeroDivisionError("nothing to divide by")
    return batch


@pytest.fixture
def frame(spark: SparkSession, tmp_path: Path) -> DataFrame:
    pq.write_table(pa.table({"user": list(range(20))}, SCHEMA), tmp_path / "u000001.parquet")
    return spark.read.parquet(str(tmp_path / "u000001.parquet"))


def outcome(frame: DataFrame, folder: Path, function: Any, **options: Any) -> HostedUpdate:
    """An update with a query that calls the function, after its job."""

    def build(stream: Stream) -> Stream:
        return stream.map(function, schema=SCHEMA, name="mine").key_by("user").running(n="count")

    update = HostedUpdate(1, folder, table="counted")
    update.take(on_spark(frame, build, keys=["user"], buckets=1, **options))
    update.frame.toArrow()
    return update


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (raising, {}, "ZeroDivisionError: nothing to divide by"),
        (of_other_columns, {}, r"it gave columns \(usr int64\), and should give \(user int64\)"),
        (sleeping, {"time_limit": 1.0}, "TimeLimitError: operator 'mine' of query .* working on one packet for"),
        (spinning, {"time_limit": 1.0}, "TimeLimitError: operator 'mine'"),
        (spinning, {"time_limit": 1.0, "workers": 1}, "TimeLimitError: operator 'mine'"),
        (leaking, {"memory_limit": 600 << 20}, "MemoryLimitError: while operator 'mine' .* of memory of its own"),
    ],
    ids=["raises", "wrong columns", "sleeps", "spins", "spins in an engine", "leaks"],
)
def test_what_goes_wrong_in_a_function_is_told_with_the_name_of_the_operator(
    frame: DataFrame, tmp_path: Path, function: Any, options: dict[str, Any], said: str
) -> None:
    update = outcome(frame, tmp_path / "states", function, **options)
    with pytest.raises(UserCodeError, match=rf"query 'counted.query' stopped: operator 'mine' failed .*{said}") as told:
        update.check()
    # the user's own code is in the traceback that is shown, unless the mistake is in what it gave
    assert function is of_other_columns or f"in {function.__name__}" in str(told.value.__cause__)


def test_a_process_that_cannot_be_reached_ends_itself_and_says_why(frame: DataFrame, tmp_path: Path) -> None:
    update = HostedUpdate(1, tmp_path / "states", table="counted")

    def build(stream: Stream) -> Stream:
        return stream.map(sleeping, schema=SCHEMA, name="mine")

    update.take(on_spark(frame, build, workers=1, time_limit=1.0))  # in a thread that no signal reaches
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        update.frame.toArrow()
    assert "operator 'mine' of query 'counted.query' has been working" in str(update.verdict())
    assert update.verdict() is None


def test_memory_counts_what_is_the_process_s_own() -> None:
    before = own_memory()
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as kept:  # never memory from before
        kept.write(b"x" * (64 << 20))
        assert own_memory() - before > 32 << 20
