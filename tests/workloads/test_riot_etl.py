"""ETL against a reader that takes one line after the other."""

from __future__ import annotations

import json
import struct
from collections import defaultdict, deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.stream.kernel import Part
from tests.workloads.dag_driver import GRID, GRID_IDS, MOST_ROWS, SIZES, Collected, Given, Run, rows_until, run
from workloads.riot.city import City
from workloads.riot.etl import EtlSettings, RangeFilter, etl_query
from workloads.riot.join import MessageJoin
from workloads.riot.schema import LINES, OBSERVABLES, OBSERVATIONS

CITY = City(seed=7, sources=6, missing=0.08, unknown=0.05, malformed=0.06)
SENSORS = ("temperature", "humidity", "light", "dust", "airquality_raw")
LIMITS = {
    "temperature": (0.7, 35.1),
    "humidity": (20.3, 69.1),
    "light": (0, 5153),
    "dust": (83.36, 3322.67),
    "airquality_raw": (12, 49),
}


def as_float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def readable(line: str) -> dict[str, Any] | None:
    time, comma, text = line.partition(",")
    try:
        message = json.loads(text)
    except ValueError:
        return None
    if not comma or not time.isdigit():
        return None
    values = {entry["n"]: entry.get("sv", entry.get("v")) for entry in message["e"]}
    return {"timestamp": message["bt"], **values}


def expected_rows(lines: list[str], annotations: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    history: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=5))
    rows = []
    for number, line in enumerate(lines):
        reading = readable(line)
        if reading is None:
            continue
        source = reading["source"]
        row = {"msgid": number, "timestamp": reading["timestamp"], "source": source if source in annotations else None}
        row |= {name: float(reading[name]) for name in ("longitude", "latitude")}
        for name in SENSORS:
            value = None if reading[name] == "null" else float(reading[name])
            low, high = (as_float32(limit) for limit in LIMITS[name])
            kept = history[source, name]
            if value is not None and low <= as_float32(value) <= high:
                kept.append(value)
                row[name] = value
            else:
                row[name] = sum(kept) / len(kept) if kept else 0.0
        row["location"], row["type"] = annotations.get(source, (None, None))
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def lines() -> pa.RecordBatch:
    return CITY.lines(0, MOST_ROWS)


@pytest.fixture(scope="module")
def expected(lines: pa.RecordBatch) -> list[dict[str, Any]]:
    table = {row["source"]: (row["location"], row["type"]) for row in CITY.annotations().to_pylist()}
    return expected_rows(lines.column("line").to_pylist(), table)


def etl(lines: pa.RecordBatch, size: int, buckets: int, cut: int | None = None) -> tuple[Run, Collected, Collected]:
    table, published = Collected(), Collected()
    settings = EtlSettings(bloom_capacity=10_000, bloom_error=0.0001, buckets=buckets)
    query = etl_query(Given(LINES), table, published, CITY.annotations(), settings)
    return run(query, lines, size, cut), table, published


@pytest.mark.parametrize(("size", "buckets"), GRID, ids=GRID_IDS)
def test_the_table_gets_what_a_reader_line_by_line_makes(lines, expected, size, buckets) -> None:
    rows = SIZES[size]
    _, table, _ = etl(lines.slice(0, rows), size, buckets)
    assert table.rows() == rows_until(expected, rows)


def test_messages_say_what_the_table_says(lines, expected) -> None:
    _, _, published = etl(lines.slice(0, 300), 100, 3)
    wanted = rows_until(expected, 300)
    assert [row["msgid"] for row in published.rows()] == [row["msgid"] for row in wanted]
    for row, want in zip(published.rows(), wanted, strict=True):
        message = json.loads(row["message"])
        assert message["bt"] == want["timestamp"]
        texts = {entry["n"]: entry["sv"] for entry in message["e"] if "sv" in entry}
        numbers = {entry["n"]: float(entry["v"]) for entry in message["e"] if "v" in entry}
        named = ("source", "location", "type")
        assert texts == {name: want[name] for name in named if want[name] is not None}
        assert numbers == {name: want[name] for name in ("longitude", "latitude", *SENSORS)}


