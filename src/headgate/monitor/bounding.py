"""How many times its lower bound a run is at: computed seldom, by a process of its own.

The process is this module: the name of a trace on standard input, its answer on standard output, both JSON.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

from headgate.apart import PATIENCE, ApartError, asked_apart, request_apart, trace_from_request, trace_to_request
from headgate.core import CostModel, HeadgateError
from headgate.core.trace import RunBound, Trace
from headgate.monitor.record import Json
from headgate.places.place import AnyPath
from headgate.sim import replay_of, run_bound
from headgate.sim.run_bound import settled
from headgate.warehouse.run.control_commands import finite
from headgate.warehouse.run.trace import read_trace

#: of a run that goes on, its last seconds count: what was long ago is no fault of how it is scheduled now
WINDOW = 600.0
#: no more than so many of the latest updates count: 32,000 of 500 tables, in 10 minutes, would take half a minute
MOST_UPDATES = 20_000
#: a run that is shorter has nothing to compare
LEAST_SECONDS = 10.0
#: for a run that goes on: seconds until it is first computed, and then between two computations, at least, and so many
#: times what the last one took
FIRST, EVERY, TIMES = 20.0, 60.0, 50.0
#: the same if there was none: soon there may be one, and what took long may have been a busy machine
TIMES_WITHOUT = 5.0


def bound_apart(trace: AnyPath, window: float | None = None, patience: float = PATIENCE) -> RunBound | str:
    """The bound of a recorded run, or of its last ``window`` seconds; or why there is none."""
    try:
        request = {**trace_to_request(trace), "window": window}
        told = json.loads(asked_apart("headgate.monitor.bounding", request, patience))
    except ApartError as error:
        return str(error)
    return str(told["error"]) if "error" in told else RunBound(**told["bound"])


def bound_of(trace: Trace, window: float | None = None) -> RunBound | str:
    """The same, in this process. The start of a run, until most tables have rows, does not count."""
    length = trace.finish - trace.header.started
    if length < LEAST_SECONDS:
        return f"it needs a run of {LEAST_SECONDS:g} s at least"
    skip = max(settled(trace), 0.0 if window is None else length - window)
    if len(trace.updates) > MOST_UPDATES:
        latest = sorted(update.began for update in trace.updates)[-MOST_UPDATES]
        skip = max(skip, latest - trace.header.started)
    if length - skip < LEAST_SECONDS:
        return f"most tables have had rows for less than {LEAST_SECONDS:g} s"
    try:
        replay = replay_of(trace, skip, CostModel)
        found = run_bound(replay)
    except HeadgateError as error:
        return str(error)
    if replay.unknown and not found.tables:
        return "it is not recorded whether data waits that is not loaded"
    if found.times is None:
        return "no table has become stale yet" if found.tables else "no table with data of the present has rows yet"
    return found


def told_of_bound(found: RunBound | str, until: float | None = None) -> Json:
    """As viewers see it; ``until`` is the moment up to which it counts."""
    if isinstance(found, str):
        return {"times": None, "why": found}
    return {"times": found.times, "why": "", "until": until, **asdict(found)}


def not_recorded() -> Json:
    return told_of_bound("this run is not recorded")


class RunBounds:
    """Keeps the bound of one run: computed when somebody asks, but not again too soon.

    ``window`` is how many of its last seconds count; None for all of a run that is over, whose bound, once
    it is known, stays the same.
    """

    def __init__(
        self,
        window: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        ask: Callable[[AnyPath, float | None], RunBound | str] = bound_apart,
    ) -> None:
        self._window = window
        self._clock = clock
        self._ask = ask
        #: held while it is computed
        self._busy = threading.Lock()
        self._next = clock() + (0.0 if window is None else FIRST)
        #: as viewers see it; None if it was never computed
        self.latest: Json | None = None

    @property
    def is_due(self) -> bool:
        """Whether it should be computed, and nobody does."""
        return not self._busy.locked() and self._clock() >= self._next

    def of(self, trace: AnyPath) -> Json:
        """The bound of the run in ``trace``; whoever asks while it is computed waits for that."""
        with self._busy:
            if self.latest is None or self._clock() >= self._next:
                began = self._clock()
                self.latest = told_of_bound(self._ask(trace, self._window), time.time())
                now = self._clock()
                has_one = self.latest["times"] is not None
                pause = max(EVERY, (TIMES if has_one else TIMES_WITHOUT) * (now - began))
                self._next = math.inf if has_one and self._window is None else now + pause
            return self.latest


def main() -> None:
    request = request_apart()
    try:
        found = bound_of(read_trace(trace_from_request(request)), request["window"])
    except HeadgateError as error:
        found = str(error)
    content: Json = {"error": found} if isinstance(found, str) else {"bound": finite(asdict(found))}
    json.dump(content, sys.stdout)


if __name__ == "__main__":
    main()
