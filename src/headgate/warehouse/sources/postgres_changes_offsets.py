"""What is kept of the changes of a PostgreSQL table between updates: a place in the server's log.

A *place* is ``(generation, lsn, index)``. All transactions whose commit is before ``lsn`` are loaded, and the first
``index`` changes of the one whose commit is at ``lsn``. The generation counts the snapshots that were taken: one at the
beginning, and one more each time that the log was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headgate.warehouse.sources.protocol import Offset, Range

LogPlace = tuple[int, int, int]
BEFORE_ALL: LogPlace = (0, 0, 0)


def lsn_text(lsn: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """The transactions whose changes are in the rows of a snapshot, so that they must not be loaded again.

    Those are the ones below ``before`` that are not among ``running``; all of them were committed before ``until``.
    """

    before: int
    running: tuple[int, ...]
    until: int

    def has(self, transaction: int, commit: int) -> bool:
        """Whether a transaction is in the snapshot; it is told by the last 32 bits of its number."""
        if commit >= self.until:
            return False
        ahead = (transaction - self.before) & 0xFFFFFFFF
        return ahead >= 1 << 31 and (self.before + ahead - (1 << 32)) not in self.running

    def to_json(self) -> dict[str, object]:
        return {"before": self.before, "running": list(self.running), "until": self.until}

    @classmethod
    def from_json(cls, content: Mapping[str, Any] | None) -> SeenTransactions | None:
        if content is None:
            return None
        return cls(int(content["before"]), tuple(int(each) for each in content["running"]), int(content["until"]))


@dataclass(frozen=True, slots=True)
class ChangesOffset(Offset, kind="postgres changes"):
    """Everything up to ``place`` is loaded; the next change has the number ``number``.

    ``seen`` is of the snapshot, for as long as it matters. ``server`` is the server's own name for itself.
    """

    place: LogPlace = BEFORE_ALL
    number: int = 0
    seen: SeenTransactions | None = None
    server: str = ""

    def after(self, loaded: ChangesRange) -> ChangesOffset:
        if loaded.end <= self.place:
            return self
        seen = loaded.seen if loaded.server else self.seen
        if seen is not None and loaded.end[1] >= seen.until:
            seen = None
        return ChangesOffset(loaded.end, loaded.number + loaded.count, seen, loaded.server or self.server)

    def _content(self) -> dict[str, object]:
        return {
            "place": list(self.place),
            "number": self.number,
            "seen": None if self.seen is None else self.seen.to_json(),
            "server": self.server,
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            _place(content["place"]),
            int(content["number"]),
            SeenTransactions.from_json(content["seen"]),
            str(content["server"]),
        )


@dataclass(frozen=True, slots=True)
class ChangesRange(Range, kind="postgres changes"):
    """The ``count`` changes from ``begin`` to ``end``, numbered from ``number`` on, in so many blocks.

    With ``server`` it is the beginning, or a beginning anew: the rows of the table in the server's exported
    ``snapshot``, in which the changes of the transactions ``seen`` are; without ``snapshot``, no rows.
    """

    begin: LogPlace
    end: LogPlace
    number: int
    count: int
    blocks: int
    size: int
    oldest: float
    newest: float
    snapshot: str = ""
    seen: SeenTransactions | None = None
    server: str = ""

    @property
    def chunks(self) -> int:
        return self.blocks

    @property
    def bytes(self) -> int:
        return self.size

    def _content(self) -> dict[str, object]:
        return {
            "begin": list(self.begin),
            "end": list(self.end),
            "number": self.number,
            "count": self.count,
            "chunks": self.blocks,
            "bytes": self.size,
            "oldest": self.oldest,
            "newest": self.newest,
            "snapshot": self.snapshot,
            "seen": None if self.seen is None else self.seen.to_json(),
            "server": self.server,
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            begin=_place(content["begin"]),
            end=_place(content["end"]),
            number=int(content["number"]),
            count=int(content["count"]),
            blocks=int(content["chunks"]),
            size=int(content["bytes"]),
            oldest=float(content["oldest"]),
            newest=float(content["newest"]),
            snapshot=str(content["snapshot"]),
            seen=SeenTransactions.from_json(content["seen"]),
            server=str(content["server"]),
        )


def _place(stored: Any) -> LogPlace:
    generation, lsn, index = stored
    return int(generation), int(lsn), int(index)
