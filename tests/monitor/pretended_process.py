"""A pretended run in a process of its own, which can be killed: `python -m tests.monitor.pretended_process DIR PORT`.

It is reached by the control socket of DIR and by its page, and makes an update every tenth of a second. It prints a
line when it is there, and a line for every command that it was given.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headgate.monitor.server import MonitorServer
from headgate.monitor.watch import RunWatch
from headgate.warehouse.run.control import ControlServer
from headgate.warehouse.run.lock import WarehouseLock
from tests.monitor.pretended import PretendedRun


def main() -> None:
    directory, port = Path(sys.argv[1]), int(sys.argv[2])
    watch = RunWatch(every=0.2)
    run = PretendedRun(watch, tables=8)
    run.held["table005"] = "<b>no</b> \x1b[31m such column"
    told = 0
    with WarehouseLock(directory) as lock, ControlServer(run, lock), MonitorServer(watch, port=port):
        print("ready", flush=True)
        while run.is_running:
            run.step()
            for what in run.asked[told:]:
                print(what, flush=True)
            told = len(run.asked)
            time.sleep(0.1)
        watch.stop()


if __name__ == "__main__":
    main()
