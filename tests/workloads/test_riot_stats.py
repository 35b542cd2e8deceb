"""STATS against analyses that take one measurement after the other, written from their definitions."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.workloads.dag_driver import GRID, GRID_IDS, MOST_ROWS, SIZES, Collected, Given, Run, rows_until, run
from workloads.riot.city import City
from workloads.riot.schema import LINES
from workloads.riot.stats import StatsSettings, stats_query

CITY = City(seed=11, sources=2, missing=0.08, unknown=0.05, malformed=0.03)
SENSORS = ("temperature", "humidity", "light", "dust", "airquality_raw")
MASK = (1 << 64) - 1


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def text_hash(text: str) -> int:
    data = text.encode()
    hashed = mixed(len(data) ^ 0x9E3779B97F4A7C15)
    for begin in range(0, len(data), 8):
        word = int.from_bytes(data[begin : begin + 8].ljust(8, b" "), "little")
        hashed = mixed((hashed * 3 & MASK) ^ word)
    return hashed


class KalmanOfOne:
    def __init__(self) -> None:
        self.x, self.p = np.float32(0), np.float32(30)

    def next(self, z: float) -> float:
        prior = self.p + np.float32(0.125)
        gain = prior / (prior + np.float32(0.32))
        self.x = self.x + gain * (np.float32(z) - self.x)
        self.p = (np.float32(1) - gain) * prior
        return float(self.x)


class MomentOfOne:
    def __init__(self, source: str, field: int) -> None:
        self.salt = mixed(text_hash(source) + field & MASK)
        self.table: list[list[float]] = []
        self.seen = 0

    def next(self, value: float) -> float:
        self.seen += 1
        for entry in self.table:
            if entry[0] == value:
                entry[1] += 1
                break
        else:
            if len(self.table) < 10:
                self.table.append([value, 1])
            else:
                self.table[mixed(self.salt + self.seen & MASK) % 10] = [value, 1]
        total = sum(2 * count - 1 for _, count in self.table) - (10 - len(self.table))
        return self.seen * total / len(self.table)


class LogLogOfOne:
    def __init__(self) -> None:
        self.registers = [0] * 32

    def next(self, source: str) -> int:
        hashed = int.from_bytes(hashlib.sha1(source.encode()).digest()[:4], "little", signed=True)
        rest, zeros = hashed >> 5, 0
        while rest and not rest >> zeros & 1:
            zeros += 1
        register = hashed & 31
        self.registers[register] = max(self.registers[register], zeros if rest else 31)
        return int(0.79402 * 32 * 2 ** (sum(self.registers) / 32))


def next_ten(values: list[float]) -> list[float]:
    slope, intercept = np.polyfit(range(10), values, 1)
    return [intercept + slope * place for place in range(10, 20)]


def expected_results(lines: list[str], known: set[str]) -> list[tuple[int, str, str, list[float]]]:
    """(message, analysis, source and field, numbers) in the order in which they are published."""
    kalman: dict[Any, KalmanOfOne] = defaultdict(KalmanOfOne)
    smoothed: dict[Any, list[float]] = defaultdict(list)
    moments: dict[Any, MomentOfOne] = {}
    counts: dict[int, LogLogOfOne] = defaultdict(LogLogOfOne)
    results = []
    for number, line in enumerate(lines):
        fields = line.split(",")
        if len(fields) != 9 or not fields[0].isdigit() or fields[1] not in known:
            continue
        source, regressions, second, distinct = fields[1], [], [], []
        for place, (name, text) in enumerate(zip(SENSORS, fields[4:], strict=True), start=1):
            if text == "null":
                continue
            key, value = (source, place), float(text)
            what = f"{source}-{name}"
            history = smoothed[key]
            history.append(kalman[key].next(value))
            if len(history) > 10:
                regressions.append((number, "sliding_regression", what, next_ten(history[-10:])))
            moment = moments.setdefault(key, MomentOfOne(*key))
            second.append((number, "second_order_moment", what, [moment.next(value)]))
            distinct.append((number, "distinct_count", what, [counts[place].next(source)]))
        results += regressions + second + distinct
    return results


@pytest.fixture(scope="module")
def lines() -> pa.RecordBatch:
    return CITY.csv_lines(0, MOST_ROWS)


@pytest.fixture(scope="module")
def reference(lines: pa.RecordBatch) -> list[dict[str, Any]]:
    return stats(lines, 100, 1)[1].rows()


def stats(lines: pa.RecordBatch, size: int, buckets: int, cut: int | None = None) -> tuple[Run, Collected]:
    published = Collected()
    settings = StatsSettings(bloom_capacity=10_000, bloom_error=0.0001, buckets=buckets)
    query = stats_query(Given(LINES), published, CITY.names.slice(0, CITY.sources), settings)
    return run(query, lines, size, cut), published


def taken_apart(row: dict[str, Any]) -> tuple[int, str, str, list[float]]:
    meta, field, numbers = divided(row["message"])
    return row["msgid"], row["analysis"], f"{meta.split(';')[0]}-{field}", [float(text) for text in numbers.split("#")]


def divided(message: str) -> tuple[str, str, str]:
    """Numbers may have a minus themselves: the field's name is what divides."""
    for name in SENSORS:
        meta, divider, numbers = message.partition(f"-{name}-")
        if divider:
            return meta, name, numbers
    raise AssertionError(message)


