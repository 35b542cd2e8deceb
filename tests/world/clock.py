"""The clocks of a simulated world: one that only goes forward, and one on the wall that can be set."""

from __future__ import annotations

#: when every world begins, in seconds since the epoch: a Monday at noon
START = 1_789_992_000.0


class WorldClock:
    """Time passes only when somebody lets it pass.

    ``steady`` is how long the world has existed. ``wall`` can be set forward and back, as by a person or by a time
    server. ``earliest`` and ``latest`` are the least and the largest time that was ever on the wall.
    """

    def __init__(self) -> None:
        self.steady = 0.0
        self._ahead = START
        self.earliest = self.latest = START

    @property
    def wall(self) -> float:
        return self.steady + self._ahead

    def advance(self, seconds: float) -> None:
        self.steady += max(0.0, seconds)
        self.latest = max(self.latest, self.wall)

    def set(self, seconds: float) -> None:
        """Set the clock on the wall by so much, forward or back."""
        self._ahead += seconds
        self.earliest, self.latest = min(self.earliest, self.wall), max(self.latest, self.wall)

    # --- the functions of the module ``time`` ---------------------------------------------------------------

    def time(self) -> float:
        return self.wall

    def time_ns(self) -> int:
        return round(self.wall * 1e6) * 1_000

    def monotonic(self) -> float:
        return self.steady

    def monotonic_ns(self) -> int:
        return round(self.steady * 1e9)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
