"""A spool: messages in files on this machine, from the moment they came until they are in a table.

Messages are numbered. A file, a *segment*, is named after the number of its first message and is only appended to. A
message is its length, a checksum and its content. What ``append`` has returned from is on the disk. Whatever was being
written when the process or the machine stopped is recognised by its checksum and cut off.

A segment ends where the next one begins, also if the disk failed and it could not be cut off there.

Every spool has a name of its own, by which the commits of a table tell it from the spool on another machine.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from headgate.warehouse.sources.errors import SourceError, SourceUnreadable
from headgate.warehouse.sources.mqtt.offsets import UNNAMED

#: a segment of more bytes is not appended to
SEGMENT_BYTES = 16 << 20
#: the length of what follows, and its checksum
_FRAME = struct.Struct(">II")
#: when it came, in microseconds since 1970, whether it was retained and sent again, and the length of its topic
_HEAD = struct.Struct(">q??H")


@dataclass(frozen=True, slots=True)
class SpooledMessage:
    """A message: ``received`` in microseconds since 1970; ``duplicate``: the broker said that it sent it again."""

    topic: str
    payload: bytes
    received: int
    retained: bool = False
    duplicate: bool = False

    def to_bytes(self) -> bytes:
        topic = self.topic.encode()
        return _HEAD.pack(self.received, self.retained, self.duplicate, len(topic)) + topic + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> SpooledMessage:
        received, retained, duplicate, length = _HEAD.unpack_from(data)
        payload = _HEAD.size + length
        topic = data[_HEAD.size : payload].decode(errors="replace")
        return cls(topic, data[payload:], received, retained, duplicate)


@dataclass
class _Segment:
    """A file: the number of its first message, and where each message ends and when it came."""

    path: Path
    first: int
    ends: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.first + len(self.ends)

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0


@dataclass(frozen=True, slots=True)
class SpoolBlock:
    """A chunk: the messages from ``first`` to before ``end``; arrival times are in seconds since 1970."""

    first: int
    end: int
    size: int
    arrived: float
    newest: float


class Spool:
    """The segments in one folder, for one process at a time. Every method may be called from every thread.

    ``_guard`` guards the list of segments and is held for memory operations and the removal of a file. One thread
    appends.
    """

    def __init__(self, folder: Path, at_least: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open a folder. The next message gets the number ``at_least`` or a greater one."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._guard = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        try:
            self._segments = _found(folder)
        except BaseException:
            os.close(self._lock)
            raise
        self._at_least = at_least
        self._file: int | None = None
        if self._segments and self._segments[-1].next < at_least:
            # All of it is in the table, and numbers go on after a gap: these are files that were put back.
            for segment in self._segments:
                segment.path.unlink(missing_ok=True)
            self._segments = []

    def close(self) -> None:
        self._close_file()
        os.close(self._lock)

    @property
    def first(self) -> int:
        """The number of the first message that is there, or of the next one if there is none."""
        with self._guard:
            return self._segments[0].first if self._segments else self._at_least

    @property
    def next(self) -> int:
        """The number that the next message gets."""
        with self._guard:
            return self._next()

    def _next(self) -> int:
        return max(self._at_least, self._segments[-1].next if self._segments else 0)

    # --- writing ----------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[SpooledMessage]) -> None:
        """Write messages, all or none, and wait until they are on the disk. Raises OSError if that fails."""
        segment = self._segment()
        parts, ends = [], []
        end = segment.size
        for message in messages:
            body = message.to_bytes()
            parts.append(_FRAME.pack(len(body), zlib.crc32(body)) + body)
            end += len(parts[-1])
            ends.append(end)
        assert self._file is not None
        try:
            _write_all(self._file, b"".join(parts))
            os.fsync(self._file)
        except OSError:
            # After a failure nobody knows what is on the disk: this segment is not written to any more.
            with suppress(OSError):
                os.ftruncate(self._file, segment.size)
            self._close_file()
            raise
        with self._guard:
            segment.received += [message.received for message in messages]
            segment.ends += ends

    def _segment(self) -> _Segment:
        """The segment to append to; a new one if the last is full or was left after a failure."""
        with self._guard:
            last, number = self._segments[-1] if self._segments else None, self._next()
        if self._file is not None and last is not None and last.size < self._segment_bytes:
            return last
        self._close_file()
        path = self._folder / f"{number:020}.spool"
        # One that is there already has no message that is known, or it would not be the next.
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _sync_folder(self._folder)
        except OSError:
            os.close(opened)
            raise
        self._file, segment = opened, _Segment(path, number)
        with self._guard:
            self._segments = [each for each in self._segments if each.first < number] + [segment]
        return segment

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def forget(self, before: int) -> None:
        """Messages below ``before`` are in the table: remove segments that have no others. The last one stays."""
        while True:
            with self._guard:
                if len(self._segments) < 2 or self._segments[1].first > before:
                    return
                removed = self._segments.pop(0)
                with suppress(FileNotFoundError):
                    removed.path.unlink()

    # --- reading ----------------------------------------------------------------------------------------------

    def blocks(self, since: int, messages: int) -> Iterator[SpoolBlock]:
        """The messages from ``since`` on, in blocks of at most so many."""
        with self._guard:
            segments = [each for each in self._segments if each.next > since]
        for segment in segments:
            count, begin = len(segment.ends), max(0, since - segment.first)
            while begin < count:
                end = min(begin + messages, count)
                size = segment.ends[end - 1] - (segment.ends[begin - 1] if begin else 0)
                arrived, newest = segment.received[begin] / 1e6, segment.received[end - 1] / 1e6
                yield SpoolBlock(segment.first + begin, segment.first + end, size, min(arrived, newest), newest)
                begin = end

    def read(self, first: int, end: int) -> list[SpooledMessage]:
        """The messages from ``first`` to before ``end``."""
        with self._guard:
            parts = [each for each in self._segments if each.first < end and each.next > first]
        found: list[SpooledMessage] = []
        for segment in parts:
            begin, last = max(0, first - segment.first), min(len(segment.ends), end - segment.first)
            start = segment.ends[begin - 1] if begin else 0
            with open(segment.path, "rb") as file:
                file.seek(start)
                data = file.read(segment.ends[last - 1] - start)
            messages = [SpooledMessage.from_bytes(body) for body, _ in _bodies(data)]
            if len(messages) != last - begin:
                raise SourceError(
                    f"{segment.path} is damaged: of the messages {segment.first + begin} to {segment.first + last - 1} "
                    f"only {len(messages)} can be read. They were acknowledged, so the broker does not have them"
                )
            found += messages
        return found


def spool_name(folder: Path) -> str:
    """The name of the spool in a folder, which gets one if it has no messages yet. Raises OSError if it cannot."""
    file = folder / "name"
    with suppress(FileNotFoundError):
        return file.read_text().strip()
    if any(folder.glob("*.spool")):
        return UNNAMED  # from before spools had names
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"name.{os.getpid()}"
    written.write_text(uuid.uuid4().hex)
    with open(written, "rb") as opened:
        os.fsync(opened.fileno())
    with suppress(FileExistsError):
        os.link(written, file)  # another process may be as far
    written.unlink()
    _sync_folder(folder)
    return file.read_text().strip()


def want(folder: Path) -> None:
    """Tell whoever has the spool in a folder that another one waits for it."""
    with suppress(OSError):
        (folder / "wanted").touch()


def is_wanted(folder: Path) -> bool:
    """Whether another one waits for the spool since it was opened."""
    return (folder / "wanted").exists()


def _locked(folder: Path) -> int:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise SourceUnreadable(f"the spool {folder} is used by another process or stream; waiting for it") from None
    with suppress(OSError):
        (folder / "wanted").unlink(missing_ok=True)
    return lock


def _found(folder: Path) -> list[_Segment]:
    """The segments of a folder with their messages."""
    segments = [_scanned(path) for path in sorted(folder.glob("*.spool")) if path.stem.isdigit()]
    for segment, following in pairwise(segments):
        count = following.first - segment.first
        if len(segment.ends) < count:
            raise SourceError(
                f"{segment.path} is damaged: it should have {count} messages, of which {len(segment.ends)} can be "
                f"read. Move it away to go on without them"
            )
        del segment.ends[count:], segment.received[count:]
    return segments


def _scanned(path: Path) -> _Segment:
    segment = _Segment(path, int(path.stem))
    for body, end in _bodies(path.read_bytes()):
        segment.ends.append(end)
        segment.received.append(_HEAD.unpack_from(body)[0])
    return segment


def _bodies(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The whole messages at the beginning of ``data``, each with where it ends."""
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        body = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(body) < max(length, _HEAD.size) or zlib.crc32(body) != checksum:
            return
        at += _FRAME.size + length
        yield body, at


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
