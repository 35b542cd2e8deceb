"""What benchmarks conclude from what they measure: each claim can hold, and can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks import autopilot, cluster, monitor, nodes, places, priced, shared_jobs
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


def of_monitor(times: float) -> list[Row]:
    """What was measured is ``times`` what is still good."""
    decisions = {name: 1.0 for name in ("decision_ms", "decision_95_ms", "decision_mean_ms", "scheduler_ms")}
    live = {"measured": "live", "processor": 0.1} | decisions
    watched = {"processor": 0.1 + 0.049 * times, "delay_99": 0.9 * times, "events": 9}
    watched |= {name: 1.05 * times for name in decisions}
    page = {"first_text": 0.5, "first_row": 1.4 * times, "delay_99": 0.9 * times, "frame_ms_95": 33.0 * times}
    return [
        live | {"monitor": "without"},
        live | {"monitor": "with"} | watched,
        *({"measured": "hour", "megabytes": 100.0 * (times if at > 5 else 1.0), "took": 1.0} for at in range(8)),
        {"measured": "browser", "why": "there is none"},
        {"measured": "browser", "tables": 500, "events": 9, "rows_in_page": 40} | page,
    ]


def of_priced(*ratios: float) -> list[Row]:
    """Each ratio to Max Benefit is one point of a figure, and one warehouse drawn by chance."""
    return [
        {"setting": setting, "load": 0.9, "policy": policy, "seed": 1000 * i, "weighted staleness": staleness}
        | {"times the bound": staleness / 8.0, "chained": False, "slow periods": False}
        for i, ratio in enumerate(ratios)
        for setting in (f"fig. {i}", "random")
        for policy, staleness in ((priced.THEIRS, 10.0), (priced.OURS, 10.0 * ratio))
    ]


def of_autopilot(ratio: float, share: float) -> list[Row]:
    """One point of a figure, a warehouse drawn by chance, and what the process takes."""
    point = {"setting": "fig. 5", "load": 1.1, "to the default": ratio, "best to the default": 0.7}
    return [
        point,
        {**point, "setting": autopilot.DRAWN},
        {"setting": "cost", "share": share, "seconds": 600.0, "windows": 9, "replays": 54},
    ]


def of_shared_jobs(always: float, auto: float) -> list[Row]:
    """Weighted staleness against every table alone, the same at all loads."""
    return [
        {"policy": policy, "load": load, "together": together, "against alone": ratio}
        for policy in shared_jobs.POLICIES
        for load in shared_jobs.LOADS
        for together, ratio in ((shared_jobs.ALWAYS, always), (shared_jobs.AUTO, auto))
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
        pytest.param(monitor.claims, of_monitor(1.0), of_monitor(1.2), id="monitor"),
        pytest.param(priced.claims, of_priced(0.75, 1.01), of_priced(0.95, 1.03), id="priced"),
        pytest.param(autopilot.claims, of_autopilot(0.8, 0.015), of_autopilot(1.03, 0.03), id="autopilot"),
        pytest.param(shared_jobs.claims, of_shared_jobs(0.9, 0.9), of_shared_jobs(0.9, 1.03), id="shared jobs"),
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


@pytest.mark.parametrize(
    ("ratios", "holds"),
    [
        pytest.param((0.95, 0.95), (False, True), id="nowhere worse, but not better enough"),
        pytest.param((0.5, 1.1), (True, False), id="better on the mean, but worse somewhere"),
    ],
)
def test_the_mean_and_the_worst_of_priced_benefit_are_judged_apart(
    ratios: tuple[float, ...], holds: tuple[bool, bool]
) -> None:
    of_figures, of_random = [*zip(*[iter(priced.claims(of_priced(*ratios)))] * 3, strict=True)]
    for mean, worst, _ in (of_figures, of_random):
        assert (mean.holds, worst.holds) == holds
