"""What the tests of the simulator share: policies that take notes, invariants, and a table model from first principles.

``naive_tables`` is the oracle for the table simulation. It follows Golab et al., sections 2 and 4.1, in the plainest
way: at each event it looks through all tables, and staleness is integrated at the end from the list of what each table
reflected when. It shares no code with the simulator but the scenario that it reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from headgate.core import FeatureView, InvariantError, Policy
from headgate.core.policies import MaxBenefit, ReleaseOrder, RoundRobin
from headgate.sim import Table, TableScenario
from headgate.sim.operators.queues import _ROUNDING, Network
from headgate.testing import Favourites, Smallest

# --- policies that take notes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """One update that was started: when, of which table, and how many seconds of data it brings."""

    now: float
    table: str
    amount: float


@dataclass(frozen=True)
class Noting(Policy):
    """Writes down every start; mixed into the policies below."""

    starts: list[Started] = field(default_factory=list, compare=False, repr=False)

    def requires(self) -> tuple[str, ...]:
        return ("freshness_delta", *super().requires())

    def remember(self, view: FeatureView, node: int) -> object:
        self.starts.append(Started(view.now, view.graph.names[node], float(view["freshness_delta"][node])))
        return None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Benefit(Noting, MaxBenefit):
    """Golab's Max Benefit: p dF / E(dF)."""


@dataclass(frozen=True)
class BenefitOfAll(Benefit):
    """The same, ranked anew at every decision."""

    local = False


@dataclass(frozen=True)
class Oldest(Noting, ReleaseOrder):
    """The update that was released first, ranked anew at every decision."""

    name = "oldest"
    local = False


@dataclass(frozen=True)
class InOrder(Noting, Favourites):
    """Tables in the order of the letters given, whatever waits."""


@dataclass(frozen=True)
class Turns(Noting, RoundRobin):
    """Whoever has not had a turn for longest."""


@dataclass(frozen=True)
class LeastOf(Noting, Smallest):
    """The smallest value of one feature, ranking only what changed."""


@dataclass(frozen=True)
class LeastOfAll(LeastOf):
    """The same, ranked anew at every decision."""

    local = False


# --- the model from first principles ------------------------------------------------------------------------


