"""PRED: parse -> {decision tree, regression, average}; {average, regression} -> error; {error, tree} -> publish.

The models are EdgeWise's of the city unless others are given, and stay the same: EdgeWise has removed the branch that
brings new ones. Differences from the original: an absent value gives no class, no prediction and no part in an average;
an error before the first average, or over an average of 0, is null (the original divides by 0). Where a reading both
completes an average and has a prediction, the average comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import ParameterError
from headgate.stream import AUTOMATIC_BUCKETS, ByHash, Kind, OperatorSpec, Output, Part, QuerySpec, Snapshot
from workloads.riot import senml
from workloads.riot.keyed import KeySlots, grown, rounds
from workloads.riot.models import CITY_LINEAR, CITY_TREE, CLASSES, UNKNOWN, LinearModel, TreeModel
from workloads.riot.schema import SENSORS, empty, floats, nullable

if TYPE_CHECKING:
    from headgate.stream import Sink, Source

#: what the branches into the error estimate share: an average, or a prediction beside what was observed
ESTIMATES = pa.schema(
    [
        ("msgid", pa.int64()),
        ("timestamp", pa.int64()),
        ("source", pa.string()),
        ("average", pa.bool_()),
        ("observed", pa.float64()),
        ("value", pa.float64()),
    ]
)
#: what both branches into publishing share
PREDICTIONS = pa.schema(
    [
        ("msgid", pa.int64()),
        ("timestamp", pa.int64()),
        ("source", pa.string()),
        ("analysis", pa.string()),
        ("result", pa.string()),
    ]
)
MESSAGES = pa.schema([("msgid", pa.int64()), ("message", pa.string())])
_AIR = SENSORS[-1]
_OF_THE_READING = ("msgid", "timestamp", "source")


@dataclass(frozen=True)
class PredSettings:
    """The published parameters."""

    tree: TreeModel = CITY_TREE
    linear: LinearModel = CITY_LINEAR
    block: int = 5
    buckets: int = AUTOMATIC_BUCKETS


def pred_query(source: Source, published: Sink, settings: PredSettings | None = None, name: str = "pred") -> QuerySpec:
    """``source`` has ``LINES`` of SenML; ``published`` gets ``MESSAGES``: an error and a class for each line."""
    settings = settings or PredSettings()
    operators = (
        OperatorSpec("lines", Kind.SOURCE, source=source),
        OperatorSpec("parse", Kind.STATELESS, ("lines",), function=senml.parse),
        OperatorSpec("tree", Kind.STATELESS, ("parse",), function=partial(classify, settings.tree)),
        OperatorSpec("regression", Kind.STATELESS, ("parse",), function=partial(predict, settings.linear)),
        OperatorSpec(
            "average",
            Kind.PARTITIONED,
            ("parse",),
            state=partial(BlockAverage, settings.block),
            partitioning=ByHash(("source",)),
            buckets=settings.buckets,
            selectivity=1 / settings.block,
        ),
        OperatorSpec("estimates", Kind.MERGE, ("average", "regression")),
        OperatorSpec("error", Kind.STATEFUL, ("estimates",), state=ErrorEstimate),
        OperatorSpec("predictions", Kind.MERGE, ("error", "tree")),
        OperatorSpec("message", Kind.STATELESS, ("predictions",), function=message),
        OperatorSpec("publish", Kind.SINK, ("message",), sink=published),
    )
    return QuerySpec(name, operators)


def classify(tree: TreeModel, readings: pa.RecordBatch) -> Output:
    """The name of each reading's class, null if it cannot be told."""
    number = tree.predict([floats(readings.column(name)) for name in SENSORS])
    names = pa.array(CLASSES).take(pa.array(number, mask=number == UNKNOWN))
    return Output(_predictions(readings, "decision_tree", names))


def predict(linear: LinearModel, readings: pa.RecordBatch) -> Output:
    """Each reading's air as the model has it, beside what was observed."""
    predicted = linear.predict([floats(readings.column(name)) for name in SENSORS[:-1]])
    return Output(_estimates(readings, False, readings.column(_AIR), nullable(predicted)))


