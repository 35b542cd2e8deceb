"""RIoTBench on a warehouse: a city's sensors send lines of SenML; extract, statistics, training, prediction are tables.

    headgate run examples/city/city.py --for "1 min" --report city.html
    python examples/city/check.py

Each table is a query of the stream engine, which Spark runs inside the table's updates. The operators are those of
``workloads.riot``; what is written here is how they hang together, and what matters how much.
"""

import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import headgate as hg
from headgate.core import UnknownNameError
from headgate.stream import on_spark
from headgate.warehouse import NotAWarehouseError

# The operators lie beside the examples in the repository, not in the package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from sensors import SensorLines

from workloads.riot import City
from workloads.riot.bloom import BloomFilter
from workloads.riot.etl import RANGES, Annotations, RangeFilter, bloom_filter, observe
from workloads.riot.interpolation import Interpolation
from workloads.riot.join import MessageJoin
from workloads.riot.models import CITY_LINEAR, CITY_TREE, LinearModel, TreeModel
from workloads.riot.periodic import PeriodicTraining
from workloads.riot.pred import BlockAverage, ErrorEstimate, classify, predict
from workloads.riot.results import ANALYSES
from workloads.riot.schema import OBSERVABLES
from workloads.riot.sketches import DistinctCount, SecondOrderMoment
from workloads.riot.smoothing import Kalman, SlidingRegression
from workloads.riot.stats import measurements

# 200 sensors that send once a second each, so that a minute is enough for every window of every sensor; one line in a
# hundred is damaged, one in two hundred is of a sensor that nobody has registered.
CITY = City(seed=7, sources=200, rows_per_second=200, missing=0.01, unknown=0.005, malformed=0.01)
#: how much event time is trained on, and how often
TRAINING = timedelta(seconds=10)
#: a partition: long enough that an update of two seconds seldom writes two files, short enough to see several in a run
MINUTE = "1 min"
#: states by sensor lie in as many buckets as a small machine has cores; more would be more tasks of Spark per update
BUCKETS = 2

wh = hg.Warehouse("city")

# Everything hangs on the lines and loading them is cheap: their own priority may be low, they inherit that of the most
# important table over them. Whole seconds of lines arrive together, so no second is ever half there.
wh.stream(
    "lines",
    SensorLines(CITY, every=2),
    time="ts",
    period="2 seconds",
    partition=MINUTE,
    comment="SenML as the sensors send it, damaged lines included",
)


# --- ETL ------------------------------------------------------------------------------------------------------------


def extract(lines):
    """Parse, filter by range, check the sensor, fill gaps, put together again, annotate. Damaged lines are rejected."""
    register = CITY.annotations()
    # The published filter is made for 20 million sensors and weighs 24 MB, which every task would have to build.
    known = BloomFilter(register.column("source").combine_chunks(), capacity=10_000)
    observations = lines.stateless(observe, name="parse")
    observations = observations.stateless(RangeFilter(RANGES), name="range")
    observations = observations.stateless(partial(bloom_filter, known), name="bloom")
    filled = observations.key_by("source", "obstype").state(partial(Interpolation, 5), name="interpolate")
    # The message number alone would do. With the sensor in the key, all states go by sensor, and so can Spark.
    joined = filled.key_by("source", "msgid").state(MessageJoin, name="join")
    return joined.stateless(Annotations(register).annotate, name="annotate")


@wh.table(time="ts", partition=MINUTE, mode="append", priority=20, target_lag="10 seconds")
def readings(lines):
    """ETL: readings with all values, and where their sensor stands."""
    rows = with_time(on_spark(lines, extract, keys=["source"], time="ts", buckets=BUCKETS))
    # Buckets come one after the other. What is built on this table takes readings of the same second in the order in
    # which they lie here, which has to be that of the lines, however many buckets there are.
    return rows.repartition(1).sortWithinPartitions("msgid")


def with_time(rows):
    """The workload counts milliseconds, a warehouse wants a timestamp. The queries go on with the milliseconds."""
    return rows.select(F.timestamp_millis("timestamp").alias("ts"), "*")


# --- STATS ----------------------------------------------------------------------------------------------------------


