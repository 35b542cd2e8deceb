"""EdgeWise, figure 8: with the rate, the utilisation of operators grows apart under threads and together in a pool.

Utilisation is rho of the paper's equation 11, the share of time in which an operator had input. Threads are shown with
and without the credit that Linux gives to those who have slept, because that is what favours light operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks._operators import means, pool, sweep_rates, threads
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS = (pool("longest-queue"), threads(), threads("threads, no credit", sleeper_credit=0.0))
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


def run(context: Context) -> Results:
    rows = sweep_rates(context, ("pred",), VARIANTS, SHARES, seconds=30.0)
    if context.smoke:
        return Results(rows, [])
    return Results(rows, [_trend(rows, "threads", "grows", 1), _trend(rows, "longest-queue", "shrinks", -1)])


def _trend(rows: Sequence[Row], variant: str, verb: str, sign: int) -> Claim:
    """Whether the line goes up or down: by the slope of the straight line through all its points."""
    variation = means([row for row in rows if row["variant"] == variant], ("rate",), "rho variation")
    slope = float(np.polyfit(list(variation), list(variation.values()), 1)[0])
    return Claim(
        claim=f"the coefficient of variation of utilisation {verb} with the rate under {variant}",
        paper="grows in Storm" if sign > 0 else "decreases in EdgeWise, and the raw values approach 1",
        measured=f"{1e3 * slope:+.3f} per 1000 events/s: "
        + ", ".join(f"{value:.2f} at {rate:.0f}" for rate, value in variation.items()),
        holds=sign * slope > 0,
    )


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    draw_lines(axes, rows, x="rate", y="rho variation", label="variant")
    axes.set_xlabel("input rate of PRED (events/s)")
    axes.set_ylabel("coefficient of variation of utilisation")
    axes.set_ylim(bottom=0.0)


BENCHMARK = Benchmark(
    name="edgewise_fig08",
    figure="EdgeWise fig. 8",
    claim="Utilisation of operators grows apart under threads and together under longest-queue.",
    takes="30 s",
    run=run,
    draw=draw,
    pivot=Pivot("rate", "variant", "rho variation"),
    reps=3,
)
