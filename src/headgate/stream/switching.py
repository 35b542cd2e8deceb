"""How often the interpreter lets threads take turns, while engines run.

A worker whose Arrow or NumPy call has ended needs the interpreter again to go on. If another worker has it, it waits
until that one calls Arrow or NumPy, or until the switch interval is over: 5 ms unless said otherwise, many times what
most calls take. A shorter interval makes two workers on two cores about 10 % faster and changes nothing for one.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import ClassVar

#: seconds
SWITCH_INTERVAL = 0.0001


class Switching:
    """A shorter switch interval from ``begin`` to ``end``. The interval belongs to the process, so several engines at
    once share it: the first to begin sets it, the last to end puts it back."""

    _lock: ClassVar[Lock] = Lock()
    _before: ClassVar[list[float]] = []

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._begun = False

    def begin(self) -> None:
        if self._seconds is None or self._begun:
            return
        with self._lock:
            self._begun = True
            self._before.append(sys.getswitchinterval())
            sys.setswitchinterval(min(self._seconds, sys.getswitchinterval()))

    def end(self) -> None:
        if not self._begun:
            return
        with self._lock:
            self._begun = False
            longest = max(self._before)
            self._before.pop()
            if not self._before:
                sys.setswitchinterval(longest)
