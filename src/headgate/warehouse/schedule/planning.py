"""Planning: what each node could do now, and what the policy is told of it.

Sources are polled and failed tables retried when they are due. A node that has something to do, and may do it, is ready
in the dispatch loop with the features of its next update.
"""

from __future__ import annotations

import heapq
import math

from headgate.core import TableColumns, Update, first_line
from headgate.core.trace import RunNotice
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.schedule.ledger import LedgerEntry
from headgate.warehouse.schedule.limits import updates_for
from headgate.warehouse.schedule.state import ScheduleState
from headgate.warehouse.sources.protocol import Pending
from headgate.warehouse.updates.derived_table import BackfillNode
from headgate.warehouse.updates.load import DimensionNode, StreamNode

#: a source is polled this many times in a period, and at least once a second
POLLS_PER_PERIOD = 40
LONGEST_BETWEEN_POLLS = 1.0
#: an update that only recomputes the past gains no freshness; this many seconds keep its benefit above 0
LEAST_GAIN = 1e-3
#: a changed dimension counts at least as so many seconds of data
LEAST_DIMENSION_GAIN = 1.0


class Planning:
    """Plans the updates of all nodes of a scheduler, each when something about it has changed.

    Nothing that concerns one table raises: it becomes that table's failure or note.
    """

    def __init__(self, state: ScheduleState) -> None:
        self._state = state
        self._nodes = state.nodes
        self._ledger = state.ledger
        self._limits = state.limits
        self._loop = state.loop
        self._options = state.options
        self._running = state.running
        self._planned = state.planned
        self._notices = state.notices
        self._table_columns = TableColumns(state.nodes.matrix)
        #: (when, node), a heap: sources to poll, and tables to retry
        self._wakes: list[tuple[float, int]] = []
        #: {node: its sources whose changes could not be read when they were made}
        self.unread: dict[int, set[str]] = {}

    def begin(self, now: float) -> None:
        """Poll all sources as soon as possible, and plan all other nodes."""
        for index in range(len(self._nodes)):
            if self._nodes.has_source(index):
                self.wake(index, now)
            else:
                self.refresh(index, now)

    def wake(self, index: int, at: float) -> None:
        """Plan a node again at a moment."""
        heapq.heappush(self._wakes, (at, index))

    def wake_after(self, index: int, now: float) -> None:
        """Plan a node again when it has waited, if it waits."""
        if 0.0 < (waits := self._nodes[index].waits()) < math.inf:
            self.wake(index, now + waits)

    def poll(self, now: float) -> float:
        """Poll the sources and retry the tables that are due; returns when to call this again."""
        while self._wakes and self._wakes[0][0] <= now:
            _, index = heapq.heappop(self._wakes)
            self.refresh(index, now)
            if self._nodes.has_source(index):
                between = self._nodes.period(index) / POLLS_PER_PERIOD
                self.wake(index, now + min(max(between, self._options.poll), LONGEST_BETWEEN_POLLS))
            elif index not in self._planned:  # it may have been woken a moment too early
                self.wake_after(index, now)
        return self._wakes[0][0] if self._wakes else now + LONGEST_BETWEEN_POLLS

    def refresh(self, index: int, now: float) -> None:
        """Plan the next update of a node, write its features, and tell the loop whether it is ready."""
        node = self._nodes[index]
        entry = self._ledger.of(node.name)
        # The places that a table is published to have waits of their own, so that none holds up the others.
        waits_itself = isinstance(node, PublishNode) and node.failures > 0 and not entry.retries.held
        due = entry.due(now) or waits_itself
        is_free = not self._running.is_busy(node.table) and not self._running.must_wait(node.table)
        allowed = is_free and due and not self._ledger.of(node.table).paused
        if isinstance(node, BackfillNode) and node.of.rebuild_reason:
            # Rebuilt from a table that is rebuilt afterwards, it would have to be rebuilt again.
            allowed = allowed and not any(self._nodes.by_name[name].rebuild_reason for name in node.of.sources)
        # What comes to a stream that is paused waits, too.
        is_polled = allowed or (is_free and entry.paused and isinstance(node, StreamNode))
        update = None
        if is_polled:
            try:
                self._read_unread(index)
                update = node.plan()
                self.note_source(node.name, node.last_poll, now)
                if self._nodes.has_learned(index):
                    self._state.use_periods()
                if update is not None and allowed:
                    before = self._planned.get(index)
                    update.released = now if before is None else before.released
                    self._write_features(index, update, entry, now)
            except BaseException as error:  # whatever it is, it concerns this table only, and it is tried again
                update = None
                self.note_source(node.name, Pending(note=first_line(error), missing=True), now)
                if not self._nodes.has_source(index):  # sources are polled again anyway
                    self.wake(index, now + LONGEST_BETWEEN_POLLS)
        if is_polled:
            self._state.lags.polled(
                node.name, None if update is None or update.arrived is None else update.arrived[0], now
            )
        if update is None or not allowed:
            self._planned.pop(index, None)
            self._loop.set_ready(index, False, now)
            entry.updates_left = 0 if allowed else entry.updates_left
            return
        self._planned[index] = update
        self._loop.set_ready(index, True, now)

    def _read_unread(self, index: int) -> None:
        """Read the changes of sources that could not be read when they were made."""
        unread = self.unread.get(index, set())
        for source in list(unread):
            self._nodes[index].source_changed(source)
            unread.discard(source)

    def note_source(self, name: str, polled: Pending, now: float) -> None:
        """Note what a source said when it was polled; a user is told once of everything new."""
        entry = self._ledger.of(name)
        if polled.missing and polled.note != entry.note:
            self._notices.append(RunNotice(now, name, polled.note))
        self._notices += [RunNotice(now, name, f"{notice.chunk} {notice.problem}") for notice in polled.notices]
        entry.note, entry.waiting, entry.behind = polled.note, polled.missing, polled.behind
        self._table_columns.set_source(self._nodes.graph.index[name], polled.behind.values())

    def _write_features(self, index: int, update: Update, entry: LedgerEntry, now: float) -> None:
        entry.planned(update)
        update.gained = max(update.gained, LEAST_GAIN)
        gained = update.gained
        if isinstance(self._nodes[index], DimensionNode) and update.arrived is not None:
            # It has no event time, but tables wait for it, the longer the more: without it, they are not even there.
            gained = max(gained, LEAST_DIMENSION_GAIN, now - update.arrived[0])
        columns, cost, waiting = self._table_columns, entry.cost, update.amount
        part = self._limits.of(self._nodes[index], update, self._nodes.period(index)).part_of(update)
        entry.updates_left = updates_for(1.0 - part, part)
        alpha, beta = cost.setup_and_slope
        columns.set_cost(index, alpha, beta * entry.per_second)
        seconds = max(1e-3, cost.predict(part * waiting))
        columns.set_pending(index, gained, max(part * gained, update.gain_of(part)), seconds)
        columns.set_release(index, update.released, update.released if update.arrived is None else update.arrived[0])
        columns.set_next_release(index, update.released + self._nodes.period(index))
        since = update.arrived[0] if update.arrived is not None else self._state.lags.since(self._nodes.names[index])
        columns.waiting_since[index] = update.released if since is None else since

    def note_failure(self, index: int, update: Update, now: float) -> None:
        """An update could not begin, or failed: its node is retried later, or held."""
        entry = self._ledger.of(update.name)
        entry.left = 0.0  # all of it is waiting again
        retries = entry.retries
        retries.failed(update, now)
        if not retries.held:
            self.wake(index, retries.next_try())

    def refresh_table(self, table: str, now: float) -> None:
        """Plan all nodes that work on a table."""
        for part in self._nodes.of_table[table]:
            self.refresh(part, now)
