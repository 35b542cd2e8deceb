"""What the *rounds* loop tells of its meetings: what one of them changed, and counts over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.core.worklist import RunReason


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a meeting changed: the number of the round it opened, and who came and went.

    A name that was removed and added again since the last meeting is in both: the new node shares nothing with the old.
    """

    round: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    workers: int


@dataclass(frozen=True, slots=True)
class RoundsStatistics:
    """Counts since the loop was made.

    ``values_read`` are the feature values that were asked for, ``values_full`` those that reading everything at every
    meeting would have asked for.
    """

    rounds: int
    runs: Mapping[RunReason, int]
    backoffs: int
    values_read: int
    values_full: int
    nodes: int
    workers: int
