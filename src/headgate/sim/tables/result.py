"""What a simulated run of tables came to."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.latency import LatencySummary


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """One table: staleness in seconds (weighted by nothing), updates made, share of time it was being updated."""

    name: str
    priority: float
    mean_staleness: float
    max_staleness: float
    updates: int
    longest_wait: float
    utilisation: float


@dataclass(frozen=True, slots=True)
class TableResult:
    """A whole run.

    ``weighted_staleness`` is the mean over time of the sum of priority times staleness. ``latency`` is the time from
    the arrival of the oldest data of an update to its commit. Queues are the amount of data waiting, in seconds of data
    over all tables.
    """

    scenario: str
    policy: str
    placement: str
    seed: int
    events: int
    seconds: float
    weighted_staleness: float
    latency: LatencySummary
    queue_mean: float
    queue_max: float
    worker_utilisation: tuple[float, ...]
    guard_strikes: int
    tables: tuple[TableOutcome, ...]
