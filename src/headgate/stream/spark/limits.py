"""Limits of time and memory for user code in a task: what does not come back is brought back, with its name.

A thread watches which operator the task's own thread is in, since when, and how much memory the process has. When a
limit is passed it has an exception raised there, between two steps of Python, in the middle of the user's function: the
query then fails like any other, naming the operator. Code that never comes back to Python cannot be reached so; when
the exception has not arrived after a while the process ends itself, leaving a note for the driver that says why.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headgate.core import HeadgateError
from headgate.stream.operators import Operator, SourceOperator

#: seconds between two looks
LOOK_EVERY = 0.05
#: seconds in which an exception has to arrive before the process is ended
GRACE = 2.0
#: what a process that ended itself exits with
ENDED_ITSELF = 77
#: one that Spark and Python leave to others
_SIGNAL = signal.SIGUSR2


class LimitError(HeadgateError):
    """User code took longer, or more memory, than it may."""


class TimeLimitError(LimitError):
    """One packet took too long."""


class MemoryLimitError(LimitError):
    """The worker process has become too large."""


class Watch:
    """Watches operators that run in this process, while it is used as a context.

    ``verdict`` is the file to leave a note in before the process has to be ended.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        *,
        time_limit: float | None,
        memory_limit: int | None,
        verdict: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A source waits for Spark, and that is nobody's fault.
        self._operators = [each for each in operators if not isinstance(each, SourceOperator)]
        self._time_limit = time_limit
        self._memory_limit = memory_limit
        self._verdict = verdict
        self._clock = clock
        #: {operator and thread: the number of its packet, and since when it has been at that}
        self._since: dict[tuple[int, int], tuple[int, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-watch", daemon=True)
        self._main = threading.get_ident() if threading.current_thread() is threading.main_thread() else None
        self._complaint: LimitError | None = None
        self._handler: Any = None

    def __enter__(self) -> Self:
        if self._time_limit is not None or self._memory_limit is not None:
            if self._main is not None:
                self._handler = signal.signal(_SIGNAL, self._on_signal)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._handler is not None:
            signal.signal(_SIGNAL, self._handler)

    def _on_signal(self, number: int, frame: object) -> None:
        complaint, self._complaint = self._complaint, None
        if complaint is not None:
            raise complaint

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            for operator, thread, seconds in self._at_work():
                complaint = self._judged(operator, seconds)
                if complaint is not None:
                    self._interrupt(complaint, operator, thread)
                    if isinstance(complaint, MemoryLimitError):
                        self._memory_limit = None  # what one query has left behind is not the others' fault
                    break

    def _at_work(self) -> list[tuple[Operator, int, float]]:
        """Who is at work in which thread, and for how long at the same packet."""
        now = self._clock()
        found: dict[tuple[int, int], tuple[int, float]] = {}
        made = []
        for place, operator in enumerate(self._operators):
            for thread in tuple(operator.inside):
                packet = operator.counters.packets
                before = self._since.get((place, thread))
                since = before[1] if before is not None and before[0] == packet else now
                found[place, thread] = packet, since
                made.append((operator, thread, now - since))
        self._since = found
        return made

    def _judged(self, operator: Operator, seconds: float) -> LimitError | None:
        where = f"operator {operator.spec.name!r} of query {operator.query.name!r}"
        if self._time_limit is not None and seconds > self._time_limit:
            return TimeLimitError(
                f"{where} has been working on one packet for {seconds:.1f} s, and may for {self._time_limit:g} s: "
                "make it faster, or say a longer time_limit to on_spark"
            )
        if self._memory_limit is not None and (used := own_memory()) > self._memory_limit:
            return MemoryLimitError(
                f"while {where} was at work the process had {used / 2**20:,.0f} MiB of memory of its own, and may have "
                f"{self._memory_limit / 2**20:,.0f} MiB: does a function keep what it has seen? "
                "Otherwise say a larger memory_limit to on_spark, or more buckets"
            )
        return None

    def _interrupt(self, complaint: LimitError, operator: Operator, thread: int) -> None:
        if thread == self._main:
            # A signal also ends waiting, as in sleep or for a socket.
            self._complaint = complaint
            signal.pthread_kill(thread, _SIGNAL)
        else:
            _raise_in(thread, complaint)
        until = self._clock() + GRACE
        while self._clock() < until:
            if self._over.wait(LOOK_EVERY) or operator.query.stopped or thread not in operator.inside:
                return
        if self._verdict is not None:
            leave_verdict(self._verdict, str(complaint))
        os._exit(ENDED_ITSELF)


def _raise_in(thread: int, error: LimitError) -> None:
    """Have an exception raised in another thread, when it next comes to a step of Python."""
    kind, message = type(error), str(error)
    # An exception that is raised from outside is made without arguments, so its class must bring the text.
    told = type(kind.__name__, (kind,), {"__init__": lambda self: kind.__init__(self, message)})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(told))


def leave_verdict(path: Path, reason: str) -> None:
    """Write down why the process is about to end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(reason, encoding="utf-8")
    os.replace(hidden, path)


def read_verdict(path: Path) -> str | None:
    """Why a process ended itself, if one did; the note is gone afterwards."""
    try:
        reason = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    path.unlink(missing_ok=True)
    return reason


def own_memory() -> int:
    """Bytes of memory that belong to this process alone: files that are mapped into it do not count."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not on this system: no limit can be watched
    return 0
