"""What is kept of an MQTT source between updates: the number of the first message that is not loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headgate.warehouse.sources.protocol import Offset, Range


@dataclass(frozen=True, slots=True)
class MqttOffset(Offset, kind="mqtt"):
    """All messages below ``next`` are loaded."""

    next: int = 0

    def _content(self) -> dict[str, object]:
        return {"next": self.next}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(int(content["next"]))


@dataclass(frozen=True, slots=True)
class MqttRange(Range, kind="mqtt"):
    """The messages of the spool from ``first`` to before ``end``, in so many blocks."""

    first: int
    end: int
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
            "first": self.first,
            "end": self.end,
            "chunks": self.blocks,
            "bytes": self.size,
            "oldest": self.oldest,
            "newest": self.newest,
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            first=int(content["first"]),
            end=int(content["end"]),
            blocks=int(content["chunks"]),
            size=int(content["bytes"]),
            oldest=float(content["oldest"]),
            newest=float(content["newest"]),
        )
