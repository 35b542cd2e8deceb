"""What the benchmarks of clusters and places conclude from what they measure: each claim can hold, and can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks import cluster, nodes, places
from benchmarks.harness import Claim, Row
from benchmarks.stream_spark.sharing import VARIANTS


def of_cluster(two: float, remote: float) -> list[Row]:
    loads = [(1, cluster.MANY, 4.0, 1.0), (2, cluster.MANY, two, 1.0), (2, cluster.FEW, 9.0, remote)]
    return [
        {"workers": workers, "rows_in_file": rows, "per_second": speed, "seconds": seconds}
        for workers, rows, speed, seconds in [*loads, (0, cluster.FEW, 9.0, 0.1)]
    ]


def of_nodes(gain: float, checksum: str) -> list[Row]:
    return [
        {
            "pipeline": pipeline,
            "executors": count,
            "lines_per_second": 1000.0 * (gain if count > 1 else 1.0),
            "rows_in_table": 5,
            "checksum": checksum if count > 1 else "a",
        }
        for pipeline in ("PRED", "STATS")
        for count in nodes.EXECUTORS
    ]


def of_sharing(high: float, task: float) -> list[Row]:
    default, serial = list(VARIANTS)[:2]
    return [
        {"variant": default, "class": "HIGH", "last": high, "task": task},
        {"variant": default, "class": "LOW", "last": task, "task": task},
        {"variant": serial, "class": "HIGH", "last": 10.0, "task": 10.0},
    ]


def of_places(times: float, lost: int) -> list[Row]:
    here, there = places.FOLDER, places.STORE
    race = {"races": 9, "with_winner": 9 - lost, "close": 4, "lost": lost, "doubled": 0, "unknown": 0}
    return [
        *({"measured": "commit", "place": place, "seconds": n} for place, n in ((here, 1.0), (there, times))),
        *(
            {"measured": "request", "place": there, "kind": kind, "seconds": n}
            for kind, n in ((places.PLAIN, 1.0), (places.CONDITIONAL, times))
        ),
        *(
            {"measured": "update", "place": place, "table": table, "seconds": n}
            for place, n in ((here, 1.0), (there, times))
            for table in ("landed", "sums")
        ),
        {"measured": "race", "place": there, **race},
    ]


def of_a_task(rows: Sequence[Row]) -> list[Claim]:
    return nodes.policy_claims(rows, enough=True)


@pytest.mark.parametrize(
    ("claims", "good", "bad"),
    [
        pytest.param(cluster.claims, of_cluster(7.0, 0.12), of_cluster(5.0, 0.2), id="cluster"),
        pytest.param(nodes.scale_claims, of_nodes(1.7, "a"), of_nodes(1.0, "b"), id="nodes"),
        pytest.param(
            lambda rows: nodes.policy_claims(rows, enough=True),
            of_sharing(2.0, 11.0),
            of_sharing(9.0, 14.0),
            id="policy",
        ),
        pytest.param(lambda rows: places.claims(rows, smoke=False), of_places(1.1, 0), of_places(4.0, 1), id="places"),
    ],
)
def test_claims_hold_or_fail_by_what_was_measured(
    claims: Callable[[Sequence[Row]], list[Claim]],
    good: list[Row],
    bad: list[Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert [claim.holds for claim in claims(good)] == [True] * len(claims(good))
    assert [claim.holds for claim in claims(bad)] == [False] * len(claims(bad))
