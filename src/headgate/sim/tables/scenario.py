"""What is simulated at the table grain: tables, their streams and costs, and the machine.

Plain frozen data, checked when it is made; nothing here runs. The model is that of Golab et al., section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headgate.core import Floats, Graph, Inheritance, PeriodReading, ScenarioError, derive_periods, inherit_priorities


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its update job.

    A base table has a ``period`` (data arrives every so many seconds, first at ``offset``, by default at a random
    moment of the first period) or a list of ``arrivals`` to replay. A derived table names its ``sources``. Data comes
    ``delay`` seconds after the moment it tells of. An update that brings n seconds of data takes
    ``setup_time + time_per_unit * n`` seconds.
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

    def __post_init__(self) -> None:
        where = f"table {self.name!r}"
        for key in ("delay", "setup_time", "time_per_unit", "priority"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ScenarioError(f"{where}: {key} must be a finite number of at least 0; got {getattr(self, key)}")
        if self.patience is not None and not self.patience > 0:
            raise ScenarioError(f"{where}: patience must be more than 0 seconds; got {self.patience}")
        if self.setup_time + self.time_per_unit == 0:
            raise ScenarioError(f"{where}: setup_time and time_per_unit are both 0; an update must take some time")
        if self.offset is not None and not 0 <= self.offset < math.inf:
            raise ScenarioError(f"{where}: offset must be a number of at least 0 seconds; got {self.offset}")
        if not all(0 <= time < math.inf for time in self.arrivals):
            raise ScenarioError(f"{where}: arrivals must be times of at least 0 seconds; got {self.arrivals}")
        if self.sources:
            if self.period or self.arrivals:
                raise ScenarioError(f"{where} has sources, so it gets its period from them: remove period and arrivals")
        elif not self.arrivals and not 0 < self.period < math.inf:
            raise ScenarioError(
                f"{where} has no sources, so it needs a period of more than 0 seconds; got {self.period}"
            )
        if any(later <= earlier for earlier, later in pairwise(self.arrivals)):
            raise ScenarioError(f"{where}: arrivals must be increasing times")


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The machine alternates between ``normal`` seconds at full speed and ``slow`` seconds ``factor`` times slower."""

    factor: float
    normal: float
    slow: float

    def __post_init__(self) -> None:
        if not 1 <= self.factor < math.inf or self.normal < 0 or self.slow < 0 or not self.normal + self.slow > 0:
            raise ScenarioError(
                f"slowdown takes factor >= 1 and lengths normal, slow >= 0 that are not both 0; got {self}"
            )

    def at(self, now: float) -> float:
        """By how much an update that starts now takes longer."""
        return self.factor if now % (self.normal + self.slow) >= self.normal else 1.0


@dataclass(frozen=True, slots=True)
class TableScenario:
    """Tables on a number of tracks.

    ``spread`` is Golab's b: execution times are uniform in [b E, (1 + b) E]; None means exactly E. ``chop`` limits an
    update to so many periods of data; ``budget`` limits it to as much as should take so many seconds, as a warehouse
    does. The run ends after ``events`` arrivals and completions or ``horizon`` seconds.
    """

    tables: tuple[Table, ...]
    tracks: int = 4
    name: str = "tables"
    spread: float | None = 0.5
    slowdown: Slowdown | None = None
    chop: float = math.inf
    budget: float = math.inf
    inheritance: Inheritance = "max"
    inheritance_k: float = 2.0
    period_reading: PeriodReading = "ancestors"
    guard: bool = True
    events: int = 100_000
    horizon: float = math.inf

    def __post_init__(self) -> None:
        if not self.tables:
            raise ScenarioError("a table scenario needs at least one table")
        if self.tracks < 1:
            raise ScenarioError(f"tracks must be at least 1; got {self.tracks}")
        if self.spread is not None and not 0 <= self.spread <= 1:
            raise ScenarioError(f"spread must be between 0 and 1; got {self.spread}")
        if not self.chop >= 1:
            raise ScenarioError(f"chop must be at least 1 period; got {self.chop}")
        if not self.budget > 0:
            raise ScenarioError(f"budget must be a number of seconds above 0; got {self.budget}")
        if self.events < 1 or not self.horizon > 0:
            raise ScenarioError(f"events and horizon must be positive; got {self.events} and {self.horizon}")
        inherit_priorities(self.graph(), self.stated_priorities(), self.inheritance, self.inheritance_k)
        derive_periods(self.graph(), self.periods_of_streams(), self.period_reading)

    def graph(self) -> Graph:
        edges = [(source, table.name) for table in self.tables for source in table.sources]
        return Graph((table.name for table in self.tables), edges)

    def stated_priorities(self) -> Floats:
        return np.array([table.priority for table in self.tables])

    def periods_of_streams(self) -> Floats:
        return np.array([_stated_period(table) for table in self.tables])

    def utilisation(self) -> float:
        """The offered load: the sum of E(P) / P over all tables, in tracks."""
        periods = derive_periods(self.graph(), self.periods_of_streams(), self.period_reading)
        alpha, beta = _column(self.tables, "setup_time"), _column(self.tables, "time_per_unit")
        return float(((alpha + beta * periods) / periods).sum())


def _stated_period(table: Table) -> float:
    if len(table.arrivals) > 1:
        return (table.arrivals[-1] - table.arrivals[0]) / (len(table.arrivals) - 1)
    return table.period or (1.0 if table.arrivals else 0.0)


def _column(tables: Iterable[Table], name: str) -> Floats:
    return np.array([getattr(table, name) for table in tables], dtype=np.float64)
