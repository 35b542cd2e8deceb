"""What a locality simulation measures. Frozen data; all times in whole nanoseconds, so equal runs are equal bytes."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.locality import LocalityStatistics
from headgate.sim.locality.config import LocalityConfig


@dataclass(frozen=True, slots=True)
class PacketReads:
    """Where operators found the packets they read, in KiB."""

    l2: int
    l3: int
    local_memory: int
    remote_memory: int

    @property
    def total(self) -> int:
        return self.l2 + self.l3 + self.local_memory + self.remote_memory

    @property
    def l2_hit_rate(self) -> float:
        return self.l2 / self.total if self.total else 0.0

    @property
    def cache_hit_rate(self) -> float:
        """L2 and L3 together."""
        return (self.l2 + self.l3) / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Where the threads' busy time went, summed over all threads."""

    compute: int
    memory: int
    """Reading inputs and writing outputs, at the speed of the place where they are."""
    dispatch: int
    semaphore: int

    @property
    def total(self) -> int:
        return self.compute + self.memory + self.dispatch + self.semaphore


@dataclass(frozen=True, slots=True)
class LocalityResult:
    """One simulated run."""

    config: LocalityConfig
    makespan_ns: int
    """From the first request to the end of the last."""
    runs: int
    """Tasks that made a packet."""
    empty_runs: int
    """Tasks that found an input missing or an output buffer full."""
    reads: PacketReads
    time: TimeSpent
    time_by_step: tuple[tuple[str, int], ...]
    """(step, busy time of the tasks it chose), in the order of the steps."""
    utilisation: tuple[float, ...]
    """Per thread: busy time over makespan."""
    statistics: LocalityStatistics

    @property
    def makespan_seconds(self) -> float:
        return self.makespan_ns / 1e9

    @property
    def mean_utilisation(self) -> float:
        return sum(self.utilisation) / len(self.utilisation)
