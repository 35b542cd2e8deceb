"""Updates that share a job: which tables may, which do, and what their jobs have cost.

By default those of a group that a user has declared, all that wait. With ``together="auto"`` it is the scheduler's
choice among all tables with the same sources, by the rule of ``headgate.core.joint``.

A table that failed at its last try is updated alone until it has a commit, and one whose job ended before its turn is
tried again at once, alone. So nobody suffers for another's fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headgate.core import LEAST_UPDATE_TIME, JointChoice, JointJobs, Start, Update, WaitingUpdate
from headgate.core.joint import AUTO, NEVER, joint_job
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.schedule.limits import UpdateLimit, smallest
from headgate.warehouse.schedule.state import ScheduleState

#: so many updates of a table alone tell what one costs
KNOWN_AFTER = 2


@dataclass(slots=True)
class _RunningJob:
    """A job that runs: what its updates after the first were expected to take alone, and what of that can be shared.

    ``chosen``: it was the scheduler's choice, and not a declared group. ``tells``: it tells what jobs share. It does
    not if a table has its first update in this process, which compiles code, or if an update failed.
    """

    left: set[str]
    chosen: bool
    expected: float
    shareable: float
    tells: bool
    took: float = 0.0
    #: how long the first update took, as a multiple of what was expected; None as long as it was not committed
    pace: float | None = None


@dataclass(slots=True)
class JointUpdates:
    """Chooses who shares a job, and learns from jobs that have ended."""

    state: ScheduleState
    jobs: JointJobs = field(init=False)
    _groups: dict[str, tuple[int, ...]] = field(init=False)
    #: tables whose next update is theirs alone, because their last job ended before their turn
    _apart: set[str] = field(init=False, default_factory=set)
    _running: dict[str, _RunningJob] = field(init=False, default_factory=dict)
    #: {table: why together or alone, when an update of it was last chosen first}
    _chosen: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.state.nodes
        self._groups = nodes.groups()
        self.jobs = JointJobs(nodes.matrix, nodes.sharing())

    # --- before -----------------------------------------------------------------------------------------------

    def companions(self, start: Start, now: float) -> list[int]:
        """The nodes whose updates share the job of a start, in the order in which they run."""
        node, how = self.state.nodes[start.node], self.state.together
        if how == NEVER or node.layer != "live" or not self._may_share(start.node):
            return []
        if how != AUTO:
            return [other for other in self._groups.get(node.table, ()) if other != start.node and self._waits(other)]
        offered = self._offered(start.node, start.worker, now)
        if not offered:
            return []
        choice = self.jobs.choose(start.node, offered)
        self._chosen[node.table] = self._why(choice, start.portion)
        if len(choice.members) == 1:
            self.jobs.learned(start.node).forget()
        return list(choice.members[1:])

    def limit(self, nodes: Sequence[int], portion: float) -> UpdateLimit:
        """How much each planned update of a job takes in; ``portion`` is how many seconds of data the policy allows.

        A declared group shares a budget. Others were chosen by what each takes with a budget of its own. All take in
        the same data if they can.
        """
        sharing = 1 if self.state.together == AUTO else len(nodes)
        limits, known = self.state.limits, self.state.nodes
        return smallest(
            [limits.of(known[node], self.state.planned[node], known.period(node), sharing, portion) for node in nodes]
        )

    def _offered(self, index: int, track: int | None, now: float) -> list[int]:
        """The nodes that could share a job with a node now, and may by the policy; on one track, if it is given."""
        if not self._is_known(index):
            return []
        workers = self.state.nodes.matrix.columns["workers"]
        layer = self.state.nodes.matrix.columns["layer"]
        offered = [
            other
            for other in self.jobs.companions(index)
            # Who has a track of its own by the same decision does not wait for this one.
            if self._waits(other) and self._is_known(other) and not workers[other] and layer[other] == layer[index]
            if track is None or self.state.loop.allows(other, track)
        ]
        return self.state.loop.joining(index, offered, now)

    def _waits(self, index: int) -> bool:
        table = self.state.nodes.names[index]
        return index in self.state.planned and self._may_share(index) and not self.state.running.is_busy(table)

    def _may_share(self, index: int) -> bool:
        """Whether nothing speaks against it: it has not failed, and Spark has not died of it.

        Else it is updated alone, so that the next failure or death tells more, and nobody suffers for it.
        """
        table = self.state.nodes.names[index]
        failures = self.state.ledger.of(table).retries.failures
        return not failures and table not in self.state.running.suspects and table not in self._apart

    def _is_known(self, index: int) -> bool:
        """Whether it is known what an update takes alone."""
        return self.state.ledger.of(self.state.nodes.names[index]).cost.observed >= KNOWN_AFTER

    # --- while it runs, and after -----------------------------------------------------------------------------

    def begun(self, updates: Sequence[Update]) -> None:
        """These updates share a job, if there are several."""
        if len(updates) < 2:
            return
        together = tuple(update.table for update in updates)
        waiting = [self._alone(update) for update in updates]
        job = _RunningJob(
            left=set(together),
            chosen=self.state.together == AUTO,
            expected=sum(each.seconds for each in waiting[1:]),
            shareable=sum(min(waiting[0].setup, each.setup) for each in waiting[1:]),
            tells=all(self.state.ledger.of(table).updates for table in together),
        )
        for update in updates:
            update.together = together
            self._running[update.table] = job

    def _alone(self, update: Update) -> WaitingUpdate:
        """What an update that has begun was expected to take alone."""
        cost = self.state.ledger.of(update.name).cost
        return WaitingUpdate(-1, 0.0, cost.predict(update.amount), cost.setup_and_slope[0])

    def ended(self, update: Update) -> None:
        """An update was committed or failed; the last one of a job tells what jobs share."""
        if update.layer != "live":
            return
        if update.committed:
            self._apart.discard(update.table)
        elif update.was_passed_over:
            self._apart.add(update.table)
        job = self._running.pop(update.table, None)
        if job is None:
            return
        job.left.discard(update.table)
        job.took += update.seconds if update.has_joined else 0.0
        job.tells = job.tells and update.committed
        index = self.state.nodes.graph.index[update.together[0]]
        if not job.left and job.chosen and job.tells and job.pace is not None:
            # If the machine is slow now, the first update was, too.
            self.jobs.learned(index).observe(job.expected * job.pace, job.took, job.shareable * job.pace)

    def seconds_alone(self, update: Update) -> float | None:
        """What a committed update would have taken in a job of its own; None if nothing can be learned from it.

        One that joined a job would have taken what was expected, if the first one did, and more if that took longer:
        what it took less tells of the job, and not of the table.
        """
        job = self._running.get(update.table) if update.layer == "live" else None
        if job is None or not job.chosen:
            return update.seconds
        expected = max(self._alone(update).seconds, LEAST_UPDATE_TIME)
        if not update.has_joined:
            job.pace = update.seconds / expected
            return update.seconds
        return None if job.pace is None else expected * job.pace

    # --- reports ----------------------------------------------------------------------------------------------

    def told(self, table: str, portion: float, now: float) -> str:
        """Why a table is or would be updated together with others, or alone; empty if it could not be otherwise.

        ``portion`` is how many seconds of data the policy allows for an update of it.
        """
        index = self.state.nodes.graph.index[table]
        if self.state.together != AUTO or not (companions := self.jobs.companions(index)):
            return ""
        names = ", ".join(self.state.nodes.names[other] for other in companions)
        if not self._may_share(index):
            return f"alone until its next commit, after a failure; then it could share a job with {names}"
        if not self._is_known(index):
            return f"alone until it is known what its updates cost; then it could share a job with {names}"
        offered = self._offered(index, None, now) if index in self.state.planned else []
        if offered:
            return f"if it is chosen now, {self._why(self.jobs.choose(index, offered), portion)}"
        if table in self._chosen:
            return f"could share a job with {names}; when it was last chosen first: {self._chosen[table]}"
        return f"could share a job with {names}, if they wait at the same time"

    def _why(self, choice: JointChoice, portion: float) -> str:
        """Why together or alone, with the numbers of the job as it runs.

        The choice was made by what each update takes in alone. In the job all take in the same, as much as fits into
        the least of their limits.
        """
        own = {node: self.limit([node], portion) for node in choice.members}
        common = self.limit(choice.members, portion)
        job = joint_job([self._planned(node, common) for node in own], choice.share, choice.offered)
        told = replace(job, first=self._planned(choice.members[0], own[choice.members[0]]).benefit).told()
        planned = self.state.planned
        if all(common.part_of(planned[node]) >= limit.part_of(planned[node]) for node, limit in own.items()):
            return told
        least = self.state.nodes.names[min(own, key=lambda node: own[node].seconds)]
        return f"{told}; each takes in at most {readable(common.seconds)} of data, the limit of {least}"

    def _planned(self, index: int, limit: UpdateLimit) -> WaitingUpdate:
        """What a planned update takes away and takes alone, within a limit."""
        update, cost = self.state.planned[index], self.state.ledger.of(self.state.nodes.names[index]).cost
        part, priority = limit.part_of(update), float(self.state.nodes.matrix.columns["priority"][index])
        seconds = max(cost.predict(part * update.amount), LEAST_UPDATE_TIME)
        return WaitingUpdate(index, priority * update.gain_of(part), seconds, cost.setup_and_slope[0])
