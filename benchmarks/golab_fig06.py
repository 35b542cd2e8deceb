"""Golab et al., figure 6: uniform jobs without slow periods need no partitioning, and Proportional costs nothing."""

from __future__ import annotations

from benchmarks._golab import JOBS, draw, job, job_set, mean_lateness, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results

VARIANTS = {
    "max-benefit": ("max-benefit", "anywhere"),
    "random": ("random", "anywhere"),
    "edf-partitioned": ("max-benefit", "edf-partitioned"),
    "proportional": ("max-benefit", "proportional:allocate=basic,aggressive=false"),
}
#: beyond 1.0 every variant drowns in the same way; the paper's chart ends a little above
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def run(context: Context) -> Results:
    scenario = job_set([job(f"t{i}") for i in range(JOBS)], context, tracks=5)
    variants = [
        {"scenario": scenario, "label": label, "policy": policy, "placement": placement}
        for label, (policy, placement) in VARIANTS.items()
    ]
    rows = sweep(context, variants, LOADS)
    if context.smoke:
        return Results(rows, [])
    mean = {label: mean_lateness(rows, label) for label in VARIANTS}
    at_90 = mean_lateness(rows, "max-benefit", 0.9, 0.9)
    return Results(
        rows,
        [
            Claim(
                claim="EDF-Partitioned is the worst, worse even than random order",
                paper="performs the worst (even worse than Random), because it wastes resources",
                measured=", ".join(f"{label} {value:.3f}" for label, value in mean.items()),
                holds=mean["edf-partitioned"] == max(mean.values()),
            ),
            Claim(
                claim="Proportional is on a par with Max Benefit on all tracks",
                paper="on par, its overhead is negligible",
                measured=f"ratio {mean['proportional'] / mean['max-benefit']:.4f}",
                holds=abs(mean["proportional"] / mean["max-benefit"] - 1) < 0.01,
            ),
            Claim(
                claim="lateness starts only near full load",
                paper="only at nearly 100 percent utilisation",
                measured=f"Max Benefit at a load of 0.9: {at_90:.3f} times no waiting",
                holds=at_90 < 1.15,
            ),
        ],
    )


BENCHMARK = Benchmark(
    name="golab_fig06",
    figure="Golab fig. 6",
    claim="With uniform jobs and no slow periods partitioning is not needed; Proportional costs nothing.",
    takes="3 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
