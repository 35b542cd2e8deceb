"""Groups of bars: medians of measurements, with lines from the least to the greatest."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Row
from benchmarks.harness.style import looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: of the distance between two groups, how much their bars take
_FILLED = 0.8


def draw_bars(axes: Axes, rows: Sequence[Row], *, x: str, y: str, label: str, scale: float = 1.0) -> None:
    """A group for each value of ``x``, in it a bar for each value of ``label``; ``y`` is divided by ``scale``."""
    groups = list(dict.fromkeys(row[x] for row in rows))
    names = looks(str(row[label]) for row in rows)
    width = _FILLED / len(names)
    for place, (name, look) in enumerate(names.items()):
        for number, group in enumerate(groups):
            values = [row[y] / scale for row in rows if row[x] == group and str(row[label]) == name]
            if not values:
                continue
            middle = statistics.median(values)
            axes.bar(
                number + (place + 0.5) * width - _FILLED / 2,
                middle,
                width,
                color=look.colour,
                label=name if not number else None,
                yerr=[[middle - min(values)], [max(values) - middle]],
                capsize=2,
            )
    axes.set_xticks(range(len(groups)), [str(group) for group in groups])
    axes.legend(fontsize="small")
