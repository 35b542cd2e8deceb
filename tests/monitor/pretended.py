"""A run that only pretends: its tables become stale and are updated at random, without Spark and without files.

It does what a run does for those who watch it, as fast and with as many tables as is asked for. What it makes is of no
use, but has the shape of the real thing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from headgate.core import Decision, Explanation, Placement, Policy, Ranked, UnknownNameError, Update
from headgate.core.trace import RunNotice, TraceHeader, TraceTable
from headgate.monitor.watch import RunWatch
from headgate.warehouse.schedule.glance import Glance, RunningUpdate
from headgate.warehouse.schedule.ledger import NodeStatistics

NASTY = '<img src=x onerror=alert(1)>"&\u202e\x1b[31m'


class PretendedRun:
    """``tables`` tables on ``tracks`` tracks. `step` lets a number of updates end, and tells the watch of them."""

    def __init__(
        self, watch: RunWatch, tables: int = 12, tracks: int = 2, seed: int = 1, clock: Callable[[], float] = time.time
    ) -> None:
        self._watch = watch
        self._rng = random.Random(seed)
        self._clock = clock
        self._tracks = tracks
        self._policy = "max-benefit"
        self._is_running = True
        self.asked: list[tuple[object, ...]] = []
        now = clock()
        names = [f"stream{n:03}" if n < max(1, tables // 6) else f"table{n:03}" for n in range(tables)]
        streams = [name for name in names if name.startswith("stream")]
        self._declared = {
            name: TraceTable(
                name,
                sources=() if name in streams else tuple(sorted(self._rng.sample(names[:place], min(place, 2)))),
                priority=float(self._rng.choice((1, 1, 2, 5, 20))),
                importance_class=self._rng.randrange(2),
                target_lag=self._rng.choice((None, 10.0, 60.0)),
                kind="stream" if name in streams else "table",
            )
            for place, name in enumerate(names)
        }
        self._complete = {name: now - self._rng.uniform(0, 30) for name in names}
        self._priority = {name: each.priority for name, each in self._declared.items()}
        self._rows = dict.fromkeys(names, 0)
        self._updates = dict.fromkeys(names, 0)
        self._last: dict[str, tuple[float, float]] = {}
        self._paused: set[str] = set()
        self.held: dict[str, str] = {}
        self._running: dict[int, RunningUpdate] = {}
        self.header = TraceHeader(
            "city", now, tracks, self._policy, "proportional", "max", None, tuple(self._declared.values()), 1.0
        )
        watch.begin(self.header)
        watch.start(self)

    # --- what happens ---------------------------------------------------------------------------------------

    def step(self, updates: int = 1) -> None:
        """So many updates end, and the next ones begin."""
        for _ in range(updates):
            now = self._clock()
            track = self._rng.randrange(self._tracks)
            ended = self._running.pop(track, None)
            if ended is not None:
                self._end(ended, now)
            ready = [name for name in self._complete if name not in self._paused and name not in self.held]
            busy = {each.table for each in self._running.values()}
            if names := [name for name in ready if name not in busy]:
                chosen = self._rng.choices(names, [self._priority[name] for name in names])[0]
                self._running[track] = RunningUpdate(chosen, chosen, "live", track, now)

    def _end(self, ended: RunningUpdate, now: float) -> None:
        rows = self._rng.randrange(1, 5_000)
        update = Update(ended.table, track=ended.track, released=ended.began - self._rng.random(), began=ended.began)
        update.gained = max(0.0, now - self._complete[ended.table])
        update.rows, update.work = rows, 0.8 * (now - ended.began)
        update.commits(now - ended.began)
        self._complete[ended.table] = now - self._rng.random()
        self._rows[ended.table] += rows
        self._updates[ended.table] += 1
        self._last[ended.table] = (now, update.seconds)
        self._watch.updated(update)

    # --- asked by those who watch ---------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._is_running

    def statistics(self) -> tuple[NodeStatistics, ...]:
        now = self._clock()
        busy = {each.table for each in self._running.values()}
        return tuple(self._statistics(name, now, name in busy) for name in self._declared)

    def _statistics(self, name: str, now: float, busy: bool) -> NodeStatistics:
        last = self._last.get(name)
        staleness = now - self._complete[name]
        state = "held" if name in self.held else "paused" if name in self._paused else "updating" if busy else "ok"
        return NodeStatistics(
            name=name,
            priority=self._priority[name],
            state=state,
            staleness=staleness,
            mean_staleness=staleness,
            max_staleness=staleness,
            lag=staleness,
            mean_lag=staleness,
            target_lag=self._declared[name].target_lag,
            target_met=0.9 if self._declared[name].target_lag else None,
            rows=self._rows[name],
            written=self._rows[name],
            rejected=0,
            updates=self._updates[name],
            last_update=None if last is None else last[0],
            last_seconds=None if last is None else last[1],
            next_update=None,
            updates_left=0,
            longest_wait=0.0,
            failures=0,
            error=self.held.get(name, ""),
            note="",
        )

    def glance(self) -> Glance:
        now = self._clock()
        busy = {each.table for each in self._running.values()}
        waiting = [name for name in self._declared if name not in busy and name not in self._paused]
        waiting.sort(key=lambda name: -self._priority[name] * (now - self._complete[name]))
        queue = tuple(Ranked(name, (self._priority[name],), now - self._complete[name]) for name in waiting[:20])
        return Glance(
            now,
            self._policy,
            "proportional",
            self._tracks,
            1.0,
            self.statistics(),
            queue,
            tuple(self._running.values()),
        )

    def declared(self) -> tuple[TraceTable, ...]:
        return tuple(self._declared.values())

    def decisions(self, name: str) -> tuple[Decision, ...]:
        ranking = tuple(Ranked(each, (1.0,), 0.5) for each in (name, *list(self._declared)[:3]))
        return (Decision(1, self._clock(), name, 0, "policy", self._policy, ranking),)

    def notices(self) -> tuple[RunNotice, ...]:
        return ()

    def explain(self, name: str) -> Explanation:
        self._known(name)
        return Explanation(name, self._clock(), self._policy, (), 1, (1.0,), float("inf"))

    # --- changed by those who watch -------------------------------------------------------------------------

    def _known(self, name: str) -> None:
        if name not in self._declared:
            raise UnknownNameError("table", name, self._declared)

    def _change(self, **what: object) -> None:
        self.asked.append(tuple(what.items()))
        self._watch.changed(self._clock(), what)

    def replace_policy(self, policy: Policy) -> None:
        self._policy = str(policy)
        self._change(policy=str(policy))

    def replace_placement(self, placement: Placement) -> None:
        self._change(placement=str(placement))

    def set_tracks(self, count: int) -> None:
        self._tracks = count
        self._change(tracks=count)

    def set_budget(self, budget: float | None) -> None:
        self._change(budget=budget)

    def set_priority(self, name: str, priority: float) -> None:
        self._known(name)
        self._priority[name] = priority
        self._change(priority=[name, priority])

    def pause(self, name: str) -> None:
        self._known(name)
        self._paused.add(name)
        self._change(paused=name)

    def resume(self, name: str) -> None:
        self._known(name)
        self._paused.discard(name)
        self.held.pop(name, None)
        self._change(resumed=name)

    def refresh(self, name: str) -> None:
        self._known(name)
        self._change(refresh=name)

    def backfill(self, name: str, first: int, last: int, chunk: float | None = None) -> None:
        self._known(name)
        self._change(backfill=[name, first, last])

    def stop_soon(self) -> None:
        self._is_running = False
