"""An hour of a run for the monitor's own classes, faster than time: what they keep, and for how long.

A process of its own, so that only the monitor is in it: `python -m benchmarks.watched.long_run --tables 500 ...`. The
clock is simulated. Every simulated second has its updates and its visit to the scheduler, as in a run; two viewers read
everything, a third has stopped reading. Prints the memory of the process over the simulated time, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import threading
import time
from contextlib import suppress
from pathlib import Path

from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import PretendedRun

#: how often memory is looked at, in simulated seconds
EVERY = 60
START = 1_800_000_000.0


def resident() -> float:
    """Megabytes of this process that are in memory."""
    status = Path("/proc/self/status").read_text("utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


class Readers:
    """Two that read, and one that does not, in an event loop of their own as in the server."""

    def __init__(self, watch: RunWatch) -> None:
        self._watch = watch
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Barrier(2)
        self.read = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._all())

    async def _all(self) -> None:
        self._task = asyncio.current_task()
        stopped = self._watch.feed.messages()
        await stopped.__aenter__()
        readers = [asyncio.create_task(self._one()) for _ in range(2)]
        await asyncio.sleep(0)
        self._ready.wait()
        await asyncio.gather(*readers)

    async def _one(self) -> None:
        async with self._watch.feed.messages() as messages:
            async for message in messages:
                self.read += len(message)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self._task.cancel() if self._task else None)
        self._thread.join(10.0)


def hour(tables: int, per_second: int, seconds: int) -> dict[str, object]:
    now = START
    watch = RunWatch(every=None)  # visits are made below, by simulated time
    run = PretendedRun(watch, tables=tables, tracks=4, clock=lambda: now)
    readers = Readers(watch)
    levels: list[tuple[float, float]] = []
    began = time.perf_counter()
    for second in range(seconds):
        for _ in range(per_second):
            now += 1.0 / per_second
            run.step()
        watch.look()
        if second % EVERY == 0:
            watch.metrics.written()
            json.dumps(watch.overview())
            gc.collect()
            levels.append((now - START, resident()))
    took = time.perf_counter() - began
    readers.stop()
    return {"levels": levels, "took": took, "read": readers.read, "updates": seconds * per_second}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, required=True)
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps(hour(given.tables, given.updates, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
