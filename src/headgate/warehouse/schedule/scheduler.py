"""The scheduler of a running warehouse: which updates run next, and on which tracks.

It polls the nodes for pending updates and writes the features of each update for the dispatch loop of the core
(``planning``). It begins the updates that the loop picks (``beginning``), and updates the ledger when they have ended
(``ending``). It knows neither threads nor Spark, and the time is passed in. For use by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headgate.core import (
    Decision,
    Dispatch,
    Explanation,
    HeadgateError,
    InvariantError,
    ParameterError,
    Placement,
    Policy,
    Start,
    Together,
    Update,
    Workers,
    answers_of,
    inheritance_from,
    text_of,
    together_from,
)
from headgate.core.placements import LayeredPlacement
from headgate.core.policies import Layered, MaxBenefit
from headgate.core.trace import NotLoaded, RunNotice
from headgate.warehouse.schedule.beginning import Beginnings
from headgate.warehouse.schedule.catching_up import Behind, CatchUp
from headgate.warehouse.schedule.ending import Endings
from headgate.warehouse.schedule.glance import Glance, running_now
from headgate.warehouse.schedule.joint_updates import JointUpdates
from headgate.warehouse.schedule.kept_costs import KnownCost, KnownPace
from headgate.warehouse.schedule.ledger import Lags, Ledger, NodeStatistics
from headgate.warehouse.schedule.limits import UpdateLimits, time_limit
from headgate.warehouse.schedule.planning import Planning
from headgate.warehouse.schedule.refreshing import Refreshes
from headgate.warehouse.schedule.run_options import DEFAULT, RunOptions
from headgate.warehouse.schedule.running import RunningUpdates
from headgate.warehouse.schedule.scheduled_nodes import ScheduledNodes
from headgate.warehouse.schedule.standings import Standings
from headgate.warehouse.schedule.state import ScheduleState, inheritance_rule, traceback_of
from headgate.warehouse.schedule.target_watch import TargetWatch
from headgate.warehouse.updates.derived_table import TableNode
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from headgate.warehouse.updates.unopened import UnopenedTable


class Scheduler:
    """The nodes of one warehouse on one dispatch loop.

    Nothing that concerns one table raises: it becomes that table's failure or note. ``ScheduleState`` has the other
    invariants. ``notices`` is what users are to be told of, and ``changes`` what the scheduler has changed by itself;
    whoever tells or records them empties the lists.
    """

    def __init__(
        self,
        warehouse: OpenWarehouse,
        options: RunOptions,
        now: float,
        before: Scheduler | None = None,
        costs: Mapping[str, KnownCost] = MappingProxyType({}),
        paces: Mapping[str, KnownPace] = MappingProxyType({}),
    ) -> None:
        """``before`` is the scheduler before the warehouse was declared anew: what it learned is kept.

        ``costs`` and ``paces`` are those that an earlier run has learned.
        """
        self.warehouse = warehouse
        learned = paces if before is None else before.paces()
        for name, node in warehouse.nodes.items():
            was = None if before is None else before.warehouse.nodes.get(name)
            if isinstance(node, StreamNode) and isinstance(was, StreamNode):
                node.go_on_from(was)
            elif isinstance(node, StreamNode):
                node.expect_period(learned.get(name, KnownPace()).period)
        known = None if before is None else before._state
        self._state: ScheduleState = _opened(warehouse, options, now, known, costs, paces)
        state = self._state
        self._nodes = state.nodes
        self._graph = state.nodes.graph
        self._ledger = state.ledger
        self._limits = state.limits
        self._loop = state.loop
        self._planned = state.planned
        self.running = state.running
        self.notices = state.notices
        self.changes = state.changes
        self._standings = Standings(warehouse, state.nodes, state.ledger, state.limits, state.planned, state.running)
        self._planning = Planning(state)
        self._joint = JointUpdates(state)
        if before is not None:
            self._joint.jobs.go_on_from(before._joint.jobs)
        self._beginnings = Beginnings(state, self._planning, self._joint)
        self._endings = Endings(state, self._planning, self._joint)
        self._refreshes = Refreshes(state, self._planning, self._standings)
        self._planning.begin(now)
        if before is not None:
            self._refreshes.go_on_from(before._refreshes, now)

    @property
    def tracks(self) -> int:
        return len(self._loop.workers)

    @property
    def inheritance(self) -> str:
        """What a user has stated, or the pipeline, which may leave it to the policy."""
        stated = self._state.inheritance
        return self.warehouse.spec.inheritance if stated == DEFAULT else stated

    @property
    def together(self) -> Together:
        """Which tables share jobs."""
        return self._state.together

    @property
    def stated(self) -> Mapping[str, str]:
        """The settings that the pipeline may state, as they hold now."""
        return {"inheritance": self.inheritance, "together": self.together}

    @property
    def is_outdated(self) -> bool:
        """Whether the warehouse is to be opened again: a table that could not be opened can be opened now, or an
        update has ended that was begun before it was opened."""
        nodes = self.warehouse.nodes.values()
        return self._state.is_outdated or any(isinstance(node, UnopenedTable) and node.can_be_opened for node in nodes)

    @property
    def is_idle(self) -> bool:
        """Whether no update runs."""
        return not self.running

    @property
    def tracks_are_idle(self) -> bool:
        """Whether no update runs on a track; there may be some that do not end, which nobody waits for."""
        return not self.running.on_tracks()

    def node_of(self, update: Update) -> Node:
        """The node that an update belongs to."""
        return self._state.node_of(update)

    # --- updates --------------------------------------------------------------------------------------------

    def poll(self, now: float) -> float:
        """Poll the sources and retry the tables that are due; returns when to call this again."""
        return self._planning.poll(now)

    def decide(self, now: float) -> list[list[Update]]:
        """The updates to run now: for each track that gets work a list, to be run one after the other.

        An update that could not begin is returned alone in a list, as failed: there is nothing to run.
        """
        if self._state.targets.is_due:
            self.notices += self._state.targets.look(self.tracks, now)
        self._refreshes.settle(now)
        try:
            starts = self._loop.decide(now)
        except InvariantError:
            raise
        except HeadgateError as error:
            self._go_on_without_policy(error, now)
            starts = self._loop.decide(now)
        return [updates for start in starts if (updates := self._begin(start, now))]

    def _begin(self, start: Start, now: float) -> list[Update]:
        try:
            return self._beginnings.begin(start, now)
        except HeadgateError as error:  # the policy's, which was asked who may share a job; nothing has begun
            self._go_on_without_policy(error, now)
            return self._beginnings.begin(start, now)

    def _go_on_without_policy(self, error: HeadgateError, now: float) -> None:
        """The user's policy has failed: tables must be updated all the same, so another one takes its place."""
        failed, fallback = self._loop.answers.text, MaxBenefit()
        text = f"{error}; the run goes on with policy {fallback.name!r} until you set another"
        self.notices.append(RunNotice(now, None, text, traceback_of(error)))
        self.replace_policy(fallback)
        self.changes.append({"policy": str(fallback), "instead of": failed})

    def ended(self, update: Update, now: float) -> None:
        """An update was committed or failed: update the ledger, and plan its table and the tables built on it."""
        self._endings.ended(update, now)
        self._refreshes.ended(update, now)

    def spark_lost(self, now: float) -> None:
        """Spark was lost. A table that was being updated at so many losses without a commit is held."""
        self._endings.spark_lost(now)

    def time_limit(self, update: Update) -> float:
        """After how many seconds an update is to be cancelled."""
        return self._state.options.time_limit or time_limit(update.layer, self._ledger.of(update.name))

    def give_up(self, track: int, now: float) -> None:
        """The updates of a track do not end: the track is free for others, their tables stay as they are.

        Of a job, this concerns the one that runs; those after it are withdrawn, and ``ended`` as passed over.
        """
        self.running.give_up(track)
        self._loop.finished(track, now)

    # --- changes while running ------------------------------------------------------------------------------

    def check(self, policy: Policy | None, placement: Placement | None, tracks: int | None) -> None:
        """Refuse what would be refused if it were asked for; nothing changes."""
        self._loop.check(
            None if policy is None else Layered(policy),
            None if placement is None else LayeredPlacement(placement),
            None if tracks is None else Workers.of(tracks),
        )

    def replace_policy(self, policy: Policy) -> None:
        self._loop.replace_policy(Layered(policy))
        self._state.inherit()

    def set_inheritance(self, inheritance: str) -> None:
        """Let sources inherit in another way, written as in ``RunOptions``."""
        inheritance_from(inheritance)
        self._state.inheritance = inheritance
        self._state.inherit()

    def set_together(self, together: str) -> None:
        """Let tables share jobs in another way, written as in ``RunOptions``, from the next update on."""
        together_from(together)
        self._state.stated_together = together

    def replace_placement(self, placement: Placement) -> None:
        self._loop.replace_placement(LayeredPlacement(placement))

    def set_budget(self, budget: float, now: float) -> None:
        self._limits.budget = budget
        for index in list(self._planned):
            self._planning.refresh(index, now)

    def set_tracks(self, count: int) -> None:
        self._loop.set_workers(Workers.of(count))
        self._state.targets.is_due = True

    def remark(self, table: str, text: str, now: float) -> None:
        """Note what users should know of a table that concerns no update; empty if there is nothing any more."""
        entry = self._ledger.of(table)
        if text and text != entry.remark:
            self.notices.append(RunNotice(now, table, text))
        entry.remark = text

    def pause(self, table: str, now: float) -> None:
        self._ledger.of(table).paused = True
        self._planning.refresh_table(table, now)

    def resume(self, table: str, now: float) -> None:
        self._ledger.of(table).paused = False
        for part in self._nodes.of_table[table]:
            self._ledger.of(self._nodes.names[part]).retries.reset()
            self._nodes[part].retry_now()
        self._planning.refresh_table(table, now)

    def set_priority(self, table: str, priority: float) -> None:
        self._ledger.of(table).priority = priority
        self._state.inherit()
        self._state.targets.is_due = True

    def backfill(self, table: str, first: int, last: int, chunk: float | None, now: float) -> None:
        node = self._nodes.by_name[table]
        if not isinstance(node, TableNode):
            raise ParameterError(
                f"{table!r} is loaded from a source and cannot be computed again; backfill the tables built on it"
            )
        if chunk is not None:
            self._limits.chunks[table] = chunk
        node.backfill(first, last)
        self._planning.refresh_table(table, now)

    def refresh_now(self, table: str, now: float) -> None:
        """Update a table, and what it is built on, before everything else; once: see ``refreshing``."""
        if self._ledger.of(table).paused:
            raise ParameterError(f"table {table!r} is paused; resume it first")
        self._refreshes.begin(table, now)

    # --- reports --------------------------------------------------------------------------------------------

    def costs(self) -> dict[str, KnownCost]:
        """What was learned about costs, for a later run."""
        return self._ledger.costs()

    def paces(self) -> dict[str, KnownPace]:
        """What was learned about how fast data comes, for a later run."""
        return self._ledger.paces()

    def statistics(self, now: float) -> tuple[NodeStatistics, ...]:
        return self._standings.statistics(now)

    def glance(self, now: float) -> Glance:
        """How everything stands now, for those who watch."""
        budget = self._limits.budget
        return Glance(
            now=now,
            policy=self._loop.answers.text,
            placement=text_of(self._loop.placement),
            tracks=self.tracks,
            budget=None if budget == math.inf else budget,
            tables=self.statistics(now),
            queue=self._loop.queue(now),
            running=running_now(self.running.on_tracks(), self.time_limit),
            left=self.running.left(),
            inheritance=self.inheritance,
            together=self.together,
        )

    def not_loaded(self, now: float) -> NotLoaded:
        """What has come to streams and is not loaded, by the last look at their sources."""
        streams, unknown = {}, []
        for name in (stream.name for stream in self.warehouse.spec.streams):
            node = self._nodes.by_name[name]
            # The source of one that has failed is not looked at before it is tried again.
            if not isinstance(node, StreamNode) or not self._ledger.of(name).retries.due(now):
                unknown.append(name)
            elif node.last_poll.oldest is not None and node.last_poll.newest is not None:
                streams[name] = (node.last_poll.oldest, node.last_poll.newest, node.last_poll.chunks)
        return NotLoaded(now, streams, tuple(unknown))

    def decisions(self, table: str) -> tuple[Decision, ...]:
        """The last decisions at which a table could have been chosen, the newest first."""
        those = (each for each in self._loop.history if any(entry.name == table for entry in each.ranking))
        return tuple(reversed(tuple(those)))

    def explain(self, table: str, now: float) -> Explanation:
        told = self._loop.explain(self._graph.index[table], now)
        together, refresh = self._joint.told(table, told.portion, now), self._refreshes.told(table, now)
        return self._standings.explain(told, now, together, refresh)

    def catch_up(self, now: float, tables: Iterable[str] | None = None, publications: bool = False) -> CatchUp:
        """Begin to watch whether ``tables``, or all, have taken in what has arrived by now, and published it."""
        return CatchUp(self.warehouse, now, tables, publications)

    def behind(self, catch_up: CatchUp, now: float) -> Behind:
        """The tables that have not caught up yet."""
        return self._standings.behind(catch_up, now)