def test_published_are_the_results_of_analyses_one_by_one(lines) -> None:
    rows = 150
    texts = lines.column("line").to_pylist()[:rows]
    expected = expected_results(texts, set(CITY.names.to_pylist()[: CITY.sources]))
    got = [taken_apart(row) for row in stats(lines.slice(0, rows), 100, 3)[1].rows()]
    assert [each[:3] for each in got] == [each[:3] for each in expected]
    for (_, analysis, what, numbers), (*_, wanted) in zip(got, expected, strict=True):
        exact = analysis != "sliding_regression"
        assert numbers == (wanted if exact else pytest.approx(wanted, rel=1e-9, abs=1e-7)), what
    assert {each[1] for each in got} == {"sliding_regression", "second_order_moment", "distinct_count"}


@pytest.mark.parametrize(("size", "buckets"), GRID, ids=GRID_IDS)
def test_packets_and_buckets_do_not_show(lines, reference, size, buckets) -> None:
    rows = SIZES[size]
    assert stats(lines.slice(0, rows), size, buckets)[1].rows() == rows_until(reference, rows)


@pytest.mark.parametrize("cut", [1, 45, 99])
def test_after_a_restart_it_goes_on_as_if_nothing_had_been(lines, reference, cut) -> None:
    assert stats(lines.slice(0, 100), 40, 3, cut)[1].rows() == rows_until(reference, 100)


def test_malformed_lines_are_rejected_as_they_stand(lines) -> None:
    ran, _ = stats(lines.slice(0, 300), 100, 1)
    texts = lines.column("line").to_pylist()[:300]
    bad = [(row, text) for row, text in enumerate(texts) if text.count(",") != 8 or not text.split(",")[0].isdigit()]
    assert [(each.row, each.raw) for each in ran.rejected] == bad
    assert len(bad) > 1


def test_many_sources_are_counted_about_right() -> None:
    """LogLog with 32 registers is good to about 1.3 / sqrt(32) = 23 percent."""
    city = City(seed=3, sources=1000, unknown=0.0)
    published = Collected()
    settings = StatsSettings(bloom_capacity=100_000, buckets=1)
    query = stats_query(Given(LINES), published, city.names.slice(0, city.sources), settings)
    lines = city.csv_lines(0, 1500)
    run(query, lines, 1500)
    seen = len(set(city.readings(0, 1500).column("source").to_pylist()))
    last = [taken_apart(row) for row in published.rows() if row["analysis"] == "distinct_count"][-5:]
    assert all(0.5 * seen < numbers[0] < 1.7 * seen for *_, numbers in last)
