"""TRAIN: requests -> range query -> {linear regression, annotate with classes -> decision tree} -> publish.

A request names a range of rows of a table of readings; both models are trained from scratch on those of its rows that
have all values. All rows of a request travel in one packet, so every operator is without state. Differences from the
original: the table is in memory, as in EdgeWise; regression uses all features instead of selecting some; the tree is
that of ``TreeModel``. A request without usable rows is answered with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import ParameterError
from headgate.stream import Ints, Kind, OperatorSpec, Output, QuerySpec, Rejected
from workloads.riot.models import LinearModel, TreeModel
from workloads.riot.schema import SENSORS, Floats, floats

if TYPE_CHECKING:
    from headgate.stream import Sink, Source

#: train on rows ``first`` to ``last`` of the table, counted from 1, both included
REQUESTS = pa.schema([("request", pa.int64()), ("first", pa.int64()), ("last", pa.int64())])
#: ``place`` counts a request's rows from 0
TRAINING = pa.schema(
    [
        ("request", pa.int64()),
        ("last", pa.int64()),
        ("place", pa.int64()),
        *((name, pa.float64()) for name in SENSORS),
    ]
)
LABELLED = pa.schema([*TRAINING, ("label", pa.int64())])
MODELS = pa.schema([("request", pa.int64()), ("name", pa.string()), ("model", pa.string())])
_PERCENTILES = (25, 50, 75, 100)


@dataclass(frozen=True)
class TrainSettings:
    """Ridge of the regression; least rows of a leaf and greatest depth of the tree."""

    ridge: float = 1e-8
    min_leaf: int = 2
    depth: int = 16
    #: a request stands for thousands of rows, so a packet has few
    packet_rows: int = 4


def train_query(
    source: Source,
    published: Sink,
    readings: pa.RecordBatch,
    settings: TrainSettings | None = None,
    name: str = "train",
) -> QuerySpec:
    """``source`` has ``REQUESTS`` over ``readings``; ``published`` gets ``MODELS``, two for each: regression, tree."""
    settings = settings or TrainSettings()
    trainer = Trainer(settings)
    operators = (
        OperatorSpec("requests", Kind.SOURCE, source=source),
        OperatorSpec("read", Kind.STATELESS, ("requests",), function=RangeQuery(readings)),
        OperatorSpec("linear", Kind.STATELESS, ("read",), function=trainer.linear),
        OperatorSpec("annotate", Kind.STATELESS, ("read",), function=label),
        OperatorSpec("tree", Kind.STATELESS, ("annotate",), function=trainer.tree),
        OperatorSpec("models", Kind.MERGE, ("linear", "tree")),
        OperatorSpec("publish", Kind.SINK, ("models",), sink=published),
    )
    return QuerySpec(name, operators, packet_rows=settings.packet_rows)


def requests(first: int, count: int, rows: int, table_rows: int) -> pa.RecordBatch:
    """Requests ``first`` to ``first + count - 1`` of a series of ranges, each half a range further on."""
    if not 1 <= rows <= table_rows:
        raise ParameterError(f"a request asks for 1 to {table_rows} rows, as many as the table has; got rows={rows}")
    number = np.arange(first, first + count, dtype=np.int64)
    begin = 1 + number * max(rows // 2, 1) % (table_rows - rows + 1)
    return pa.record_batch([pa.array(number), pa.array(begin), pa.array(begin + rows - 1)], schema=REQUESTS)


class RangeQuery:
    """Answers a request with its rows, those with absent values left out."""

    def __init__(self, readings: pa.RecordBatch) -> None:
        columns = [floats(readings.column(name)) for name in SENSORS]
        whole = np.flatnonzero(~np.isnan(np.stack(columns)).any(axis=0))
        self._columns = tuple(column[whole] for column in columns)
        #: the row number, from 1, of each row that is left
        self._numbers = whole + 1

    def __call__(self, batch: pa.RecordBatch) -> Output:
        first, last = batch.column("first").to_numpy(), batch.column("last").to_numpy()
        bad = (first < 1) | (last < first)
        begin = np.searchsorted(self._numbers, first)
        end = np.searchsorted(self._numbers, last, side="right")
        lengths = np.where(bad, 0, end - begin)
        row = np.repeat(np.arange(batch.num_rows), lengths)
        place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        source = begin[row] + place
        columns = [batch.column("request").to_numpy()[row], last[row], place, *(c[source] for c in self._columns)]
        rejected = tuple(
            Rejected(int(each), "expected 1 <= first <= last", f"first={first[each]}, last={last[each]}")
            for each in np.flatnonzero(bad)
        )
        return Output(pa.record_batch([pa.array(c) for c in columns], schema=TRAINING), row, (), rejected)


def percentiles(values: Floats) -> Floats:
    """The quartiles and the maximum, interpolated at p (n + 1) / 100 between the sorted values around that place."""
    ordered = np.sort(values)
    position = np.array(_PERCENTILES) * (len(values) + 1) / 100
    below = np.clip(np.floor(position).astype(np.int64), 1, len(values))
    above = np.minimum(below + 1, len(values))
    share = np.where((position < 1) | (position >= len(values)), 0.0, position - np.floor(position))
    low: Floats = ordered[below - 1]
    interpolated: Floats = low + share * (ordered[above - 1] - low)
    return interpolated


def label(batch: pa.RecordBatch) -> Output:
    """The class of each row among its request's: the highest whose percentile of air the row reaches, BAD if none."""
    air = floats(batch.column(SENSORS[-1]))
    labels = np.zeros(len(air), dtype=np.int64)
    for begin, end in _requests(batch):
        rows = air[begin:end]
        labels[begin:end] = np.maximum(np.searchsorted(percentiles(rows), rows, side="right") - 1, 0)
    return Output(pa.record_batch([*batch.columns, pa.array(labels)], schema=LABELLED))


class Trainer:
    """Makes a model of the rows of every request."""

    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings

    def linear(self, batch: pa.RecordBatch) -> Output:
        """Air from the other four sensors."""
        *features, air = _matrix(batch)
        models = [
            LinearModel.trained(
                [column[begin:end] for column in features], air[begin:end], self._settings.ridge
            ).to_json()
            for begin, end in _requests(batch)
        ]
        return _models(batch, "CITY-MLR", models)

    def tree(self, batch: pa.RecordBatch) -> Output:
        """The class from all five sensors."""
        features, labels = _matrix(batch), batch.column("label").to_numpy()
        least, depth = self._settings.min_leaf, self._settings.depth
        models = [
            TreeModel.trained(
                [column[begin:end] for column in features], labels[begin:end], min_leaf=least, depth=depth
            ).to_json()
            for begin, end in _requests(batch)
        ]
        return _models(batch, "CITY-DTC", models)


def _requests(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Where the rows of each request begin and end."""
    begin = np.flatnonzero(batch.column("place").to_numpy() == 0).tolist()
    return zip(begin, [*begin[1:], batch.num_rows], strict=False)


def _matrix(batch: pa.RecordBatch) -> list[Floats]:
    return [floats(batch.column(name)) for name in SENSORS]


def _models(batch: pa.RecordBatch, prefix: str, models: list[str]) -> Output:
    """A row for each request; it stands for the last of the request's rows."""
    ends: Ints = np.array([end - 1 for _, end in _requests(batch)], dtype=np.int64)
    request = batch.column("request").take(pa.array(ends))
    names = [f"{prefix}-{last}" for last in batch.column("last").take(pa.array(ends)).to_pylist()]
    columns = [request, pa.array(names, pa.string()), pa.array(models, pa.string())]
    return Output(pa.record_batch(columns, schema=MODELS), ends)
