"""target-lag: promises before preferences, and preferences as long as no promise is in danger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headgate.core.errors import ParameterError
from headgate.core.graph import Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import MaxBenefit, TargetLag
from headgate.testing import ranking

INF = float("inf")
NOW = 100.0


def view_of(
    target: Sequence[float],
    waited: Sequence[float],
    *,
    seconds: Sequence[float] = (1.0, 1.0, 1.0),
    priority: Sequence[float] = (1.0, 1.0, 1.0),
    workers: Sequence[float] = (0.0, 0.0, 0.0),
    kept: Sequence[float] | None = None,
) -> FeatureView:
    """Three tables a, b and c whose oldest data has waited for so long; ``priority`` is also what they are worth."""
    features = {
        "target_lag": target,
        "kept_target_lag": kept or target,
        "waiting_since": [NOW - w for w in waited],
        "priority": priority,
        "freshness_delta": (1.0, 1.0, 1.0),
        "execution_time": seconds,
        "ready": (1.0, 1.0, 1.0),
        "workers": workers,
    }
    return FeatureView({name: np.array(values, dtype=float) for name, values in features.items()}, Graph("abc"), NOW)


@pytest.mark.parametrize(
    ("view", "order"),
    [
        pytest.param(view_of((INF,) * 3, (9, 9, 9), priority=(1, 3, 2)), "bca", id="without targets: max-benefit"),
        pytest.param(
            view_of((100, 100, INF), (5, 9, 9), priority=(1, 2, 3)), "cba", id="targets far away: max-benefit"
        ),
        pytest.param(view_of((10, INF, INF), (9, 9, 9), priority=(1, 50, 2)), "abc", id="one more second is too many"),
        pytest.param(view_of((10, 10, 100), (8, 9, 50), priority=(1, 1, 1)), "bac", id="by when they are due"),
        pytest.param(
            view_of((20, INF, INF), (9, 9, 9), seconds=(1, 8, 2), priority=(1, 80, 1)),
            "acb",
            id="b is worth most, but would not be done before a must begin; c, worth less than a, would",
        ),
        pytest.param(
            view_of((11, 20, INF), (15, 15, 9), priority=(1, 1, 99)),
            "abc",
            id="late ones in the order of due times that are all stretched alike: 16 / 11 of 11 and of 20",
        ),
        pytest.param(
            view_of((20, 5, INF), (50, 25, 9)),
            "bac",
            id="a was due first, but b is 5.2 times its target late, and a only 2.55 times",
        ),
        pytest.param(
            view_of((10, INF, INF), (9, 9, 9), priority=(1, 50, 2), workers=(1, 0, 0)),
            "bca",
            id="a runs already, so nobody has to hurry for it",
        ),
    ],
)
def test_order(view: FeatureView, order: str) -> None:
    assert ranking(TargetLag(), view) == list(order)


def test_without_targets_it_ranks_like_max_benefit() -> None:
    view = view_of((INF,) * 3, (1, 50, 7), seconds=(1, 2, 5), priority=(4, 9, 1))
    assert ranking(TargetLag(), view) == ranking(MaxBenefit(), view)


def test_a_table_is_not_updated_more_often_than_its_target_asks_for() -> None:
    """It has waited for half of its target; the other one is worth a little more, and goes first."""
    assert ranking(TargetLag(), view_of((40, INF, INF), (20, 1, 1), priority=(1, 2, 1)))[0] == "b"
    assert ranking(TargetLag(), view_of((40, INF, INF), (35, 1, 1), priority=(1, 2, 1)))[0] == "a"


def test_many_that_are_due_must_begin_earlier_than_one() -> None:
    """Three updates of 4 s on one track: the last would be done after 12 s, so there is no room for 2 s of others."""
    alone = view_of((20, INF, INF), (4, 4, 4), seconds=(4, 2, 2), priority=(1, 1, 9))
    assert ranking(TargetLag(margin=0), alone)[0] == "c"
    together = view_of((20, 20, INF), (10, 10, 4), seconds=(4, 4, 3), priority=(1, 1, 9))
    assert ranking(TargetLag(margin=0), together)[0] == "a"


def test_a_target_that_is_given_up_counts_as_none() -> None:
    view = view_of((10, 10, INF), (9, 9, 9), priority=(9, 1, 2), kept=(INF, 10, INF))
    assert ranking(TargetLag(goal="count"), view) == ["b", "a", "c"]
    assert ranking(TargetLag(goal="ratio"), view)[0] == "a"


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        pytest.param({"goal": "all"}, "goal must be one of ratio, count; got 'all'", id="goal"),
        pytest.param({"margin": 1.0}, "margin is a share from 0 up to 1; got 1.0", id="margin"),
        pytest.param({"margin": float("nan")}, "margin is a share from 0 up to 1; got nan", id="no number"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        TargetLag(**parameters)  # type: ignore[arg-type]
