"""The answers to requests of the control socket; one look at how everything stands is for all who watch."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable

from headgate.warehouse.run.control_commands import MOST_BYTES, Controlled, answered

#: seconds for which a look is given to others who ask: a little less than the second after which a terminal asks again
GLANCE_SECONDS = 0.9


class ControlAnswers:
    """Answers requests of any number of threads.

    To look at all tables costs the scheduler time, and to write them down costs more, however many ask. So a look is
    made once for all who ask within ``GLANCE_SECONDS``, unless something was changed by a command meanwhile.
    """

    def __init__(self, run: Controlled, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        #: held while a look is made: others wait for it
        self._looking = threading.Lock()
        self._glance = b""
        self._until = -math.inf

    def to(self, line: bytes) -> bytes:
        """The line that answers a request."""
        if not _asks_for_a_glance(line):
            self._until = -math.inf  # before as well: a look that begins now must not be of before
            answer = answered(self._run, line)
            self._until = -math.inf
            return answer
        with self._looking:
            if self._clock() >= self._until:
                self._until = math.inf  # lowered by whoever changes something meanwhile
                self._glance = answered(self._run, line)
                if self._until == math.inf:
                    self._until = self._clock() + GLANCE_SECONDS
            return self._glance


def _asks_for_a_glance(line: bytes) -> bool:
    if len(line) > MOST_BYTES:
        return False
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(request, dict) and request.get("command") == "glance" and not request.get("arguments")
