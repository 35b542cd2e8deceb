"""What the parts of a running scheduler share: nodes, ledger, limits, the dispatch loop, and what is planned and runs.

Planning, beginning and ending updates are parts of their own: see ``planning``, ``beginning`` and ``ending``. Each
changes what is here; none keeps a copy.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.core import (
    Dispatch,
    HeadgateError,
    Inheritance,
    InheritanceRule,
    InvariantError,
    Together,
    Update,
    inheritance_from,
    inheritance_in_force,
    together_from,
)
from headgate.core.trace import RunNotice
from headgate.warehouse.schedule.ledger import Lags, Ledger
from headgate.warehouse.schedule.limits import UpdateLimits
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.running import RunningUpdates
from headgate.warehouse.schedule.scheduled_nodes import ScheduledNodes
from headgate.warehouse.schedule.target_watch import TargetWatch
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


@dataclass(slots=True, eq=False)
class ScheduleState:
    """All that a scheduler knows.

    Invariants:
    1. A node is ready in the loop if and only if, when it was last planned, it had something pending, was allowed to
       run, and no other node of its table was running. Then its planned update is in ``planned``.
    2. The tracks that ``running`` lists are those that are busy in the loop.
    """

    warehouse: OpenWarehouse
    options: RunOptions
    nodes: ScheduledNodes
    ledger: Ledger
    limits: UpdateLimits
    loop: Dispatch
    running: RunningUpdates
    lags: Lags
    targets: TargetWatch
    #: what sources inherit, as a user has stated it: see ``RunOptions``
    inheritance: str
    #: which tables share jobs, as a user has stated it
    stated_together: str
    #: {node: its planned update}
    planned: dict[int, Update] = field(default_factory=dict)
    #: whether a table has changed in a way that its node knows nothing of: the warehouse is to be opened again
    is_outdated: bool = False
    #: what users are to be told of; whoever tells them empties it
    notices: list[RunNotice] = field(default_factory=list)
    #: what the scheduler has changed by itself, as a trace records it; whoever records it empties it
    changes: list[Mapping[str, object]] = field(default_factory=list)

    @property
    def together(self) -> Together:
        """Which tables share jobs: as a user has stated it, or the pipeline."""
        return together_from(self.stated_together, self.warehouse.spec.together)

    def node_of(self, update: Update) -> Node:
        """The node that an update belongs to."""
        return self.nodes.by_name[update.name]

    def note_change_everywhere(self) -> None:
        """Every node is to be ranked again."""
        for index in range(len(self.nodes)):
            self.loop.note_change(index)

    def use_periods(self) -> None:
        """Go by the periods that streams have learned by now."""
        self.nodes.fill_periods()
        self.loop.refresh_patience()
        self.note_change_everywhere()

    def place_again(self, now: float) -> None:
        """Place all tables by what is known of costs now; they stay where they are if the placement fails."""
        try:
            self.loop.place_again()
        except InvariantError:
            raise
        except HeadgateError as error:
            text = f"{error}; the tables stay on the tracks that they were placed on before"
            self.notices.append(RunNotice(now, None, text, traceback_of(error)))

    def inherit(self) -> None:
        """Give sources the priorities that they inherit: with ``density``, by what is known of costs now."""
        rule = inheritance_rule(self.inheritance, self.warehouse, self.loop.answers.inheritance)
        self.nodes.fill_priorities(self.ledger, rule)
        self.note_change_everywhere()


def inheritance_rule(stated: str, warehouse: OpenWarehouse, by_policy: Inheritance | None) -> InheritanceRule:
    """What a user has stated, the pipeline, or the policy; in this order."""
    rule = inheritance_from(stated) or inheritance_from(warehouse.spec.inheritance)
    return inheritance_in_force(rule, by_policy)


def traceback_of(error: BaseException) -> str:
    """The traceback of the user's own exception, if there is one, from the first line that is not Headgate's."""
    cause = error.__cause__
    if cause is None:
        return ""
    users = cause.__traceback__
    while users is not None and str(users.tb_frame.f_globals.get("__name__")).startswith("headgate."):
        users = users.tb_next
    return "".join(traceback.format_exception(type(cause), cause, users)).rstrip()
