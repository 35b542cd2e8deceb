"""Two small pictures for a report, as SVG to stand inside a page: staleness over time, and bars.

Pure functions of numbers and texts. Everything has colours of its own, and a class (``grid``, ``label``, ``most``,
``mean``, ``bar``) by which a page may give it others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from headgate.warehouse.declare.durations import readable

_WIDTH, _HEIGHT = 300.0, 110.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 8.0, 8.0, 18.0

_INK, _LINE, _MOST, _MEAN = "#52606d", "#d9e2ec", "#c9dcf3", "#2f6db5"

_BARS_WIDTH, _ROW, _BAR = 640.0, 20.0, 13.0
_NAMES, _PRIORITIES, _VALUES = 180.0, 84.0, 60.0
_LONGEST_NAME = 28


def rounded_up(value: float) -> float:
    """The next of 1, 2 and 5 times a power of ten, as the top of an axis.

    >>> [rounded_up(value) for value in (0.03, 1.0, 7.0, 130.0)]
    [0.05, 1.0, 10.0, 200.0]
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))
    return factor * power


def over_time(points: Sequence[tuple[float, float] | None], seconds: float, described: str) -> str:
    """(mean, maximum) of stretches of equal length, None where there is nothing, over a run of ``seconds``."""
    top = rounded_up(max((largest for _, largest in filter(None, points)), default=0.0))
    across = (_WIDTH - _LEFT - _RIGHT) / max(1, len(points))

    def x(number: float) -> float:
        return _LEFT + across * number

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(1.0, max(0.0, value / top))

    parts = [_opening(_WIDTH, _HEIGHT, described)]
    for value in (0.0, top / 2, top):
        parts.append(f'<path class="grid" stroke="{_LINE}" d="M{_LEFT:g} {y(value):.1f}H{_WIDTH - _RIGHT:g}"/>')
        parts.append(_text(_LEFT - 6, y(value) + 3.5, readable(value), "end"))
    for run in _unbroken(points):
        left = f"M{x(run[0][0]):.1f}"
        most = "".join(f"V{y(largest):.1f}H{x(number + 1):.1f}" for number, (_, largest) in run)
        mean = "".join(f"V{y(value):.1f}H{x(number + 1):.1f}" for number, (value, _) in run)
        parts.append(f'<path class="most" fill="{_MOST}" d="{left} {y(0):.1f}{most}V{y(0):.1f}z"/>')
        first = f"{left} {y(run[0][1][0]):.1f}"
        parts.append(f'<path class="mean" fill="none" stroke="{_MEAN}" stroke-width="1.4" d="{first}{mean}"/>')
    parts.append(_text(_LEFT, _HEIGHT - 4, "0", "start"))
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 4, readable(seconds), "end"))
    return "".join(parts) + "</svg>"


def bars(rows: Iterable[tuple[str, str, float | None]], described: str) -> str:
    """A bar for each (name, what to say beside it, seconds), from top to bottom; None has no bar."""
    rows = list(rows)
    longest = max((value for _, _, value in rows if value is not None), default=0.0) or 1.0
    start = _NAMES + _PRIORITIES
    room = _BARS_WIDTH - start - _VALUES
    parts = [_opening(_BARS_WIDTH, _ROW * len(rows) + 4, described)]
    for number, (name, beside, value) in enumerate(rows):
        line = _ROW * number + _ROW / 2 + 2
        shown = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        parts.append(f"<g><title>{escape(name)}</title>{_text(_NAMES, line + 4, shown, 'end')}</g>")
        parts.append(_text(start - 12, line + 4, beside, "end"))
        width = 0.0 if value is None else max(1.0, room * value / longest)
        box = f'x="{start:g}" y="{line - _BAR / 2:.1f}" width="{width:.1f}" height="{_BAR:g}"'
        parts.append(f'<rect class="bar" fill="{_MEAN}" {box}/>')
        parts.append(_text(start + width + 6, line + 4, "-" if value is None else readable(max(0.0, value)), "start"))
    return "".join(parts) + "</svg>"


def _unbroken(
    points: Sequence[tuple[float, float] | None],
) -> list[list[tuple[int, tuple[float, float]]]]:
    """The numbered points, cut where there is nothing."""
    runs = groupby(enumerate(points), key=lambda numbered: numbered[1] is not None)
    return [[(number, point) for number, point in run if point is not None] for there, run in runs if there]


def _opening(width: float, height: float, described: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(described)}"'
        ' font-family="system-ui, sans-serif" font-size="10">'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="label" fill="{_INK}" {place}>{escape(words)}</text>'
