"""How close the lower bound on weighted staleness is to Max Benefit with Proportional, in the settings of Golab et al.

Relative lateness is weighted staleness divided by that of a run in which nobody waits; of the bound, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks import golab_fig08, golab_fig11
from benchmarks._golab import JOBS, heterogeneous, job, job_set, scaled, slowdown
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines
from headgate.core import placement_from, policy_from
from headgate.sim import TableScenario, lower_bound, simulate_tables, simulate_without_waiting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL_EVENTS = 20_000
SMOKE_EVENTS = 1_500
POLICY, PLACEMENT = "max-benefit", "proportional"
#: {setting: loads}
LOADS: dict[str, tuple[float, ...]] = {
    "fig. 4, S = 10": (0.8, 1.0),
    "fig. 5": (1.05, 1.1, 1.2, 1.4),
    "fig. 6": (0.8, 1.0),
    "fig. 7": (0.8, 1.0),
    "fig. 8": (0.9, 1.1),
    "fig. 9/10": (0.9, 1.0, 1.1),
    "fig. 11": (0.9, 1.1),
}


def settings(context: Context) -> dict[str, TableScenario]:
    """The job sets of the figures, each with its name."""
    alike = [job(f"t{i}") for i in range(JOBS)]
    two_costs = [job(f"t{i}", time_per_unit=0.1 if i % 2 else 0.01) for i in range(JOBS)]
    two_priorities = [job(f"t{i}", priority=10 if i % 2 else 1) for i in range(JOBS)]
    return {
        "fig. 4, S = 10": job_set(alike, context, slowdown=slowdown(10)),
        "fig. 5": job_set(two_costs, context),
        "fig. 6": job_set(alike, context, tracks=5),
        "fig. 7": job_set(two_priorities, context, slowdown=slowdown()),
        "fig. 8": job_set(golab_fig08.chains(), context, slowdown=slowdown()),
        "fig. 9/10": job_set(heterogeneous(), context),
        "fig. 11": job_set(golab_fig11.chains(), context, slowdown=slowdown()),
    }


def measure(scenario: TableScenario, setting: str, utilisation: float, seed: int) -> Row:
    """One point: the bound for a run as long as that of the policy, and both in terms of relative lateness."""
    scenario = scaled(scenario, utilisation)
    policy = policy_from(POLICY)
    result = simulate_tables(scenario, policy, placement_from(PLACEMENT), seed)
    ideal = simulate_without_waiting(scenario, policy, seed).weighted_staleness
    least = lower_bound(scenario, result.seconds, seed=seed)
    return {
        "setting": setting,
        "utilisation": utilisation,
        "seed": seed,
        "relative lateness": result.weighted_staleness / ideal,
        "bound": least.weighted_staleness / ideal,
        "times the bound": result.weighted_staleness / least.weighted_staleness,
    }


def run(context: Context) -> Results:
    events = SMOKE_EVENTS if context.smoke else FULL_EVENTS
    arguments: list[dict[str, Any]] = [
        {"scenario": replace(scenario, events=events), "setting": name, "utilisation": load, "seed": seed}
        for name, scenario in settings(context).items()
        for load in (LOADS[name][:1] if context.smoke else LOADS[name])
        for seed in context.seeds
    ]
    rows = context.points(measure, arguments)
    if context.smoke:
        return Results(rows, [])
    times = [row["times the bound"] for row in rows]
    claim = Claim(
        claim="no run is below the bound",
        paper="a bound by weak duality; not in the paper",
        measured=f"{min(times):.2f} to {max(times):.2f} times the bound",
        holds=min(times) >= 1,
    )
    return Results(rows, [claim])


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """How many times the bound Max Benefit is, over offered load."""
    axes = figure.subplots()
    draw_lines(axes, rows, x="utilisation", y="times the bound", label="setting")
    axes.set_xlabel("offered load (share of the tracks)")


BENCHMARK = Benchmark(
    name="lower_bound",
    figure="lower bound",
    claim="How far Max Benefit with Proportional is from what no policy can beat.",
    takes="2 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "setting", "times the bound"),
    reps=1,
)
