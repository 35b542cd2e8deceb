"""When a node is tried again after a failure.

What may pass by itself (a full disk, a lost connection, a lost Spark) is tried again for ever, after longer and longer
waits. What will not pass, such as an error in a user's function, is tried a few times; then the node is *held* until a
user resumes it. Other tables never wait for it.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator

from headgate.core import Update
from headgate.warehouse.storage.errors import SchemaError, StorageError

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
#: failures in a row, of those that do not pass by themselves, after which a table is held
MOST_FAILURES = 5

_TRANSIENT_NUMBERS = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "EROFS", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EBUSY", "ESTALE", "EINTR"),
        *("ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ENETDOWN", "ENETUNREACH"),
        *("EHOSTDOWN", "EHOSTUNREACH", "ENOTCONN"),
    )
    if hasattr(errno, name)
)
#: how errors that passed through Spark or `deltalake`, which know no error numbers, name the same things
_TRANSIENT_TEXTS = (
    *("No space left on device", "Disk quota exceeded", "Input/output error", "Too many open files"),
    *("Connection refused", "Connection reset", "Broken pipe", "Stale file handle", "Read-only file system"),
    *("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown", "ExecutorLostFailure"),
    *("Answer from Java side is empty", "Error while sending or receiving"),
)


def is_transient(error: BaseException) -> bool:
    """Whether an error may pass by itself, without a change of the pipeline or its data."""
    return any(_is_transient(each) for each in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _TRANSIENT_NUMBERS:
        return True
    if isinstance(error, StorageError):
        return not isinstance(error, SchemaError)
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError":
        return True
    text = str(error)
    return any(part in text for part in _TRANSIENT_TEXTS)


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
        self._due = now + min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self.failures - 1, 10))

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
