"""What happens in a world, as plain frozen data: files that land, what others do to them, and faults.

``at`` is when it happens, in seconds since the world began. A schedule is a list of these, so that a failing one can be
made smaller by leaving some of them out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tests.world.spark import MICROS
from tests.world.tables import Declaration, Row


@dataclass(frozen=True, slots=True, repr=False)
class Line:
    """One line of a landed file of orders. ``bad``: it is not JSON, has no time, or one that lies far ahead."""

    number: int
    moment: int
    shop: str = "a"
    amount: int = 1
    bad: Literal["", "garbage", "no time", "future"] = ""

    @property
    def text(self) -> str:
        if self.bad == "garbage":
            return f"garbage {self.number}"
        row: dict[str, object] = {"shop": self.shop, "amount": self.amount, "id": self.number}
        if self.bad == "future":
            row["ts"] = "9999-12-31T23:59:59+00:00"
        elif not self.bad:
            row["ts"] = datetime.fromtimestamp(self.moment / MICROS, UTC).isoformat()
        return json.dumps(row)

    def __repr__(self) -> str:
        return f"<{self.text}>"

    @property
    def row(self) -> Row:
        return (self.moment, self.shop, self.amount, self.number)


@dataclass(frozen=True, slots=True)
class Event:
    at: float


# --- what the owners of the landing folders do -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Land(Event):
    """A file of orders is renamed into place, perhaps over another one of that name."""

    name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class LandSlowly(Land):
    """A file of orders is written in place: half of it, and a little later the rest."""


@dataclass(frozen=True, slots=True)
class LandBroken(Land):
    """A compressed file of orders lands that cannot be decompressed; after ``mended`` seconds its owner replaces it."""

    mended: float = 5.0


@dataclass(frozen=True, slots=True)
class Delete(Event):
    """A file of orders is deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class ShareEmpty(Event):
    """For some seconds the folder of orders is empty, or is not there: its share was mounted again."""

    seconds: float
    missing: bool = False


@dataclass(frozen=True, slots=True)
class ShareBack(Event):
    """The share is mounted again."""


@dataclass(frozen=True, slots=True)
class LandShops(Event):
    """A file of the dimension is renamed into place, perhaps over another one; without rows, it is deleted."""

    name: str
    shops: tuple[Row, ...]


# --- what goes wrong with the machine ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crash(Event):
    """The process dies, so many steps after ``at``: before the step, after it, or in the middle of it.

    Only steps of this ``kind`` count, if it is given, and only those whose target ends in ``target``.
    """

    steps: int
    how: Literal["before", "after", "torn"] = "before"
    down: float = 2.0
    kind: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class PowerCut(Event):
    """The machine loses its power, so many steps after ``at``: what was not synced may be lost or torn."""

    steps: int
    down: float = 5.0


@dataclass(frozen=True, slots=True)
class DiskFull(Event):
    """Nothing can be written for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SparkFails(Event):
    """All jobs of Spark fail for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class QueryFails(Event):
    """The query of one table fails for some seconds; then a person mends it and resumes the table."""

    seconds: float
    table: str


@dataclass(frozen=True, slots=True)
class CommitsFail(Event):
    """Commits to tables whose names end in ``table`` fail for some seconds; if ``stands``, only answers are lost."""

    seconds: float
    stands: bool = False
    table: str = ""


@dataclass(frozen=True, slots=True)
class Slow(Event):
    """Every step takes longer, for some seconds."""

    seconds: float
    each: float = 0.5


@dataclass(frozen=True, slots=True)
class SetClock(Event):
    """The clock on the wall is set, forward or back."""

    by: float


# --- what people and other programs do to the warehouse ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoveTable(Event):
    """The folder of a derived table is deleted."""

    table: str


@dataclass(frozen=True, slots=True)
class ForeignDelete(Event):
    """Another program deletes rows of the stream, with a commit of its own."""


@dataclass(frozen=True, slots=True)
class EmptyPointer(Event):
    """The file that names the newest checkpoint of each table is found empty, as after a power cut."""


@dataclass(frozen=True, slots=True)
class Redeclare(Event):
    """The pipeline file is saved with other declarations, perhaps with some that cannot be adopted."""

    declared: Declaration


@dataclass(frozen=True, slots=True)
class Pause(Event):
    """A person pauses a table, and resumes it after some seconds."""

    seconds: float
    table: str


@dataclass(frozen=True, slots=True)
class Resume(Event):
    """A person resumes a table."""

    table: str


@dataclass(frozen=True, slots=True)
class Backfill(Event):
    """A person has all of a table computed again."""

    table: str


@dataclass(frozen=True, slots=True)
class Restart(Event):
    """The run is stopped as a person does it, and started again."""
