"""Golab et al., figure 5: Max Benefit against EDF-P when tables differ tenfold in how fast they load."""

from __future__ import annotations

from benchmarks._golab import JOBS, draw, job, job_set, mean_lateness, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results

POLICIES = ("max-benefit", "edf-p")
LOADS = (0.5, 0.8, 0.9, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4)
#: where lateness first starts to grow, and well beyond
ONSET = (1.05, 1.15)
BEYOND = 1.2


def run(context: Context) -> Results:
    # No slow periods: they smear the onset of overload, which is where the two differ.
    scenario = job_set([job(f"t{i}", time_per_unit=0.1 if i % 2 else 0.01) for i in range(JOBS)], context)
    variants = [
        {"scenario": scenario, "label": policy, "policy": policy, "placement": "anywhere"} for policy in POLICIES
    ]
    rows = sweep(context, variants, LOADS)
    if context.smoke:
        return Results(rows, [])
    onset = {policy: mean_lateness(rows, policy, *ONSET) for policy in POLICIES}
    beyond = {policy: mean_lateness(rows, policy, BEYOND) for policy in POLICIES}
    return Results(
        rows,
        [
            Claim(
                claim="when lateness first starts to grow, EDF-P is better",
                paper="EDF-P is better at first",
                measured=f"load 1.05 to 1.15: EDF-P {onset['edf-p']:.2f}, Max Benefit {onset['max-benefit']:.2f}",
                holds=onset["edf-p"] < onset["max-benefit"],
            ),
            Claim(
                claim="at higher load Max Benefit is better",
                paper="Max Benefit is better at higher Utot, the safer choice",
                measured=f"load 1.2 to 1.4: Max Benefit {beyond['max-benefit']:.1f}, EDF-P {beyond['edf-p']:.1f}",
                holds=beyond["max-benefit"] < beyond["edf-p"],
            ),
        ],
    )


BENCHMARK = Benchmark(
    name="golab_fig05",
    figure="Golab fig. 5",
    claim="EDF-P is better when lateness first starts to grow, Max Benefit at higher load.",
    takes="2 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
