"""The last stretch of a run, replayed under other settings: what the rule of the autopilot goes by.

The same code looks at a real run, in a process of its own, and at a simulated one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from headgate.core import CostModel, DeclarationError, Update, placement_from, policy_from
from headgate.core.autopilot import ReplayedWindow, RunSettings, autopilot_in, settings_to_try
from headgate.core.joint import Together
from headgate.core.policies import Autopilot
from headgate.core.trace import Change, Redeclared
from headgate.core.trace.recent import SETTINGS, RecentTrace
from headgate.sim.cost_fit import Seen, fitted_together
from headgate.sim.tables.replay import NewEstimate
from headgate.sim.tables.scenario import TableScenario
from headgate.sim.trace_costs import brought, tells_cost
from headgate.sim.trace_replay import TraceReplay, replay_of

#: the most updates that a window has: what is replayed of a busier run is shorter
MOST_UPDATES = 20_000
#: costs go by so many updates of each table at the most, of all tables at the most, and of each at the least
COSTS_KEPT, COSTS_TOGETHER, COSTS_LEAST = 500, 20_000, 20
#: a window of fewer updates tells nothing
LEAST_UPDATES = 20


class TableCosts:
    """What updates of each table cost, by the last ones of each that were seen.

    A window tells too little: updates of a table that are all of one size do not tell its set-up from the rest.
    """

    def __init__(self) -> None:
        self._seen: dict[str, deque[Seen]] = {}
        self._reached: dict[str, int | None] = {}

    def note(self, update: Update, together: Together) -> None:
        if update.layer != "live" or update.error is not None:
            return
        amount, self._reached[update.table] = brought(update, self._reached.get(update.table))
        if tells_cost(update, together):
            seen = self._seen.setdefault(update.table, deque(maxlen=COSTS_KEPT))
            seen.append((update.began, amount, update.seconds))

    def keep(self, tables: Iterable[str]) -> None:
        """Forget all but these tables."""
        names = {*tables}
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        self._reached = {name: reached for name, reached in self._reached.items() if name in names}

    def fitted(self) -> Mapping[str, CostModel]:
        """The costs of the tables of which anything is known; with many tables, by fewer updates of each."""
        most = max(COSTS_LEAST, COSTS_TOGETHER // max(1, len(self._seen)))
        return fitted_together({name: [*seen][-most:] for name, seen in self._seen.items()})


class WindowReplays:
    """Hears of everything that happens in a run, and replays one window of it after the other.

    ``between`` is called after every replay: a process that may use only so much of a processor waits in it.
    ``new_estimate`` is as for ``replay_of``; ``simulated`` is the scenario of the run if it is a simulated one.
    """

    def __init__(
        self,
        recent: RecentTrace,
        new_estimate: NewEstimate | None = None,
        between: Callable[[], object] = lambda: None,
        most: int = MOST_UPDATES,
        simulated: TableScenario | None = None,
    ) -> None:
        self.recent = recent
        self._costs = TableCosts()
        self._new_estimate = new_estimate
        self._between = between
        self.most = most
        self._simulated = simulated
        #: up to when the run was looked at
        self._looked = recent.began
        #: the settings that the run was first seen with since somebody has stated any
        self._home: RunSettings | None = None
        #: those before the last change that the autopilot has made since then
        self._before: RunSettings | None = None

    def note(self, entry: Update | Change | Redeclared) -> None:
        """Something has happened."""
        header = self.recent.header
        self.recent.add(entry)
        if isinstance(entry, Update):
            self._costs.note(entry, header.together)
        elif isinstance(entry, Redeclared):
            self._costs.keep(table.name for table in entry.tables)
        elif any(key in entry.what for key in SETTINGS):
            if "why" in entry.what:  # as the autopilot says, and nobody else
                autopilot = autopilot_in(header.policy)
                self._before = None if autopilot is None else RunSettings.under(autopilot, header)
            else:
                self._home = self._before = None

    @property
    def window(self) -> float:
        """How long a window is, in seconds."""
        return (autopilot_in(self.recent.header.policy) or Autopilot()).window

    def due(self) -> float:
        """When the next window ends."""
        return max(self._looked, self.recent.settled) + self.window

    def look(self, now: float) -> ReplayedWindow | None:
        """The window that ends now, replayed; None if there is nothing to look at."""
        header = self.recent.header
        autopilot = autopilot_in(header.policy)
        if autopilot is None:
            return None
        begin = self.recent.begins(max(self._looked, now - autopilot.window), self.most)
        self._looked = now
        self.recent.forget(begin, self.most)
        if len(self.recent) < LEAST_UPDATES or begin >= now:
            return None
        trace = self.recent.trace(now)
        trace = replace(trace, header=replace(header, policy=str(autopilot.now), started=min(header.started, begin)))
        replay = replay_of(trace, begin - trace.header.started, self._new_estimate, self._costs.fitted())
        if self._simulated is not None:
            replay = replace(replay, scenario=_as_simulated(replay.scenario, self._simulated))
        return self._replayed(replay, autopilot, RunSettings.under(autopilot, header))

    def _replayed(self, replay: TraceReplay, autopilot: Autopilot, now: RunSettings) -> ReplayedWindow:
        self._home = self._home or now
        here, events = _run(replay, now)
        self._between()
        window = ReplayedWindow(
            seconds=replay.scenario.horizon,
            events=events,
            now=now,
            measured=replay.measured().weighted_staleness,
            without_waiting=replay.without_waiting().weighted_staleness,
            replayed={now: here},
        )
        self._between()
        if window.to_gain < autopilot.gain:  # hardly any other settings could be better by that much
            return window
        found = {now: here}
        for other in settings_to_try(autopilot, now, self._home, self._before):
            with suppress(DeclarationError):  # it does not take these tables
                found[other], _ = _run(replay, other)
            self._between()
        return replace(window, replayed=found)


def _as_simulated(scenario: TableScenario, run: TableScenario) -> TableScenario:
    """With what a trace does not say because only simulated runs have it, such as a budget beside a chop."""
    return replace(
        scenario, guard=run.guard, budget=run.budget, together=run.together, period_reading=run.period_reading
    )


def _run(replay: TraceReplay, settings: RunSettings) -> tuple[float, int]:
    """The weighted staleness, and how many arrivals and updates there were."""
    result = replay.run(policy_from(settings.policy), placement_from(settings.placement), settings.tracks)
    return result.weighted_staleness, result.events
