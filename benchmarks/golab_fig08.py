"""Golab et al., figure 8: tables must inherit the priority of what is built on them."""

from __future__ import annotations

from benchmarks._golab import derived, draw, job, job_set, mean_lateness, slowdown, sweep
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results
from headgate.sim import Table

CHAINS = 9  # three of each priority; the paper's 30 jobs do not divide into equal numbers of chains of three
MODES = ("none", "max", "sum", "max-plus")
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)


def chains() -> list[Table]:
    """Base tables of priority 0.001, then priority 1, then 1, 10 or 100."""
    tables = []
    for i in range(CHAINS):
        tables.append(job(f"base-{i}", priority=0.001))
        tables.append(derived(f"middle-{i}", f"base-{i}", priority=1))
        tables.append(derived(f"top-{i}", f"middle-{i}", priority=(1, 10, 100)[i % 3]))
    return tables


def run(context: Context) -> Results:
    variants = [
        {
            "scenario": job_set(chains(), context, slowdown=slowdown(), inheritance=mode),
            "label": mode,
            "policy": "max-benefit",
            "placement": "anywhere",
        }
        for mode in MODES
    ]
    rows = sweep(context, variants, LOADS)
    if context.smoke:
        return Results(rows, [])
    late = {mode: mean_lateness(rows, mode, 0.7) for mode in MODES}
    measured = ", ".join(f"{mode} {value:.3f}" for mode, value in late.items()) + " (mean, load 0.7 to 1.1)"
    inheriting = {mode: late[mode] for mode in MODES if mode != "none"}
    return Results(
        rows,
        [
            Claim(
                claim="without inheritance performance is poor",
                paper="poor without inheritance: base tables starve, and nobody knows which feed important tables",
                measured=measured,
                holds=late["none"] > 1.2 * max(inheriting.values()),
            ),
            Claim(
                claim="the ways to inherit are often very similar, Max is best",
                paper="often very similar, but overall Max performs best",
                measured=measured,
                holds=late["max"] <= min(inheriting.values()) * 1.005,
            ),
            Claim(
                claim="Sum is the worst way to inherit",
                paper="overall Sum performs worst",
                measured=measured,
                holds=late["sum"] >= max(inheriting.values()) * 0.995,
            ),
        ],
    )


BENCHMARK = Benchmark(
    name="golab_fig08",
    figure="Golab fig. 8",
    claim="Inheriting priority matters; Max is best, Sum worst.",
    takes="4 min",
    run=run,
    draw=draw,
    pivot=Pivot("utilisation", "variant", "relative lateness"),
    reps=1,
)