@pytest.mark.parametrize("size", [7, 100])
def test_malformed_lines_are_rejected_as_they_stand(lines, size) -> None:
    rows = SIZES[size]
    ran, _, _ = etl(lines.slice(0, rows), size, 3)
    texts = lines.column("line").to_pylist()[:rows]
    unreadable = [(number, text) for number, text in enumerate(texts) if readable(text) is None]
    assert [(each.row, each.raw) for each in ran.rejected] == unreadable
    assert len(unreadable) > 1


@pytest.mark.parametrize("cut", [1, 83, 140])
def test_after_a_restart_it_goes_on_as_if_nothing_had_been(lines, expected, cut) -> None:
    _, table, _ = etl(lines.slice(0, 150), 40, 3, cut)
    assert table.rows() == rows_until(expected, 150)


def test_the_input_has_all_that_etl_is_for(expected) -> None:
    assert any(row["source"] is None for row in expected)
    assert any(row[name] == 0.0 for row in expected for name in ("temperature", "humidity"))
    assert len({row["source"] for row in expected}) == 7


def test_the_range_filter_compares_in_32_bits() -> None:
    values = [0.7, 0.69999999, 0.69, 35.1, 35.2, None]
    blank = {"msgid": 0, "source": "s", "timestamp": 0, "longitude": 0.0, "latitude": 0.0, "obstype": 1, "text": None}
    batch = pa.RecordBatch.from_pylist([{**blank, "value": value} for value in values], schema=OBSERVATIONS)
    filtered = RangeFilter({"temperature": (0.7, 35.1)})(batch).batch.column("value").to_pylist()
    assert filtered == [0.7, 0.69999999, None, 35.1, None, None]


def scattered(seed: int) -> list[dict[str, Any]]:
    """Observations of 12 messages in any order, some fields missing, some more than once."""
    random = np.random.default_rng(seed)
    pairs = [(message, name) for message in range(12) for name in range(6) if random.random() < 0.9]
    pairs += [pairs[place] for place in random.integers(len(pairs), size=15)]
    random.shuffle(pairs)
    return [
        {
            "msgid": message,
            "source": "s",
            "timestamp": 10 + message,
            "longitude": 1.0,
            "latitude": 2.0,
            "obstype": name,
            "value": None if name == 0 else float(place),
            "text": f"s{place}" if name == 0 else None,
        }
        for place, (message, name) in enumerate(pairs)
    ]


def joined_one_by_one(observations: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """(place of the last observation, reading) with a queue for every field of a message."""
    queues: dict[int, list[deque[Any]]] = defaultdict(lambda: [deque() for _ in OBSERVABLES])
    readings = []
    for place, row in enumerate(observations):
        queue = queues[row["msgid"]]
        queue[row["obstype"]].append(row["text"] if row["obstype"] == 0 else row["value"])
        if all(queue):
            values = dict(zip(OBSERVABLES, (each.popleft() for each in queue), strict=True))
            meta = {name: row[name] for name in ("msgid", "timestamp", "longitude", "latitude")}
            readings.append((place, {**meta, **values}))
    return readings


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_scattered_observations_join_when_the_last_one_comes(seed, size) -> None:
    observations = scattered(seed)
    expected = joined_one_by_one(observations)
    assert expected
    batch = pa.RecordBatch.from_pylist(observations, schema=OBSERVATIONS)
    state, got = MessageJoin(), []
    for begin in range(0, batch.num_rows, size):
        output = state.process(Part.whole(batch.slice(begin, size)))
        got += zip((output.parents + begin).tolist(), output.batch.to_pylist(), strict=True)
        restored = MessageJoin()
        restored.restore(state.snapshot())
        state = restored
    assert got == expected