def by_sensor(readings):
    """Where each sensor's values are going, smoothed, and how unevenly they are spread."""
    measured = measure(readings)
    smooth = measured.key_by("source", "obstype").state(Kalman, name="kalman")
    ahead = smooth.key_by("source", "obstype").state(partial(SlidingRegression, 10, 10), name="regression")
    moment = measured.key_by("source", "obstype").state(partial(SecondOrderMoment, 10), name="moment")
    return ahead.merge(moment)


def by_field(readings):
    """How many sensors have been heard of."""
    return measure(readings).key_by("obstype").state(partial(DistinctCount, 5), name="distinct")


def measure(readings):
    return registered(readings).stateless(measurements, name="measure")


def registered(readings):
    """Without those of sensors that nobody has registered: ETL has taken their names from them."""
    return readings.filter(pc.field("source").is_valid(), name="registered")


@wh.table(time="ts", partition=MINUTE, mode="append", priority=5, target_lag="20 seconds")
def stats(readings):
    """STATS: Kalman and sliding regression, second moment, distinct count."""
    # Two queries, because one counts across sensors: its states do not go by the key of the others.
    each = on_spark(readings, by_sensor, keys=["source"], time="ts", buckets=BUCKETS, name="by_sensor")
    all_together = on_spark(readings, by_field, time="ts", buckets=1, name="by_field")
    rows = with_time(each.unionByName(all_together))
    field, analysis = F.array(*map(F.lit, OBSERVABLES)), F.array(*map(F.lit, ANALYSES))
    return rows.select(
        "ts",
        "msgid",
        "source",
        F.get(field, F.col("obstype")).alias("field"),
        F.get(analysis, F.col("analysis")).alias("analysis"),
        "result",
    )


# --- TRAIN ----------------------------------------------------------------------------------------------------------


def train(readings):
    """A regression and a decision tree of every ten seconds of readings, as JSON."""
    period = TRAINING // timedelta(milliseconds=1)
    return readings.stateful(partial(PeriodicTraining, period), name="train")


# The lowest priority: an old model is still a model. No table names this one as its source, or it would inherit that
# table's priority, and that table could never be fresher than this one.
@wh.table(time="ts", partition=MINUTE, mode="append", priority=1, target_lag="1 min")
def models(readings):
    """TRAIN: a row for each training."""
    return with_time(on_spark(readings, train, time="ts", buckets=1))


# --- PRED -----------------------------------------------------------------------------------------------------------
# What the city looks at: the highest priority, which the readings and the lines inherit on its way.


def score(name, linear, tree, readings):
    """The class of each reading's air, and how far the regression is off, relative to the last mean of any sensor."""
    readings = registered(readings)
    classes = readings.stateless(partial(classify, tree), name="tree")
    predicted = readings.stateless(partial(predict, linear), name="regression")
    means = readings.key_by("source").state(partial(BlockAverage, 5), name="average")
    errors = means.merge(predicted).stateful(ErrorEstimate, name="error")
    return errors.merge(classes).map(partial(with_model, name), name="model")


def with_model(name, predictions):
    return predictions.append_column("model", pa.repeat(name, predictions.num_rows))


@wh.table(time="ts", partition=MINUTE, mode="append", priority=50, target_lag="10 seconds")
def predictions(readings):
    """PRED: with the newest model that there is when the update begins, named in every row."""
    # One bucket: the error looks at the last mean of all sensors. The model is an argument of operators without state,
    # so another one can be put in between two updates.
    with_newest = partial(score, *newest_model())
    return with_time(on_spark(readings, with_newest, time="ts", buckets=1))


def newest_model():
    """(name, regression, tree): the last that was trained; EdgeWise's models of a city as long as there is none."""
    try:
        trained = wh.read("models")
    except (NotAWarehouseError, UnknownNameError):
        return UNTRAINED
    if not trained.num_rows:
        return UNTRAINED
    last = trained.slice(pc.sort_indices(trained.column("last"))[-1].as_py(), 1).to_pylist()[0]
    return last["name"], LinearModel.from_json(last["linear"]), TreeModel.from_json(last["tree"])


UNTRAINED = ("EdgeWise", CITY_LINEAR, CITY_TREE)
