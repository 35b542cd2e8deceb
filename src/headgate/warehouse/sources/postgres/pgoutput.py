"""Messages of ``pgoutput``, the format in which PostgreSQL writes changes out of its log (version 1 of the protocol).

A transaction is a begin, its changes in order, and a commit. Before the first change of a table comes a description of
its columns, and again when they have changed. Values are texts, as the server would print them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from headgate.warehouse.sources.errors import SourceError

#: microseconds from 1970 to 2000, when PostgreSQL's time begins
_EPOCH = 946_684_800_000_000


class Unchanged(Enum):
    """A large value that is stored beside its row (TOAST) and was not changed: the log does not have it."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Value = str | Unchanged | None
Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class BeginMessage:
    """A transaction begins. ``commit`` is the place of its commit in the log, ``at`` its time in microseconds."""

    commit: int
    at: int
    transaction: int


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The transaction has ended; the next one is not before ``end``."""

    commit: int
    end: int


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table: its number, schema and name, and its columns.

    ``identity``: how old rows are told: ``d`` by the primary key, ``i`` by an index, ``f`` by all columns, ``n`` not.
    """

    number: int
    schema: str
    name: str
    identity: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowMessage:
    """A row was inserted, updated or deleted. ``old_is_whole``: the old row has all columns, not only its key."""

    change: Literal["insert", "update", "delete"]
    relation: int
    old: Values | None = None
    new: Values | None = None
    old_is_whole: bool = False


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    """All rows of some tables were removed at once."""

    relations: tuple[int, ...]


Message = BeginMessage | CommitMessage | RelationMessage | RowMessage | TruncateMessage


def parse(data: bytes) -> Message | None:
    """The message that ``data`` holds; None for a kind that does not matter here, such as the name of a type."""
    try:
        return _parse(_Bytes(data))
    except (struct.error, IndexError, ValueError) as error:
        raise SourceError(
            f"a message of pgoutput cannot be understood ({error}): {data[:40]!r}. Is it of another version?"
        ) from None


def _parse(data: _Bytes) -> Message | None:
    kind = data.letter()
    if kind in "YOM":  # a type, an origin, a message of a program
        return None
    if kind not in _PARSERS:
        raise ValueError(f"it is of the kind {kind!r}")
    return _PARSERS[kind](data)


def _begin(data: _Bytes) -> BeginMessage:
    commit, at, transaction = data.take(">QqI")
    return BeginMessage(commit, at + _EPOCH, transaction)


def _commit(data: _Bytes) -> CommitMessage:
    _, commit, end, _ = data.take(">BQQq")
    return CommitMessage(commit, end)


def _relation(data: _Bytes) -> RelationMessage:
    (number,) = data.take(">I")
    schema, name = data.text() or "pg_catalog", data.text()
    identity = data.letter()
    (count,) = data.take(">H")
    columns = []
    for _ in range(count):
        data.take(">B")  # whether it is of the key
        columns.append(data.text())
        data.take(">Ii")  # its type
    return RelationMessage(number, schema, name, identity, tuple(columns))


def _insert(data: _Bytes) -> RowMessage:
    (number,) = data.take(">I")
    data.letter()
    return RowMessage("insert", number, new=data.values())


def _update(data: _Bytes) -> RowMessage:
    (number,) = data.take(">I")
    part, old, whole = data.letter(), None, False
    if part in "KO":
        old, whole = data.values(), part == "O"
        part = data.letter()
    if part != "N":
        raise ValueError(f"an update without a new row, but with {part!r}")
    return RowMessage("update", number, old, data.values(), whole)


def _delete(data: _Bytes) -> RowMessage:
    (number,) = data.take(">I")
    whole = data.letter() == "O"
    return RowMessage("delete", number, old=data.values(), old_is_whole=whole)


def _truncate(data: _Bytes) -> TruncateMessage:
    count, _ = data.take(">IB")
    return TruncateMessage(data.take(f">{count}I"))


class _Bytes:
    """Bytes that are read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return found

    def letter(self) -> str:
        self._at += 1
        return chr(self._data[self._at - 1])

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode(errors="replace")
        self._at = end + 1
        return found

    def values(self) -> Values:
        (count,) = self.take(">H")
        return tuple([self._value() for _ in range(count)])

    def _value(self) -> Value:
        data, at = self._data, self._at
        kind = data[at]
        if kind == 0x74:  # t: a text
            size = int.from_bytes(data[at + 1 : at + 5])
            self._at = at + 5 + size
            if self._at > len(data):
                raise ValueError("it ends too early")
            return data[at + 5 : self._at].decode(errors="replace")
        self._at = at + 1
        if kind == 0x6E:  # n: null
            return None
        if kind == 0x75:  # u
            return UNCHANGED
        raise ValueError(f"a value of the kind {chr(kind)!r}")


_PARSERS: dict[str, Callable[[_Bytes], Message]] = {
    "B": _begin,
    "C": _commit,
    "R": _relation,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
}
