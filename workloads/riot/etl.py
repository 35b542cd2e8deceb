"""ETL: parse -> range filter -> Bloom filter -> interpolate -> join -> annotate -> {insert, to SenML -> publish}.

Differences from the original, where that depends on timing or on text: values are typed and absent ones null; a source
that the Bloom filter does not know stays null to the end (the original puts its name back); a source without annotation
gets nulls (the original repeats the previous annotation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.stream import AUTOMATIC_BUCKETS, ByHash, Kind, OperatorSpec, Output, QuerySpec
from workloads.riot import senml
from workloads.riot.bloom import BloomFilter
from workloads.riot.interpolation import Interpolation
from workloads.riot.join import MessageJoin
from workloads.riot.schema import ANNOTATED, OBSERVABLES, OBSERVATIONS, SENSORS, SOURCE_FIELD, floats

if TYPE_CHECKING:
    from headgate.stream import Sink, Source

#: {sensor: (least, greatest value that passes)}
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.7, 35.1),
    "humidity": (20.3, 69.1),
    "light": (0.0, 5153.0),
    "dust": (83.36, 3322.67),
    "airquality_raw": (12.0, 49.0),
}
_EACH = len(OBSERVABLES)
_VALUE, _TEXT = (OBSERVATIONS.get_field_index(name) for name in ("value", "text"))


@dataclass(frozen=True)
class EtlSettings:
    """The published parameters."""

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=lambda: RANGES)
    bloom_capacity: int = 20_000_000
    bloom_error: float = 0.01
    window: int = 5
    buckets: int = AUTOMATIC_BUCKETS


def etl_query(
    source: Source,
    table: Sink,
    published: Sink,
    annotations: pa.Table,
    settings: EtlSettings | None = None,
    name: str = "etl",
) -> QuerySpec:
    """``source`` has ``LINES`` of SenML; ``table`` gets ``ANNOTATED`` readings, ``published`` the same as SenML.

    The sources in ``annotations`` (columns source, location, type) are those that the Bloom filter knows.
    """
    settings = settings or EtlSettings()
    sources = annotations.column("source").combine_chunks()
    known = BloomFilter(sources, settings.bloom_capacity, settings.bloom_error)
    lookup = Annotations(annotations)
    buckets = settings.buckets
    operators = (
        OperatorSpec("lines", Kind.SOURCE, source=source),
        OperatorSpec("parse", Kind.STATELESS, ("lines",), function=observe, selectivity=float(_EACH)),
        OperatorSpec("range", Kind.STATELESS, ("parse",), function=RangeFilter(settings.ranges)),
        OperatorSpec("bloom", Kind.STATELESS, ("range",), function=partial(bloom_filter, known)),
        OperatorSpec(
            "interpolate",
            Kind.PARTITIONED,
            ("bloom",),
            state=partial(Interpolation, settings.window),
            partitioning=ByHash(("source", "obstype")),
            buckets=buckets,
        ),
        OperatorSpec(
            "join",
            Kind.PARTITIONED,
            ("interpolate",),
            state=MessageJoin,
            partitioning=ByHash(("msgid",)),
            buckets=buckets,
            selectivity=1 / _EACH,
        ),
        OperatorSpec("annotate", Kind.STATELESS, ("join",), function=lookup.annotate),
        OperatorSpec("insert", Kind.SINK, ("annotate",), sink=table),
        OperatorSpec("senml", Kind.STATELESS, ("annotate",), function=to_senml),
        OperatorSpec("publish", Kind.SINK, ("senml",), sink=published),
    )
    return QuerySpec(name, operators)


def observe(batch: pa.RecordBatch) -> Output:
    """SenML lines as observations: six rows for each line, its source first."""
    parsed = senml.parse(batch)
    readings = parsed.batch
    count = readings.num_rows
    row = np.repeat(np.arange(count), _EACH)
    repeated = readings.select(["msgid", "source", "timestamp", "longitude", "latitude"]).take(pa.array(row))
    values = np.stack([np.full(count, np.nan), *(floats(readings.column(name)) for name in SENSORS)], axis=1).ravel()
    fields = np.tile(np.arange(_EACH, dtype=np.int8), count)
    text = readings.column("source").take(pa.array(row, mask=fields != SOURCE_FIELD))
    columns = [*repeated.columns, pa.array(fields), pa.array(values, mask=np.isnan(values)), text]
    parents = row if parsed.parents is None else parsed.parents[row]
    return Output(pa.record_batch(columns, schema=OBSERVATIONS), parents, (), parsed.rejected)


class RangeFilter:
    """Values outside of their sensor's range become null. Compared as numbers of 32 bits, as the original does."""

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        limits = [ranges.get(name, (-np.inf, np.inf)) for name in OBSERVABLES]
        self._low, self._high = np.array(limits, dtype=np.float32).T.copy()

    def __call__(self, batch: pa.RecordBatch) -> Output:
        fields = batch.column("obstype").to_numpy()
        values = floats(batch.column("value"))
        narrow = values.astype(np.float32)
        inside = (narrow >= self._low[fields]) & (narrow <= self._high[fields])
        return Output(batch.set_column(_VALUE, "value", pa.array(values, mask=~inside)))


def bloom_filter(known: BloomFilter, batch: pa.RecordBatch) -> Output:
    """The field ``source`` becomes null if the filter has not seen it; other fields pass unchecked."""
    rows = np.flatnonzero(batch.column("obstype").to_numpy() == SOURCE_FIELD)
    text = batch.column("text")
    unknown = rows[~known.contains(text.take(pa.array(rows)))]
    if not len(unknown):
        return Output(batch)
    keep = np.ones(batch.num_rows, dtype=bool)
    keep[unknown] = False
    return Output(batch.set_column(_TEXT, "text", pc.if_else(pa.array(keep), text, None)))


class Annotations:
    """Location and type by source."""

    def __init__(self, table: pa.Table) -> None:
        self._sources = table.column("source").combine_chunks()
        self._columns = tuple(table.column(name).combine_chunks() for name in ("location", "type"))

    def annotate(self, batch: pa.RecordBatch) -> Output:
        """Readings with location and type, null for sources that are not in the table."""
        place = pc.index_in(batch.column("source"), value_set=self._sources)
        found = (column.take(place) for column in self._columns)
        return Output(pa.record_batch([*batch.columns, *found], schema=ANNOTATED))


def to_senml(batch: pa.RecordBatch) -> Output:
    """Annotated readings as messages."""
    messages = senml.write_annotated(batch)
    return Output(pa.record_batch({"msgid": batch.column("msgid"), "message": messages}))
