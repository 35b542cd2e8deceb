"""RIoTBench's PRED and STATS as queries of tables, by sensor, so that Spark can spread them over executors.

What the workload keeps across all sensors is by key here: PRED's error looks at the sensor's own last average, and
STATS counts distinct sensors in a query of its own, by field. The rest is the workload's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import Output, Part, Snapshot, Stream, on_spark
from workloads.riot import City, senml
from workloads.riot.bloom import BloomFilter
from workloads.riot.keyed import KeySlots, SlotGroups, grown
from workloads.riot.models import CITY_LINEAR, CITY_TREE
from workloads.riot.pred import PREDICTIONS, BlockAverage, classify, predict
from workloads.riot.schema import empty, floats, nullable
from workloads.riot.sketches import DistinctCount, SecondOrderMoment
from workloads.riot.smoothing import Kalman, SlidingRegression
from workloads.riot.stats import known_only, measure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CITY = City(seed=7, sources=2_000, rows_per_second=2_000)
#: as many as there are executors at most
BUCKETS = 4
SCHEMA = "ts timestamp, msgid long, source string, line string"


def landed(pipeline: str, first: int, count: int) -> pa.Table:
    """Lines ``first`` to ``first + count - 1``: SenML for PRED, CSV for STATS."""
    readings = CITY.readings(first, count)
    lines = CITY.lines(first, count) if pipeline == "pred" else CITY.csv_lines(first, count)
    sent = readings.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    columns = [sent, readings.column("msgid"), readings.column("source"), lines.column("line")]
    return pa.table(columns, names=["ts", "msgid", "source", "line"])


# --- PRED -----------------------------------------------------------------------------------------------------------


def pred(lines: Stream) -> Stream:
    """The class of each reading's air, and how far the regression is off, relative to the sensor's last average."""
    readings = lines.stateless(senml.parse, name="parse")
    classes = readings.stateless(partial(classify, CITY_TREE), name="tree")
    predicted = readings.stateless(partial(predict, CITY_LINEAR), name="regression")
    averages = readings.key_by("source").state(partial(BlockAverage, 5), name="average")
    errors = averages.merge(predicted).key_by("source").state(SensorError, name="error")
    return errors.merge(classes)


class SensorError:
    """(observed - predicted) / the last average of the same sensor, for every prediction; null before the first."""

    def __init__(self) -> None:
        self._keys = KeySlots()
        self._average = np.zeros(0)

    def process(self, part: Part) -> Output:
        batch = part.batch
        if not batch.num_rows:
            return Output(empty(PREDICTIONS), part.rows)
        slots = self._keys.of(batch.column("source"))
        self._average = grown(self._average, len(self._keys), np.nan)
        values = floats(batch.column("value"))
        is_average = batch.column("average").to_numpy(zero_copy_only=False)
        groups = SlotGroups(slots)
        # Within each sensor's rows, the place of the last average so far; before its first row: one that was kept.
        place = np.arange(len(slots))
        latest = np.maximum.accumulate(np.where(is_average[groups.order], place, -1))
        kept = self._average[groups.slots][groups.of_sorted]
        sorted_averages = np.where(latest >= groups.first[groups.of_sorted], values[groups.order][latest], kept)
        self._average[groups.slots] = sorted_averages[np.append(groups.first[1:], len(slots)) - 1]
        averages = np.empty(len(slots))
        averages[groups.order] = np.where(sorted_averages == 0, np.nan, sorted_averages)
        rows = np.flatnonzero(~is_average)
        errors = (floats(batch.column("observed"))[rows] - values[rows]) / averages[rows]
        found = batch.take(pa.array(rows))
        of_the_reading = [found.column(name) for name in ("msgid", "timestamp", "source")]
        columns = [*of_the_reading, pa.repeat("error_estimate", len(rows)), nullable(errors).cast(pa.string())]
        return Output(pa.record_batch(columns, schema=PREDICTIONS), part.rows[rows])

    def flush(self) -> Output:
        return Output(empty(PREDICTIONS))

    def snapshot(self) -> Snapshot:
        size = len(self._keys)
        table = pa.table({"key": self._keys.column(), "average": nullable(self._average[:size].copy())})
        return Snapshot({"sensors": table})

    def restore(self, snapshot: Snapshot) -> None:
        table = snapshot.tables["sensors"]
        self._keys.restore(table.column("key"))
        self._average = floats(table.column("average")).copy()


# --- STATS ----------------------------------------------------------------------------------------------------------


def measured(lines: Stream) -> Stream:
    """The values of known sensors, one in each row."""
    # The published filter is made for 20 million sensors and weighs 24 MB, which every task would have to build.
    known = BloomFilter(CITY.names.slice(0, CITY.sources), capacity=10_000)
    return lines.stateless(measure, name="parse").stateless(partial(known_only, known), name="bloom")


def moving(lines: Stream) -> Stream:
    """Where each sensor's values are going, smoothed, and how unevenly they are spread."""
    values = measured(lines)
    smooth = values.key_by("source", "obstype").state(Kalman, name="kalman")
    ahead = smooth.key_by("source", "obstype").state(partial(SlidingRegression, 10, 10), name="regression")
    moment = values.key_by("source", "obstype").state(partial(SecondOrderMoment, 10), name="moment")
    return ahead.merge(moment)


def distinct(values: Stream) -> Stream:
    """How many sensors have been heard of, by field."""
    return values.key_by("obstype").state(partial(DistinctCount, 5), name="distinct")


# --- tables ---------------------------------------------------------------------------------------------------------


def pred_table(lines: DataFrame) -> DataFrame:
    # By the number of the message, not its time: then the rows of a second are in one order, whoever computes them.
    return _with_time(on_spark(lines, pred, keys=["source"], time="msgid", buckets=BUCKETS))


def stats_table(lines: DataFrame) -> DataFrame:
    by_sensor = on_spark(lines, moving, keys=["source"], time="msgid", buckets=BUCKETS, name="by_sensor")
    values = on_spark(lines, measured, name="measured")
    by_field = on_spark(values, distinct, keys=["obstype"], time="msgid", buckets=BUCKETS, name="by_field")
    return _with_time(by_sensor.unionByName(by_field))


def _with_time(rows: DataFrame) -> DataFrame:
    """The workload counts milliseconds, a table wants a timestamp."""
    from pyspark.sql import functions as F

    return rows.select(F.timestamp_millis("timestamp").alias("ts"), "*")


TABLES = {"pred": pred_table, "stats": stats_table}
