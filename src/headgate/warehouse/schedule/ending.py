"""Ending updates: what a commit or a failure means for the ledger, for its table and for those built on it."""

from __future__ import annotations

from headgate.core import Update, first_line
from headgate.core.trace import RunNotice
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.schedule.joint_updates import JointUpdates
from headgate.warehouse.schedule.planning import LONGEST_BETWEEN_POLLS, Planning
from headgate.warehouse.schedule.state import ScheduleState
from headgate.warehouse.sources.protocol import Pending
from headgate.warehouse.transient import DEATHS, is_transient
from headgate.warehouse.updates.derived_table import BackfillNode
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.plan import MICROS

#: placements use learned costs, so tables are placed again after this many updates
PLACE_AGAIN_AFTER = 100


class Endings:
    """Ends the updates of a scheduler."""

    def __init__(self, state: ScheduleState, planning: Planning, joint: JointUpdates) -> None:
        self._state = state
        self._planning = planning
        self._joint = joint
        self._nodes = state.nodes
        self._graph = state.nodes.graph
        self._ledger = state.ledger
        self._loop = state.loop
        self._running = state.running
        self._notices = state.notices
        self._updates = 0

    def ended(self, update: Update, now: float) -> None:
        """An update was committed or failed: update the ledger, and plan its table and the tables built on it."""
        if self._running.was_begun_before(update):
            self._running.remove(update)
            self._state.is_outdated = True
            return
        node = self._state.node_of(update)
        if self._running.remove(update):
            self._loop.finished(update.track, now)
        try:
            node.end(update)
            repairs = node.repairs
            update.repairs = 0.0 if repairs is None else repairs.seconds
            if update.committed:
                self._note_commit(node, update, now)
        except Exception as error:  # the table's log cannot be read any more
            update.fails(error, update.seconds, transient=is_transient(error, in_user_code=False))
        if update.layer in ("live", "backfill"):  # also if it failed: that may have been after its commit
            self._note_changed(update.table, now)
        update.plan = None  # it names files, perhaps many; the ledger and whoever observes may keep the update
        index = self._graph.index[update.table]
        self._joint.ended(update)
        if not update.committed and not update.was_passed_over:
            self._planning.note_failure(self._graph.index[update.name], update, now)
        if isinstance(node, PublishNode):
            self._ledger.of(update.table).publish_note = node.problem
            self._planning.wake_after(self._graph.index[update.name], now)
        suspects = list(self._running.suspects) if update.table in self._running.suspects else []
        if update.committed:
            self._running.suspects.pop(update.table, None)
        for table in dict.fromkeys([update.table, *suspects]):
            self._planning.refresh_table(table, now)
        for dependent in self._graph.downstream[index]:
            for part in self._nodes.of_table[self._nodes.names[dependent]]:
                self._planning.refresh(part, now)
        self._state.lags.note(update.table, now)

    def _note_commit(self, node: Node, update: Update, now: float) -> None:
        self._ledger.of(update.name).committed(update, now, self._joint.seconds_alone(update))
        if isinstance(node, BackfillNode) and update.freshness is not None:
            self._ledger.of(update.table).staleness.refresh(now, update.freshness / MICROS)
        if isinstance(node, StreamNode) and update.arrived is not None:
            self._state.lags.loaded(update.name, update.arrived[0], update.freshness)
        if isinstance(node, BackfillNode) and node.of.rebuilds:
            self._ledger.of(update.table).retries.reset()  # the table was rebuilt, so earlier failures do not count
        if node.store.exists:
            self._ledger.of(update.table).rows = node.store.statistics().rows
        self._updates += 1
        if not self._updates % PLACE_AGAIN_AFTER:
            self._state.place_again(now)
            self._state.inherit()  # by density, that follows the costs, too
        self._state.targets.updated()

    def _note_changed(self, table: str, now: float) -> None:
        """Tell the nodes of the tables built on a table that it has changed."""
        for dependent in self._graph.downstream[self._graph.index[table]]:
            name = self._graph.names[dependent]
            try:
                self._nodes[dependent].source_changed(table)
            except BaseException as error:
                self._planning.unread.setdefault(dependent, set()).add(table)
                self._planning.note_source(name, Pending(note=first_line(error), missing=True), now)
                self._planning.wake(dependent, now + LONGEST_BETWEEN_POLLS)

    def spark_lost(self, now: float) -> None:
        """Spark was lost. A table that was being updated at so many losses (``DEATHS``) without a commit is held.

        A stream is not: it loads its chunks one by one, and sets aside the one that Spark dies of.
        """
        running = {update.table: update for update in self._running}
        for table, update in running.items():
            node = self._state.node_of(update)
            if isinstance(node, StreamNode):
                node.note_death(update, f"Spark has died {DEATHS} times while it was loaded")
                continue
            if self._running.suspects[table] + 1 < DEATHS:
                continue
            text = (
                f"Spark was lost {DEATHS} times while this table was updated, so it is held: its data or its query may "
                "need more memory than Spark has. Mend that, then `headgate resume` it"
            )
            self._ledger.of(update.name).retries.hold()
            self._notices.append(RunNotice(now, table, text))
        self._running.suspects.update(running.keys())
