"""Golab et al., figure 10: the variants of Proportional on the job set of figure 9."""

from __future__ import annotations

from benchmarks._golab import draw, heterogeneous, job_set, mean_lateness, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results

VARIANTS = {
    "proportional": "proportional:k=1,allocate=basic,aggressive=false",
    "proportional-all": "proportional:k=1,allocate=all,aggressive=false",
    "proportional-all-aggressive": "proportional:k=1,allocate=all,aggressive=true",
}
LOADS = (0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0, 1.1)
#: two runs of a million events differ by about this much by chance
NOISE = 1.01


def run(context: Context) -> Results:
    scenario = job_set(heterogeneous(), context)
    variants = [
        {"scenario": scenario, "label": label, "policy": "max-benefit", "placement": placement}
        for label, placement in VARIANTS.items()
    ]
    rows = sweep(context, variants, LOADS)
    if context.smoke:
        return Results(rows, [])
    low = {label: mean_lateness(rows, label, 0.3, 0.7) for label in VARIANTS}
    everywhere = all(
        mean_lateness(rows, "proportional-all-aggressive", load, load)
        <= NOISE * min(mean_lateness(rows, label, load, load) for label in VARIANTS)
        for load in LOADS
    )
    high = {label: mean_lateness(rows, label, 0.9) for label in VARIANTS}
    return Results(
        rows,
        [
            Claim(
                claim="allocating all tracks is better at lower load than leaving some free",
                paper="significantly better performance at lower utilisations",
                measured=", ".join(f"{label} {value:.3f}" for label, value in low.items()) + " (load 0.3 to 0.7)",
                holds=low["proportional-all"] < low["proportional"],
            ),
            Claim(
                claim="all tracks and aggressive is best, or within 1 % of it, at every load",
                paper="good performance at all utilisation levels",
                measured=", ".join(f"{label} {value:.3f}" for label, value in high.items()) + " (load 0.9 to 1.1)",
                holds=everywhere,
            ),
        ],
    )


BENCHMARK = Benchmark(
    name="golab_fig10",
    figure="Golab fig. 10",
    claim="Proportional that allocates all tracks and is aggressive is best everywhere.",
    takes="4 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
