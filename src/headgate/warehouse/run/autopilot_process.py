"""The process beside a run that replays its last minutes: started, told of everything, and listened to.

Nobody waits for it. What it is told goes through a queue and a thread; if it does not listen, it is ended. If it fails,
that is told once, and the run goes on as it is.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from headgate.apart import started_apart
from headgate.core.trace import TraceHeader
from headgate.core.trace.lines import header_line

#: how many lines may wait to be told
MOST_WAITING = 10_000
#: how long the end of a run waits for the threads here
END_SECONDS = 1.0


_started = partial(started_apart, "headgate.autopilot")


class AutopilotProcess:
    """Runs from when it is made until ``end``, or until it fails.

    ``heard`` is called with everything that it says, ``failed`` with why it has ended, each on a thread of their own.
    ``start`` starts it.
    """

    def __init__(
        self,
        header: TraceHeader,
        heard: Callable[[Mapping[str, Any]], None],
        failed: Callable[[str], None],
        start: Callable[[], subprocess.Popen[bytes]] = _started,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._heard = heard
        self._failed = failed
        self._start = start
        self._most_waiting = most_waiting
        self._stopped = threading.Event()
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._waiting.put(header_line(header))
        #: None until it is started
        self.process: subprocess.Popen[bytes] | None = None
        self._threads = [threading.Thread(target=self._feed, name="headgate-autopilot", daemon=True)]
        self._threads[0].start()

    def tell(self, line: str) -> None:
        """Tell it a line of the trace; returns at once."""
        if self._stopped.is_set():
            return
        if self._waiting.qsize() > self._most_waiting:
            self._give_up("it does not take in what happens")
            return
        self._waiting.put(line)

    def end(self) -> None:
        """End it, now; returns at once."""
        self._stopped.set()
        self._waiting.put(None)
        if self.process is not None:
            with suppress(OSError):
                self.process.kill()

    def wait(self) -> None:
        """Wait until it has ended, for a moment."""
        for thread in self._threads:
            thread.join(END_SECONDS)

    def _give_up(self, why: str) -> None:
        if not self._stopped.is_set():
            self.end()
            self._failed(why)

    def _feed(self) -> None:
        try:
            process = self._start()
        except OSError as error:
            self._give_up(f"it cannot be started: {error.strerror}")
            return
        self.process = process
        if self._stopped.is_set():  # meanwhile
            process.kill()
        self._threads.append(
            threading.Thread(target=self._listen, args=(process,), name="headgate-autopilot-ear", daemon=True)
        )
        self._threads[-1].start()
        assert process.stdin is not None
        with suppress(OSError), process.stdin as out:  # one that has ended is noticed by whoever listens
            while (line := self._waiting.get()) is not None:
                out.write(line.encode())
                if self._waiting.empty():
                    out.flush()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None and process.stderr is not None
        with process.stdout as said, process.stderr as complaints:
            for line in said:
                try:
                    self._heard(json.loads(line))
                except Exception as error:  # whatever it says, it must not end this thread unnoticed
                    self._give_up(f"what it says cannot be used: {type(error).__name__}: {error}")
                    break
            last = complaints.read().decode(errors="replace").strip().rpartition("\n")[2]
        status = process.wait()
        self._give_up(last or f"exit status {status}")
