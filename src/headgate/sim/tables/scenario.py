"""What is simulated at the table grain: tables, their streams and costs, and the machine.

Plain frozen data, checked when it is made; nothing here runs. The model is that of Golab et al., section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from headgate.core import (
    LEAST_UPDATE_TIME,
    MOST_CLASS,
    MOST_TRACKS,
    Floats,
    Graph,
    Inheritance,
    InheritanceRule,
    PeriodReading,
    Policy,
    ScenarioError,
    TargetPlan,
    TargetTables,
    derive_periods,
    inherit_priorities,
    inheritance_in_force,
    plan_targets,
    work_per_second,
)
from headgate.core.trace.values import MOST

#: the shortest period, and the shortest time in which a machine gets slow and fast again, in seconds
LEAST_SECONDS = 1e-6

#: which tables with the same sources share a job
SimulatedTogether = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its update job.

    A base table has a ``period`` (data arrives every so many seconds, first at ``offset``, by default at a random
    moment of the first period) or a list of ``arrivals`` to replay. A derived table names its ``sources``. Data comes
    ``delay`` seconds after the moment it tells of. An update that brings n seconds of data takes
    ``setup_time + time_per_unit * n`` seconds. ``target_lag`` is the lag that is still acceptable, in seconds.
    """

    name: str
    sources: tuple[str, ...] = ()
    period: float = 0.0
    offset: float | None = None
    arrivals: tuple[float, ...] = ()
    delay: float = 0.0
    priority: float = 1.0
    setup_time: float = 1.0
    time_per_unit: float = 0.1
    importance_class: int = 0
    patience: float | None = None
    target_lag: float | None = None

    def __post_init__(self) -> None:
        where = f"table {self.name!r}"
        for key in ("delay", "setup_time", "time_per_unit", "priority"):
            if not 0 <= getattr(self, key) <= MOST:
                raise ScenarioError(f"{where}: {key} must be a number from 0 to {MOST:g}; got {getattr(self, key)}")
        if abs(self.importance_class) > MOST_CLASS:
            raise ScenarioError(f"{where}: class must be from -{MOST_CLASS} to {MOST_CLASS}; got a number beyond")
        if self.patience is not None and not self.patience > 0:
            raise ScenarioError(f"{where}: patience must be more than 0 seconds; got {self.patience}")
        if self.target_lag is not None and not 0 < self.target_lag <= MOST:
            raise ScenarioError(
                f"{where}: target_lag must be more than 0 seconds, at most {MOST:g}; got {self.target_lag}"
            )
        if self.setup_time + self.time_per_unit == 0:
            raise ScenarioError(f"{where}: setup_time and time_per_unit are both 0; an update must take some time")
        if self.offset and not LEAST_SECONDS <= self.offset <= MOST:
            raise ScenarioError(
                f"{where}: offset must be 0, or from {LEAST_SECONDS:g} to {MOST:g} seconds; got {self.offset}"
            )
        if wrong := [time for time in self.arrivals if not 0 <= time <= MOST]:
            raise ScenarioError(f"{where}: arrivals must be times from 0 to {MOST:g} seconds; got {wrong[0]}")
        if self.sources:
            if self.period or self.arrivals:
                raise ScenarioError(f"{where} has sources, so it gets its period from them: remove period and arrivals")
        elif not self.arrivals and not LEAST_SECONDS <= self.period <= MOST:
            raise ScenarioError(
                f"{where} has no sources, so it needs a period of {LEAST_SECONDS:g} to {MOST:g} seconds; "
                f"got {self.period}"
            )
        if any(later <= earlier for earlier, later in pairwise(self.arrivals)):
            raise ScenarioError(f"{where}: arrivals must be increasing times")


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The machine alternates between ``normal`` seconds at full speed and ``slow`` seconds ``factor`` times slower.

    As in the paper, an update keeps the speed at which it starts. So a long one that starts just before a slow period
    escapes it, and whoever makes long updates has more of the machine. ``throughout``: a running update slows down and
    speeds up with the machine. ``normal`` infinite: it is never slow; ``slow``: it stays slow once it is.
    """

    factor: float
    normal: float
    slow: float
    throughout: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.factor <= MOST:
            raise ScenarioError(f"slowdown.factor must be a number from 1 to {MOST:g}; got {self.factor}")
        for key in ("normal", "slow"):
            if getattr(self, key) and not getattr(self, key) >= LEAST_SECONDS:
                raise ScenarioError(
                    f"slowdown.{key} must be 0, at least {LEAST_SECONDS:g} seconds, or inf; got {getattr(self, key)}"
                )
        if not self.normal + self.slow:
            raise ScenarioError("slowdown.normal and slowdown.slow are both 0; one of them must take some time")

    def at(self, now: float) -> float:
        """By how much the machine is slower now."""
        return self.factor if now % (self.normal + self.slow) >= self.normal else 1.0

    @property
    def mean(self) -> float:
        """By how much updates take longer on the mean, in the long run."""
        if math.inf in (self.normal, self.slow):
            return 1.0 if self.normal == math.inf else self.factor
        cycle = self.normal + self.slow
        if self.throughout:
            return cycle / (self.normal + self.slow / self.factor)
        return (self.normal + self.factor * self.slow) / cycle

    def lasts(self, seconds: float, now: float) -> float:
        """How long an update takes that starts now and would take ``seconds`` at full speed."""
        if not self.throughout:
            return seconds * self.at(now)
        cycle = self.normal + self.slow
        cycles, rest = divmod(seconds, self.normal + self.slow / self.factor)
        phase, elapsed = now % cycle, cycles * cycle if cycles else 0.0
        while True:
            slow = phase >= self.normal
            left = (cycle if slow else self.normal) - phase
            speed = 1 / self.factor if slow else 1.0
            if rest <= left * speed:
                return elapsed + rest / speed
            rest, elapsed, phase = rest - left * speed, elapsed + left, 0.0 if slow else self.normal


@dataclass(frozen=True, slots=True)
class TableScenario:
    """Tables on a number of tracks.

    ``spread`` is Golab's b: execution times are uniform in [b E, (1 + b) E]; None means exactly E. ``chop`` limits an
    update to so many periods of data; ``budget`` limits it to as much as should take so many seconds, as a warehouse
    does. ``inheritance`` left out is the one that the policy asks for, or else ``max``. Derived tables with the same
    sources may share a job: then the set-up of all but the first is shorter by ``shared_setup`` times it, or times that
    of the first if that is less. ``together`` says which do: those that the scheduler chooses (``auto``), all that wait
    (``always``), or none (``never``). The run ends after ``events`` arrivals and completions or ``horizon`` seconds.
    """

    tables: tuple[Table, ...]
    tracks: int = 4
    name: str = "tables"
    spread: float | None = 0.5
    slowdown: Slowdown | None = None
    chop: float = math.inf
    budget: float = math.inf
    inheritance: Inheritance | None = None
    inheritance_k: float = 2.0
    shared_setup: float = 0.0
    together: SimulatedTogether = "auto"
    period_reading: PeriodReading = "ancestors"
    guard: bool = True
    events: int = 100_000
    horizon: float = math.inf

    def __post_init__(self) -> None:
        if not self.tables:
            raise ScenarioError("a table scenario needs at least one table")
        most = max(MOST_TRACKS, len(self.tables))  # a track for every table is a run in which nobody waits
        if not 1 <= self.tracks <= most:
            raise ScenarioError(f"tracks must be at least 1, and at most {most}; got {self.tracks}")
        if self.spread is not None and not 0 <= self.spread <= 1:
            raise ScenarioError(f"spread must be between 0 and 1; got {self.spread}")
        if not self.chop >= 1:
            raise ScenarioError(f"chop must be at least 1 period; got {self.chop}")
        if not self.budget > 0:
            raise ScenarioError(f"budget must be a number of seconds above 0; got {self.budget}")
        if not 0 <= self.shared_setup <= 1:
            raise ScenarioError(f"shared_setup must be a share between 0 and 1; got {self.shared_setup}")
        if self.events < 1 or not self.horizon > 0:
            raise ScenarioError(f"events and horizon must be positive; got {self.events} and {self.horizon}")
        if MOST < self.horizon < math.inf:
            raise ScenarioError(f"horizon must be at most {MOST:g} seconds, or inf; got {self.horizon}")
        self.priorities()  # refuses tables that form no graph, and ways to inherit that there are not

    @property
    def cuts(self) -> bool:
        """Whether ``chop`` or ``budget`` lets an update take less than everything that waits, whatever the policy."""
        return self.chop < math.inf or self.budget < math.inf

    def cuts_under(self, policy: Policy) -> bool:
        """Whether an update may take less than everything that waits, by the scenario or by the policy."""
        return self.cuts or policy.cuts

    def graph(self) -> Graph:
        edges = [(source, table.name) for table in self.tables for source in table.sources]
        return Graph((table.name for table in self.tables), edges)

    def sharing(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of tables that may share a job: derived from the same sources."""
        same: dict[frozenset[str], list[int]] = {}
        for number, table in enumerate(self.tables):
            if table.sources and self.shared_setup > 0 and self.together != "never":
                same.setdefault(frozenset(table.sources), []).append(number)
        return tuple(tuple(numbers) for numbers in same.values() if len(numbers) > 1)

    def at_best(self) -> TableScenario:
        """Every table alone, with the set-up that it has at best: in a job that another one has set up."""
        tables = list(self.tables)
        for numbers in self.sharing():
            for number in numbers:
                setup = tables[number].setup_time
                longest = max(self.tables[other].setup_time for other in numbers if other != number)
                least = max(setup - self.shared_setup * min(setup, longest), LEAST_UPDATE_TIME * (setup > 0))
                tables[number] = replace(self.tables[number], setup_time=min(setup, least))
        return replace(self, tables=tuple(tables), together="never")

    def stated_priorities(self) -> Floats:
        return np.array([table.priority for table in self.tables])

    @property
    def stated_inheritance(self) -> InheritanceRule | None:
        """How sources inherit; None if that is left to the policy."""
        return None if self.inheritance is None else InheritanceRule(self.inheritance, self.inheritance_k)

    def priorities(self, by_policy: Inheritance | None = None) -> Floats:
        """The priorities after inheritance in the stated way, or else in the one that the policy asks for."""
        mode = inheritance_in_force(self.stated_inheritance, by_policy).mode
        alpha, beta = _column(self.tables, "setup_time"), _column(self.tables, "time_per_unit")
        work = work_per_second(alpha, beta, self.periods())
        return inherit_priorities(self.graph(), self.stated_priorities(), mode, self.inheritance_k, work)

    def target_lags(self) -> Floats:
        """Infinite for a table without one."""
        return np.array([math.inf if table.target_lag is None else table.target_lag for table in self.tables])

    def target_plan(self) -> TargetPlan:
        """Whether all targets can be kept, by the costs that are stated."""
        graph = self.graph()
        alpha, beta = _column(self.tables, "setup_time"), _column(self.tables, "time_per_unit")
        tables = TargetTables(graph, self.target_lags(), self.periods(), alpha, beta, self.stated_priorities())
        return plan_targets(tables, self.tracks)

    def periods_of_streams(self) -> Floats:
        return np.array([_stated_period(table) for table in self.tables])

    def periods(self) -> Floats:
        """The period of every table; of a derived one, from those of its sources."""
        return derive_periods(self.graph(), self.periods_of_streams(), self.period_reading)

    def utilisation(self) -> float:
        """The offered load: the sum of E(P) / P over all tables, in tracks."""
        periods = self.periods()
        alpha, beta = _column(self.tables, "setup_time"), _column(self.tables, "time_per_unit")
        return float(((alpha + beta * periods) / periods).sum())


def _stated_period(table: Table) -> float:
    if len(table.arrivals) > 1:
        return max((table.arrivals[-1] - table.arrivals[0]) / (len(table.arrivals) - 1), LEAST_SECONDS)
    return table.period or (1.0 if table.arrivals else 0.0)


def _column(tables: Iterable[Table], name: str) -> Floats:
    return np.array([getattr(table, name) for table in tables], dtype=np.float64)
