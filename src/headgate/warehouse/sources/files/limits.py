"""How large a file and each of its lines may be, checked before Spark reads it.

Spark holds a line in memory several times over while it parses it: one of 400 MB ends the JVM, and with it the updates
of all tables. To find such a line, most of a file need not be read: of the line breaks within reach of the beginning of
a line, only the last one matters, because all lines before it are short enough, and the next one begins after it. That
takes 0.2 ms for 100 MB. Compressed files must be decompressed, though in pieces: 0.2 s for 100 MB.

Files are not mapped into memory: one that is cut off meanwhile would end the process.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from headgate.core import DeclarationError

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")

#: how much is read at once to find a line break, and of compressed text
_BLOCK, _PIECE = 1 << 16, 1 << 20

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
                return _long_line_of(iter(lambda: file.read(_PIECE), b""), self.line)
        if size <= self.line:
            return None
        with open(path, "rb", buffering=0) as plain:
            return _long_line_in(plain, size, self.line)


def _long_line_in(file: IO[bytes], size: int, limit: int) -> int | None:
    """Where the first line begins that is longer than ``limit``; lines end in ``\\n``, ``\\r\\n`` or ``\\r``."""
    begin = 0
    while size - begin > limit:
        last = _last_break(file, begin, begin + limit + 1)
        if last is None:
            return begin
        begin = last + 1
    return None


def _last_break(file: IO[bytes], start: int, end: int) -> int | None:
    """Where the last line break in a part of a file is."""
    while end > start:
        at = max(start, end - _BLOCK)
        file.seek(at)
        found = _last_break_in(file.read(end - at))
        if found >= 0:
            return at + found
        end = at
    return None


def _last_break_in(text: bytes) -> int:
    newline = text.rfind(b"\n")
    return max(newline, text.rfind(b"\r", newline + 1))


def _long_line_of(pieces: Iterator[bytes], limit: int) -> int | None:
    """As ``_long_line_in``, of a text that comes in pieces."""
    position = begin = 0
    for piece in pieces:
        breaks = [at for at in (piece.find(b"\n"), piece.find(b"\r")) if at >= 0]
        first = min(breaks, default=len(piece))
        if position + first - begin > limit:
            return begin
        if len(piece) > limit and (inner := _long_line_in(io.BytesIO(piece), len(piece), limit)) is not None:
            return position + inner
        if breaks:
            begin = position + _last_break_in(piece) + 1
        position += len(piece)
    return None
