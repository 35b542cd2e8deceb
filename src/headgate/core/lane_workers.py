"""Who may serve which lane: what follows from the lanes of a placement and the number of workers alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from headgate.core.placement import Lane


class LaneWorkers:
    """For each lane the workers that may serve it, those at home first. ``free`` are always the workers that have
    nothing to do, in the order in which they became free."""

    def __init__(self, lanes: Sequence[Lane], workers: int) -> None:
        homes = [set(lane.home) for lane in lanes]
        #: per lane {worker: rank}, home before spare
        self._preference = [
            {w: rank for rank, w in enumerate(dict.fromkeys((*lane.home, *lane.spare)))} for lane in lanes
        ]
        #: whether there is one lane only, in which every worker is at home
        self.one_for_all = len(lanes) == 1 and homes[0] == set(range(workers))
        #: by worker: the lanes that it may serve; and those that it serves first, at home or aggressively
        self._any = [[k for k, ranks in enumerate(self._preference) if w in ranks] for w in range(workers)]
        self._first = [[k for k in mine if w in homes[k] or lanes[k].aggressive] for w, mine in enumerate(self._any)]

    def open_lanes(self, free: Collection[int], spare: bool) -> Iterator[int]:
        """Lanes that a free worker may serve: as a home (or aggressively), or with ``spare`` in any way."""
        if self.one_for_all:
            yield 0
            return
        table = self._any if spare else self._first
        if len(free) == 1:
            yield from table[next(iter(free))]
            return
        seen: set[int] = set()
        for worker in free:
            for lane in table[worker]:
                if lane not in seen:
                    seen.add(lane)
                    yield lane

    def worker_for(self, lane: int, free: Collection[int]) -> int:
        """The free worker that a lane gets."""
        if len(free) == 1:
            return next(iter(free))
        preference = self._preference[lane]
        if len(free) < len(preference):
            return min((w for w in free if w in preference), key=preference.__getitem__)
        return next(w for w in preference if w in free)

    def may_serve(self, worker: int, lane: int) -> bool:
        """Whether a worker may serve a lane, at home or as a spare one."""
        return worker in self._preference[lane]
