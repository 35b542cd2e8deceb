"""A process with an idle run, with or without the monitor, for some seconds; prints what it has used as JSON.

`python -m benchmarks.watched.serve --tables 500 --updates 20 --seconds 60 [--monitor]`. With the monitor, the first
line is the address of the page. What was before `--warm-up` does not count.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.watched.idle_tables import declared, header_of, idle_runtime
from headgate.core import Update
from headgate.monitor.server import MonitorServer
from headgate.monitor.watch import RunWatch


def measured(tables: int, per_second: float, seconds: float, warm_up: float, has_monitor: bool) -> dict[str, object]:
    decisions: list[float] = []
    counts = False
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        spec = declared(folder, tables)
        watch = RunWatch() if has_monitor else None

        def updated(update: Update) -> None:
            if counts:
                # What the scheduler took to decide, per update; an idle update adds nothing else of its own.
                decisions.append(update.overhead - (update.seconds - update.work))
            if watch is not None:
                watch.updated(update)

        runtime = idle_runtime(spec, per_second, observer=updated, on_change=None if watch is None else watch.changed)
        if watch is not None:
            watch.begin(header_of(spec, runtime.options))
        runtime.start()
        closing.callback(runtime.stop)
        if watch is not None:
            watch.start(runtime)
            closing.callback(watch.stop)
            server = closing.enter_context(MonitorServer(watch, port=0))
            print(server.address, flush=True)
        time.sleep(warm_up)
        counts = True
        busy, scheduler = time.process_time(), _thread_time("headgate-scheduler")
        time.sleep(seconds)
        busy, scheduler = time.process_time() - busy, _thread_time("headgate-scheduler") - scheduler
        counts = False
    return {
        "processor": busy / seconds,
        "scheduler": scheduler / seconds,
        "decisions": decisions,
        "updates": len(decisions) / seconds,
    }


def _thread_time(name: str) -> float:
    """The processor time of a thread: on a busy machine, that of the clock is mostly waiting for a processor."""
    ident = next(each.ident for each in threading.enumerate() if each.name == name)
    assert ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, required=True)
    parser.add_argument("--updates", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument("--monitor", action="store_true")
    given = parser.parse_args()
    print(json.dumps(measured(given.tables, given.updates, given.seconds, given.warm_up, given.monitor)), flush=True)


if __name__ == "__main__":
    main()