def message(batch: pa.RecordBatch) -> Output:
    """Predictions as texts ``source-analysis-result``."""
    parts = [batch.column(name) for name in ("source", "analysis", "result")]
    texts = pc.binary_join_element_wise(*parts, "-", null_handling="replace", null_replacement="null")
    return Output(pa.record_batch([batch.column("msgid"), texts], schema=MESSAGES))


def _estimates(batch: pa.RecordBatch, average: bool, observed: pa.Array, values: pa.Array) -> pa.RecordBatch:
    kind = pa.array(np.full(batch.num_rows, average))
    return pa.record_batch([*batch.select(_OF_THE_READING).columns, kind, observed, values], schema=ESTIMATES)


def _predictions(batch: pa.RecordBatch, analysis: str, texts: pa.Array) -> pa.RecordBatch:
    name = pa.repeat(analysis, batch.num_rows)
    return pa.record_batch([*batch.select(_OF_THE_READING).columns, name, texts], schema=PREDICTIONS)


class BlockAverage:
    """The mean of every ``block`` values of a source's air, when the block is full; the rest at the end is dropped."""

    def __init__(self, block: int = 5) -> None:
        if block < 1:
            raise ParameterError(f"an average needs values; got block={block}")
        self._block = block
        self._keys = KeySlots()
        self._total = np.zeros(0)
        self._count = np.zeros(0, dtype=np.int64)

    def process(self, part: Part) -> Output:
        values = floats(part.batch.column(_AIR))
        present = np.flatnonzero(~np.isnan(values))
        slots = self._keys.of(part.batch.column("source").take(pa.array(present)))
        self._total, self._count = grown(self._total, len(self._keys)), grown(self._count, len(self._keys))
        averages = np.full(len(values), np.nan)
        for places in rounds(slots):
            slot, rows = slots[places], present[places]
            total, count = self._total[slot] + values[rows], self._count[slot] + 1
            full = count == self._block
            averages[rows[full]] = total[full] / self._block
            self._total[slot] = np.where(full, 0.0, total)
            self._count[slot] = np.where(full, 0, count)
        rows = np.flatnonzero(~np.isnan(averages))
        batch = part.batch.take(pa.array(rows))
        nothing = pa.nulls(len(rows), pa.float64())
        return Output(_estimates(batch, True, nothing, pa.array(averages[rows])), part.rows[rows])

    def flush(self) -> Output:
        return Output(empty(ESTIMATES))

    def snapshot(self) -> Snapshot:
        size = len(self._keys)
        total, count = self._total[:size].copy(), self._count[:size].copy()
        return Snapshot({"sources": pa.table({"key": self._keys.column(), "total": total, "count": count})})

    def restore(self, snapshot: Snapshot) -> None:
        table = snapshot.tables["sources"]
        self._keys.restore(table.column("key"))
        self._total, self._count = table.column("total").to_numpy().copy(), table.column("count").to_numpy().copy()


class ErrorEstimate:
    """(observed - predicted) / the last average of any source, for every prediction."""

    def __init__(self) -> None:
        self._average = float("nan")

    def process(self, part: Part) -> Output:
        batch = part.batch
        is_average = batch.column("average").to_numpy(zero_copy_only=False)
        values = floats(batch.column("value"))
        # The place of the last average up to each row; 0 stands for that of an earlier packet.
        latest = np.maximum.accumulate(np.where(is_average, np.arange(1, len(values) + 1), 0))
        averages = np.concatenate([[self._average], values])[latest]
        if len(averages):
            self._average = float(averages[-1])
        rows = np.flatnonzero(~is_average)
        averages = np.where(averages == 0, np.nan, averages)
        errors = (floats(batch.column("observed"))[rows] - values[rows]) / averages[rows]
        texts = nullable(errors).cast(pa.string())
        return Output(_predictions(batch.take(pa.array(rows)), "error_estimate", texts), part.rows[rows])

    def flush(self) -> Output:
        return Output(empty(PREDICTIONS))

    def snapshot(self) -> Snapshot:
        known = not np.isnan(self._average)
        return Snapshot(values={"average": self._average if known else None})

    def restore(self, snapshot: Snapshot) -> None:
        average = snapshot.values["average"]
        self._average = float("nan") if average is None else float(average)
