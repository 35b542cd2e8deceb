"""STATS: parse -> Bloom filter -> {Kalman -> sliding regression, second-order moment, distinct count} -> publish.

This is EdgeWise's version, which reads CSV lines. Differences from the original: absent values make no measurement; the
sensor is the source (the original, with EdgeWise's input, takes the longitude for it); the Bloom filter drops
measurements of unknown sources (the original looks for a field that is not there, and passes all); analyses work on
the values, never on random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import AUTOMATIC_BUCKETS, ByHash, Kind, OperatorSpec, Output, QuerySpec
from workloads.riot import csv_lines
from workloads.riot.bloom import BloomFilter
from workloads.riot.results import MEASUREMENTS, message
from workloads.riot.schema import SENSORS, floats
from workloads.riot.sketches import DistinctCount, SecondOrderMoment
from workloads.riot.smoothing import Kalman, KalmanSettings, SlidingRegression

if TYPE_CHECKING:
    from headgate.stream import Sink, Source

_EACH = len(SENSORS)


@dataclass(frozen=True)
class StatsSettings:
    """The published parameters."""

    bloom_capacity: int = 20_000_000
    bloom_error: float = 0.01
    kalman: KalmanSettings = field(default_factory=KalmanSettings)
    train_window: int = 10
    horizon: int = 10
    moment_places: int = 10
    count_bits: int = 5
    buckets: int = AUTOMATIC_BUCKETS


def stats_query(
    source: Source, published: Sink, known: pa.Array, settings: StatsSettings | None = None, name: str = "stats"
) -> QuerySpec:
    """``source`` has ``LINES`` of CSV; ``known`` are the sources to look at; ``published`` gets ``MESSAGES``."""
    settings = settings or StatsSettings()
    bloom = BloomFilter(known, settings.bloom_capacity, settings.bloom_error)
    by_sensor = partial(
        OperatorSpec, kind=Kind.PARTITIONED, partitioning=ByHash(("source", "obstype")), buckets=settings.buckets
    )
    by_field = partial(OperatorSpec, kind=Kind.PARTITIONED, partitioning=ByHash(("obstype",)), buckets=settings.buckets)
    line = partial(SlidingRegression, settings.train_window, settings.horizon)
    moment = partial(SecondOrderMoment, settings.moment_places)
    distinct = partial(DistinctCount, settings.count_bits)
    operators = (
        OperatorSpec("lines", Kind.SOURCE, source=source),
        OperatorSpec("parse", Kind.STATELESS, ("lines",), function=measure, selectivity=float(_EACH)),
        OperatorSpec("bloom", Kind.STATELESS, ("parse",), function=partial(known_only, bloom)),
        by_sensor("kalman", inputs=("bloom",), state=partial(Kalman, settings.kalman)),
        by_sensor("regression", inputs=("kalman",), state=line),
        by_sensor("moment", inputs=("bloom",), state=moment),
        by_field("distinct", inputs=("bloom",), state=distinct),
        OperatorSpec("results", Kind.MERGE, ("regression", "moment", "distinct")),
        OperatorSpec("message", Kind.STATELESS, ("results",), function=message),
        OperatorSpec("publish", Kind.SINK, ("message",), sink=published),
    )
    return QuerySpec(name, operators)


def measure(batch: pa.RecordBatch) -> Output:
    """CSV lines as measurements: up to five for each line, in the order of ``SENSORS``."""
    parsed = csv_lines.parse(batch)
    measured = measurements(parsed.batch)
    row = measured.parents
    parents = row if parsed.parents is None else parsed.parents[row]
    return Output(measured.batch, parents, (), parsed.rejected)


def measurements(readings: pa.RecordBatch) -> Output:
    """Readings as measurements: one for each value that is there."""
    values = np.stack([floats(readings.column(name)) for name in SENSORS], axis=1).ravel()
    present = np.flatnonzero(~np.isnan(values))
    row = present // _EACH
    repeated = readings.select(MEASUREMENTS.names[:-2]).take(pa.array(row))
    fields = (present % _EACH + 1).astype(np.int8)
    columns = [*repeated.columns, pa.array(fields), pa.array(values[present])]
    return Output(pa.record_batch(columns, schema=MEASUREMENTS), row)


def known_only(known: BloomFilter, batch: pa.RecordBatch) -> Output:
    """Measurements whose source the filter has seen."""
    # One look at each different source: it comes with up to five measurements of a line.
    sources = batch.column("source").dictionary_encode()
    kept = known.contains(sources.dictionary)[sources.indices.to_numpy(zero_copy_only=False)]
    if kept.all():
        return Output(batch)
    rows = np.flatnonzero(kept)
    return Output(batch.take(pa.array(rows)), rows)
