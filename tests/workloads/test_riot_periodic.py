"""Training by periods of event time: the same models for every cut of the stream, and those of the rows of a period."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.core.errors import ParameterError
from headgate.stream.kernel import Part, Snapshot
from workloads.riot.city import City
from workloads.riot.periodic import PeriodicTraining
from workloads.riot.schema import READINGS, SENSORS

PERIOD = 2_000
#: ten readings a second, so twenty for a model; the first one comes in the middle of a period
CITY = City(seed=3, sources=9, rows_per_second=10, start=1_422_748_801_000, missing=0.05)
ROWS = 100


@pytest.fixture(scope="module")
def readings() -> pa.RecordBatch:
    return CITY.readings(0, ROWS)


def trained(readings: pa.RecordBatch, cuts: Sequence[int], restarts: bool = False) -> list[tuple[int, dict[str, Any]]]:
    """(the reading that ended the period, the model) over packets that end at ``cuts``."""
    state, found = PeriodicTraining(PERIOD), []
    for begin, end in zip([0, *cuts], [*cuts, ROWS], strict=True):
        output = state.process(Part.whole(readings.slice(begin, end - begin)))
        assert output.parents is not None
        found += zip((output.parents + begin).tolist(), output.batch.to_pylist(), strict=True)
        if restarts:
            kept, state = state.snapshot(), PeriodicTraining(PERIOD)
            state.restore(Snapshot(dict(kept.tables), json.loads(json.dumps(dict(kept.values)))))
    assert not state.flush().batch.num_rows
    return found


def test_a_model_is_made_of_each_period_when_the_next_one_begins(readings: pa.RecordBatch) -> None:
    found = trained(readings, [])
    assert [end for end, _ in found] == [10, 30, 50, 70, 90]
    times = readings.column("timestamp").to_numpy()
    matrix = np.stack([readings.column(name).to_numpy(zero_copy_only=False) for name in SENSORS], axis=1)
    for end, model in found:
        assert model["timestamp"] == times[end] == model["last"] + 1
        assert model["name"] == f"CITY-{model['last']}"
        rows = matrix[(times >= model["first"]) & (times <= model["last"])]
        rows = rows[~np.isnan(rows).any(axis=1)]
        assert model["rows"] == len(rows)
        with_one = np.column_stack([rows[:, :-1], np.ones(len(rows))])
        coefficients = np.linalg.lstsq(with_one, rows[:, -1], rcond=None)[0]
        linear = json.loads(model["linear"])
        assert [*linear["coefficients"], linear["intercept"]] == pytest.approx(coefficients, rel=1e-5, abs=1e-5)
        assert set(json.loads(model["tree"])["label"]) <= {0, 1, 2, 3}


@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "restarts"])
@pytest.mark.parametrize("cuts", [[10], [9, 10, 11], [5, 5, 64], list(range(1, ROWS))], ids=str)
def test_packets_and_restarts_do_not_show(readings: pa.RecordBatch, cuts: list[int], restarts: bool) -> None:
    assert trained(readings, cuts, restarts) == trained(readings, [])


def reading(seconds: float, air: float | None = 20.0) -> dict[str, Any]:
    values = dict.fromkeys(SENSORS, 1.0) | {"airquality_raw": air}
    return {"msgid": 0, "timestamp": int(1000 * seconds), "source": "s", **values}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([reading(0), reading(1)], [], id="a period that is not over makes no model"),
        pytest.param([reading(0), reading(9)], [(0, 1)], id="nor do periods without readings"),
        pytest.param([reading(0, None), reading(2), reading(4)], [(2, 1)], id="nor those without whole readings"),
        pytest.param([reading(2), reading(1), reading(4)], [(2, 2)], id="a late reading counts for the open period"),
    ],
)
def test_which_periods_make_a_model(rows: list[dict[str, Any]], expected: list[tuple[int, int]]) -> None:
    output = PeriodicTraining(PERIOD).process(Part.whole(pa.RecordBatch.from_pylist(rows, schema=READINGS)))
    found = [(model["first"] // 1000, model["rows"]) for model in output.batch.to_pylist()]
    assert found == expected


def test_a_period_takes_time() -> None:
    with pytest.raises(ParameterError, match="a millisecond or more"):
        PeriodicTraining(0)
