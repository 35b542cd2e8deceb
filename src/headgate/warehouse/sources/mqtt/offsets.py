"""What is kept of an MQTT source between updates: for each spool, the number of the first message that is not loaded.

A warehouse that moves to another machine gets another spool there. What the first machine still has in its own is
loaded when the warehouse comes back to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headgate.warehouse.sources.protocol import Offset
from headgate.warehouse.sources.ranges import SizedRange

#: the name of a spool from before spools had names
UNNAMED = ""


@dataclass(frozen=True, slots=True)
class MqttOffset(Offset, kind="mqtt"):
    """All messages below ``next[spool]`` of a spool are loaded; of a spool that is not there, none."""

    next: Mapping[str, int] = field(default_factory=dict)

    @property
    def unused(self) -> int:
        """A number above those of all loaded messages: a new spool begins with it."""
        return max(self.next.values(), default=0)

    def after(self, loaded: MqttRange) -> MqttOffset:
        return MqttOffset({**self.next, loaded.spool: max(self.next.get(loaded.spool, 0), loaded.end)})

    def _content(self) -> dict[str, object]:
        return {"next": self.unused, "spools": dict(self.next)}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        spools = content.get("spools", {UNNAMED: content["next"]})
        return cls({str(name): int(number) for name, number in spools.items()})


@dataclass(frozen=True, slots=True)
class MqttRange(SizedRange, kind="mqtt"):
    """The messages of a spool from ``first`` to before ``end``."""

    first: int
    end: int
    spool: str = UNNAMED

    def _content(self) -> dict[str, object]:
        return {"first": self.first, "end": self.end, "spool": self.spool, **self._measures()}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        spool = str(content.get("spool", UNNAMED))
        return cls(first=int(content["first"]), end=int(content["end"]), spool=spool, **cls._measured(content))
