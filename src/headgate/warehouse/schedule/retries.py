"""When a node is tried again after a failure.

What may pass by itself (a full disk, a lost connection, a lost Spark) is tried again for ever, after longer and longer
waits. What will not pass, such as an error in a user's function, is tried a few times; then the node is *held* until a
user resumes it. Other tables never wait for it.
"""

from __future__ import annotations

import math

from headgate.core import Update

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
#: failures in a row, of those that do not pass by themselves, after which a table is held
MOST_FAILURES = 5


def wait_after(failures: int) -> float:
    """The seconds until the next try after so many failures in a row."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 1, 10))


class Retries:
    """The failures of one node in a row.

    Invariants: ``held`` if and only if there were ``MOST_FAILURES`` that do not pass by themselves, or the node was put
    on hold; a held node is never due.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.last: Update | None = None
        self._lasting = 0
        self._due = -math.inf

    @property
    def held(self) -> bool:
        return self._lasting >= MOST_FAILURES

    def failed(self, update: Update, now: float) -> None:
        self.failures += 1
        self._lasting += not update.transient
        self.last = update
        self._due = now + wait_after(self.failures)

    def hold(self) -> None:
        """Do not try again before a user resumes the table."""
        self._lasting = MOST_FAILURES

    def reset(self) -> None:
        """An update was committed, or a user wants a retry at once."""
        self.failures = self._lasting = 0
        self._due = -math.inf

    def due(self, now: float) -> bool:
        """Whether the node may run now."""
        return not self.held and now >= self._due

    def next_try(self) -> float:
        """When it is retried; infinity if it is held."""
        return math.inf if self.held else self._due
