"""What can come to each table of a run, when, and when it can be complete up to there at the earliest.

The lower bound goes by this, beside costs and priorities. Streams have the arrivals of the scenario, or the recorded
ones; derived tables what their sources can have, each updated as early and as quickly as can be.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.core import Floats, ScenarioError
from headgate.sim.kernel import first_moment
from headgate.sim.tables.alone import Steps
from headgate.sim.tables.replay import RecordedTable
from headgate.sim.tables.scenario import Slowdown, Table, TableScenario

#: arrivals of all tables together; more take too long
MOST_ARRIVALS = 3_000_000


@dataclass(slots=True)
class Reachable:
    """A table with what can come to it, when, and when it can be complete up to there at the earliest."""

    table: Table
    edges: Floats
    came: Floats
    done: Floats
    speed: Steps
    counts: bool = True
    empty: bool = False

    def ready(self, edges: Floats) -> Floats:
        """When the table can be complete up to each of ``edges``; inf if never."""
        done = np.append(np.minimum.accumulate(self.done[::-1])[::-1], math.inf)
        found: Floats = done[np.searchsorted(self.edges, edges, side="left")]
        return found


def reachable(
    scenario: TableScenario,
    length: float,
    seed: int,
    recorded: Sequence[RecordedTable] | None,
    *,
    least: float,
    portions: bool,
) -> list[Reachable]:
    """What every table of the scenario can have in a run of ``length`` seconds.

    ``least`` is how many times as long as stated the quickest update takes. With ``portions``, one that is cut may take
    in a little only, so that it takes no longer than its set-up.
    """
    graph = scenario.graph()
    known: dict[int, Reachable] = {}
    arrivals = 0
    for i in graph.order:
        table, trace = scenario.tables[i], None if recorded is None else recorded[i]
        fresh = 0.0 if trace is None else trace.fresh
        if graph.upstream[i]:
            edges, came = _from_sources([known[source] for source in graph.upstream[i]], fresh)
        else:
            edges, came = _arrivals(table, fresh, length, seed, trace)
        inside = came < length
        edges, came = np.append(fresh, edges[inside]), np.append(0.0, came[inside])
        arrivals += len(edges)
        if arrivals > MOST_ARRIVALS:
            raise ScenarioError(
                f"the bound of {scenario.name!r} over {length:.4g} s would take more than {MOST_ARRIVALS:,}"
                " arrivals into account: state a shorter time"
            )
        speed = _speed(scenario.slowdown, length) if trace is None else _recorded_speed(trace)
        amount = np.zeros(len(edges)) if portions else np.diff(edges, prepend=fresh)
        done = speed.earliest_end(came, least * (table.setup_time + table.time_per_unit * amount))
        done[0] = 0.0
        seen = (True, False) if trace is None else (trace.counts, trace.empty)
        known[i] = Reachable(table, edges, came, done, speed, *seen)
    return [known[i] for i in range(len(known))]


def _arrivals(
    table: Table, fresh: float, length: float, seed: int, recorded: RecordedTable | None
) -> tuple[Floats, Floats]:
    """The event times that data of a stream reaches, and when it comes."""
    if table.arrivals:
        came = np.array(table.arrivals)
    else:
        first = first_moment(table.offset, table.period, random.Random(f"{seed}/{table.name}"))
        # One more than there may be is enough to be refused.
        count = min(max(0, math.ceil((length - first) / table.period)), MOST_ARRIVALS + 1)
        came = first + np.arange(count) * table.period
    if recorded is None:
        edges = came - table.delay
    else:
        edges = np.full(len(came), -math.inf)
        edges[: len(recorded.reaches)] = recorded.reaches[: len(came)]
        edges, came = np.append(recorded.waiting, edges), np.append(0.0, came)
    before = np.maximum.accumulate(np.append(fresh, edges))[:-1]
    further = edges > before
    return edges[further], came[further]


def _from_sources(sources: Sequence[Reachable], fresh: float) -> tuple[Floats, Floats]:
    """The same for a derived table: all its sources must be complete up to there."""
    edges = np.unique(np.concatenate([source.edges for source in sources]))
    edges = edges[edges > fresh]
    came: Floats = np.max([source.ready(edges) for source in sources], axis=0)
    return edges, came


def _speed(slowdown: Slowdown | None, length: float) -> Steps:
    if slowdown is None:
        return Steps.constant(1.0)
    if slowdown.normal == 0:
        return Steps.constant(slowdown.factor)
    cycles = np.arange(math.ceil(length / (slowdown.normal + slowdown.slow)) + 1) * (slowdown.normal + slowdown.slow)
    # The last bits of a moment may say that it is in the other stretch: full speed is a little longer here.
    bits = 1e-9 * (1.0 + cycles)
    since = np.stack([cycles - bits, cycles + slowdown.normal + bits], axis=1).ravel()
    since[0] = -math.inf
    return Steps(since, np.tile([1.0, slowdown.factor], len(cycles)))


def _recorded_speed(recorded: RecordedTable) -> Steps:
    """Each recorded slowness holds halfway to its neighbours."""
    if not recorded.slowness:
        return Steps.constant(1.0)
    factors: dict[float, float] = {}
    for moment, factor in recorded.slowness:
        factors[moment] = min(factor, factors.get(moment, factor))
    began = np.array(list(factors))
    halfway = np.nextafter((began[1:] + began[:-1]) / 2, math.inf)  # in the middle it is still the earlier one
    return Steps(np.append(-math.inf, halfway), np.array(list(factors.values())))
