"""The process that replays the last minutes of a run: the lines of its trace come in, what was replayed goes out.

It ends with the run: when its input ends, or its parent is another process. All that it uses of a processor is counted,
and it waits between two replays until that is less than its share.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from headgate.apart import stand_back
from headgate.autopilot.allowance import Allowance
from headgate.core import CostModel, HeadgateError, Update, first_line
from headgate.core.autopilot import window_to_json
from headgate.core.trace import Change, Redeclared, trace_from
from headgate.core.trace.lines import header_line
from headgate.core.trace.recent import RecentTrace
from headgate.core.trace.values import FIRST_START
from headgate.sim.autopilot import WindowReplays

#: the longest between two looks whether a window is over, in seconds
LOOK_SECONDS = 5.0


def main() -> None:
    stand_back(int(sys.argv[1]))
    allowance = Allowance()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    header = sys.stdin.readline()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    for told in follow(header, lines, allowance):
        print(json.dumps(told), flush=True)


def _listen(lines: queue.SimpleQueue[str]) -> None:
    """Take in lines while others are replayed: the run never waits for this process."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)  # the run is over, whatever is being replayed


def follow(
    header: str,
    lines: queue.SimpleQueue[str],
    allowance: Allowance,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[dict[str, object]]:
    """What there is to tell of one window after the other, without end."""
    recent = RecentTrace(trace_from([header], "the run").header)
    # What follows is read without reading all of it again. An update may have begun long before this process.
    header = header_line(replace(recent.header, started=FIRST_START, tables=()))
    replays = WindowReplays(recent, CostModel, allowance.keep)
    while True:
        sleep(min(LOOK_SECONDS, max(0.1, replays.due() - clock())))
        _take_in(replays, header, lines)
        now = clock()
        if now < replays.due():
            recent.forget(now - replays.window, replays.most)
            continue
        allowance.keep()
        told: dict[str, object] = {}
        try:
            if (window := replays.look(now)) is not None:
                told["window"] = window_to_json(window)
        except HeadgateError as error:
            told["trouble"] = first_line(error)
        yield {**told, "share": allowance.share}


def _take_in(replays: WindowReplays, header: str, lines: queue.SimpleQueue[str]) -> None:
    """All that has been said by now."""
    said = [header]
    while True:
        try:
            said.append(lines.get_nowait())
        except queue.Empty:
            break
    trace = trace_from(said, "the run")
    entries: tuple[Update | Change | Redeclared, ...] = (*trace.redeclared, *trace.changes, *trace.updates)
    for entry in sorted(entries, key=lambda entry: entry.ended if isinstance(entry, Update) else entry.at):
        replays.note(entry)


if __name__ == "__main__":
    main()
