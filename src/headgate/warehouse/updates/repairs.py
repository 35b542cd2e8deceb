"""Repairs: event times of a table that have been computed, but are to be computed again.

Late data, a changed dimension, ``headgate backfill`` and catching up newest first leave *dirty* spans behind, which
backfills recompute behind live updates. Until then, the table is complete only up to the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.warehouse.declare.durations import readable
from headgate.warehouse.storage.partitions import format_time
from headgate.warehouse.updates.plan import MICROS
from headgate.warehouse.updates.spans import Span

#: before all rows, in microseconds: the year 1. Commits of earlier versions have dirty spans from further back.
_BEGINNING = -62_135_596_800 * MICROS


@dataclass(frozen=True, slots=True)
class Repairs:
    """``seconds`` of event time are still to be recomputed, all of them from ``first`` to ``last``, in microseconds."""

    first: int
    last: int
    seconds: float

    def __str__(self) -> str:
        if self.is_all:
            return f"all event times up to {format_time(self.last)}"
        return f"{readable(self.seconds)} of event time between {format_time(self.first)} and {format_time(self.last)}"

    @property
    def is_all(self) -> bool:
        """Whether it begins at the beginning of time, so that ``seconds`` says nothing."""
        return self.first <= _BEGINNING

    @property
    def complete(self) -> int:
        """The event time up to which the table is complete."""
        return max(self.first - 1, _BEGINNING)


def repairs_in(dirty: Sequence[Span], freshness: int | None) -> Repairs | None:
    """What of the ``dirty`` spans has been computed before; what lies beyond the freshness is not there yet at all."""
    if freshness is None:
        return None
    spans = [(first, min(last, freshness)) for first, last in dirty if first <= freshness]
    if not spans:
        return None
    micros = sum(last - first + 1 for first, last in spans)
    return Repairs(min(first for first, _ in spans), max(last for _, last in spans), micros / MICROS)
