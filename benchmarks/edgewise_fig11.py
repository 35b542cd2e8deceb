"""EdgeWise, figure 11: how much a worker takes at one turn, on STATS.

Small constants make more decisions and keep nearer to the ideal schedule; each costs a few microseconds. Below
saturation the rules differ little here: what comes every 100 ms makes queues of some 250 tuples, so *half* takes hardly
more at a turn than at-most-100 does, and outputs are handed on during a turn, not at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks._operators import carried_rate, pool, sweep_rates, threads
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.harness.style import draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONSTANT = ("at-most-10", "at-most-50", "at-most-100")
PROPORTIONAL = ("all", "half")
VARIANTS = (*(pool("longest-queue", rule, label=rule) for rule in (*CONSTANT, *PROPORTIONAL)), threads())
SHARES = (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05)
LIMIT = 100.0


def run(context: Context) -> Results:
    rows = sweep_rates(context, ("stats",), VARIANTS, SHARES, seconds=30.0)
    if context.smoke:
        return Results(rows, [])
    carried = {v.label: carried_rate(rows, "stats", v.label, LIMIT) for v in VARIANTS}
    measured = ", ".join(f"{label} {rate:.0f}" for label, rate in carried.items()) + f" events/s at {LIMIT:.0f} ms"
    rules = [carried[rule] for rule in (*CONSTANT, *PROPORTIONAL)]
    return Results(
        rows,
        [
            Claim(
                claim="every constant rule carries more than all and half, and than threads",
                paper="as expected, the constant consumption rules consistently performed well in STATS",
                measured=measured,
                holds=min(carried[rule] for rule in CONSTANT) > max(carried[r] for r in (*PROPORTIONAL, "threads")),
            ),
            Claim(
                claim="at-most-50 carries at least 98 % of what the best rule carries",
                paper="the At-most-50 rule offers good latency with the highest throughput",
                measured=measured,
                holds=carried["at-most-50"] >= 0.98 * max(rules),
            ),
        ],
    )


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    draw_lines(axes, rows, x="rate", y="mean latency", label="variant")
    axes.axhline(LIMIT, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("input rate of STATS (events/s)")
    axes.set_ylabel("mean latency (ms)")
    axes.set_yscale("log")


BENCHMARK = Benchmark(
    name="edgewise_fig11",
    figure="EdgeWise fig. 11",
    claim="Taking a small constant number of tuples at a turn carries most.",
    takes="1 min",
    run=run,
    draw=draw,
    pivot=Pivot("rate", "variant", "mean latency"),
    reps=3,
)
