"""A recorded run as something to simulate: its arrivals, its costs, and the state of its tables when the replay begins.

A trace of a real run becomes a ``TraceReplay``, as a TOML file becomes a scenario. Lines and files of traces are not
known here, only what they say. What is modelled and what is left out is described in ``docs/traces.md``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal, TypeVar

from headgate.core import (
    BACKFILL,
    LIVE,
    MAINTENANCE,
    CostModel,
    DeclarationError,
    InheritanceRule,
    Layer,
    ParameterError,
    Placement,
    Policy,
    ScenarioError,
    UnknownNameError,
    inheritance_from,
)
from headgate.core.autopilot import autopilot_in
from headgate.core.joint import AUTO
from headgate.core.placements import Anywhere
from headgate.core.policies import MaxBenefit
from headgate.core.trace import FreshnessHistory, Measured, Trace, TraceTable, measured, never_loaded
from headgate.core.trace.measures import MICROS
from headgate.sim.tables.bound import LowerBound, lower_bound
from headgate.sim.tables.replay import NewEstimate, OnUpdate, RecordedTable, ReplayChange, ReplaySimulation
from headgate.sim.tables.scenario import Table, TableScenario
from headgate.sim.tables.simulation import TableResult
from headgate.sim.trace_arrivals import StreamData, StreamPace, data_of, mostly_empty, unknown_tables
from headgate.sim.trace_costs import TraceCosts, careful_until, seen_before

Setting = TypeVar("Setting")
SettingName = Literal["policy", "placement", "tracks"]

#: compared with the run's own policy unless the command line says otherwise
OTHER_POLICIES = ("fifo", "max-benefit")

_LAYERS: dict[Layer, float] = {"live": LIVE, "backfill": BACKFILL, "maintenance": MAINTENANCE, "publish": BACKFILL}
#: seconds after which the guard puts work that brings no event time in front, as in the warehouse
_PATIENCE: dict[Layer, float] = {"live": 800.0, "backfill": 60.0, "maintenance": 600.0, "publish": 20.0}
#: seconds of data that work without event time is taken to bring: so little that it is never done in parts
_NO_DATA = 1e-6
#: a replay ends with the run, after at most so many events; those of the run itself are arrivals and updates
_MOST_EVENTS = 100_000
_MOST_EVENTS_PER_RECORDED = 100
#: a stream for which more arrivals than so many are made up is named
_SEVERAL = 5


@dataclass(frozen=True, slots=True)
class TraceReplay:
    """A recorded run without its first ``skip`` seconds, ready to be simulated.

    ``scenario`` is the run in the words of a scenario file; ``recorded`` is what those cannot say, one for each of its
    tables. ``new_estimate`` makes the model by which costs are learned, if policies do not know them. Of ``unknown``
    tables nobody knows whether they could have been fresher: data may have come that the trace does not tell of.
    ``made_up`` are streams that are taken to have got data in so many of the last seconds, which nobody knows either.
    """

    trace: Trace
    skip: float
    scenario: TableScenario
    recorded: tuple[RecordedTable, ...]
    new_estimate: NewEstimate | None = None
    unknown: tuple[str, ...] = ()
    made_up: Mapping[str, float] = field(default_factory=dict)

    @property
    def begin(self) -> float:
        return self.trace.header.started + self.skip

    @property
    def policies(self) -> tuple[str, ...]:
        """To be compared unless somebody says otherwise: the run's own first, or what ``auto`` chose for longest."""
        own = self.trace.policy(self.begin)
        with suppress(DeclarationError):  # whoever uses it is told
            autopilot = autopilot_in(own, imports=False)
            own = own if autopilot is None else str(autopilot.now)
        return tuple(dict.fromkeys((own, *OTHER_POLICIES)))

    @property
    def placement(self) -> str:
        """The run's own."""
        return self.trace.placement(self.begin)

    @property
    def about(self) -> str:
        """In a sentence, what was run."""
        began = datetime.fromtimestamp(self.trace.header.started, UTC)
        skipped = f", without the first {self.skip:g} s" if self.skip else ""
        return (
            f"A run of {self.scenario.name} from {began:%Y-%m-%d %H:%M:%S} UTC on, under "
            f"{self.trace.policy(self.begin)} and {self.placement}: {self.scenario.horizon:.0f} s of it{skipped}."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What users should know of data that the trace does not tell of, in sentences."""
        notes = []
        if self.unknown:
            notes.append(
                f"Of {', '.join(self.unknown)} it is not recorded whether data came that was never loaded. Replays"
                " assume that none came; the bound of the recorded run leaves these tables out."
            )
        if self.made_up:
            notes.append(
                f"Nothing is recorded to have come to {', '.join(self.made_up)} in the last"
                f" {min(self.made_up.values()):.0f} s or more, nor that nothing came. Replays assume that data went on"
                " coming at the usual pace."
            )
        return tuple(notes)

    def measured(self) -> Measured:
        """What really happened."""
        # Only the tables that the run began with are replayed, so only these are compared.
        return measured(replace(self.trace, redeclared=()), self.skip)

    def run(
        self,
        policy: Policy,
        placement: Placement,
        tracks: int | None = None,
        seed: int = 0,
        on_update: OnUpdate | None = None,
    ) -> TableResult:
        """What would have happened; on as many tracks as the run had, unless stated."""
        scenario = self.scenario if tracks is None else replace(self.scenario, tracks=tracks)
        return _within_limit(
            ReplaySimulation(scenario, self.recorded, policy, placement, seed, self.new_estimate, on_update)
        )

    def run_as_it_was(
        self,
        policy_of: Callable[[str], Policy],
        placement_of: Callable[[str], Placement],
        instead: ReplayChange | None = None,
        stated: Collection[str] = (),
        seed: int = 0,
        on_update: OnUpdate | None = None,
    ) -> TableResult:
        """What the simulator makes of the run with all changes of its settings when they were made.

        ``instead`` are settings that are in force all the time, and ``stated`` are tables whose priority is that of the
        scenario all the time.
        """
        new = ReplayChange(0.0) if instead is None else instead
        (_, policy), *policies = self._values("policy", policy_of, new.policy)
        (_, placement), *placements = self._values("placement", placement_of, new.placement)
        (_, tracks), *counts = self._values("tracks", int, new.tracks)
        changes = [
            *(ReplayChange(at, policy=each) for at, each in policies),
            *(ReplayChange(at, placement=each) for at, each in placements),
            *(ReplayChange(at, tracks=each) for at, each in counts),
            *self._priority_changes(stated),
        ]
        scenario = replace(self.scenario, tracks=tracks)
        changes.sort(key=lambda change: change.at)
        return _within_limit(
            ReplaySimulation(scenario, self.recorded, policy, placement, seed, self.new_estimate, on_update, changes)
        )

    def _values(
        self, setting: SettingName, make: Callable[[str], Setting], instead: Setting | None
    ) -> list[tuple[float, Setting]]:
        """What a setting was over time, or all the time ``instead``."""
        if instead is not None:
            return [(0.0, instead)]
        return [(at, make(text)) for at, text in self.over_time(setting)]

    def over_time(self, setting: SettingName) -> list[tuple[float, str]]:
        """The values of a setting, each with the moment of the replay since when it was in force; the first with 0."""
        header = self.trace.header
        later = [(change.at, change.what.get(setting)) for change in self.trace.changes]
        kind = int if setting == "tracks" else str
        known = [(header.started, str(getattr(header, setting)))]
        known += [(at, str(value)) for at, value in later if isinstance(value, kind)]
        return _in_force(known, self.begin)

    def _priority_changes(self, stated: Collection[str]) -> Iterator[ReplayChange]:
        now = {table.name: table.priority for table in self.scenario.tables}
        for table in self.trace.header.tables:
            if table.name in now and table.name not in stated:
                for at, priority in _in_force(self.trace.priorities(table), self.begin):
                    if priority != now[table.name]:
                        now[table.name] = priority
                        yield ReplayChange(at, priority=(table.name, priority))

    def changed(self, priorities: Mapping[str, float], without: Collection[str] = ()) -> TraceReplay:
        """The same run with other priorities of some tables, and without some and all that is computed from them."""
        known = {table.name for table in self.scenario.tables}
        for name in (*priorities, *without):
            if name not in known:
                raise UnknownNameError("table", name, known)
        left_out = set(without)
        while more := {t.name for t in self.scenario.tables if left_out.intersection(t.sources)} - left_out:
            left_out |= more
        # Backfills and the like of a table are tables of their own here.
        kept = [
            (replace(table, priority=priorities.get(table.name, table.priority)), recorded)
            for table, recorded in zip(self.scenario.tables, self.recorded, strict=True)
            if table.name not in left_out and table.name.rpartition(" (")[0] not in left_out
        ]
        if not kept:
            raise ScenarioError("without these tables there is nothing left to replay: leave out fewer")
        scenario = replace(self.scenario, tables=tuple(table for table, _ in kept))
        return replace(self, scenario=scenario, recorded=tuple(recorded for _, recorded in kept))

    def lower_bound(self, tracks: int | None = None, portions: bool | None = None) -> LowerBound:
        """What no policy could have beaten, if data and costs are as in ``run``; see ``headgate.sim.lower_bound``."""
        scenario = self.scenario if tracks is None else replace(self.scenario, tracks=tracks)
        return lower_bound(scenario, portions=portions, recorded=self.recorded)

    def without_waiting(self, seed: int = 0) -> TableResult:
        """What would have happened with a track for every table; relative lateness is in proportion to this."""
        unlimited = replace(self.scenario, tracks=len(self.scenario.tables), guard=False)
        return _within_limit(ReplaySimulation(unlimited, self.recorded, MaxBenefit(), Anywhere(), seed))


def _in_force(values: Sequence[tuple[float, Setting]], begin: float) -> list[tuple[float, Setting]]:
    """Values with the moments from which on they were in force, from ``begin`` on, which is 0."""
    first = [value for at, value in values if at <= begin][-1:] or [values[0][1]]
    return [(0.0, first[0]), *((at - begin, value) for at, value in values if at > begin)]


def _within_limit(simulation: ReplaySimulation) -> TableResult:
    result, most = simulation.run(), simulation.scenario.events
    if result.events >= most:
        raise ScenarioError(
            f"the replay of {simulation.scenario.name!r} takes at most {most:,} arrivals and updates, many times those"
            " that were recorded, and has not come to its end by then; its periods, budget or chop cannot be right"
        )
    return result


def replay_of(
    trace: Trace,
    skip: float = 0.0,
    new_estimate: NewEstimate | None = None,
    costs: Mapping[str, CostModel] = MappingProxyType({}),
) -> TraceReplay:
    """The run without its first ``skip`` seconds: neither replayed, nor measured, nor counted for the costs.

    With ``new_estimate=CostModel``, policies go by costs that they learn meanwhile, as those of the run did; without,
    they know them. ``costs`` are those of tables of which more is known than the trace tells.
    """
    begin = trace.header.started + skip
    length = trace.finish - begin
    if not trace.finish > trace.header.started:
        raise ScenarioError(
            f"the trace of {trace.header.warehouse!r} has no updates: there is nothing to replay; record a run in which"
            " tables are updated"
        )
    if not length > 0:
        raise ScenarioError(
            f"the run of {trace.header.warehouse!r} was recorded for {trace.finish - trace.header.started:.3g} s; "
            f"nothing is left of it after the first {skip:g} s: skip less"
        )
    priced = TraceCosts(trace, begin, costs)
    streams = {table.name: data_of(trace, table) for table in trace.header.tables if table.kind == "stream"}
    entries = [*_tables(trace, begin, priced, streams), *_below(trace, begin)]
    if not entries:
        raise ScenarioError(
            f"the run of {trace.header.warehouse!r} began without tables: there is nothing to replay; record a run that"
            " has some"
        )
    rule = _inheritance(trace, begin)
    known = len(trace.updates) + sum(len(table.arrivals) for table, _ in entries)
    scenario = TableScenario(
        tables=tuple(table for table, _ in entries),
        tracks=trace.tracks(begin),
        name=trace.header.warehouse,
        spread=None,
        chop=math.inf if trace.header.chop is None else trace.header.chop,
        # A warehouse writes down both, and goes by the chop alone.
        budget=math.inf if trace.header.budget is None or trace.header.chop is not None else trace.header.budget,
        inheritance=None if rule is None else rule.mode,
        inheritance_k=InheritanceRule().k if rule is None else rule.k,
        shared_setup=priced.shared_setup,
        together="auto" if trace.together(begin) == AUTO else "never",
        events=_MOST_EVENTS + _MOST_EVENTS_PER_RECORDED * known,
        horizon=length,
    )
    replayed = tuple(recorded for _, recorded in entries)
    made_up = {name: data.seconds for name, data in streams.items() if len(data.made_up) > _SEVERAL}
    return TraceReplay(trace, skip, scenario, replayed, new_estimate, unknown_tables(trace, streams), made_up)


def _inheritance(trace: Trace, begin: float) -> InheritanceRule | None:
    try:
        return inheritance_from(trace.inheritance(begin))
    except ParameterError as error:
        raise ScenarioError(f"the trace says something that does not exist: {error}") from None


# --- tables -------------------------------------------------------------------------------------------------------


def _tables(
    trace: Trace, begin: float, costs: TraceCosts, streams: Mapping[str, StreamData]
) -> Iterator[tuple[Table, RecordedTable]]:
    timeless = without_time(trace.header.tables)
    paces = {name: StreamPace.of(trace, data) for name, data in streams.items()}
    for table in trace.header.tables:
        if table.name in timeless:
            if work := _work(trace, table.name, "live", begin, trace.priority(table, begin)):
                yield work
            continue
        history = FreshnessHistory.of(trace, table)
        cost, slowness = costs.of(table)
        stated = Table(
            name=table.name,
            sources=tuple(source for source in table.sources if source not in timeless),
            period=(table.period or 1.0) if table.kind == "stream" else 0.0,
            priority=trace.priority(table, begin),
            setup_time=cost.alpha,
            time_per_unit=cost.beta,
            importance_class=table.importance_class,
            patience=table.patience,
            target_lag=table.target_lag,
        )
        recorded = RecordedTable(
            fresh=_fresh_at(trace, table, history, begin) - begin,
            empty=history.at(begin) is None,
            since=_waiting_since(trace, table, begin),
            seen=seen_before(trace, table.name, begin),
            steps=tuple(reached - begin for reached in history.reached),
            empty_times=tuple((a - begin, b - begin) for a, b in mostly_empty(trace, table, history, paces)),
            careful=careful_until(trace, table, stated.sources) - begin,
            slowness=slowness,
            counts=history.at(trace.finish) is not None,
        )
        if table.kind == "stream":
            yield _with_arrivals(trace, streams[table.name], begin, stated, recorded)
        else:
            yield stated, recorded


def without_time(tables: Sequence[TraceTable]) -> set[str]:
    """Of the tables of a run, dimensions and those that are computed from nothing else: they have no staleness."""
    found = {table.name for table in tables if table.kind == "dimension"}
    while more := {table.name for table in tables if table.sources and found.issuperset(table.sources)} - found:
        found |= more
    return found


def _fresh_at(trace: Trace, table: TraceTable, history: FreshnessHistory, begin: float) -> float:
    """Up to where a table was complete; if it was still empty, from where its first update began."""
    fresh = history.at(begin)
    if fresh is not None:
        return fresh
    for update in trace.updates_of(table.name):
        if update.freshness is not None:
            return update.freshness / MICROS - update.gained
    return begin


def _waiting_since(trace: Trace, table: TraceTable, begin: float) -> float:
    """Since when a table's next update had been waiting when the replay begins, at most 0."""
    following = (update.released - begin for update in trace.updates_of(table.name) if update.began >= begin)
    waits = never_loaded(trace, table)
    return min(0.0, next(following, 0.0 if waits is None else waits[0] - begin))


def _with_arrivals(
    trace: Trace, data: StreamData, begin: float, stated: Table, recorded: RecordedTable
) -> tuple[Table, RecordedTable]:
    """What comes to a stream, and what lay there when the replay begins."""
    known = data.recorded
    waiting = max((arrival.reaches - begin for arrival in known if arrival.at <= begin), default=-math.inf)
    had = ((arrival.reaches - begin, arrival.at - begin) for arrival in known if arrival.at <= begin)
    came: dict[float, float] = {}
    for arrival in (*known, *data.made_up):
        if arrival.at > begin and arrival.reaches - begin > recorded.fresh:
            came[arrival.at - begin] = max(arrival.reaches - begin, came.get(arrival.at - begin, -math.inf))
    recorded = replace(
        recorded,
        waiting=waiting,
        reaches=tuple(came[time] for time in sorted(came)),
        came=tuple((reaches, at) for reaches, at in had if reaches <= recorded.fresh),
    )
    if not came:
        return replace(stated, offset=trace.finish - begin + 1.0), recorded
    delay = statistics.median(max(0.0, arrival.at - arrival.reaches) for arrival in known)
    return replace(stated, arrivals=tuple(sorted(came)), delay=delay), recorded


# --- what is no update of a table with event time -----------------------------------------------------------------


def _below(trace: Trace, begin: float) -> Iterator[tuple[Table, RecordedTable]]:
    """Backfills and maintenance, which take up tracks behind the updates of tables."""
    seen = dict.fromkeys((update.table, update.layer) for update in trace.updates if update.layer != "live")
    for name, layer in seen:
        if work := _work(trace, name, layer, begin):
            yield work


def _work(
    trace: Trace, name: str, layer: Layer, begin: float, priority: float = 0.0
) -> tuple[Table, RecordedTable] | None:
    """Work that was to be done at the moments at which it was, and of which nothing but its length matters."""
    done = [update for update in trace.updates_of(name, layer) if update.began >= begin]
    if not done:
        return None
    cost = CostModel.fitted((0.0, update.seconds) for update in done)
    times = sorted({max(0.0, update.released - begin) for update in done})
    table = Table(
        name=name if layer == "live" else f"{name} ({layer})",
        arrivals=tuple(times),
        priority=priority,
        setup_time=cost.alpha,
        time_per_unit=0.0,
        patience=_PATIENCE[layer],
    )
    reaches = tuple(_NO_DATA * number for number in range(1, len(times) + 1))
    slowness = tuple(sorted((update.began - begin, cost.slowness(0.0, update.seconds)) for update in done))
    return table, RecordedTable(
        fresh=0.0,
        reaches=reaches,
        seen=seen_before(trace, name, begin, layer),
        slowness=slowness,
        layer=_LAYERS[layer],
        counts=False,
    )
