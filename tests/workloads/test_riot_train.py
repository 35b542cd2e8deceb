"""TRAIN against NumPy's least squares and a tree that tries every split by counting."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.core.errors import ParameterError
from tests.workloads.dag_driver import Collected, Given, Run, run
from workloads.riot.city import City
from workloads.riot.models import CITY_LINEAR, CITY_TREE, UNKNOWN, LinearModel, TreeModel
from workloads.riot.train import REQUESTS, percentiles, requests, train_query

CITY = City(seed=2, sources=20, missing=0.03)
SENSORS = ("temperature", "humidity", "light", "dust", "airquality_raw")
TABLE_ROWS = 400


@pytest.fixture(scope="module")
def readings() -> pa.RecordBatch:
    return CITY.readings(0, TABLE_ROWS)


def train(readings: pa.RecordBatch, asked: pa.RecordBatch, size: int) -> tuple[Run, list[dict[str, Any]]]:
    published = Collected()
    ran = run(train_query(Given(REQUESTS), published, readings), asked, size)
    return ran, published.rows()


def complete_rows(readings: pa.RecordBatch, first: int, last: int) -> list[list[float]]:
    rows = readings.slice(first - 1, last - first + 1).to_pylist()
    values = [[row[name] for name in SENSORS] for row in rows]
    return [row for row in values if None not in row]


def percentile(values: list[float], percent: float) -> float:
    ordered, place = sorted(values), percent * (len(values) + 1) / 100
    if place < 1:
        return ordered[0]
    if place >= len(values):
        return ordered[-1]
    below = math.floor(place)
    return ordered[below - 1] + (place - below) * (ordered[below] - ordered[below - 1])


def labels_of(air: list[float]) -> list[int]:
    bounds = [percentile(air, percent) for percent in (25, 50, 75, 100)]
    return [max(sum(bound <= value for bound in bounds) - 1, 0) for value in air]


def grown_by_counting(rows: list[list[float]], labels: list[int], classes: int = 4, least: int = 2) -> Any:
    """A leaf's class, or (feature, threshold, left, right)."""
    counts = [labels.count(label) for label in range(classes)]
    best, split = sum(count * count for count in counts) / len(rows), None
    for feature in range(len(rows[0])):
        values = sorted({row[feature] for row in rows})
        for low, high in pairwise(values):
            sides: list[list[int]] = [[], []]
            for row, label in zip(rows, labels, strict=True):
                sides[row[feature] > low].append(label)
            if min(map(len, sides)) < least:
                continue
            parts = [sum(side.count(label) ** 2 for label in range(classes)) / len(side) for side in sides]
            if parts[0] + parts[1] > best:
                best, split = parts[0] + parts[1], (feature, low + (high - low) / 2)
    if split is None or max(counts) == len(rows):
        return counts.index(max(counts))
    feature, threshold = split
    left = [place for place, row in enumerate(rows) if row[feature] <= threshold]
    right = [place for place, row in enumerate(rows) if row[feature] > threshold]
    below = [grown_by_counting([rows[i] for i in side], [labels[i] for i in side]) for side in (left, right)]
    return feature, threshold, *below


def as_nested(tree: TreeModel, node: int = 0) -> Any:
    if tree.feature[node] < 0:
        return tree.label[node]
    sides = (as_nested(tree, tree.left[node]), as_nested(tree, tree.right[node]))
    return tree.feature[node], tree.threshold[node], *sides


def test_each_request_gives_both_models_of_its_rows(readings) -> None:
    asked = requests(0, 6, 60, TABLE_ROWS)
    _, models = train(readings, asked, 100)
    for request, linear, tree in zip(asked.to_pylist(), models[::2], models[1::2], strict=True):
        rows = complete_rows(readings, request["first"], request["last"])
        *features, air = np.array(rows).T
        matrix = np.column_stack([*features, np.ones(len(rows))])
        solution = np.linalg.lstsq(matrix, air, rcond=None)[0]
        model = LinearModel.from_json(linear["model"])
        assert [*model.coefficients, model.intercept] == pytest.approx(solution.tolist(), rel=1e-6)
        assert as_nested(TreeModel.from_json(tree["model"])) == grown_by_counting(rows, labels_of(air.tolist()))
        assert (linear["name"], tree["name"]) == (f"CITY-MLR-{request['last']}", f"CITY-DTC-{request['last']}")
        assert linear["request"] == tree["request"] == request["request"]


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_packets_do_not_show(readings, size) -> None:
    asked = requests(0, 12, 50, TABLE_ROWS)
    assert train(readings, asked, size)[1] == train(readings, asked, 12)[1]


def test_ranges_that_make_no_sense_are_rejected_and_empty_ones_give_nothing(readings) -> None:
    ranges = {"request": [0, 1, 2, 3], "first": [0, 9, 4, TABLE_ROWS + 1], "last": [5, 60, 3, TABLE_ROWS + 9]}
    ran, models = train(readings, pa.record_batch(ranges, schema=REQUESTS), 4)
    assert [each.row for each in ran.rejected] == [0, 2]
    assert [row["request"] for row in models] == [1, 1]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_percentiles_are_those_of_the_original(count) -> None:
    values = np.random.default_rng(count).integers(0, 30, size=count).astype(float)
    expected = [percentile(values.tolist(), percent) for percent in (25, 50, 75, 100)]
    assert percentiles(values).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_a_tree_on_noisy_classes_is_the_one_found_by_counting(seed) -> None:
    random = np.random.default_rng(seed)
    matrix = random.integers(0, 12, size=(60, 3)).astype(float)
    labels = (matrix[:, 1] > 5).astype(int) + (random.random(60) < 0.2)
    tree = TreeModel.trained(list(matrix.T), labels)
    assert as_nested(tree) == grown_by_counting(matrix.tolist(), labels.tolist())
    assert as_nested(TreeModel.from_json(tree.to_json())) == as_nested(tree)


def test_a_tree_predicts_by_its_nodes_and_does_not_guess() -> None:
    air = np.array([22.0, 22.5, 29.0, 30.0, np.nan])
    other = np.full(5, np.nan)
    assert CITY_TREE.predict([other] * 4 + [air]).tolist() == [0, 1, 1, 2, UNKNOWN]


def test_a_tree_stops_at_its_depth() -> None:
    values = np.arange(64.0)
    labels = (values % 4 // 2).astype(int)
    assert len(TreeModel.trained([values], labels, depth=1).feature) == 3


def test_a_linear_model_ignores_what_has_no_coefficient() -> None:
    absent = np.array([np.nan, np.nan])
    predicted = CITY_LINEAR.predict([np.array([10.0, np.nan]), np.array([50.0, 50.0]), absent, np.array([100.0, 1.0])])
    assert predicted[0] == pytest.approx(37.442739 - 5.10689676 + 7.75172693 - 0.43941074)
    assert np.isnan(predicted[1])


def test_a_constant_feature_gets_no_weight() -> None:
    x = np.arange(10.0)
    model = LinearModel.trained([x, np.full(10, 3.0)], 2 * x + 1)
    assert model.coefficients == pytest.approx((2.0, 0.0))
    assert model.intercept == pytest.approx(1.0)


@pytest.mark.parametrize("model", [LinearModel, TreeModel])
def test_no_rows_make_no_model(model) -> None:
    with pytest.raises(ParameterError, match="no rows"):
        model.trained([np.empty(0)], np.empty(0, dtype=int))
