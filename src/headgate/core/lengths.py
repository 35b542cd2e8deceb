"""Lengths of time, and numbers of things, in words."""

from __future__ import annotations

import math

#: a shorter one is told in seconds where moments are told from now
_LONG = 600.0


def readable(length: float) -> str:
    """Seconds as a person would write them."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if length >= size:
            return f"{length / size:.3g} {unit}"
    return f"{length:.3g} s" if length >= 1 or length == 0 else f"{length * 1e3:.3g} ms"


def in_seconds(length: float) -> str:
    """In seconds, so that several are easily compared; in a larger unit from ten minutes on.

    >>> in_seconds(90.0), in_seconds(5660.0)
    ('90 s', '1.57 h')
    """
    return f"{length:.3g} s" if length < _LONG or length == math.inf else readable(length)


def plural(noun: str, number: int) -> str:
    """The noun as it stands after a number.

    >>> plural("track", 1), plural("track", 3)
    ('track', 'tracks')
    """
    return noun if number == 1 else f"{noun}s"
