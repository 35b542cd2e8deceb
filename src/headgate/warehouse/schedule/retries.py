"""What becomes of a table whose updates fail: retried later and later, then held, until somebody does something.

Pure: time is passed in. A table that fails must not hammer the machine, and no other table waits for it.
"""

from __future__ import annotations

import math

from headgate.core import Update

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
#: failures in a row after which a table is held
MOST_FAILURES = 5


class Retries:
    """The failures of one table since it last succeeded.

    Invariants: ``held`` if and only if there were ``MOST_FAILURES`` in a row; a held table is never due.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.last: Update | None = None
        self._due = -math.inf

    @property
    def held(self) -> bool:
        return self.failures >= MOST_FAILURES

    def failed(self, update: Update, now: float) -> None:
        self.failures += 1
        self.last = update
        self._due = now + min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (self.failures - 1))

    def reset(self) -> None:
        """It has succeeded, or somebody says that it may be tried again at once."""
        self.failures = 0
        self._due = -math.inf

    def due(self, now: float) -> bool:
        """Whether the table may be tried now."""
        return not self.held and now >= self._due

    def next_try(self) -> float:
        """When it may be tried again; infinity if it is held."""
        return math.inf if self.held else self._due
