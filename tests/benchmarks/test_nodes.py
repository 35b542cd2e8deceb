"""PRED and STATS by sensor, as `nodes` spreads them over executors: the same as plain Python, and as the workload."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from benchmarks.stream_spark import riot
from benchmarks.stream_spark.sharing import VARIANTS, measure_sharing
from headgate.stream import Collect, Part, Query, Stream, from_batches, run
from workloads.riot import City, StatsSettings, senml, stats_query
from workloads.riot.models import CITY_LINEAR
from workloads.riot.pred import BlockAverage, predict
from workloads.riot.results import message
from workloads.riot.schema import SENSORS

LINES = 6_000


@pytest.fixture(autouse=True)
def a_small_city(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few sensors that each has had enough readings for every window."""
    monkeypatch.setattr(riot, "CITY", City(seed=7, sources=100, rows_per_second=100))


def ran(build: object, rows: pa.Table) -> pa.Table:
    sink, query = Collect(), Query("q")
    assert callable(build)
    stream: Stream = build(query.source(from_batches(rows)))
    stream.to(sink)
    run(query, workers=1, packet_rows=700)
    return sink.table()


def test_an_error_is_relative_to_the_last_average_of_its_own_sensor() -> None:
    blocks: dict[str, list[float]] = defaultdict(list)
    average: dict[str, float] = {}
    expected = {}
    for reading in riot.CITY.readings(0, LINES).to_pylist():
        source, values = reading["source"], [reading[name] for name in SENSORS]
        observed = values[-1]
        if observed is not None:
            blocks[source].append(observed)
            if len(blocks[source]) == 5:
                average[source] = sum(blocks.pop(source)) / 5
        terms = [(w, v) for w, v in zip(CITY_LINEAR.coefficients, values[:-1], strict=True) if w]
        known = source in average and None not in (observed, *(value for _, value in terms))
        predicted = CITY_LINEAR.intercept + sum(weight * (value or 0.0) for weight, value in terms)
        expected[reading["msgid"]] = (observed - predicted) / average[source] if known else None
    found = {
        row["msgid"]: None if row["result"] is None else float(row["result"])
        for row in ran(riot.pred, riot.landed("pred", 0, LINES)).to_pylist()
        if row["analysis"] == "error_estimate"
    }
    assert found.keys() == expected.keys()
    assert sum(error is not None for error in expected.values()) > LINES // 2
    for msgid, error in expected.items():
        there = found[msgid]
        assert (there is None) == (error is None)
        assert error is None or there is None or abs(there - error) < 1e-9


def test_the_averages_of_sensors_survive_a_snapshot() -> None:
    rows = riot.landed("pred", 0, LINES)
    whole = ran(riot.pred, rows)
    errors: list[pa.RecordBatch] = []

    def estimates(lines: Stream) -> Stream:
        readings = lines.stateless(senml.parse)
        averages = readings.key_by("source").state(partial(BlockAverage, 5))
        return averages.merge(readings.stateless(partial(predict, CITY_LINEAR)))

    state = riot.SensorError()
    for batch in ran(estimates, rows).to_batches(max_chunksize=500):
        following = riot.SensorError()
        following.restore(state.snapshot())
        state = following
        errors.append(state.process(Part.whole(batch)).batch)
    found = pa.Table.from_batches(errors)
    is_error = pc.equal(whole.column("analysis"), "error_estimate")
    assert found.combine_chunks().equals(whole.filter(is_error).combine_chunks())


def test_stats_by_sensor_and_by_field_are_the_stats_of_the_workload() -> None:
    rows = riot.landed("stats", 0, LINES)
    sink = Collect()
    known = riot.CITY.names.slice(0, riot.CITY.sources)
    run(stats_query(from_batches(rows), sink, known, StatsSettings(bloom_capacity=10_000)), workers=1)
    expected = sink.table()
    by_sensor = ran(riot.moving, rows)
    by_field = ran(riot.distinct, ran(riot.measured, rows))
    found = [message(batch).batch for part in (by_sensor, by_field) for batch in part.to_batches()]
    keys = [(name, "ascending") for name in expected.column_names]
    assert pa.Table.from_batches(found).sort_by(keys).equals(expected.sort_by(keys).combine_chunks())
    assert expected.num_rows > 13 * LINES


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_rows_leave_the_task_whatever_goes_first(variant: str) -> None:
    high, low = measure_sharing(variant, low=2, lines=2_000)
    assert (high["rows"], low["rows"]) == (4_000, 8_000), "an error and a class for every line"
    assert high["last"] <= low["last"] or variant != "scheduler (default)"
