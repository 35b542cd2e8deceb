"""What the updates of a recorded run cost, as a replay has to know it: alone, and in a job that another one has set up.

Jobs that tables share count only if the scheduler chose them (``together="auto"``): a declared group is replayed as if
each of its updates had been alone, at what it took.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from headgate.core import LEAST_UPDATE_TIME, CostModel, Update
from headgate.core.joint import AUTO, Together
from headgate.core.trace import FreshnessHistory, Trace, TraceTable
from headgate.core.trace.measures import MICROS
from headgate.core.update import Layer
from headgate.sim.cost_fit import Seen, fitted_together, machine_slowness

#: how long updates took compared with what was to be expected, by seconds from the beginning of the replay
Slowness = tuple[tuple[float, float], ...]
#: the machine becomes slower or faster clearly if it does so by this factor
CLEARLY = 1.1
#: updates with the seconds of data that they brought
_Amounts = Sequence[tuple[Update, float]]


class TraceCosts:
    """The costs of all tables of a run since ``begin``; ``shared_setup`` as in ``TableScenario``.

    ``known`` are those of tables of which more is known than the trace tells.
    """

    def __init__(self, trace: Trace, begin: float, known: Mapping[str, CostModel] = MappingProxyType({})) -> None:
        self._trace = trace
        self._begin = begin
        self._updates: Mapping[str, _Amounts] = {table.name: self._of(table) for table in trace.header.tables}
        self._alone = {name: cost for name, cost in known.items() if name in self._updates}
        if not self._alone.keys() >= self._updates.keys():
            alone = {name: self._alone_seen(name) for name in self._updates}
            self._alone = {**fitted_together(alone), **self._alone}
        self.shared_setup = self._share()
        self._costs = {table.name: self._cost(table) for table in trace.header.tables}
        self._factors = {table.name: self._own_factors(table) for table in trace.header.tables}
        self._machine, self._changes = self._machine_over_time()

    def of(self, table: TraceTable) -> tuple[CostModel, Slowness]:
        """Of a table's updates since ``begin``; if there were none, of all of them; if it had none, of others.

        Its slowness is that of its own updates; and where the machine became slower or faster between two of them, it
        did so for this table, too.
        """
        own = self._factors[table.name]
        if not own:
            return self._costs[table.name], ()
        times = [at for at, _ in own]
        found = list(own)
        for at, before, after in self._changes:
            index = bisect_left(times, at)
            nearest = min(range(max(0, index - 1), min(index + 1, len(own))), key=lambda i: abs(times[i] - at))
            own_part = own[nearest][1] / self._machine[own[nearest][0]]
            found += [(math.nextafter(at, -math.inf), before * own_part), (at, after * own_part)]
        return self._costs[table.name], tuple(sorted(found))

    def _cost(self, table: TraceTable) -> CostModel:
        if not self._updates[table.name]:
            others = [update.seconds for update in self._trace.updates if update.layer == "live" and not update.error]
            return CostModel.fitted([(0.0, statistics.median(others) if others else 1.0)])
        cost = self._alone.get(table.name)
        if cost is None:
            # It never ran alone: what its set-up would have been then follows from what others have shared.
            part = max(1.0 - self.shared_setup, 0.1)
            joined = CostModel.fitted(self._seen(table.name, True))
            cost = CostModel.fitted(
                (n, seconds + joined.alpha * (1 / part - 1)) for n, seconds in self._seen(table.name, True)
            )
        return cost

    def _own_factors(self, table: TraceTable) -> Slowness:
        """How long each update of a table took compared with what was to be expected of it."""
        cost = self._costs[table.name]
        factors = (
            (update.began - self._begin, max(update.seconds, LEAST_UPDATE_TIME) / self._expected(cost, update, amount))
            for update, amount in self._updates[table.name]
        )
        return tuple(sorted(factors))

    def _machine_over_time(self) -> tuple[Mapping[float, float], Sequence[tuple[float, float, float]]]:
        """How slow the machine was when an update began, by that moment; and when that changed clearly, from what to
        what."""
        everything = sorted(factor for own in self._factors.values() for factor in own)
        if not everything:
            return {}, ()
        off = np.log([factor for _, factor in everything])
        slowness = machine_slowness(off, len(self._factors)).tolist()
        at, changes = dict(zip((moment for moment, _ in everything), slowness, strict=True)), []
        now = slowness[0]
        for (moment, _), value in zip(everything, slowness, strict=True):
            if not 1 / CLEARLY < value / now < CLEARLY:
                changes.append((moment, now, value))
                now = value
        return at, changes

    def _of(self, table: TraceTable) -> _Amounts:
        amounts, reached = list[tuple[Update, float]](), table.freshness
        for update in self._trace.updates_of(table.name):
            amount, reached = brought(update, reached)
            amounts.append((update, amount))
        return [(update, amount) for update, amount in amounts if update.began >= self._begin] or amounts

    def _alone_seen(self, table: str) -> list[Seen]:
        """The updates that had a job of their own or set it up."""
        own = self._updates[table]
        return [(update.began, amount, update.seconds) for update, amount in own if not self._has_joined(update)]

    def _seen(self, table: str, joined: bool) -> list[tuple[float, float]]:
        """(seconds of data, seconds of work) of the updates that had a job of their own or set it up, or had not."""
        return [
            (amount, update.seconds) for update, amount in self._updates[table] if self._has_joined(update) == joined
        ]

    def _has_joined(self, update: Update) -> bool:
        return not tells_cost(update, self._trace.together_at(update.began))

    def _share(self) -> float:
        """What updates took less in a job that another one had set up, as a share of the set-up."""
        if not any(self._has_joined(update) for updates in self._updates.values() for update, _ in updates):
            return 0.0
        saved = shareable = 0.0
        # By what updates took on the mean: those that shared a job may have been slow, too.
        mean = {name: CostModel.fitted(those) for name in self._updates if (those := self._seen(name, False))}
        for name, updates in self._updates.items():
            joined = [(update, amount) for update, amount in updates if self._has_joined(update)]
            inside = CostModel.fitted(self._seen(name, True)) if joined else None
            for update, amount in joined:
                cost, first = mean.get(name), mean.get(update.together[0])
                if cost is not None:
                    saved += cost.predict(amount) - update.seconds
                    shareable += _shareable(cost, first)
                elif inside is not None and first is not None:
                    # It never ran alone: then its set-up is taken to be like that of the first one.
                    saved += first.alpha - inside.alpha
                    shareable += first.alpha
        return min(1.0, max(0.0, saved / shareable)) if shareable > 0 else 0.0

    def _expected(self, cost: CostModel, update: Update, amount: float) -> float:
        """What an update should have taken in the job that it had."""
        seconds = cost.predict(amount)
        if self._has_joined(update):
            seconds -= self.shared_setup * _shareable(cost, self._alone.get(update.together[0]))
        return max(seconds, LEAST_UPDATE_TIME)


def _shareable(cost: CostModel, first: CostModel | None) -> float:
    """The set-up that an update can share with the ``first`` one of its job, if that is known."""
    return cost.alpha if first is None else min(cost.alpha, first.alpha)


def tells_cost(update: Update, together: Together) -> bool:
    """Whether an update tells what one takes alone, if tables shared jobs in this way when it began."""
    return not (together == AUTO and update.has_joined)


def seen_before(trace: Trace, name: str, begin: float, layer: Layer = "live") -> tuple[tuple[float, float], ...]:
    """The updates of a table that were complete when the replay begins, as the run learned from them."""
    complete = (update for update in trace.updates_of(name, layer) if update.ended <= begin)
    telling = (update for update in complete if tells_cost(update, trace.together_at(update.began)))
    return tuple((update.gained, update.seconds) for update in telling)


def careful_until(trace: Trace, table: TraceTable, sources: Collection[str]) -> float:
    """Up to which event time a table that began without rows took in little, as the run did not know its costs yet.

    -inf if nowhere. What these updates left was data from before the run that all of its ``sources`` had already.
    """
    until = -math.inf
    if trace.header.budget is None or table.freshness is not None or not sources:
        return until
    histories = [FreshnessHistory.of(trace, each) for each in trace.header.tables if each.name in sources]
    for update in trace.updates_of(table.name):
        had = [history.at(update.began) for history in histories]
        reached = math.inf if update.freshness is None else update.freshness / MICROS
        if reached >= min(trace.header.started, *(math.inf if each is None else each for each in had)):
            break
        until = reached
    return until


def brought(update: Update, before: int | None) -> tuple[float, int | None]:
    """How many seconds of event time an update brought to a table that had reached ``before``, and what it reaches now.

    As expected only where it is not known how much it really was.
    """
    if update.freshness is None or before is None:
        return max(0.0, update.gained), before if update.freshness is None else update.freshness
    return max(0, update.freshness - before) / MICROS, max(before, update.freshness)
