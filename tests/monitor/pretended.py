"""A run that only pretends: its tables become stale and are updated at random, without Spark and without files.

It does what a run does for those who watch it, as fast and with as many tables as is asked for. What it makes is of no
use, but has the shape of the real thing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from headgate.core import Decision, Explanation, OperatorFigures, Placement, Policy, Ranked, UnknownNameError, Update
from headgate.core.trace import RunNotice, TraceHeader, TraceTable
from headgate.monitor.watch import RunWatch
from headgate.warehouse.run.opened_table import OpenedTable, TableCode
from headgate.warehouse.schedule.glance import Glance, RunningUpdate
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.repairs import Repairs

NASTY = '<img src=x onerror=alert(1)>"&\u202e\x1b[31m'


class PassingClock:
    """Begins so many seconds in the past; `pass_by` brings it nearer to the present, where it goes on by itself."""

    def __init__(self, behind: float) -> None:
        self._behind = behind

    def __call__(self) -> float:
        return time.time() - self._behind

    def pass_by(self, seconds: float) -> None:
        self._behind = max(0.0, self._behind - seconds)


class PretendedRun:
    """``tables`` tables on ``tracks`` tracks. `step` lets a number of updates end, and tells the watch of them.

    In a ``directory`` it keeps a few rows for every table that is looked into; without one there is nothing in them.
    ``nasty`` is the name of one more table.
    """

    def __init__(
        self,
        watch: RunWatch,
        tables: int = 12,
        tracks: int = 2,
        seed: int = 1,
        clock: Callable[[], float] = time.time,
        directory: Path | None = None,
        nasty: str = "",
    ) -> None:
        self._directory = directory
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
        names += [nasty] if nasty else []
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
        #: tables without rows
        self.empty: set[str] = set()
        #: why the pipeline file is not used
        self.file_problem = ""
        #: {table: when more data is expected}, and {table: what a backfill has still to compute again}
        self.expected: dict[str, float] = {}
        self.repairs: dict[str, Repairs] = {}
        #: {table: {part of its source: records that are not loaded}}
        self.behind: dict[str, dict[str, int]] = {}
        self._running: dict[int, RunningUpdate] = {}
        #: the scheduler answers as long as it is set
        self.answers = threading.Event()
        self.answers.set()
        #: why the run has failed, if it has
        self.failed = ""
        #: updates that have a track and wait there for their turn
        self.handed: tuple[RunningUpdate, ...] = ()
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
            busy = self._busy
            if names := [name for name in ready if name not in busy]:
                chosen = self._rng.choices(names, [self._priority[name] for name in names])[0]
                self._running[track] = RunningUpdate(chosen, chosen, "live", track, now)

    def _end(self, ended: RunningUpdate, now: float) -> None:
        rows = self._rng.randrange(1, 5_000)
        update = Update(ended.table, track=ended.track, released=ended.began - self._rng.random(), began=ended.began)
        update.gained = max(0.0, now - self._complete[ended.table])
        update.rows, update.work = rows, 0.8 * (now - ended.began)
        update.commits(now - ended.began)
        if ended.table == list(self._declared)[-1]:
            update.operators = _operators(rows)
        self._complete[ended.table] = now - self._rng.random()
        self._rows[ended.table] += rows
        self._updates[ended.table] += 1
        self._last[ended.table] = (now, update.seconds)
        self._watch.updated(update)

    # --- asked by those who watch ---------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._is_running

    @property
    def _busy(self) -> set[str]:
        """The tables of running updates. Of a copy, which is made at once: others ask while a test makes steps."""
        return {each.table for each in list(self._running.values())}

    def statistics(self) -> tuple[NodeStatistics, ...]:
        now, busy = self._clock(), self._busy
        return tuple(self._statistics(name, now, name in busy) for name in self._declared)

    def _statistics(self, name: str, now: float, busy: bool) -> NodeStatistics:
        last = self._last.get(name)
        behind = now - self._complete[name]
        staleness = None if name in self.empty else behind
        state = "held" if name in self.held else "paused" if name in self._paused else "updating" if busy else "ok"
        return NodeStatistics(
            name=name,
            priority=self._priority[name],
            state="stopped" if self.failed else state,
            staleness=staleness,
            mean_staleness=staleness,
            max_staleness=staleness,
            lag=behind,
            mean_lag=behind,
            target_lag=self._declared[name].target_lag,
            target_met=0.9 if self._declared[name].target_lag else None,
            rows=0 if name in self.empty else self._rows[name],
            written=self._rows[name],
            rejected=0,
            updates=self._updates[name],
            last_update=None if last is None else last[0],
            last_seconds=None if last is None else last[1],
            next_update=self.expected.get(name),
            updates_left=0,
            longest_wait=0.0,
            failures=0,
            error=self.failed or self.held.get(name, ""),
            note="",
            repairs=self.repairs.get(name),
            behind=self.behind.get(name, {}),
        )

    def glance(self) -> Glance:
        self.answers.wait()
        now, busy = self._clock(), self._busy
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
            (*self._running.values(), *self.handed),
            file_problem=self.file_problem,
        )

    def declared(self) -> tuple[TraceTable, ...]:
        return tuple(self._declared.values())

    def decisions(self, name: str) -> tuple[Decision, ...]:
        others = [each for each in self._declared if each != name]
        ranking = tuple(Ranked(each, (100.0 - place,), 0.5) for place, each in enumerate((*others, name)))
        return tuple(Decision(turn, self._clock(), others[0], 0, "policy", self._policy, ranking) for turn in (2, 1))

    def opened(self, name: str) -> OpenedTable:
        self._known(name)
        code = TableCode(
            "sql", f"select minute, {NASTY!r} as text\nfrom air", "city.py:12", "append: rows are only added"
        )
        if self._directory is None:
            return OpenedTable(TableStore(Path("nowhere") / "table"), None, code)
        place = list(self._declared).index(name)
        store = TableStore(self._directory / f"{place}", "at", syncs=False)
        rejected = TableStore(self._directory / f"{place}__rejected", syncs=False)
        if not store.exists:
            _fill(store, rejected, self._clock())
        return OpenedTable(store, rejected, code)

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

    def check_settings(
        self,
        policy: Policy | None = None,
        placement: Placement | None = None,
        tracks: int | None = None,
        names: Iterable[str] = (),
    ) -> None:
        for name in names:
            self._known(name)

    def replace_policy(self, policy: Policy) -> None:
        self._policy = str(policy)
        self._change(policy=str(policy))

    def replace_placement(self, placement: Placement) -> None:
        self._change(placement=str(placement))

    def set_tracks(self, count: int) -> None:
        self._tracks = count
        self._change(tracks=count)

    def set_inheritance(self, inheritance: str) -> None:
        self._change(inheritance=inheritance)

    def set_together(self, together: str) -> None:
        self._change(together=together)

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


def _operators(rows: int) -> tuple[OperatorFigures, ...]:
    """A source, a filter and a sum by sensor."""
    kept = rows // 3
    return (
        OperatorFigures("by_sensor", "lines", "source", rows, rows, 0, 1e-6 * rows, 0, 0.1, 0.4, 0.0, 1e-5, 1e-6),
        OperatorFigures(
            *(
                "by_sensor",
                "valid",
                "stateless",
                rows,
                kept,
                2,
                4e-6 * rows,
                500,
                0.62,
                0.4,
                3e-4,
                2e-4,
                4e-6,
                ("lines",),
            )
        ),
        OperatorFigures(
            *("by_sensor", NASTY, "partitioned", kept, 12, 0, 2e-5 * kept, 900, 0.95, 0.4, 2e-3, 5e-4, 2e-5, ("valid",))
        ),
    )


def _fill(store: TableStore, rejected: TableStore, now: float) -> None:
    """Two updates of a few rows in several partitions, one of them rejected."""
    for number in (1, 2):
        moments = [datetime.fromtimestamp(now - 300 * number + 40 * row, UTC) for row in range(8)]
        rows = pa.table(
            {
                "at": pa.array(moments, pa.timestamp("us", "UTC")),
                "sensor": [f"s{row}" for row in range(7)] + [NASTY],
                "value": pa.array([0.5 * row for row in range(7)] + [None], pa.float64()),
            }
        )
        state = CommitState(update=number, kind="load", rows=8, time="at").to_json()
        files = store.write_arrow(number, rows, 60)
        store.commit(number, files, state=state, schema=rows.schema)
    bad = pa.table({"reason": ["no event time"], "file": ["a.json"], "raw": [f'{{"sensor": "{NASTY}"']})
    files = rejected.write_arrow(1, bad, None)
    rejected.commit(1, files, state=CommitState(update=1, kind="load").to_json(), schema=bad.schema)
