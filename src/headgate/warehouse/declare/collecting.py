"""Collect the mistakes of a pipeline file while it is executed, so that it does not end at the first.

A source that cannot be made as declared raises a DeclarationError. While a pipeline file is executed, that is noted
instead, with the line in the user's file. The source is then no use, but the warehouse that it belongs to is not used
either: its mistakes are reported together.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from headgate.core import DeclarationError
from headgate.warehouse.declare.checks import Mistake
from headgate.warehouse.declare.spec import Place

_COLLECTED: ContextVar[list[Mistake] | None] = ContextVar("mistakes", default=None)


@contextmanager
def collecting_mistakes() -> Iterator[list[Mistake]]:
    """Gives the list of mistakes that are noted inside."""
    mistakes: list[Mistake] = []
    before = _COLLECTED.set(mistakes)
    try:
        yield mistakes
    finally:
        _COLLECTED.reset(before)


@contextmanager
def noting_a_mistake() -> Iterator[None]:
    """Note a DeclarationError from inside, if mistakes are being collected; otherwise it is raised."""
    try:
        yield
    except DeclarationError as error:
        mistakes = _COLLECTED.get()
        if mistakes is None:
            raise
        mistakes.append(Mistake(users_line(), str(error)))


def users_line() -> Place:
    """The line outside this package that is being run: where the user declares something."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return Place("<unknown>", 0)
    file = frame.f_code.co_filename
    # Code typed in has a file such as <stdin>, which is nowhere.
    return Place(file if file.startswith("<") else os.path.abspath(file), frame.f_lineno)


def _is_ours(frame: FrameType) -> bool:
    # The __init__ of a dataclass and the end of a context come from the standard library, or from nowhere.
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package in (_PACKAGE, "contextlib", "dataclasses")


_PACKAGE = __name__.partition(".")[0]
