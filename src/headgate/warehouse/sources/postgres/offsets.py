"""What is kept of a PostgreSQL source between updates: the key up to which rows were loaded, or which contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headgate.warehouse.sources.protocol import Offset, Range
from headgate.warehouse.sources.ranges import ContentsRange, SizedRange


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
class PostgresRange(SizedRange, kind="postgres"):
    """The rows with keys above ``after`` up to ``upto``."""

    after: int | None
    upto: int

    def _content(self) -> dict[str, object]:
        return {"after": self.after, "upto": self.upto, **self._measures()}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        after = content["after"]
        return cls(None if after is None else int(after), int(content["upto"]), **cls._measured(content))


@dataclass(frozen=True, slots=True)
class PostgresContents(ContentsRange, kind="postgres contents"):
    """All rows of a table or query as they were, told by their number and a sum of their hashes, for a dimension."""

    rows: int
    digest: str

    @property
    def chunks(self) -> int:
        return 1 if self.rows else 0

    def names_the_same_as(self, other: Range) -> bool:
        return isinstance(other, PostgresContents) and (self.rows, self.digest) == (other.rows, other.digest)

    def _content(self) -> dict[str, object]:
        return {"rows": self.rows, "digest": self.digest, **self._measures()}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(int(content["rows"]), str(content["digest"]), **cls._measured(content))
