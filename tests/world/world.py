"""One world: a warehouse on a simulated clock, disk and Spark goes through a schedule, and is judged at its end.

Whatever happens, when nothing goes wrong any more the tables must become right without anybody's help, within
``QUIET`` seconds. The keeper must never end, and the warehouse must always open again.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from headgate.core import HeadgateError, Update
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.storage import log, store
from headgate.warehouse.updates import load, maintain
from headgate.warehouse.updates import open_warehouse as opening
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.world import events as e
from tests.world.clock import WorldClock
from tests.world.disk import LOG_DIRECTORY, Death, Disk, ProcessDied, StepKind
from tests.world.faults import Faults
from tests.world.foreign import delete_rows, erased_by
from tests.world.keeper import Keeper
from tests.world.landing import Landing
from tests.world.oracle import Oracle, read_table
from tests.world.schedule import Schedule
from tests.world.spark import FakeSession
from tests.world.tables import SHOPS, Declaration, analyses, declared_spec

#: seconds after the last fault within which all tables must be right
QUIET = 240.0
#: how long an ordinary step takes
STEP_SECONDS = 0.002
#: a world with more steps than this does not come to an end
MOST_STEPS = 20_000


class PhaseOver(BaseException):
    """The end of a part of the schedule is reached."""


@dataclass(slots=True)
class Outcome:
    """How a world ended: what is wrong, and what happened in it."""

    problems: list[str] = field(default_factory=list)
    steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)


class World:
    """``play`` runs the schedule in ``folder``, which must be empty."""

    def __init__(self, schedule: Schedule, folder: Path, real_log: bool = False) -> None:
        self.schedule = schedule
        self._real_log = real_log
        self.clock = WorldClock()
        self.outcome = Outcome()
        self._rng = random.Random(schedule.seed)
        self._disk = Disk(folder, self.clock, random.Random(schedule.seed + 1), real_log)
        self._disk.step = self._step
        self._landing = Landing(folder, self.clock)
        self._disk.changed = self._landing.changed
        self._folder = folder
        self._tables = folder / "warehouse" / "tables"
        self._oracle = Oracle(self._tables, self._landing)
        #: what the pipeline file says, and what the run has adopted
        self._saved: Declaration = schedule.declared
        self._declared: Declaration = schedule.declared
        self._waiting = sorted(schedule.events, key=lambda event: event.at)
        self._faults = Faults(self.clock)
        self._keeper: Keeper | None = None
        self._horizon = 0.0
        self._to_resume: set[str] = set()

    # --- the whole way --------------------------------------------------------------------------------------

    def play(self) -> Outcome:
        with self._installed():
            try:
                self._run_until(self._last_moment())
                self._become_quiet()
                self._run_until_right()
            except _Wrong as wrong:
                self.outcome.problems.append(str(wrong))
        self.outcome.seconds = self.clock.steady
        self.outcome.happened += self._faults.happened
        return self.outcome

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self._disk.installed())
            for (module, name), value in self._shortened().items():
                stack.enter_context(patch.object(module, name, value))
            stack.enter_context(patch.object(opening, "analyse", lambda spec, spark: analyses(spec, self._saved)))
            yield

    def _shortened(self) -> dict[tuple[ModuleType, str], int]:
        """Numbers that decide when logs are cleaned up and files merged, so small that it happens in a short world."""
        every = self.schedule.checkpoint_every
        return {
            (log, "CHECKPOINT_INTERVAL"): every,
            (log, "KEPT_ENTRIES"): 4 * every,
            (store, "MOST_ENTRIES"): 4 * every,
            (load, "OFFSET_EVERY"): every,
            (maintain, "COMMITS_BETWEEN_CLEANING"): 4 * every,
            (maintain, "MOST_EXTRA_FILES"): every // 2 + 2,
        }

    def _last_moment(self) -> float:
        ends = [event.at + getattr(event, "seconds", 0.0) + getattr(event, "mended", 0.0) for event in self._waiting]
        return max(ends, default=0.0) + 3.0

    def _become_quiet(self) -> None:
        """Nothing goes wrong any more; one more file lands, so that every table has something to do."""
        self._faults.end()
        self._landing.bring_share_back()
        last = e.Line(1_000_000, round(self.clock.earliest) * 1_000_000 - 1)
        self._landing.land("zz-last.json", [last])
        if self._keeper is not None:
            for table in self._to_resume.intersection(self._keeper.runtime.warehouse.nodes):
                self._keeper.runtime.resume(table)

    def _run_until_right(self) -> None:
        begun, pause = self.clock.steady, 4.0
        while True:
            self._run_until(self.clock.steady + pause)
            if self._keeper is not None and self._keeper.is_idle:
                self.outcome.problems = self._judged()
                if not self.outcome.problems:
                    return
            if self.clock.steady >= begun + QUIET:
                break
            pause = min(2 * pause, begun + QUIET - self.clock.steady)
        if not self.outcome.problems:
            self.outcome.problems = ["the tables are never up to date"]
        self.outcome.problems += self._standings()

    def _judged(self) -> list[str]:
        try:
            return self._oracle.problems(self._declared, self.clock.earliest)
        except HeadgateError as error:
            return [f"a table cannot be read: {error}"]

    def _standings(self) -> list[str]:
        """What the runtime says about tables that are not well."""
        assert self._keeper is not None
        rows = self._keeper.runtime.statistics()
        return [f"{r.name} is {r.state}: {r.error or r.note}" for r in rows if r.state not in ("ok", "new", "updating")]

    # --- the process ----------------------------------------------------------------------------------------

    def _run_until(self, horizon: float) -> None:
        """Let the process run, and start it again whenever it has ended, until that moment."""
        self._horizon = horizon
        while self.clock.steady < horizon:
            try:
                with self._disk.running():
                    if self._keeper is None:
                        self._keeper = self._opened()
                    self._go_on(self._keeper)
            except PhaseOver:
                return
            except ProcessDied:
                self._bury()
            except _Wrong:
                raise
            except Exception as error:
                if self._disk.dead:  # what it does after its death does not matter
                    self._bury()
                    continue
                what = "the keeper has ended" if self._keeper is not None else "the warehouse cannot be opened"
                if self._keeper is None and self._faults.any_lasts:
                    self._pass(5.0)  # whoever starts it tries again
                    continue
                raise _Wrong(f"{what}: {type(error).__name__}: {error}") from error

    def _go_on(self, keeper: Keeper) -> None:
        runtime = keeper.runtime
        while not (runtime._stopping and runtime._scheduler.is_idle):
            keeper.step()
            if self._disk.dead:
                raise ProcessDied
        self._keeper = None

    def _opened(self) -> Keeper:
        if self._saved.wrong:  # whoever starts it is told so, and corrects it first
            self._saved = self._declared
        opened = self._open_warehouse()
        self._declared = self._saved  # what was saved just before the process died, too
        keeper = Keeper(
            opened,
            FakeSession(self._job),
            # Looking at landing folders costs the simulation more than all else, so it is done seldom.
            RunOptions(tracks=self.schedule.tracks, budget=self.schedule.budget, poll=1.0),
            self.clock,
            lambda: self._rng.choice((0.05, 0.3, 1.5)),
            self._wait,
            self._observe,
            self._adopted,
            self._open_warehouse,
        )
        return keeper

    def _open_warehouse(self) -> OpenWarehouse:
        spec = declared_spec(self._saved, self._folder, self.clock.time, self.clock.monotonic)
        return opening.open_warehouse(spec, FakeSession(self._job), clock=self.clock.time)  # type: ignore[arg-type]

    def _bury(self) -> None:
        died, self._faults.dying = self._faults.dying, None
        self._keeper = None
        self._disk.dead = False
        if isinstance(died, e.PowerCut):
            # Another program need not have synced what it wrote: then it has not deleted anything.
            self._oracle.erased -= {erased_by(path) for path in self._disk.lose_unsynced()}
        self._pass(0.0 if died is None else died.down)

    def _pass(self, seconds: float) -> None:
        """Time passes, and nothing of the warehouse runs."""
        end = self.clock.steady + seconds
        with self._disk.outside():
            while self._waiting and self._waiting[0].at <= end:
                self.clock.advance(self._waiting[0].at - self.clock.steady)
                self._happen()
            self.clock.advance(end - self.clock.steady)

    # --- what the process runs into -------------------------------------------------------------------------

    def _wait(self, until: float) -> bool:
        """Wait for that moment, or until something happens in the world; whether the moment has come."""
        if self._disk.dead:
            raise ProcessDied
        if self.clock.steady >= self._horizon:
            raise PhaseOver
        following = self._waiting[0].at if self._waiting else self._horizon
        self.clock.advance(min(until, following, self._horizon) - self.clock.steady)
        with self._disk.outside():
            self._happen()
        return self.clock.steady >= until

    def _step(self, kind: StepKind, target: str) -> Death:
        self.outcome.steps += 1
        if self.outcome.steps > MOST_STEPS:
            raise _Wrong("there is no end to it")
        self.clock.advance(STEP_SECONDS)
        self._happen()
        return self._faults.at(kind, target)

    def _job(self, group: str) -> None:
        self._disk.job(group)

    def _observe(self, update: Update) -> None:
        """After every update: the dimension must be what its folder was at some moment."""
        self.outcome.updates += 1
        if update.table != "shops" or update.layer != "live" or not update.committed:
            return
        with self._disk.outside():
            rows = read_table(self._tables / "shops", SHOPS, None)
        legal = (sorted(row for part in state.values() for row in part) for state in self._landing.states)
        if rows not in legal:
            raise _Wrong(f"shops was committed with {rows}, which its folder never held")

    # --- what happens ---------------------------------------------------------------------------------------

    def _happen(self) -> None:
        """Let everything happen whose time has come."""
        while self._waiting and self._waiting[0].at <= self.clock.steady:
            event = self._waiting.pop(0)
            self.outcome.happened[type(event).__name__] += 1
            self._happens(event)

    def _later(self, event: e.Event) -> None:
        self._waiting.append(event)
        self._waiting.sort(key=lambda each: each.at)

    def _happens(self, event: e.Event) -> None:
        later = self._landing.happens(event)
        if later is not None:
            for each in later:
                self._later(each)
        elif not self._faults.begins(event):
            self._happens_to_warehouse(event)
        if isinstance(event, e.QueryFails):
            self._to_resume.add(event.table)

    def _happens_to_warehouse(self, event: e.Event) -> None:
        runtime = None if self._keeper is None else self._keeper.runtime
        if isinstance(event, e.Pause | e.Resume | e.Backfill) and runtime is not None:
            runtime = runtime if event.table in runtime.warehouse.nodes else None  # it may be declared away
        match event:
            case e.RemoveTable():
                shutil.rmtree(self._tables / event.table, ignore_errors=True)
            case e.ForeignDelete():
                self._oracle.erased |= delete_rows(self._tables / "orders", self._rng, self._real_log)
            case e.EmptyPointer():
                for pointer in self._tables.glob(f"*/{LOG_DIRECTORY}/_last_checkpoint"):
                    os.truncate(pointer, 0)
            case e.Redeclare():
                self._redeclare(event.declared)
            case e.Restart() if runtime is not None:
                runtime.stop_soon()
            case e.Pause() if runtime is not None:
                runtime.pause(event.table)
                self._later(e.Resume(event.at + event.seconds, event.table))
            case e.Resume() if runtime is not None:
                runtime.resume(event.table)
            case e.Backfill() if runtime is not None:
                with suppress(HeadgateError):  # the table may be away, or it cannot be noted what is to be computed
                    runtime.backfill(event.table, 0, round(self.clock.wall) * 1_000_000)

    def _redeclare(self, declared: Declaration) -> None:
        if declared.wrong and not any((self._tables / "orders" / LOG_DIRECTORY).glob("*.json")):
            return  # before there is a table, every declaration can be adopted
        if self._keeper is None:
            if not declared.wrong:  # a run with a wrong declaration is not even started
                self._saved = self._declared = declared
            return
        before, self._saved = self._saved, declared
        runtime = self._keeper.runtime
        runtime.replace_warehouse(self._open_warehouse)
        runtime._inbox.put(lambda: None)
        if declared.wrong:
            self._later(e.Redeclare(self.clock.steady + 4.0, before))

    def _adopted(self, at: float, opened: OpenWarehouse) -> None:
        self._declared = self._saved


class _Wrong(Exception):  # noqa: N818 - a finding
    """Something that must not be, at any time."""


def play(schedule: Schedule, folder: Path, real_log: bool = False) -> Outcome:
    """Play a schedule in an empty folder; if ``real_log``, with the real ``deltalake`` package."""
    return World(schedule, folder, real_log).play()
