"""A running warehouse at one moment, for those who watch it: a page, a terminal, or a program that reads metrics.

All of it is taken in one visit to the scheduler, so that the parts fit together and the scheduler is seldom disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headgate.core import Ranked, Together, Update
from headgate.warehouse.schedule.ledger import NodeStatistics


@dataclass(frozen=True, slots=True)
class RunningUpdate:
    """An update that is being made: the name of its node, its track, and when it began.

    It is cancelled when it has taken ``limit`` seconds.
    """

    name: str
    table: str
    layer: str
    track: int
    began: float
    limit: float = math.inf


@dataclass(frozen=True, slots=True)
class Glance:
    """How all tables stand at ``now``, in seconds since the epoch.

    ``queue`` are the nodes that wait for a track, best first by the policy. ``budget`` is None if updates may take as
    long as they like. ``left`` are the tables whose update was cancelled and does not end: tracks go on without it.
    ``file_problem`` is why the pipeline file, as it was saved last, is not used; empty if it is. ``inheritance`` is
    what sources inherit, as stated or ``default``, and ``together`` which tables share jobs.
    """

    now: float
    policy: str
    placement: str
    tracks: int
    budget: float | None
    tables: tuple[NodeStatistics, ...]
    queue: tuple[Ranked, ...]
    running: tuple[RunningUpdate, ...]
    left: tuple[str, ...] = ()
    file_problem: str = ""
    inheritance: str = "default"
    together: Together = "declared"


def running_now(updates: Iterable[Update], limit: Callable[[Update], float]) -> tuple[RunningUpdate, ...]:
    return tuple(
        RunningUpdate(each.name, each.table, each.layer, each.track, each.began, limit(each)) for each in updates
    )
