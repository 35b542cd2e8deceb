"""How much of what is waiting one update takes in, and how long it may take.

By default as much as should take a *budget* of time, by the costs learned so far: so no update keeps a track from
others for long, and a table with a long backlog becomes fresher step by step. A user may state an amount of data
instead. The costs that are learned are those of what an update really took in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.core import STRETCH, Layer, Update, keeping_up
from headgate.warehouse.schedule.ledger import Ledger, LedgerEntry
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.load import DimensionNode, StreamNode
from headgate.warehouse.updates.maintain import MaintenanceNode
from headgate.warehouse.updates.node import Node

#: about how long an update may take, in seconds, unless stated
BUDGET = 1.0
#: without a budget, a table with catch_up="newest" takes in this many periods at once
NEWEST_PERIODS = 10.0
#: an update of the usual size is not cut if it takes at most so many budgets: two updates would take longer than one
USUAL_BUDGETS = 2.0
#: {unit: how much to take in at once before it is known how long that takes}
FIRST_SIZES = {"bytes": 4 << 20, "rows": 100_000}
#: the same in seconds of data, if there is no such unit; at least a period
FIRST_SECONDS = 60.0
#: an update is cancelled if it takes so many times as long as the longest that was committed ...
TIME_LIMIT_TIMES = 20.0
#: ... but not before so many seconds: a rebuild computes everything, and nothing is known before the first update
LEAST_TIME_LIMITS: Mapping[Layer, float] = {"live": 120.0, "backfill": 3600.0, "maintenance": 3600.0, "publish": 600.0}


@dataclass(frozen=True, slots=True)
class UpdateLimit:
    """The most that an update may take in: seconds of data, and of what its ``amount`` counts."""

    seconds: float = math.inf
    amount: float = math.inf

    def part_of(self, update: Update) -> float:
        """The share of what is waiting that a planned update takes in."""
        seconds, waiting = update.seconds_of_data, update.amount
        return min(1.0, self.seconds / seconds if seconds > 0 else 1.0, self.amount / waiting if waiting > 0 else 1.0)


def smallest(limits: Sequence[UpdateLimit]) -> UpdateLimit:
    """The limit of several updates that take in the same data."""
    return UpdateLimit(min(limit.seconds for limit in limits), min(limit.amount for limit in limits))


def updates_for(rest: float, taken: float) -> int:
    """How many updates are needed for the rest, if each takes in as much as this one."""
    return math.ceil(rest / taken - 1e-6) if rest > 0 and taken > 0 else 0


def time_limit(layer: Layer, entry: LedgerEntry) -> float:
    """After how many seconds an update is cancelled; more after each failure, so that a slow one gets its chance."""
    usual = max(LEAST_TIME_LIMITS[layer], TIME_LIMIT_TIMES * entry.longest_seconds)
    return usual * 2.0 ** min(entry.retries.failures, 5)


def _is_computed_at_once(node: Node) -> bool:
    """Whether a part of what is waiting would have to be read at an older version of the sources."""
    return isinstance(node, TableNode) and node.mode.name in ("keys", "whole")


class UpdateLimits:
    """The limits of the updates of all nodes.

    ``budget`` is in seconds of work per update, ``chop`` in periods of data. ``chunks`` is {table: seconds of data per
    backfill}, as far as a user has stated that. Whoever states an amount of data gets that, however long it takes.
    """

    def __init__(self, ledger: Ledger, budget: float, chop: float) -> None:
        self.budget = budget
        self.chunks: dict[str, float] = {}
        self._ledger = ledger
        self._chop = chop

    def of(
        self, node: Node, update: Update, period: float, together: int = 1, portion: float = math.inf
    ) -> UpdateLimit:
        """How much a planned update may take in; ``together`` is how many updates share the budget.

        ``portion`` is the policy's, in seconds of data: the smaller of the two limits holds.
        """
        if isinstance(node, DimensionNode | MaintenanceNode) or _is_computed_at_once(node):
            return UpdateLimit()  # never done in parts
        return smallest([self._stated(node, update, period, together), UpdateLimit(seconds=portion)])

    def _stated(self, node: Node, update: Update, period: float, together: int) -> UpdateLimit:
        """The limit by budget, chop or chunk."""
        if isinstance(node, BackfillNode):
            if node.table in self.chunks:
                return UpdateLimit(seconds=self.chunks[node.table])
            # Live updates may have to wait for a backfill, so it is done in parts even without a budget.
            budget = BUDGET if self.budget == math.inf else self.budget
            return self._within(node, update, node.of.block_seconds, budget)
        if self._chop < math.inf:
            return UpdateLimit(seconds=self._chop * period)
        if self.budget == math.inf:
            is_newest_first = isinstance(node, TableNode | StreamNode) and node.spec.catch_up == "newest"
            return UpdateLimit(seconds=NEWEST_PERIODS * period if is_newest_first else math.inf)
        return self._within(node, update, max(period, FIRST_SECONDS), self.budget / together)

    def _within(self, node: Node, update: Update, first_seconds: float, budget: float) -> UpdateLimit:
        """As much as fits into a budget of time; ``first_seconds`` of data before anything is known."""
        entry = self._ledger.of(node.name)
        if entry.cost.is_usual(update.amount, USUAL_BUDGETS * budget):
            return UpdateLimit()
        start = FIRST_SIZES.get(update.unit, first_seconds * entry.per_second)
        within, stretched = entry.cost.most(budget, start), entry.cost.most(STRETCH * budget, start)
        most = keeping_up(within, stretched, update.amount, entry.left)
        if isinstance(node, StreamNode):  # chunks have sizes, and may all have arrived in the same second
            return UpdateLimit(amount=most)
        return UpdateLimit(seconds=most / entry.per_second)
