"""When the records of a partition arrived, as far as that is known without reading them.

What is known are *marks*: at some moment the partition ended at some offset. Between two marks records are taken to
have arrived evenly. Before the first look of a process at a topic, the marks come from the timestamps of records, which
producers may set as they like. So ``at`` is good enough to choose what to load and to say how long it has waited.
Whoever must not miss a record that was there at some moment asks ``since``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

#: of more marks than this, every second one is dropped, except among the newest half
MOST_MARKS = 96
#: marks that are less than this apart, in seconds, need none between them
_CLOSE = 0.01


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The marks of a partition: it ended at ``ends[k]`` at the time ``times[k]``. Both never go down."""

    ends: tuple[int, ...] = ()
    times: tuple[float, ...] = ()
    #: when the last end was seen the last time
    seen: float = float("-inf")
    #: what comes before this offset was there at the first look, whatever its timestamps say
    found: int = 0

    @classmethod
    def of(cls, marks: Iterable[tuple[float, int]], now: float) -> Arrivals:
        """From ends by time, in any order and perhaps contradicting each other."""
        arrivals = cls()
        for moment, end in sorted(marks):
            arrivals = arrivals.noted(end, min(moment, now))
        return replace(arrivals, found=arrivals.ends[-1] if arrivals.ends else 0)

    def noted(self, end: int, now: float) -> Arrivals:
        """With one more look: the partition ends at ``end`` now."""
        if self.ends and end <= self.ends[-1]:
            return replace(self, seen=max(now, self.seen))
        ends, times = list(self.ends), list(self.times)
        if ends and self.seen > times[-1]:
            # Nothing had come up to then: it came after.
            ends.append(ends[-1])
            times.append(self.seen)
        ends.append(end)
        times.append(max(now, times[-1]) if times else now)
        if len(ends) > MOST_MARKS:
            half = MOST_MARKS // 2
            ends, times = ends[:-half:2] + ends[-half:], times[:-half:2] + times[-half:]
        return Arrivals(tuple(ends), tuple(times), now, self.found if self.ends else end)

    def since(self, offset: int) -> float:
        """A moment before which the record at ``offset`` was certainly not there."""
        if offset < self.found or not self.times:
            return float("-inf")
        return self.times[max(0, bisect_right(self.ends, offset) - 1)]

    def at(self, offset: int) -> float:
        """When the record at ``offset`` arrived, in wall-clock seconds since the epoch."""
        index = bisect_right(self.ends, offset)
        if index == 0 or index == len(self.ends):
            return self.times[min(index, len(self.times) - 1)] if self.times else 0.0
        before, after = self.ends[index - 1], self.ends[index]
        share = (offset + 1 - before) / (after - before)
        # Rounding must not put it behind the records after it.
        return min(self.times[index], self.times[index - 1] + share * (self.times[index] - self.times[index - 1]))

    def finer(self, count: int) -> list[float]:
        """Moments to ask for more marks at: ``count`` each where most records came, and where the last one came."""
        gaps = [
            (after - before, begin, end)
            for (before, after), (begin, end) in zip(pairwise(self.ends), pairwise(self.times), strict=True)
            if after > before and end - begin > _CLOSE
        ]
        wanted = dict.fromkeys([*([max(gaps)] if gaps else []), *gaps[-1:]])
        steps = range(1, count + 1)
        return [begin + (end - begin) * step / (count + 1) for _, begin, end in wanted for step in steps]