def _opened(
    warehouse: OpenWarehouse,
    options: RunOptions,
    now: float,
    before: ScheduleState | None,
    costs: Mapping[str, KnownCost],
    paces: Mapping[str, KnownPace],
) -> ScheduleState:
    """What the scheduler of a warehouse knows when it begins; ``before`` as for ``Scheduler``."""
    nodes = ScheduledNodes(warehouse)
    ledger = Ledger(nodes.by_name, warehouse.spec, now, None if before is None else before.ledger, costs, paces)
    limits = UpdateLimits(ledger, options.budget, options.chop)
    policy: Policy = Layered(options.policy)
    placement: Placement = LayeredPlacement(options.placement)
    workers = Workers.of(options.tracks)
    inheritance, together = options.inheritance, options.together
    if before is not None:
        limits.budget = before.limits.budget
        policy, placement, workers = before.loop.policy, before.loop.placement, before.loop.workers
        inheritance, together = before.inheritance, before.stated_together
    answers = answers_of(policy)
    nodes.fill(ledger, inheritance_rule(inheritance, warehouse, answers.inheritance))
    loop_before = None if before is None else before.loop
    return ScheduleState(
        warehouse=warehouse,
        options=options,
        nodes=nodes,
        ledger=ledger,
        limits=limits,
        loop=Dispatch(nodes.matrix, policy, placement, workers, history=64, answers=answers, before=loop_before),
        running=RunningUpdates(None if before is None else before.running, warehouse.nodes.keys()),
        lags=Lags(warehouse.graph, warehouse.nodes, ledger, now),
        targets=TargetWatch(warehouse.graph, nodes, ledger),
        inheritance=inheritance,
        stated_together=together,
    )
