"""What the ranges of most sources have in common: when their chunks arrived, how many there are, and their size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.warehouse.sources.protocol import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedRange(Range):
    """A range that stores when the first and the last of its chunks arrived."""

    oldest: float
    newest: float

    def _measures(self) -> dict[str, object]:
        """The fields of this class as JSON, for ``_content`` of a subclass."""
        return {"oldest": self.oldest, "newest": self.newest}

    @classmethod
    def _measured(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of ``_measures``: arguments for a subclass."""
        return {"oldest": float(content["oldest"]), "newest": float(content["newest"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedRange(ArrivedRange):
    """A range of so many blocks, each of which is a chunk, and so many bytes, as found when it was planned."""

    #: what the number of blocks is called in the stored form
    stored_blocks: ClassVar[str] = "chunks"

    blocks: int
    size: int

    @property
    def chunks(self) -> int:
        return self.blocks

    @property
    def bytes(self) -> int:
        return self.size

    def _measures(self) -> dict[str, object]:
        return {
            self.stored_blocks: self.blocks,
            "bytes": self.size,
            "oldest": self.oldest,
            "newest": self.newest,
        }

    @classmethod
    def _measured(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "blocks": int(content[cls.stored_blocks]),
            "size": int(content["bytes"]),
            "oldest": float(content["oldest"]),
            "newest": float(content["newest"]),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsRange(Range):
    """All that a source had at one moment, for a dimension."""

    size: int
    newest: float

    @property
    def oldest(self) -> float:  # type: ignore[override]
        return self.newest

    @property
    def bytes(self) -> int:
        return self.size

    def _measures(self) -> dict[str, object]:
        return {"bytes": self.size, "newest": self.newest}

    @classmethod
    def _measured(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return {"size": int(content["bytes"]), "newest": float(content["newest"])}
