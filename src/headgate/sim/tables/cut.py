"""How late data is at the least if the updates that load it may be cut: what the lower bounds go by.

A piece of n seconds of data is there. One update shows all of it after ``alpha + beta n``. If k updates load it one
after the other, ``a_i`` seconds each, what the i-th loads shows when all of the first i are done. The least sum over
all data has ``a_i = n / k + (alpha / beta) ((k + 1) / 2 - i)``, which is possible while no part is negative:

    D_k(n) = beta n^2 (1 + 1 / k) / 2 + alpha n (k + 1) / 2 - alpha^2 k (k^2 - 1) / (24 beta)

for every k with ``k (k - 1) <= 2 n beta / alpha``. ``D(n)`` is that of the greatest; it is convex. Where chance makes
updates longer, the mean is the mean factor times as much: all data that is left waits for the update that runs, however
long that happens to take.
"""

from __future__ import annotations

import numpy as np

from headgate.core import Floats

#: in more parts than this, set-ups do not delay data
_MOST_PARTS = 1e6


def most_parts(n: Floats, setup: Floats | float, per_unit: Floats | float) -> Floats:
    """The number of updates with which the data shows earliest."""
    with np.errstate(all="ignore"):
        found = np.floor((1 + np.sqrt(1 + 8 * n * per_unit / setup)) / 2)
    return np.where(np.isfinite(found), np.minimum(found, _MOST_PARTS), _MOST_PARTS)


def lateness(n: Floats, setup: Floats | float, per_unit: Floats | float, parts: Floats) -> Floats:
    """``D_k(n)`` for k ``parts``: the sum over all data of how late it is."""
    with np.errstate(all="ignore"):
        exact = per_unit * n * n * (1 + 1 / parts) / 2 + setup * n * (parts + 1) / 2
        exact -= np.where(parts > 1, setup * setup * parts * (parts * parts - 1) / (24 * per_unit), 0.0)
    fluid = n * (setup + per_unit * n / 2)
    return np.where(np.isfinite(exact) & (parts < _MOST_PARTS), np.maximum(exact, fluid), fluid)


def late_and_paid(n: Floats, setup: Floats, per_unit: Floats, price: float, weight: Floats) -> tuple[Floats, Floats]:
    """The least of weighted lateness and what set-ups pay: how late the data is in all, and how many set-ups it pays.

    The last of several updates may load other data, too, which pays for its set-up then.
    """
    most = most_parts(n, setup, per_unit)
    with np.errstate(all="ignore"):
        dear = np.sqrt(2 * price * setup / weight)
        best = 2 * n * np.sqrt(per_unit) / (np.sqrt(dear * dear + 2 * setup * n) + dear)
    best = np.where(np.isfinite(best), best, most)
    few = np.clip(np.floor(best), np.minimum(2.0, most), most)
    many = np.minimum(few + 1, most)
    late, later = lateness(n, setup, per_unit, many), lateness(n, setup, per_unit, few)
    paid, less = np.maximum(1.0, many - 1), np.maximum(1.0, few - 1)
    is_few = weight * later + price * setup * less <= weight * late + price * setup * paid
    return np.where(is_few, later, late), np.where(is_few, less, paid)
