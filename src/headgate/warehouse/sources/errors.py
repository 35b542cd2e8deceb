"""Errors of sources while they are used. A wrong declaration is a DeclarationError.

HeadgateError
└── SourceError              a source cannot give what it is asked for; the message says what to do
    ├── SourceChanged        data that a range names was removed or changed
    ├── SourceUnreadable     the operating system does not allow reading it
    ├── SourceBroken         some chunks can never be read as they are
    ├── ServerUnreachable    a server does not answer now; it is asked again
    └── PackageMissing       a package that the source needs cannot be imported
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping

from headgate.core import HeadgateError


class SourceError(HeadgateError):
    """A source cannot give what it is asked for. No data is lost: the same request may succeed later."""


class SourceChanged(SourceError):  # noqa: N818 - states what happened; it is the user's files that err, not the code
    """Data named by a range was removed or changed since the range was planned. ``chunk`` is the one that differs."""

    def __init__(self, chunk: str, problem: str, advice: str) -> None:
        self.chunk = chunk
        super().__init__(f"{chunk} {problem}. {advice}")


class SourceUnreadable(SourceError):  # noqa: N818 - as above
    """The operating system does not allow reading data that exists."""


class SourceBroken(SourceError):  # noqa: N818 - as above
    """Chunks that can never be read as they are. ``chunks`` says of each what is wrong with it and what to do."""

    def __init__(self, chunks: Mapping[str, str]) -> None:
        self.chunks = dict(chunks)
        name, problem = next(iter(self.chunks.items()))
        more = f" (and {len(self.chunks) - 1} more like it)" if len(self.chunks) > 1 else ""
        super().__init__(f"{name} cannot be loaded: {problem}{more}")


class ServerUnreachable(SourceError, ConnectionError):  # noqa: N818 - as above
    """A server does not answer, or refuses for now. As a ConnectionError it is one that may pass by itself."""


class PackageMissing(SourceError):  # noqa: N818 - as above
    """A package that a source needs cannot be imported, here or on an executor."""


def current_user() -> str:
    """The user who needs permission, for messages."""
    try:
        return f"the user {getpass.getuser()!r}"
    except (KeyError, OSError):
        return f"the user with the number {os.getuid()}"
