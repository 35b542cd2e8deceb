"""How figures look. A label (a policy, a placement, a loop) has one colour, one marker and one place in the
legend in all figures, and only this file says which. It imports matplotlib only when something is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness import table
from benchmarks.harness.model import Benchmark, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Legend order. Eight neighbours have eight colours, so labels that share a figure stand together.
#: New labels go at the end: a label's position decides its colour.
LABELS = (
    *("max-benefit", "max-benefit-lookahead", "edf", "edf-p", "edf-partitioned", "proportional"),
    *("proportional-all", "proportional-all-aggressive"),
    *("none", "sum", "max", "max-plus", "chopped", "whole"),
    *("fcfs", "hr", "rb", "chain", "multi-class", "lsf", "cqc", "min-cost", "min-latency", "min-memory"),
    *("longest-queue", "qst", "lp", "et", "ct", "dispatch", "rounds", "locality"),
)
#: What others are compared with: greys, last in the legend.
BASELINES = ("fifo", "round-robin", "random", "threads")

# Six of Okabe and Ito's colours, made for colour-blind readers, and two more; greys are for baselines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#6A3D9A")
GREYS = ("#000000", "#555555", "#888888", "#B0B0B0")
# Eleven, which shares no divisor with eight colours: two labels of one colour still differ in marker.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h")
SIZE = (6.4, 4.0)
DOTS_PER_INCH = 150
SETTINGS: dict[Any, Any] = {"axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False}


class Look(NamedTuple):
    """Colour and marker of one label."""

    colour: str
    marker: str


_FIXED = {name: Look(PALETTE[i % len(PALETTE)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(LABELS)}
_FIXED |= {name: Look(*look) for name, *look in zip(BASELINES, GREYS, "x+12", strict=True)}


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """The look of each label of one figure, in legend order.

    Labels not listed above (such as "4 tracks") come after, with colours this figure has not used yet.
    """
    wanted = list(dict.fromkeys(labels))
    chosen = {name: look for name, look in _FIXED.items() if name in wanted}
    taken = {look.colour for look in chosen.values()}
    free = [colour for colour in PALETTE if colour not in taken] or list(PALETTE)
    for i, name in enumerate(name for name in wanted if name not in _FIXED):
        chosen[name] = Look(free[i % len(free)], MARKERS[i % len(MARKERS)])
    return chosen


def draw_lines(axes: Axes, rows: Sequence[Row], *, x: str, y: str, label: str) -> None:
    """A line per value of `label`: the mean of `y` over repetitions, with bars from least to greatest."""
    for name, look in looks(str(row[label]) for row in rows).items():
        mine = [row for row in rows if str(row[label]) == name]
        points = sorted(table.average(mine, (x,), y), key=lambda point: point[x])
        means = [point["mean"] for point in points]
        below = [point["mean"] - point["low"] for point in points]
        above = [point["high"] - point["mean"] for point in points]
        axes.errorbar(
            [point[x] for point in points],
            means,
            yerr=[below, above],
            label=name,
            color=look.colour,
            marker=look.marker,
            capsize=2,
        )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend()


def save_figure(benchmark: Benchmark, rows: Sequence[Row], path: Path) -> None:
    """Lets the benchmark draw in this style and writes the picture. Needs no display."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        # Made without pyplot, so no window system is ever asked for: Agg writes the PNG.
        figure = Figure(figsize=SIZE, dpi=DOTS_PER_INCH, layout="constrained")
        benchmark.draw(figure, rows)
        figure.savefig(path)
