"""Which errors may pass by themselves: a full disk, a lost connection, a lost Spark, another writer.

Where no code of a user runs, as in loading a stream, that is every error but one: columns that do not fit.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from headgate.core import DeclarationError, said_by
from headgate.warehouse.sources.errors import SourceUnavailable
from headgate.warehouse.storage.errors import SchemaError, StorageError

_TRANSIENT_NUMBERS = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "EROFS", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EBUSY", "ESTALE", "EINTR"),
        *("ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ENETDOWN", "ENETUNREACH"),
        *("EHOSTDOWN", "EHOSTUNREACH", "ENOTCONN", "EACCES", "EPERM"),
    )
    if hasattr(errno, name)
)
#: how errors that passed through Spark or `deltalake`, which know no error numbers, name the same things
_TRANSIENT_TEXTS = (
    *("No space left on device", "Disk quota exceeded", "Input/output error", "Too many open files"),
    *("Connection refused", "Connection reset", "Broken pipe", "Stale file handle", "Read-only file system"),
    *("Cannot allocate memory", "Permission denied", "Operation not permitted"),
    *("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown", "ExecutorLostFailure"),
    *("Answer from Java side is empty", "Error while sending or receiving"),
)


def is_transient(error: BaseException, *, in_user_code: bool = True) -> bool:
    """Whether an error may pass by itself, without a change of the pipeline or its data.

    ``in_user_code``: a user's function or query ran, and may have raised it.
    """
    if not in_user_code:
        return not any(isinstance(each, SchemaError | DeclarationError) for each in _chain(error))
    if isinstance(error, OSError):  # those of users' functions come as the cause of another error
        return True
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
    if isinstance(error, ConnectionError | EOFError | SourceUnavailable) or type(error).__name__ == "Py4JNetworkError":
        return True
    text = said_by(error)
    return any(part in text for part in _TRANSIENT_TEXTS)
