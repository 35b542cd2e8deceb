"""PRED against a reader that takes one line after the other."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from headgate.stream.kernel import Part
from tests.workloads.dag_driver import GRID, GRID_IDS, MOST_ROWS, SIZES, Collected, Given, rows_until, run
from workloads.riot.city import City
from workloads.riot.pred import ESTIMATES, ErrorEstimate, PredSettings, pred_query
from workloads.riot.schema import LINES

CITY = City(seed=5, sources=30, missing=0.08, malformed=0.03)


def number(text: str) -> float | None:
    return None if text == "null" else float(text)


def air_class(air: float | None) -> str:
    if air is None:
        return "null"
    return "BAD" if air <= 22 else "GOOD" if air <= 29 else "VERYGOOD"


def expected_results(lines: list[str]) -> list[tuple[int, str, str, float | str | None]]:
    """(message, source, analysis, result) in the order in which they are published."""
    blocks: dict[str, list[float]] = defaultdict(list)
    average = None
    results = []
    for message_number, line in enumerate(lines):
        try:
            time, text = line.split(",", 1)
            entries = {entry["n"]: entry.get("sv", entry.get("v")) for entry in json.loads(text)["e"]}
            int(time)
        except ValueError:
            continue
        source = entries["source"]
        temperature, humidity, dust, air = (
            number(entries[name]) for name in ("temperature", "humidity", "dust", "airquality_raw")
        )
        if air is not None:
            blocks[source].append(air)
            if len(blocks[source]) == 5:
                average = sum(blocks.pop(source)) / 5
        error = None
        if None not in (temperature, humidity, dust, air, average):
            predicted = 37.442739000196276 - 0.5106896760749683 * temperature
            predicted += 0.1550345386077423 * humidity - 0.0043941074441107295 * dust
            error = (air - predicted) / average
        results.append((message_number, source, "error_estimate", error))
        results.append((message_number, source, "decision_tree", air_class(air)))
    return results


@pytest.fixture(scope="module")
def lines() -> pa.RecordBatch:
    return CITY.lines(0, MOST_ROWS)


@pytest.fixture(scope="module")
def reference(lines: pa.RecordBatch) -> list[dict[str, Any]]:
    return pred(lines, 100, 1)


def pred(lines: pa.RecordBatch, size: int, buckets: int, cut: int | None = None) -> list[dict[str, Any]]:
    published = Collected()
    run(pred_query(Given(LINES), published, PredSettings(buckets=buckets)), lines, size, cut)
    return published.rows()


def test_published_are_an_error_and_a_class_for_every_line(lines, reference) -> None:
    expected = expected_results(lines.column("line").to_pylist())
    assert len(reference) == len(expected)
    for row, (message_number, source, analysis, result) in zip(reference, expected, strict=True):
        got_source, got_analysis, got = row["message"].split("-", 2)
        assert (row["msgid"], got_source, got_analysis) == (message_number, source, analysis)
        if isinstance(result, float):
            assert float(got) == pytest.approx(result, rel=1e-12, abs=1e-12)
        else:
            assert got == (result or "null")
    assert {row["message"].rsplit("-", 1)[1] for row in reference} >= {"null", "BAD", "GOOD", "VERYGOOD"}


@pytest.mark.parametrize(("size", "buckets"), GRID, ids=GRID_IDS)
def test_packets_and_buckets_do_not_show(lines, reference, size, buckets) -> None:
    rows = SIZES[size]
    assert pred(lines.slice(0, rows), size, buckets) == rows_until(reference, rows)


@pytest.mark.parametrize("cut", [1, 77, 280])
def test_after_a_restart_it_goes_on_as_if_nothing_had_been(lines, reference, cut) -> None:
    assert pred(lines.slice(0, 300), 40, 3, cut) == rows_until(reference, 300)


def test_an_error_needs_an_average_that_is_not_zero() -> None:
    def estimate(value: float, average: bool = False) -> dict[str, Any]:
        return {"msgid": 0, "source": "s", "average": average, "observed": None if average else 9.0, "value": value}

    rows = [estimate(1.0), estimate(0.0, True), estimate(1.0), estimate(4.0, True), estimate(1.0), estimate(5.0)]
    output = ErrorEstimate().process(Part.whole(pa.RecordBatch.from_pylist(rows, schema=ESTIMATES)))
    results = [None if text is None else float(text) for text in output.batch.column("result").to_pylist()]
    assert results == [None, None, 2.0, 1.0]
    assert output.parents.tolist() == [0, 2, 4, 5]
