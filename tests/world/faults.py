"""Faults of the machine: what goes wrong at the steps of a process."""

from __future__ import annotations

import errno
from collections import Counter

from tests.world import events as e
from tests.world.clock import WorldClock
from tests.world.disk import Death, StepKind
from tests.world.spark import SparkFailed


class Faults:
    """``dying`` is how the process is going to die, if it is; ``happened`` counts what went wrong."""

    def __init__(self, clock: WorldClock) -> None:
        self._clock = clock
        self.happened: Counter[str] = Counter()
        self.dying: e.Crash | e.PowerCut | None = None
        self._steps_left = 0
        #: faults that last for a while, with their ends
        self._lasting: list[tuple[float, e.Event]] = []

    def begins(self, event: e.Event) -> bool:
        """A fault begins; False if the event is none."""
        match event:
            case e.Crash() | e.PowerCut():
                self.dying, self._steps_left = event, event.steps
            case e.DiskFull() | e.CommitsFail() | e.SparkFails() | e.QueryFails() | e.Slow():
                self._lasting.append((event.at + event.seconds, event))
            case e.SetClock():
                self._clock.set(event.by)
            case _:
                return False
        return True

    def end(self) -> None:
        """Nothing goes wrong any more."""
        self.dying = None
        self._lasting.clear()

    @property
    def any_lasts(self) -> bool:
        self._lasting = [(end, fault) for end, fault in self._lasting if end > self._clock.steady]
        return bool(self._lasting)

    def at(self, kind: StepKind, target: str) -> Death:
        """What goes wrong at a step: it raises, or says how the process dies, or nothing is wrong."""
        if death := self._dies_at(kind, target):
            self.happened["death"] += 1
            return death
        for fault in [fault for _, fault in self._lasting] if self.any_lasts else ():
            if outcome := self._fails(fault, kind, target):
                return outcome
        return ""

    def _dies_at(self, kind: StepKind, target: str) -> Death:
        dying = self.dying
        if dying is None:
            return ""
        if isinstance(dying, e.Crash) and not (kind.startswith(dying.kind) and target.endswith(dying.target)):
            return ""
        self._steps_left -= 1
        if self._steps_left > 0:
            return ""
        return dying.how if isinstance(dying, e.Crash) else "before"

    def _fails(self, fault: e.Event, kind: StepKind, target: str) -> Death:
        match fault:
            case e.DiskFull() if kind in ("write", "commit", "checkpoint"):
                self.happened["full disk"] += 1
                raise OSError(errno.ENOSPC, "No space left on device", target)
            case e.CommitsFail() if kind == "commit" and target.endswith(fault.table):
                self.happened["failed commit"] += 1
                if fault.stands:
                    return "answer lost"
                raise OSError(errno.EIO, "Input/output error", target)
            case e.SparkFails() if kind == "job":
                self.happened["failed job"] += 1
                raise SparkFailed("the executor was lost")
            case e.QueryFails() if kind == "job" and fault.table == target.removeprefix("headgate "):
                self.happened["failed query"] += 1
                raise SparkFailed("division by zero")
            case e.Slow():
                self.happened["slow step"] += 1
                self._clock.advance(fault.each)
        return ""
