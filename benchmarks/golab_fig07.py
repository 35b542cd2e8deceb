"""Golab et al., figure 7: a scheduler that knows priorities incurs far less lateness than ones that do not."""

from __future__ import annotations

from benchmarks._golab import JOBS, draw, job, job_set, mean_lateness, slowdown, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results

POLICIES = ("max-benefit", "edf", "random")
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)


def run(context: Context) -> Results:
    tables = [job(f"t{i}", priority=10 if i % 2 else 1) for i in range(JOBS)]
    scenario = job_set(tables, context, slowdown=slowdown())
    variants = [
        {"scenario": scenario, "label": policy, "policy": policy, "placement": "anywhere"} for policy in POLICIES
    ]
    rows = sweep(context, variants, LOADS)
    if context.smoke:
        return Results(rows, [])
    late = {policy: mean_lateness(rows, policy, 0.8) for policy in POLICIES}
    best = min(late["edf"], late["random"])
    claim = Claim(
        claim="Max Benefit incurs far lower lateness than EDF and random order when priorities differ",
        paper="a far lower lateness than the nonprioritized EDF and Random",
        measured=", ".join(f"{policy} {value:.2f}" for policy, value in late.items()) + " (mean, load 0.8 to 1.1)",
        holds=best > 1.5 * late["max-benefit"],
    )
    return Results(rows, [claim])


BENCHMARK = Benchmark(
    name="golab_fig07",
    figure="Golab fig. 7",
    claim="Priorities matter: a prioritised scheduler incurs far lower weighted lateness.",
    takes="3 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
