"""What is kept of a PostgreSQL source between updates: the key up to which rows were loaded, or which contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headgate.warehouse.sources.protocol import Offset, Range


@dataclass(frozen=True, slots=True)
class PostgresOffset(Offset, kind="postgres"):
    """All rows with keys up to ``after`` have been loaded; None is before all keys.

    A key is a whole number; a time is a number of microseconds since 1970.
    """

    after: int | None = None

    def _content(self) -> dict[str, object]:
        return {"after": self.after}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        after = content["after"]
        return cls(None if after is None else int(after))


@dataclass(frozen=True, slots=True)
class PostgresRange(Range, kind="postgres"):
    """The rows with keys above ``after`` up to ``upto``, in so many chunks."""

    after: int | None
    upto: int
    blocks: int
    size: int
    oldest: float
    newest: float

    @property
    def chunks(self) -> int:
        return self.blocks

    @property
    def bytes(self) -> int:
        return self.size

    def _content(self) -> dict[str, object]:
        return {
            "after": self.after,
            "upto": self.upto,
            "chunks": self.blocks,
            "bytes": self.size,
            "oldest": self.oldest,
            "newest": self.newest,
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        after = content["after"]
        return cls(
            after=None if after is None else int(after),
            upto=int(content["upto"]),
            blocks=int(content["chunks"]),
            size=int(content["bytes"]),
            oldest=float(content["oldest"]),
            newest=float(content["newest"]),
        )


@dataclass(frozen=True, slots=True)
class PostgresContents(Range, kind="postgres contents"):
    """All rows of a table or query as they were, told by their number and a sum of their hashes, for a dimension."""

    rows: int
    digest: str
    size: int
    newest: float

    @property
    def oldest(self) -> float:  # type: ignore[override]
        return self.newest

    @property
    def chunks(self) -> int:
        return 1 if self.rows else 0

    @property
    def bytes(self) -> int:
        return self.size

    def names_the_same_as(self, other: Range) -> bool:
        return isinstance(other, PostgresContents) and (self.rows, self.digest) == (other.rows, other.digest)

    def _content(self) -> dict[str, object]:
        return {"rows": self.rows, "digest": self.digest, "bytes": self.size, "newest": self.newest}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(int(content["rows"]), str(content["digest"]), int(content["bytes"]), float(content["newest"]))
