"""How to run a warehouse: tracks, policy, placement, and the limits of updates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from headgate.core import MOST_TRACKS, ParameterError, Placement, Policy, inheritance_from, together_from, vet
from headgate.core.placements import Proportional
from headgate.core.policies import MaxBenefit
from headgate.warehouse.schedule.limits import BUDGET

#: how many tracks there are if nobody says how many
DEFAULT_TRACKS = 2
#: of a setting that the pipeline may state: it is left to that
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a warehouse.

    ``inheritance`` says what sources inherit from the tables built on them, written as for ``inheritance_from``; by
    default what the pipeline states, or else what the policy asks for, or else ``max``. ``budget`` is how long one
    update should take at most, in seconds: of more data than that, it takes in a part. ``chop`` limits an update to
    this many periods of data instead, however long that takes. ``time_limit`` is after how many seconds an update is
    cancelled; by default, that follows from how long the table's updates have taken. ``poll`` is the shortest time
    between two polls of a source, in seconds. ``together`` says which tables share jobs: those of a declared group
    (``declared``), those with the same sources of which the scheduler expects a gain (``auto``), or none (``never``);
    by default what the pipeline states, or else ``declared``. With ``follows_cores``, a run on a cluster has as many
    tracks as that has cores, also when executors come and go.
    """

    tracks: int = DEFAULT_TRACKS
    policy: Policy = field(default_factory=MaxBenefit)
    placement: Placement = field(default_factory=Proportional)
    inheritance: str = DEFAULT
    budget: float = BUDGET
    chop: float = math.inf
    time_limit: float | None = None
    poll: float = 0.05
    follows_cores: bool = False
    together: str = DEFAULT

    def __post_init__(self) -> None:
        if not 1 <= self.tracks <= MOST_TRACKS:
            raise ParameterError(f"there are from 1 to {MOST_TRACKS} tracks; got {self.tracks}")
        vet(self.policy)
        vet(self.placement)
        inheritance_from(self.inheritance)
        together_from(self.together)
        if not self.budget > 0:
            raise ParameterError(f"a budget is a number of seconds above 0; got {self.budget}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ParameterError(f"a time limit is a number of seconds above 0, or None; got {self.time_limit}")
