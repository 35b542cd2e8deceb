"""How large a file and each of its lines may be, checked before Spark reads it.

Spark holds a line in memory several times over while it parses it: one of 400 MB ends the JVM, and with it the updates
of all tables. To find such a line, most of a file need not be read. A line that is longer than two pieces of the file
covers a whole piece, so only pieces without a line break matter, and the search in a piece ends at its first one.
Compressed files must be decompressed, though in pieces.
"""

from __future__ import annotations

import bz2
import gzip
import mmap
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from headgate.core import DeclarationError

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")

#: how compressed text is opened, by the ending of its name
OPENERS: dict[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".bz2": bz2.open}


def size_in_bytes(size: str | int, what: str) -> int:
    """A number of bytes, or a text such as ``"16 MB"``; ``what`` names it in the message if it cannot be read."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    if isinstance(size, str):
        match = _WRITTEN.fullmatch(size.lower())
        if match and match[2] in _UNITS and float(match[1]) > 0:
            return max(1, round(float(match[1]) * _UNITS[match[2]]))
    raise DeclarationError(f"{what} takes a size such as '16 MB', or a number of bytes above 0; got {size!r}")


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The most bytes of a line, before any compression, and of a file as it lies there."""

    line: int
    file: int

    def problem(self, path: str, size: int, *, has_lines: bool) -> str:
        """Why a file must not be read; empty if it may. An OSError or EOFError if the file is broken."""
        if size > self.file:
            return f"it has {size:,} bytes, more than max_file allows ({self.file:,}); split it, or raise max_file"
        if has_lines and (begin := self._long_line(path, size)) is not None:
            return (
                f"the line that begins at byte {begin:,} is longer than max_line allows ({self.line:,} bytes); "
                "correct the file, or raise max_line"
            )
        return ""

    def _long_line(self, path: str, size: int) -> int | None:
        opener = OPENERS.get(os.path.splitext(path)[1].lower())
        if opener is not None:
            with opener(path, "rb") as file:
                return _long_line(self.line, iter(lambda: file.read(1 << 20), b""))
        if size <= self.line:
            return None
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            return _long_line_in(whole, self.line)


def _long_line(limit: int, pieces: Iterator[bytes]) -> int | None:
    """Where the first line begins that is longer than ``limit``, of a text that comes in pieces."""
    position = begin = 0
    for piece in pieces:
        first = _first_break(piece, 0, len(piece))
        if first is None:
            if position + len(piece) - begin > limit:
                return begin
        else:
            if position + first - begin > limit:
                return begin
            inner = _long_line_in(piece, limit) if len(piece) > limit else None
            if inner is not None:
                return position + inner
            begin = position + _last_break(piece, 0, len(piece)) + 1
        position += len(piece)
    return None


def _long_line_in(text: bytes | mmap.mmap, limit: int) -> int | None:
    """Where the first line begins that is longer than ``limit``."""
    step = max(1, limit // 2)
    start, size = 0, len(text)
    while start < size:
        end = min(start + step, size)
        if _first_break(text, start, end) is None:
            begin = _last_break(text, max(0, start - limit - 1), start) + 1
            furthest = min(size, begin + limit + 1)
            after = _first_break(text, end, furthest)
            if after is None and furthest - begin > limit:
                return begin
            end = furthest if after is None else after + 1
        start = end
    return None


def _first_break(text: bytes | mmap.mmap, start: int, end: int) -> int | None:
    """The first line break in a part of a text; lines end in ``\\n``, ``\\r\\n`` or ``\\r``."""
    newline = text.find(b"\n", start, end)
    found = text.find(b"\r", start, newline if newline >= 0 else end)
    return found if found >= 0 else newline if newline >= 0 else None


def _last_break(text: bytes | mmap.mmap, start: int, end: int) -> int:
    """The last line break in a part of a text; just before the part if there is none."""
    newline = text.rfind(b"\n", start, end)
    return max(start - 1, newline, text.rfind(b"\r", max(start, newline + 1), end))
