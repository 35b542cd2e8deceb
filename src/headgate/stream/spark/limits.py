"""Limits of time and memory for user code in a task.

A thread watches which operator each thread is running and since when, and how much memory the process has. If a limit
is exceeded, it raises an exception in that thread, in the middle of the user's function, between two Python
instructions. The query then fails like any other, and the error names the operator. Code that does not return to Python
cannot be interrupted like this: if the exception has not arrived after ``GRACE`` seconds, the process ends itself and
leaves a note for the driver that says why.
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
from headgate.places.place import AnyPath
from headgate.stream.operators import Operator, SourceOperator

#: seconds between two checks
LOOK_EVERY = 0.05
#: seconds to wait for the exception to arrive before the process is ended
GRACE = 2.0
#: exit status of a process that ended itself
ENDED_ITSELF = 77
#: a signal that neither Spark nor Python uses
_SIGNAL = signal.SIGUSR2


class LimitError(HeadgateError):
    """User code took more time or memory than allowed."""


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
        verdict: AnyPath | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A source may wait long for Spark, so sources are not limited.
        self._operators = [each for each in operators if not isinstance(each, SourceOperator)]
        self._time_limit = time_limit
        self._memory_limit = memory_limit
        self._verdict = verdict
        self._clock = clock
        #: {(operator, thread): (number of its packet, when it was first seen at that packet)}
        self._since: dict[tuple[int, int], tuple[int, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-watch", daemon=True)
        self._main = threading.get_ident() if threading.current_thread() is threading.main_thread() else None
        self._pending_error: LimitError | None = None
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
        error, self._pending_error = self._pending_error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            for operator, thread, seconds in self._at_work():
                error = self._exceeded(operator, seconds)
                if error is not None:
                    self._interrupt(error, operator, thread)
                    if isinstance(error, MemoryLimitError):
                        self._memory_limit = None  # the memory may stay in use; do not fail the other queries for it
                    break

    def _at_work(self) -> list[tuple[Operator, int, float]]:
        """(operator, thread, seconds at the same packet) for each operator that is running."""
        now = self._clock()
        since_when: dict[tuple[int, int], tuple[int, float]] = {}
        running = []
        for place, operator in enumerate(self._operators):
            for thread in tuple(operator.inside):
                packet = operator.counters.packets
                before = self._since.get((place, thread))
                since = before[1] if before is not None and before[0] == packet else now
                since_when[place, thread] = packet, since
                running.append((operator, thread, now - since))
        self._since = since_when
        return running

    def _exceeded(self, operator: Operator, seconds: float) -> LimitError | None:
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

    def _interrupt(self, error: LimitError, operator: Operator, thread: int) -> None:
        if thread == self._main:
            # A signal also interrupts waiting, as in sleep or for a socket.
            self._pending_error = error
            signal.pthread_kill(thread, _SIGNAL)
        else:
            _raise_in(thread, error)
        until = self._clock() + GRACE
        while self._clock() < until:
            if self._over.wait(LOOK_EVERY) or operator.query.stopped or thread not in operator.inside:
                return
        if self._verdict is not None:
            leave_verdict(self._verdict, str(error))
        os._exit(ENDED_ITSELF)


def _raise_in(thread: int, error: LimitError) -> None:
    """Raise an exception in another thread, at its next Python instruction."""
    kind, message = type(error), str(error)
    # Python creates such an exception without arguments, so the message must be in its class.
    with_message = type(kind.__name__, (kind,), {"__init__": lambda self: kind.__init__(self, message)})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(with_message))


def leave_verdict(path: AnyPath, reason: str) -> None:
    """Write a note why the process is about to end."""
    if not isinstance(path, Path):
        path.write_text(reason)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(reason, encoding="utf-8")
    os.replace(hidden, path)


def read_verdict(path: AnyPath) -> str | None:
    """Why a process ended itself, if one did; the note is deleted."""
    try:
        reason = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    path.unlink(missing_ok=True)
    return reason


def own_memory() -> int:
    """Bytes of memory of this process, without files that are mapped into memory."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not available on this system: memory is not limited
    return 0
