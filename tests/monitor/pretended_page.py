"""A process with a pretended run and its page, to be killed: ``python -m tests.monitor.pretended_page PORT``."""

from __future__ import annotations

import sys
import threading

from headgate.monitor.server import MonitorServer
from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import PretendedRun


def main(port: int) -> None:
    watch = RunWatch()
    run = PretendedRun(watch)
    with MonitorServer(watch, port=port) as server:
        print(server.address, flush=True)
        forever = threading.Event()
        while not forever.wait(0.1):
            run.step()


if __name__ == "__main__":
    main(int(sys.argv[1]))