@dataclass
class NaiveTable:
    """A table as the paper describes it."""

    spec: Table
    #: (when, up to which event time it reflected its sources from then on)
    reflected: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    #: event time up to which data is there to be loaded, and up to which it is loaded or being loaded
    arrived: float = 0.0
    taken: float = 0.0
    #: when the freshness delta last went from zero to more, or an update ended that was not to take in everything
    released: float = math.inf
    runnable_since: float | None = None
    #: (when, event time) of everything that came, and for every update (when started, when done)
    came: list[tuple[float, float]] = field(default_factory=list)
    runs: list[tuple[float, float]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    @property
    def fresh(self) -> float:
        return self.reflected[-1][1]

    def staleness_area(self, end: float) -> float:
        """The integral of t - F(t) from 0 to ``end``."""
        ends = [when for when, _ in self.reflected[1:]] + [end]
        return end * end / 2 - sum(
            fresh * (until - when) for (when, fresh), until in zip(self.reflected, ends, strict=True)
        )

    def utilisation(self, end: float) -> float:
        """The share of the time in which it was being updated."""
        return sum(min(done, end) - started for started, done in self.runs) / end

    def oldest_data_beyond(self, event_time: float) -> float:
        """When the first data came that tells of what was after ``event_time``."""
        return next(when for when, edge in self.came if edge > event_time)

    def max_staleness(self, end: float) -> float:
        ends = [when for when, _ in self.reflected[1:]] + [end]
        return max(until - fresh for (_, fresh), until in zip(self.reflected, ends, strict=True))


@dataclass(frozen=True)
class NaiveRun:
    """What came of it."""

    end: float
    tables: dict[str, NaiveTable]
    starts: list[Started]
    events: int
    #: the integral of the data waiting, in seconds of data times seconds
    waiting_area: float

    @property
    def latencies(self) -> list[float]:
        return [latency for table in self.tables.values() for latency in table.latencies]

    @property
    def weighted_staleness(self) -> float:
        areas = (table.spec.priority * table.staleness_area(self.end) for table in self.tables.values())
        return math.fsum(areas) / self.end


@dataclass
class _Job:
    number: int
    ends: float
    table: str
    upto: float
    data_since: float
    cut: bool


class NaiveTables:
    """Tables on tracks, all alike; ``rule`` is how the released updates are ordered: "benefit", "oldest" or letters."""

    def __init__(self, scenario: TableScenario, rule: str) -> None:
        assert scenario.spread is None, "chance is not modelled here"
        self.scenario = scenario
        self.rule = rule
        self.tables = {table.name: NaiveTable(table) for table in scenario.tables}
        self.coming: dict[str, tuple[float, int]] = {}
        self.seen = dict.fromkeys(self.tables, 0)
        self.running: dict[int, _Job] = {}
        self.starts: list[Started] = []
        self.counter = 0

    def run(self) -> NaiveRun:
        for name in self.tables:
            self._announce(name)
        now, events, waiting_area = 0.0, 0, 0.0
        while events < self.scenario.events and (moment := self._next_event()) is not None:
            if moment > self.scenario.horizon:
                break
            waiting_area += self._waiting() * (moment - now)
            now, events = moment, events + 1
            self._happen(now)
            self._schedule(now)
        end = self.scenario.horizon if events < self.scenario.events and self.scenario.horizon < math.inf else now
        waiting_area += self._waiting() * (end - now)
        return NaiveRun(end, self.tables, self.starts, events, waiting_area)

    # what the tables are

    def derived_from(self, name: str) -> list[str]:
        """The tables that name it as a source."""
        return [other for other, table in self.tables.items() if name in table.spec.sources]

    def priority(self, name: str) -> float:
        """Inherited: the largest among the table and all built on it."""
        return max([self.tables[name].spec.priority, *(self.priority(d) for d in self.derived_from(name))])

    def period(self, name: str) -> float:
        """Of a derived table, the largest among those it is built from."""
        spec = self.tables[name].spec
        if spec.sources:
            return max(self.period(source) for source in spec.sources)
        if len(spec.arrivals) > 1:
            return (spec.arrivals[-1] - spec.arrivals[0]) / (len(spec.arrivals) - 1)
        return spec.period or 1.0

    # events

    def _announce(self, name: str) -> None:
        """When data next comes to a base table; events of one moment come in the order announced."""
        spec, index = self.tables[name].spec, self.seen[name]
        self.coming.pop(name, None)
        if spec.sources or (spec.arrivals and index >= len(spec.arrivals)):
            return
        when = spec.arrivals[index] if spec.arrivals else spec.offset + index * spec.period
        self.counter += 1
        self.coming[name] = (when, self.counter)
        self.seen[name] += 1

    def _next_event(self) -> float | None:
        moments = [when for when, _ in self.coming.values()] + [job.ends for job in self.running.values()]
        return min(moments, default=None)

    def _happen(self, now: float) -> None:
        """One event: completions of a moment before its arrivals."""
        done = [(job.number, track) for track, job in self.running.items() if job.ends == now]
        if done:
            self._complete(min(done)[1], now)
            return
        _, name = min((number, name) for name, (when, number) in self.coming.items() if when == now)
        self._bring(name, now - self.tables[name].spec.delay, now)
        self._announce(name)

    def _bring(self, name: str, edge: float, now: float) -> None:
        table = self.tables[name]
        if edge <= table.arrived:
            return
        if table.arrived == table.taken:
            table.released = now
        table.arrived = edge
        table.came.append((now, edge))
        self._note_runnable(name, now)

    def _complete(self, track: int, now: float) -> None:
        job = self.running.pop(track)
        table = self.tables[job.table]
        table.reflected.append((now, job.upto))
        table.latencies.append(now - job.data_since)
        if job.cut:
            table.released = now
        self._note_runnable(job.table, now)
        for name in self.derived_from(job.table):
            trailing_edge = min(self.tables[source].fresh for source in self.tables[name].spec.sources)
            self._bring(name, trailing_edge, now)

    # choices

    def _note_runnable(self, name: str, now: float) -> None:
        table = self.tables[name]
        busy = any(job.table == name for job in self.running.values())
        if table.arrived > table.taken and not busy:
            table.runnable_since = now if table.runnable_since is None else table.runnable_since
        else:
            table.runnable_since = None

    def _waiting(self) -> float:
        return sum(table.arrived - table.taken for table in self.tables.values())

    def _amount(self, name: str) -> float:
        table = self.tables[name]
        waiting = table.arrived - table.taken
        return min(waiting, self.scenario.chop * self.period(name))

    def _time(self, name: str) -> float:
        spec = self.tables[name].spec
        return spec.setup_time + spec.time_per_unit * self._amount(name)

    def _urgency(self, name: str) -> float:
        if self.rule == "benefit":
            return self.priority(name) * self._amount(name) / self._time(name)
        if self.rule == "oldest":
            return -self.tables[name].released
        return -float(self.rule.index(name))

    def _depth(self, name: str) -> int:
        return max((1 + self._depth(source) for source in self.tables[name].spec.sources), default=0)

    def _between_equals(self, name: str) -> tuple[float, float, str]:
        table = self.tables[name]
        return -self._depth(name), -(table.arrived - table.taken), name

    def _overdue(self, name: str, now: float) -> float | None:
        """The moment at which the guard was to strike for a table, if it has passed."""
        table = self.tables[name]
        patience = 20 * self.period(name) if table.spec.patience is None else table.spec.patience
        if not self.scenario.guard or table.runnable_since is None or table.runnable_since + patience > now:
            return None
        return table.runnable_since + patience

    def _schedule(self, now: float) -> None:
        guard_may_strike = True
        while True:
            free = [track for track in range(self.scenario.tracks) if track not in self.running]
            waiting = [name for name, table in self.tables.items() if table.runnable_since is not None]
            if not free or not waiting:
                return
            overdue = [
                (when, -self._depth(name), name) for name in waiting if (when := self._overdue(name, now)) is not None
            ]
            if overdue and guard_may_strike:
                guard_may_strike = False
                chosen = min(overdue)[2]
            else:
                chosen = min(waiting, key=lambda name: (-self._urgency(name), *self._between_equals(name)))
            self._start(chosen, free[0], now)

    def _start(self, name: str, track: int, now: float) -> None:
        table, amount = self.tables[name], self._amount(name)
        slower = self.scenario.slowdown
        slow = slower is not None and now % (slower.normal + slower.slow) >= slower.normal
        duration = self._time(name) * (slower.factor if slow and slower else 1.0)
        self.starts.append(Started(now, name, amount))
        table.runs.append((now, now + duration))
        data_since = table.oldest_data_beyond(table.taken)
        table.taken += amount
        self.counter += 1
        self.running[track] = _Job(
            self.counter, now + duration, name, table.taken, data_since, table.taken < table.arrived
        )
        self._note_runnable(name, now)


def naive_tables(scenario: TableScenario, rule: str) -> NaiveRun:
    return NaiveTables(scenario, rule).run()


# --- the network of operators ---------------------------------------------------------------------------------


def check_network(network: Network) -> None:
    """Check the invariants in the docstrings of ``SimulatedNode`` and ``Network``."""
    nodes = network.nodes.values()
    for node in nodes:
        where = f"node {node.name}"
        reserved = sum(upstream.produced - upstream.delivered for upstream in node.upstream)
        if sum(count for count, _ in node.queue) != node.length:
            raise InvariantError(f"inv1: {where} counts {node.length} tuples in its queue, has {list(node.queue)}")
        if sum(count for count, _ in node.outside) != node.outside_length or (node.outside and node.room):
            raise InvariantError(f"inv1: {where} has {node.outside_length} tuples outside, room for {node.room}")
        if node.length + reserved + node.room != node.operator.capacity or node.room < 0:
            raise InvariantError(f"inv2: {where}: {node.length} queued, {reserved} reserved, room for {node.room}")
        if node.blocked != sum(reader.room < reader.need for reader in node.downstream):
            raise InvariantError(f"inv3: {where} is blocked by {node.blocked}")
        if not 0 <= node.running <= node.max_workers:
            raise InvariantError(f"inv5: {where} is run by {node.running} workers")
        if node.produced != math.floor(node.consumed * node.selectivity + _ROUNDING):
            raise InvariantError(f"inv4: {where} made {node.produced} of {node.consumed}")
    if network.present < sum(n.length + n.outside_length + n.consumed - n.completed for n in nodes):
        raise InvariantError(f"inv6: {network.present} tuples counted in the system")
    if network.total.queued != sum(node.length for node in nodes):
        raise InvariantError(f"inv7: {network.total.queued} tuples counted in queues")
