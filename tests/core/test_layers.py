"""Layers stand before the policy and change nothing inside a layer."""

from __future__ import annotations

import pytest

from headgate.core.features import FEATURES, features_named
from headgate.core.graph import Graph
from headgate.core.matrix import FeatureMatrix
from headgate.core.policies.classes import BACKFILL, LIVE, MAINTENANCE, Layered
from headgate.core.policy import rank
from headgate.core.registry import POLICIES, policy_from

NAMES = ("old", "vacuum", "alerts", "report")


def matrix() -> FeatureMatrix:
    made = FeatureMatrix(Graph(NAMES), features_named(FEATURES))
    made.fill("layer", [BACKFILL, MAINTENANCE, LIVE, LIVE])
    made.fill("priority", [1000.0, 1000.0, 2.0, 1.0])
    made.fill("freshness_delta", [500.0, 500.0, 1.0, 1.0])
    made.fill("execution_time", [1.0] * 4)
    return made


def test_a_backfill_stands_behind_live_updates_and_maintenance_behind_both_whatever_the_policy_says() -> None:
    order = [NAMES[i] for i in rank(Layered(policy_from("max-benefit")), matrix().view())]
    assert order == ["alerts", "report", "old", "vacuum"]


@pytest.mark.parametrize("name", POLICIES)
def test_inside_one_layer_nothing_changes(name: str) -> None:
    policy = policy_from(name)
    made = matrix()
    made.fill("layer", [LIVE] * 4)
    view = made.view(now=3.0, turn=2)
    assert rank(Layered(policy), view).tolist() == rank(policy, view).tolist()


@pytest.mark.parametrize("name", POLICIES)
def test_it_is_local_and_reads_features_as_the_policy_inside_does(name: str) -> None:
    policy = policy_from(name)
    layered = Layered(policy)
    assert layered.local == policy.local
    assert set(layered.requires()) == {"layer", *policy.requires()}
    assert str(layered) == str(policy)
