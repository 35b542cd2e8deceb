"""Golab et al., figure 9: short and long jobs together; reserving tracks for the short ones pays."""

from __future__ import annotations

from benchmarks._golab import draw, heterogeneous, job_set, mean_lateness, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results

PLACEMENTS = {
    "max-benefit": "anywhere",
    "edf-partitioned": "edf-partitioned",
    "proportional": "proportional:k=1,allocate=basic,aggressive=false",
}
LOADS = (0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0)
LOW, HIGH = (0.6, 0.75), 0.9


def run(context: Context) -> Results:
    # No slow periods: at these job lengths they hide what the placements do (benchmarks/README.md has both).
    scenario = job_set(heterogeneous(), context)
    variants = [
        {"scenario": scenario, "label": label, "policy": "max-benefit", "placement": placement}
        for label, placement in PLACEMENTS.items()
    ]
    rows = sweep(context, variants, LOADS)
    if context.smoke:
        return Results(rows, [])
    low = {label: mean_lateness(rows, label, *LOW) for label in PLACEMENTS}
    high = {label: mean_lateness(rows, label, HIGH) for label in PLACEMENTS}
    whole = {label: mean_lateness(rows, label) for label in PLACEMENTS}

    def said(means: dict[str, float]) -> str:
        return ", ".join(f"{label} {value:.3f}" for label, value in means.items())

    return Results(
        rows,
        [
            Claim(
                claim="EDF-Partitioned is better than no partitioning at lower load",
                paper="significantly better at lower utilisations",
                measured=f"load 0.6 to 0.75: {said(low)}",
                holds=low["edf-partitioned"] < low["max-benefit"],
            ),
            Claim(
                claim="and worse at higher load",
                paper="worse than the nonpartitioned algorithm at higher utilisations",
                measured=f"load 0.9 to 1.0: {said(high)}",
                holds=high["edf-partitioned"] > high["max-benefit"],
            ),
            Claim(
                claim="Proportional is best overall",
                paper="the Proportional algorithm is best overall",
                measured=f"all loads: {said(whole)}",
                holds=whole["proportional"] == min(whole.values()),
            ),
        ],
    )


BENCHMARK = Benchmark(
    name="golab_fig09",
    figure="Golab fig. 9",
    claim="Partitioned scheduling helps at low load and hurts at high load; Proportional is best.",
    takes="3 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
