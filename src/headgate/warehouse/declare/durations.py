"""Lengths of time as people write them: ``"10 seconds"``, ``"1 hour"``, ``"500 ms"``, or a number of seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from headgate.core import DeclarationError, lengths

#: a text such as "10 seconds", or a number of seconds
Duration = str | float

_UNITS = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def seconds(duration: Duration, what: str = "a duration") -> float:
    """``duration`` in seconds; ``what`` names it in the message if it cannot be read."""
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        if 0 <= duration < math.inf:
            return float(duration)
    elif isinstance(duration, str):
        match = _WRITTEN.fullmatch(duration.lower())
        if match and match[2] in _UNITS and (length := float(match[1]) * _UNITS[match[2]]) < math.inf:
            return length
    raise DeclarationError(f"{what} takes a length of time such as '10 seconds', '5 min' or '1 hour'; got {duration!r}")


readable = lengths.readable


def readable_alike(lengths: Sequence[float]) -> list[str]:
    """Seconds as a person would write them, all in the same unit, as on an axis: the largest that is at most half of
    the longest.

    >>> readable_alike([0.0, 90.0, 180.0])
    ['0 min', '1.5 min', '3 min']
    """
    longest = max(lengths, default=0.0)
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
    otherwise = ("s", 1.0) if longest >= 1 or longest == 0 else ("ms", 1e-3)
    unit, size = next(((unit, size) for unit, size in units if longest >= 2 * size), otherwise)
    return [f"{length / size:.4g} {unit}" for length in lengths]


class Lengths:
    """Turns the durations of one declaration into seconds; those that cannot be read become ``problems``."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def needed(self, option: str, duration: Duration, otherwise: float) -> float:
        """``duration`` in seconds; ``otherwise`` if it cannot be read, so that no check reports it a second time."""
        try:
            return seconds(duration, option)
        except DeclarationError as error:
            self.problems.append(str(error))
            return otherwise

    def optional(self, option: str, duration: Duration | None) -> float | None:
        if duration is None:
            return None
        return self.needed(option, duration, 1.0)
