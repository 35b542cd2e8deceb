"""Errors of sources. What is declared wrongly is a DeclarationError instead.

HeadgateError
└── SourceError              a source cannot give what it is asked for; the message says what to do
    ├── SourceChanged        data that a range names has gone or has been altered, so reading it again would differ
    └── SourceUnreadable     the operating system refuses to let us read
"""

from __future__ import annotations

import getpass
import os

from headgate.core import HeadgateError


class SourceError(HeadgateError):
    """A source cannot give what it is asked for. Nothing has been lost: the same request may succeed later."""


class SourceChanged(SourceError):  # noqa: N818 - states what happened; it is the user's files that err, not the code
    """Data named by a range is no longer what it was when the range was made. ``chunk`` is the one that differs."""

    def __init__(self, chunk: str, problem: str, advice: str) -> None:
        self.chunk = chunk
        super().__init__(f"{chunk} {problem}. {advice}")


class SourceUnreadable(SourceError):  # noqa: N818 - as above
    """The operating system does not allow reading something that is there."""


def current_user() -> str:
    """Whom to give permission to, in a message."""
    try:
        return f"the user {getpass.getuser()!r}"
    except (KeyError, OSError):
        return f"the user with the number {os.getuid()}"
