"""Target lags of a running warehouse: what the policy reads of them, and which cannot be kept.

Costs are those that were learned, as far as they have lasted for a while: a burst of data is no reason to give up a
target. A table counts from when it was updated some times: the first updates of a process take longer, because Spark
compiles code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from headgate.core import (
    Floats,
    Graph,
    TargetPlan,
    TargetTables,
    derive_periods,
    fill_targets,
    help_lines,
    impossible_line,
    plan_lines,
    plan_targets,
)
from headgate.core.trace import RunNotice
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.declare.spec import StreamSpec, WarehouseSpec
from headgate.warehouse.schedule.kept_costs import KnownCost, KnownPace
from headgate.warehouse.schedule.lasting_costs import SeenCost
from headgate.warehouse.schedule.ledger import Ledger, LedgerEntry
from headgate.warehouse.schedule.scheduled_nodes import ScheduledNodes

#: targets are looked at again after so many updates
LOOK_AGAIN_AFTER = 20
#: a cost is known when the updates that it is learned from weigh this much, each one at most 1
_LEAST_WEIGHT = 2.5
#: what users are told when no target is impossible any more
_BETTER = {
    "kept": "all target lags can be met again",
    "tight": "the target lags take no more than the tracks now; some may still be missed now and then",
}


class TargetWatch:
    """Keeps the features of targets, and what there is to say of targets that cannot be kept.

    ``plan`` is what was found at the last look; None before there was one, or without targets.
    """

    def __init__(self, graph: Graph, nodes: ScheduledNodes, ledger: Ledger) -> None:
        """``graph`` is that of live updates; the numbers of its nodes are also theirs in ``nodes``."""
        self._graph = graph
        self._nodes = nodes
        self._ledger = ledger
        self._told = ""
        self._updates = 0
        #: whether costs, priorities or the number of tracks may have changed since the last look
        self.is_due = True
        self.plan: TargetPlan | None = None

    def updated(self) -> None:
        """An update was committed: its cost is known better now."""
        self._updates += 1
        self.is_due = self.is_due or not self._updates % LOOK_AGAIN_AFTER

    def look(self, tracks: int, now: float) -> list[RunNotice]:
        """Fill the features, and return what users are to be told that they were not told before.

        They are told of what is still so at the next look: the number of tracks may change for a moment. What is so at
        the first look, by the costs of an earlier run, is told at once.
        """
        self.is_due = False
        names = self._nodes.names
        priority = np.array([self._ledger.of(name).priority for name in names])
        target = self._targets(names)
        fill_targets(self._nodes.matrix, target, priority, tracks)
        before, self.plan = self.plan, None if np.isinf(target).all() else plan_targets(self._known_tables(now), tracks)
        # Also if no target is left: the pipeline file may have been saved without them.
        notes = {} if self.plan is None else notes_of(self.plan)
        for name in self._graph.names:
            entry = self._ledger.of(name)
            entry.target_note, entry.target_help = notes.get(name, ("", ""))
        if self.plan is None:
            return []
        text = "; ".join(plan_lines(self.plan, readable)) if self.plan.verdict == "impossible" else ""
        still = before is None or before.verdict == self.plan.verdict
        # Figures differ a little from look to look: it is told again only if it is about something else.
        about = "" if not text else f"{self.plan.tracks}/{','.join(t.name for t in self.plan.impossible)}"
        if not still or about == self._told:
            return []
        self._told = about
        return [RunNotice(now, None, text or _BETTER[self.plan.verdict])]

    def _targets(self, names: tuple[str, ...]) -> Floats:
        stated = [self._ledger.of(name).lag.target for name in names]
        return np.array([math.inf if target is None else target for target in stated])

    def _known_tables(self, now: float) -> TargetTables:
        """The tables with what has lasted of their learned costs; those that little is known of cost nothing."""
        names = self._graph.names
        entries = [self._ledger.of(name) for name in names]
        costs = [
            entry.lasting_costs.least(now, entry.updates, self._seen(entry, self._nodes.period(index)))
            for index, entry in enumerate(entries)
        ]
        return TargetTables(
            graph=self._graph,
            target=self._targets(names),
            period=np.array([cost.period for cost in costs]),
            setup_time=np.array([cost.setup for cost in costs]),
            time_per_unit=np.array([cost.slope for cost in costs]),
            priority=np.array([entry.priority for entry in entries]),
        )

    @staticmethod
    def _seen(entry: LedgerEntry, period: float) -> SeenCost:
        setup, slope = entry.cost.setup_and_slope
        known = entry.cost.observed >= _LEAST_WEIGHT
        return SeenCost(setup if known else math.nan, slope * entry.per_second, period)


def notes_of(plan: TargetPlan) -> dict[str, tuple[str, str]]:
    """{table whose target cannot be kept: why, and what would help}."""
    if plan.verdict != "impossible":
        return {}

    def would(more_tracks: bool) -> str:
        return ", or ".join(help_lines(plan, readable, more_tracks))

    notes = {table.name: (impossible_line(table, readable), would(more_tracks=False)) for table in plan.impossible}
    together = f"cannot be met together with the others, which take {plan.busy:.2f} tracks of {plan.tracks}"
    targets = {table.name: table.target for table in plan.tables}
    for name in plan.given_up:
        notes.setdefault(name, (f"its target lag of {readable(targets[name])} {together}", would(more_tracks=True)))
    return notes


def plan_before_run(
    spec: WarehouseSpec, tracks: int, costs: Mapping[str, KnownCost], paces: Mapping[str, KnownPace]
) -> TargetPlan | None:
    """Whether the targets of a pipeline can be kept, by what earlier runs have learned; None if it states none."""
    graph = spec.graph()
    declared = {node.name: node for node in spec.nodes()}
    stated = [getattr(declared[name], "target_lag", None) for name in graph.names]
    if all(target is None for target in stated):
        return None
    period, alpha, beta = [], [], []
    for name in graph.names:
        node, (_, cost), pace = declared[name], costs.get(name, ("", None)), paces.get(name, KnownPace())
        said = node.period if isinstance(node, StreamSpec) else None
        period.append(said or pace.period or 0.0 if isinstance(node, StreamSpec) else 0.0)
        known = cost is not None and (pace.per_second is not None or not costs[name][0])
        setup, slope = cost.setup_and_slope if cost is not None and known else (math.nan, math.nan)
        alpha.append(setup)
        beta.append(slope * (pace.per_second or 1.0))
    tables = TargetTables(
        graph=graph,
        target=np.array([math.inf if target is None else target for target in stated]),
        period=derive_periods(graph, np.array(period)),
        setup_time=np.array(alpha),
        time_per_unit=np.array(beta),
        priority=np.array([declared[name].priority for name in graph.names]),
    )
    return plan_targets(tables, tracks)
