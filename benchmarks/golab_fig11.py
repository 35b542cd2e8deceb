"""Golab et al., figure 11: chopping long updates helps after overload."""

from __future__ import annotations

import math

from benchmarks._golab import derived, draw, job, job_set, mean_lateness, slowdown, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results
from headgate.sim import Table

CHAINS = 15
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)


def chains() -> list[Table]:
    """Each base table of priority 1 feeds one derived table of priority 10."""
    tables = []
    for i in range(CHAINS):
        tables.append(job(f"base-{i}", priority=1))
        tables.append(derived(f"derived-{i}", f"base-{i}", priority=10))
    return tables


def run(context: Context) -> Results:
    # Two priority classes need priorities as stated: inheriting would put every table into the same class, with
    # nobody left for chopping to protect. Both are measured.
    variants = [
        {
            "scenario": job_set(chains(), context, slowdown=slowdown(), inheritance=inheritance, chop=chop),
            "label": f"{label}{suffix}",
            "policy": "max-benefit",
            "placement": "anywhere",
        }
        for inheritance, suffix in (("none", ""), ("max", ", inherited priority"))
        for label, chop in (("chopped", 3.0), ("whole", math.inf))
    ]
    rows = sweep(context, variants, LOADS)
    if context.smoke:
        return Results(rows, [])
    late = {label: mean_lateness(rows, label, 0.8) for label in dict.fromkeys(row["variant"] for row in rows)}
    measured = ", ".join(f"{label} {value:.2f}" for label, value in late.items()) + " (mean, load 0.8 to 1.1)"
    return Results(
        rows,
        [
            Claim(
                claim="limiting an update to three periods of data lowers lateness after overload",
                paper="update chopping is an effective strategy",
                measured=measured,
                holds=late["chopped"] < late["whole"],
            ),
        ],
    )


BENCHMARK = Benchmark(
    name="golab_fig11",
    figure="Golab fig. 11",
    claim="Chopping updates to three periods of data helps after overload.",
    takes="4 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
