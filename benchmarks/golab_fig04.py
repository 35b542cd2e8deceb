"""Golab et al., figure 4: how strong the slow periods are decides how late tables become."""

from __future__ import annotations

from itertools import pairwise

from benchmarks._golab import JOBS, draw, job, job_set, mean_lateness, slowdown, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results

FACTORS = (2, 3, 5, 10)
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)


def run(context: Context) -> Results:
    variants = [
        {
            "scenario": job_set([job(f"t{i}") for i in range(JOBS)], context, slowdown=slowdown(factor)),
            "label": f"S = {factor}",
            "policy": "max-benefit",
            "placement": "anywhere",
        }
        for factor in FACTORS
    ]
    rows = sweep(context, variants, LOADS)
    means = [mean_lateness(rows, f"S = {factor}", high=0.9) for factor in FACTORS]
    measured = ", ".join(f"S = {factor}: {mean:.2f}" for factor, mean in zip(FACTORS, means, strict=True))
    rises = all(a < b for a, b in pairwise(means))
    claim = Claim(
        claim="at the same mean load, a larger slowdown factor S means larger relative lateness",
        paper="S has a significant effect on relative lateness",
        measured=f"mean relative lateness up to a load of 0.9: {measured}",
        holds=None if context.smoke else rises,
    )
    return Results(rows, [claim])


BENCHMARK = Benchmark(
    name="golab_fig04",
    figure="Golab fig. 4",
    claim="The slowdown factor has a significant effect on relative lateness.",
    takes="3 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
