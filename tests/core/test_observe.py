"""From facts to features: every feature is covered, derived ones are right, and columns are written when they must."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from headgate.core.dispatch import LOOP_FEATURES
from headgate.core.errors import MissingFeatureError
from headgate.core.features import FEATURES, ChangedBy, features_named
from headgate.core.graph import Graph
from headgate.core.matrix import FeatureMatrix
from headgate.core.observe import (
    TABLE_FEATURES,
    OperatorColumns,
    OperatorFacts,
    TableColumns,
    operator_features,
    operator_readings,
)
from headgate.core.placements import Anywhere, LeastLoaded
from headgate.core.policies import EstimatedTime, FirstCome
from headgate.core.policy import Policy

KEPT_BY_LOOP = {name for name, feature in FEATURES.items() if feature.changed_by == ChangedBy.LOOP}


@dataclass(frozen=True)
class Known:
    """All that an engine of these tests knows about a node."""

    pending: float = 4.0
    cost: float = 0.5
    newest_waiting: float = 9.0
    newest_taken: float = 2.0


READINGS = operator_readings(
    OperatorFacts[Known](
        priority=lambda node: 3.0,
        importance_class=lambda node: 1.0,
        patience=lambda node: 60.0,
        max_workers=lambda node: 2.0,
        cost=lambda node: node.cost,
        selectivity=lambda node: 0.25,
        time_per_unit=lambda node: 0.1,
        pending=lambda node: node.pending,
        head_time=lambda node: 5.0,
        waiting_since=lambda node: 6.0,
        newest_waiting=lambda node: node.newest_waiting,
        newest_taken=lambda node: node.newest_taken,
        output_pending=lambda node: 7.0,
        period=lambda node: 8.0,
        next_arrival=lambda node: 11.0,
    )
)


def test_every_feature_can_be_read_of_an_operator_or_is_kept_by_the_loop() -> None:
    assert READINGS.keys() | KEPT_BY_LOOP == set(FEATURES)
    assert not READINGS.keys() & KEPT_BY_LOOP


def test_an_engine_of_tables_has_every_feature() -> None:
    assert set(TABLE_FEATURES) == set(FEATURES)


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        ("priority", 3.0),
        ("class", 1.0),
        ("layer", 0.0),
        ("period", 8.0),
        ("patience", 60.0),
        ("max_workers", 2.0),
        ("cost", 0.5),
        ("selectivity", 0.25),
        ("setup_time", 0.0),
        ("time_per_unit", 0.1),
        ("pending", 4.0),
        ("head_time", 5.0),
        ("output_pending", 7.0),
        ("freshness_delta", 7.0),
        ("execution_time", 2.0),
        ("release_time", 6.0),
        ("next_release", 11.0),
    ],
)
def test_reading_of(feature: str, value: float) -> None:
    assert READINGS[feature](Known()) == value


def test_an_operator_without_input_would_not_become_fresher_and_one_that_took_newer_data_neither() -> None:
    assert READINGS["freshness_delta"](Known(pending=0)) == 0.0
    assert READINGS["freshness_delta"](Known(newest_taken=10.0)) == 0.0


def test_only_what_somebody_reads_is_asked_for() -> None:
    names = {feature.name for feature in operator_features([FirstCome()], [Anywhere()])}
    assert names == {*LOOP_FEATURES, "head_time"}
    weighed = {feature.name for feature in operator_features([FirstCome()], [LeastLoaded()])}
    assert weighed - names == {"cost", "pending"}


def test_a_policy_that_reads_what_no_operator_has_is_refused() -> None:
    class Hopeful(FirstCome):
        name = "hopeful"
        needs = ("weather",)

    policies: list[Policy] = [Hopeful()]
    with pytest.raises(MissingFeatureError, match="policy 'hopeful' needs the feature 'weather'"):
        operator_features(policies, [])


def test_columns_are_written_when_something_happens_that_can_change_them() -> None:
    matrix = FeatureMatrix(Graph("ab"), operator_features([EstimatedTime(), FirstCome()], []))
    columns = OperatorColumns(matrix, READINGS)
    columns.write_all([Known(), Known(pending=1.0)])
    assert matrix.columns["pending"].tolist() == [4.0, 1.0]
    assert matrix.columns["max_workers"].tolist() == [2.0, 2.0]
    assert matrix.columns["workers"].tolist() == [0.0, 0.0], "what the loop keeps is left alone"
    later = replace(Known(), pending=9.0, cost=2.5)
    for column, read in columns.queue:
        column[0] = read(later)
    assert (matrix.columns["pending"][0], matrix.columns["cost"][0]) == (9.0, 0.5)
    for column, read in columns.measured:
        column[0] = read(later)
    assert matrix.columns["cost"][0] == 2.5
    assert columns.output is None, "nobody reads it"


def test_what_happens_to_a_table_is_written_down() -> None:
    matrix = FeatureMatrix(Graph("ab"), features_named(TABLE_FEATURES))
    columns = TableColumns(matrix)
    columns.set_cost(1, 2.0, 0.0)
    columns.set_release(1, 100.0, 90.0)
    columns.set_pending(1, 30.0, 20.0, 2.5)
    columns.set_next_release(1, 160.0)
    columns.set_source(1, {"partition 0": 5, "partition 1": 7}.values())
    written = {name: float(matrix.columns[name][1]) for name in TABLE_FEATURES}
    stated = {name: FEATURES[name].default for name in TABLE_FEATURES}
    assert written == stated | {
        "setup_time": 2.0,
        "time_per_unit": 0.0,
        "cost": 1e-9,
        "release_time": 100.0,
        "head_time": 90.0,
        "pending": 30.0,
        "freshness_delta": 20.0,
        "execution_time": 2.5,
        "next_release": 160.0,
        "source_records": 12.0,
        "part_records": 7.0,
    }
    columns.set_idle(1, 2.0)
    now = {name: float(matrix.columns[name][1]) for name in ("pending", "freshness_delta", "execution_time")}
    assert now == {"pending": 0.0, "freshness_delta": 0.0, "execution_time": 2.0}
    assert (matrix.columns["release_time"][1], matrix.columns["head_time"][1]) == (math.inf, math.inf)
    assert [float(matrix.columns[name][0]) for name in TABLE_FEATURES] == list(stated.values()), "the other one is not"
