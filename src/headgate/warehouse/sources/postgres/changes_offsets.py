"""What is kept of the changes of a PostgreSQL table between updates: a place in the server's log.

A *place* is ``(generation, lsn, index)``. All transactions whose commit is before ``lsn`` are loaded, and the first
``index`` changes of the one whose commit is at ``lsn``. The generation counts the snapshots that were taken: one at the
beginning, one more each time that the log was lost, and one more each time that a snapshot was lost before all of it
was loaded. While a snapshot is loaded, ``lsn`` is 0 and ``index`` is the page of the table to go on with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headgate.warehouse.sources.postgres.followed import FollowedTable
from headgate.warehouse.sources.protocol import Offset
from headgate.warehouse.sources.ranges import SizedRange

LogPlace = tuple[int, int, int]
BEFORE_ALL: LogPlace = (0, 0, 0)


def lsn_text(lsn: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """The transactions whose changes are in the rows of a snapshot, so that they must not be loaded again.

    Those are the ones below ``before`` that are not among ``running``. The slot gives all transactions from ``since``
    on; those of the snapshot were committed before ``until``.
    """

    before: int
    running: tuple[int, ...]
    since: int
    until: int

    def has(self, transaction: int, commit: int) -> bool:
        """Whether a transaction is in the snapshot; it is told by the last 32 bits of its number."""
        if commit >= self.until:
            return False
        ahead = (transaction - self.before) & 0xFFFFFFFF
        return ahead >= 1 << 31 and (self.before + ahead - (1 << 32)) not in self.running

    def to_json(self) -> dict[str, object]:
        return {"before": self.before, "running": list(self.running), "since": self.since, "until": self.until}

    @classmethod
    def from_json(cls, content: Mapping[str, Any] | None) -> SeenTransactions | None:
        if content is None:
            return None
        running = tuple(int(each) for each in content["running"])
        return cls(int(content["before"]), running, int(content["since"]), int(content["until"]))


@dataclass(frozen=True, slots=True)
class ChangesOffset(Offset, kind="postgres changes"):
    """Everything up to ``place`` is loaded; the next change has the number ``number``.

    ``seen`` is of the first snapshot of those that were not loaded as a whole, for as long as it matters; ``snapshot``
    is the name of the one that is being loaded. ``server`` is the server's own name for itself. ``followed`` is the
    table whose changes were loaded; None if none were, or by a version that did not keep it.
    """

    place: LogPlace = BEFORE_ALL
    number: int = 0
    seen: SeenTransactions | None = None
    server: str = ""
    snapshot: str = ""
    followed: FollowedTable | None = None

    @property
    def is_in_snapshot(self) -> bool:
        """Whether a part of a snapshot is loaded, and not all of it."""
        return bool(self.snapshot)

    def after(self, loaded: ChangesRange) -> ChangesOffset:
        if loaded.end <= self.place:
            return self
        seen = loaded.seen if loaded.server else self.seen
        if seen is not None and loaded.end[1] >= seen.until:
            seen = None
        snapshot = loaded.snapshot if loaded.end[1] == 0 else ""
        return ChangesOffset(
            loaded.end,
            loaded.number + loaded.count,
            seen,
            loaded.server or self.server,
            snapshot,
            loaded.followed or self.followed,
        )

    def _content(self) -> dict[str, object]:
        return {
            "place": list(self.place),
            "number": self.number,
            "seen": None if self.seen is None else self.seen.to_json(),
            "server": self.server,
            "snapshot": self.snapshot,
            **({} if self.followed is None else {"followed": self.followed.to_json()}),
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            _place(content["place"]),
            int(content["number"]),
            SeenTransactions.from_json(content["seen"]),
            str(content["server"]),
            str(content["snapshot"]),
            FollowedTable.from_json(content.get("followed")),
        )


@dataclass(frozen=True, slots=True)
class ChangesRange(SizedRange, kind="postgres changes"):
    """The ``count`` changes from ``begin`` to ``end``, numbered from ``number`` on.

    With ``server`` it is of the beginning, or of a beginning anew: rows of the table in a ``snapshot``, from a page up
    to before another, or to the end. They have the number after ``number``. ``seen`` is for the offset. ``resets``:
    what was loaded before is not valid any more. Without ``snapshot`` it has no rows. ``followed`` is for an offset
    that does not have it, or another one.
    """

    begin: LogPlace
    end: LogPlace
    number: int
    count: int
    snapshot: str = ""
    seen: SeenTransactions | None = None
    server: str = ""
    pages: tuple[int, int | None] = (0, None)
    resets: bool = False
    followed: FollowedTable | None = None

    def _content(self) -> dict[str, object]:
        return {
            "begin": list(self.begin),
            "end": list(self.end),
            "number": self.number,
            "count": self.count,
            **self._measures(),
            "snapshot": self.snapshot,
            "seen": None if self.seen is None else self.seen.to_json(),
            "server": self.server,
            "pages": list(self.pages),
            "resets": self.resets,
            **({} if self.followed is None else {"followed": self.followed.to_json()}),
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        first, end = content["pages"]
        return cls(
            begin=_place(content["begin"]),
            end=_place(content["end"]),
            number=int(content["number"]),
            count=int(content["count"]),
            snapshot=str(content["snapshot"]),
            seen=SeenTransactions.from_json(content["seen"]),
            server=str(content["server"]),
            pages=(int(first), None if end is None else int(end)),
            resets=bool(content["resets"]),
            followed=FollowedTable.from_json(content.get("followed")),
            **cls._measured(content),
        )


def _place(stored: Any) -> LogPlace:
    generation, lsn, index = stored
    return int(generation), int(lsn), int(index)
