"""Beginning updates: what the dispatch loop picks becomes an update, or several that share a job, on a track."""

from __future__ import annotations

import math
from contextlib import suppress

from headgate.core import Start, Update
from headgate.warehouse.schedule.joint_updates import JointUpdates
from headgate.warehouse.schedule.limits import UpdateLimit, updates_for
from headgate.warehouse.schedule.planning import Planning
from headgate.warehouse.schedule.state import ScheduleState
from headgate.warehouse.transient import is_transient


class Beginnings:
    """Begins the updates of a scheduler."""

    def __init__(self, state: ScheduleState, planning: Planning, joint: JointUpdates) -> None:
        self._planning = planning
        self._joint = joint
        self._nodes = state.nodes
        self._ledger = state.ledger
        self._loop = state.loop
        self._running = state.running
        self._planned = state.planned

    def begin(self, start: Start, now: float) -> list[Update]:
        """The updates that a start of the loop becomes, to be run one after the other; none if there is nothing to do.

        One that could not begin is alone in the list, as failed.
        """
        index, track = start.node, start.worker
        # The same decision may have begun another node of the table, or this one together with its group.
        table = self._nodes[index].table
        if self._running.must_wait(table):  # it is planned again when the other one has ended
            self._planned.pop(index, None)
            self._loop.set_ready(index, False, now)
        if self._running.is_busy(table) or index not in self._planned:
            self._loop.finished(track, now)
            return []
        together = [index, *self._joint.companions(start, now)]
        try:
            limit = self._joint.limit(together, start.portion)
            update = self._begin_one(index, track, now, limit)
        except BaseException as error:  # it may be that of a user's source
            self._loop.finished(track, now)
            return [self._cannot_begin(index, track, error, now)]
        if update is None:
            self._loop.finished(track, now)
            self._refresh_others(index, now)
            return []
        updates = [update]
        for companion in together[1:]:
            with suppress(Exception):  # it stays planned, and an error is reported when it begins alone
                joined = self._begin_one(companion, track, now, limit)
                if joined is None:
                    self._refresh_others(companion, now)
                else:
                    updates.append(joined)
        self._joint.begun(updates)
        for begun in updates:
            self._running.add(begun)
            for part in self._nodes.of_table[begun.table]:
                self._loop.set_ready(part, False, now)
        return updates

    def _refresh_others(self, index: int, now: float) -> None:
        """Plan the other nodes of a table: it may have found that it must be rebuilt, which is their work."""
        for part in self._nodes.of_table[self._nodes[index].table]:
            if part != index:
                self._planning.refresh(part, now)

    def _begin_one(self, index: int, track: int, now: float, limit: UpdateLimit) -> Update | None:
        """Begin the planned update of a node; None if there is nothing to do after all."""
        node, update = self._nodes[index], self._planned[index]
        waiting, update.most = update.amount, limit.amount
        # What fits is not cut: a table that is computed in blocks would else stop at the end of a block.
        begun = node.begin(update, limit.seconds if limit.seconds < update.seconds_of_data else math.inf)
        del self._planned[index]
        self._loop.set_ready(index, False, now)
        if not begun:
            return None
        update.track, update.status = track, "running"
        entry = self._ledger.of(node.name)
        entry.longest_wait = max(entry.longest_wait, now - update.released)
        entry.left = max(0.0, waiting - update.amount)
        entry.updates_left = update.left = updates_for(waiting - update.amount, update.amount)
        return update

    def _cannot_begin(self, index: int, track: int, error: BaseException, now: float) -> Update:
        node = self._nodes[index]
        update = Update(node.table, node.layer, track=track, released=now, began=now)
        update.fails(error, transient=is_transient(error, in_user_code=False))
        self._planning.note_failure(index, update, now)
        self._planned.pop(index, None)
        self._loop.set_ready(index, False, now)
        return update
