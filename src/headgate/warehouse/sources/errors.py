"""Errors of sources while they are used. A wrong declaration is a DeclarationError.

HeadgateError
└── SourceError              a source cannot give what it is asked for; the message says what to do
    ├── SourceChanged        data that a range names was removed or changed
    └── SourceUnreadable     the operating system does not allow reading it
"""

from __future__ import annotations

import getpass
import os

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


def current_user() -> str:
    """The user who needs permission, for messages."""
    try:
        return f"the user {getpass.getuser()!r}"
    except (KeyError, OSError):
        return f"the user with the number {os.getuid()}"
