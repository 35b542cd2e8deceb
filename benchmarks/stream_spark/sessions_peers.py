"""The same sessions with Structured Streaming's two ways to keep a state per key in Python.

Written for speed: filtering is Spark's, only the three columns that matter reach Python, what is done with a key's
clicks is done by NumPy, state is read and written once for each key and micro-batch, and nothing is given out for keys
without a closed session. State that goes on is as small as it can be: the last click's time and the different items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.stream_spark.rows import SECONDS_BEFORE_EPOCH
from benchmarks.stream_spark.sessionising import GAP, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState

MADE = "trigger long, items array<int>"
#: items as the bytes of an array: an array type is slower to convert, and `applyInPandasWithState` cannot take it back
STATE = "last long, items binary"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

Held = tuple[int, bytes]


def divided(held: Held | None, frames: Iterator[pd.DataFrame]) -> tuple[pd.DataFrame | None, Held]:
    """A user's clicks, in any order, behind what is open: the sessions that they close, and what is open then."""
    clicks = list(frames)
    ts = np.concatenate([frame["ts"].to_numpy() for frame in clicks])
    item = np.concatenate([frame["item"].to_numpy() for frame in clicks]).astype(np.int32, copy=False)
    order = np.argsort(ts, kind="stable")
    ts, item = ts[order], item[order]
    last, earlier = (int(ts[0]), b"") if held is None else held
    cuts = np.flatnonzero(np.diff(ts, prepend=last) > GAP)
    pieces = np.split(item, cuts)
    pieces[0] = np.concatenate((np.frombuffer(earlier, dtype=np.int32), pieces[0]))
    sets = [np.unique(piece) for piece in pieces]
    closed = pd.DataFrame({"trigger": ts[cuts], "items": sets[:-1]}) if len(cuts) else None
    return closed, (int(ts[-1]), sets[-1].tobytes())


def with_group_state(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """For `applyInPandasWithState`."""
    closed, still_open = divided(state.get if state.exists else None, frames)
    state.update(still_open)
    if closed is not None:
        yield closed


class Sessions(StatefulProcessor):
    """For `transformWithStateInPandas`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._open = handle.getValueState("open", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's names
        closed, still_open = divided(self._open.get(), rows)
        self._open.update(still_open)
        if closed is not None:
            yield closed

    def close(self) -> None:
        """Nothing is held."""


def apply_in_pandas(known: DataFrame) -> DataFrame:
    return known.groupBy("user").applyInPandasWithState(with_group_state, MADE, STATE, "append", "NoTimeout")


def transform_with_state(known: DataFrame) -> DataFrame:
    return known.groupBy("user").transformWithStateInPandas(Sessions(), MADE, "append", "None")


#: {contender: how it is written, and the store of its states: in memory where that is possible, which is faster}
PEERS: Mapping[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "transformWithStateInPandas": (transform_with_state, _ROCKSDB),
    "applyInPandasWithState": (apply_in_pandas, _IN_MEMORY),
}

SETTINGS: Mapping[str, str] = {
    # Small files with what has changed, instead of all of RocksDB's files, at every micro-batch.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # Fewer and larger messages between the JVM and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.transformWithStateInPandas.maxRecordsPerBatch": "100000",
}


def run_peer(spark: SparkSession, name: str, landing: Path, out: Path, partitions: int, files: int) -> float:
    """Seconds from the beginning of the first micro-batch, of so many files each, to the end of the last."""
    written, store = PEERS[name]
    session = spark.newSession()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    session.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    clicks = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(landing))
    seconds = f"unix_seconds(ts) + {SECONDS_BEFORE_EPOCH}L AS ts"
    known = clicks.where("user >= 0 AND item >= 0").selectExpr("user", seconds, "item")
    writer = written(known).writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "sessions"))
    query.awaitTermination()
    return _seconds(query)


def _seconds(query: StreamingQuery) -> float:
    spans = []
    for each in query.recentProgress:
        begin = datetime.fromisoformat(each.timestamp)
        spans.append((begin, begin + timedelta(milliseconds=each.durationMs["triggerExecution"])))
    return (max(end for _, end in spans) - min(begin for begin, _ in spans)).total_seconds()


def found_sessions(out: Path) -> tuple[NDArray[np.int64], list[list[int]]]:
    """What a peer has written: times and items."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    files = sorted((out / "sessions").glob("*.parquet"))
    table = pq.ParquetDataset(files).read()
    return table.column("trigger").to_numpy(), table.column("items").to_pylist()
