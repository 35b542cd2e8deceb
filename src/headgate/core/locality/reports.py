"""Looking at a locality scheduler without touching it: what a worker would choose and why, and whether all is in order.

The invariants are those in the docstring of ``LocalityScheduler``, under the same numbers. Each check counts from
scratch what the scheduler keeps incrementally.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.core.locality.groups import LocalityTask, LocalityWorker, SharedQuery, WorkerGroup
from headgate.core.locality.tasks import (
    GroupId,
    NodeId,
    NodeState,
    NodeTable,
    SearchStep,
    TaskStart,
    WorkerId,
    broken_invariant,
)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step found."""

    step: SearchStep
    node: NodeId | None
    """The task it would take; None if it finds none (step 5 never does)."""
    decides: bool
    """True for the one step that settles the choice."""
    why: str


@dataclass(frozen=True, slots=True)
class SearchExplanation:
    """What a worker would choose if it were free now, step by step."""

    worker: WorkerId
    group: GroupId
    choice: TaskStart | None
    """What ``next_start`` would return, wakes left out; None means sleep."""
    steps: tuple[StepReport, ...]

    def __str__(self) -> str:
        lines = [f"worker {self.worker} of group {self.group}"]
        for report in self.steps:
            mark = "->" if report.decides else "  "
            lines.append(f"{mark} {report.step.value} {report.step.name.lower()}: {report.why}")
        return "\n".join(lines)


def explain(worker: LocalityWorker) -> SearchExplanation:
    """The five steps as `worker` would take them now."""
    chosen = worker.choose()
    decisive = SearchStep.SLEEP if chosen is None else chosen[0]
    candidates: dict[SearchStep, LocalityTask | None] = {
        SearchStep.OWN_NEWEST: worker.newest_own(),
        SearchStep.LAST_QUERY: worker.oldest_of_last_query(),
        SearchStep.OLDEST_QUERY: worker.group.oldest_of_oldest_query(),
        SearchStep.STEAL: None if worker.immediate else worker.group.oldest_immediate(),
        SearchStep.SLEEP: None,
    }
    reports = tuple(
        StepReport(
            step=step,
            node=None if task is None else task.id,
            decides=step is decisive,
            why=_reason(step, task, worker, decisive),
        )
        for step, task in candidates.items()
    )
    choice = None if chosen is None else chosen[1].chosen_by(chosen[0])
    return SearchExplanation(worker.id, worker.group.id, choice, reports)


def _reason(step: SearchStep, task: LocalityTask | None, worker: LocalityWorker, decisive: SearchStep) -> str:
    if step is SearchStep.SLEEP:
        return step.reason if decisive is step else f"not reached: step {decisive.value} finds a task"
    if task is None:
        return _reason_for_none(step, worker)
    found = f"node {task.id!r} of query {task.query.id!r}: {step.reason}"
    if task.home is not None and task.home != worker.id:
        found = f"{found} (from worker {task.home})"
    return found if step is decisive else f"{found}; but step {decisive.value} comes first"


def _reason_for_none(step: SearchStep, worker: LocalityWorker) -> str:
    group = worker.group
    if step is SearchStep.OWN_NEWEST:
        return "this worker has no immediate task"
    if step is SearchStep.OLDEST_QUERY:
        return f"none of the {len(group.queries)} queries of group {group.id} has a deferred task"
    if step is SearchStep.STEAL:
        if worker.immediate:
            return "not asked: this worker has immediate tasks of its own"
        return f"no other worker of group {group.id} has an immediate task"
    return _why_not_last_query(worker, group)


def _why_not_last_query(worker: LocalityWorker, group: WorkerGroup) -> str:
    query = worker.last_query
    if query is None:
        return "this worker has not evaluated any query yet"
    if not query.groups:
        return f"query {query.id!r}, evaluated last, was removed"
    if group not in query.groups:
        now = ", ".join(str(other.id) for other in query.groups)
        return f"query {query.id!r}, evaluated last, has moved to group {now}"
    return f"query {query.id!r}, evaluated last, has no deferred task"


# --- invariants ----------------------------------------------------------------------------------------------------


def check_invariants(
    groups: Sequence[WorkerGroup], workers: Sequence[LocalityWorker], table: NodeTable[SharedQuery]
) -> None:
    """Raise :class:`InvariantError` for the first invariant that does not hold."""
    _nodes_run_once(workers, table)
    _tasks_wait_once(workers, table)
    _responsibilities_add_up(groups, table)
    _no_wake_up_is_lost(groups)
    _groups_and_queries_agree(groups, table)
    _ready_queries_are_found(table)
    _group_lists_mirror_worker_lists(groups)
    _sleepers_have_nothing(workers)


def _require(number: int, holds: bool, detail: str) -> None:
    if not holds:
        raise broken_invariant(number, detail)


def _nodes_run_once(workers: Sequence[LocalityWorker], table: NodeTable[SharedQuery]) -> None:
    runs = Counter(worker.node for worker in workers if worker.node is not None)
    for task, count in runs.items():
        _require(1, count == 1, f"node {task.id!r} runs on {count} workers")
        _require(1, task.is_running, f"node {task.id!r} runs on a worker while {task.state.value}")
    for task in table.nodes.values():
        _require(1, task.is_running == (task in runs), f"node {task.id!r} is {task.state.value} on no thread")
        pending = task.state is NodeState.RUNNING_AND_SCHEDULED
        _require(1, pending == (task.pending is not None), f"node {task.id!r}: pending does not match its state")


def _tasks_wait_once(workers: Sequence[LocalityWorker], table: NodeTable[SharedQuery]) -> None:
    listed: Counter[LocalityTask] = Counter()
    for worker in workers:
        listed.update(list(worker.immediate))
        for task in worker.immediate:
            _require(2, task.home == worker.id, f"node {task.id!r} waits with worker {worker.id}, not {task.home}")
    for query in table.queries.values():
        listed.update(list(query.deferred))
        for task in query.deferred:
            _require(2, task.home is None, f"node {task.id!r} waits deferred but has home worker {task.home}")
    waiting = {task for task in table.nodes.values() if task.state is NodeState.SCHEDULED}
    for task in waiting | set(listed):
        expected = 1 if task in waiting else 0
        _require(2, listed[task] == expected, f"node {task.id!r} ({task.state.value}) is in {listed[task]} lists")


def _responsibilities_add_up(groups: Sequence[WorkerGroup], table: NodeTable[SharedQuery]) -> None:
    owed = Counter(task.responsible for group in groups for worker in group.workers for task in worker.immediate)
    for query in table.queries.values():
        for task in query.deferred:
            owed[task.responsible] += 1
            known = task.responsible in {group.id for group in query.groups}
            _require(3, known, f"group {task.responsible} owes a task of query {query.id!r} it does not evaluate")
    for group in groups:
        _require(
            3, group.waiting == owed[group.id], f"group {group.id} counts {group.waiting} tasks, owes {owed[group.id]}"
        )
        for task in group.immediate:
            _require(3, task.responsible == group.id, f"immediate node {task.id!r} is not group {group.id}'s duty")


def _no_wake_up_is_lost(groups: Sequence[WorkerGroup]) -> None:
    for group in groups:
        searching = sum(not worker.asleep and worker.node is None for worker in group.workers)
        _require(
            4, group.searching == searching, f"group {group.id} counts {group.searching} searching, has {searching}"
        )
        _require(
            4,
            not group.sleeping or group.waiting <= searching,
            f"group {group.id} lets {len(group.sleeping)} workers sleep while {group.waiting} tasks wait "
            f"and {searching} workers search",
        )


def _groups_and_queries_agree(groups: Sequence[WorkerGroup], table: NodeTable[SharedQuery]) -> None:
    for query in table.queries.values():
        _require(5, len(query.groups) > 0, f"query {query.id!r} is on no group")
        _require(5, len(set(query.groups)) == len(query.groups), f"query {query.id!r} is on a group twice")
    for group in groups:
        evaluated = {query.id for query in table.queries.values() if group in query.groups}
        _require(5, evaluated == set(group.queries), f"group {group.id} lists {set(group.queries)}, has {evaluated}")


def _ready_queries_are_found(table: NodeTable[SharedQuery]) -> None:
    for query in table.queries.values():
        for group in query.groups if query.deferred else ():
            entries = sum(entry is query for _, entry in group.ready)
            _require(6, entries == 1, f"group {group.id} lists query {query.id!r} as ready {entries} times, not once")


def _group_lists_mirror_worker_lists(groups: Sequence[WorkerGroup]) -> None:
    for group in groups:
        for worker in group.workers:
            mirrored = [task for task in group.immediate if task.home == worker.id]
            _require(
                7, mirrored == list(worker.immediate), f"group {group.id} and worker {worker.id} disagree on order"
            )
        owned = sum(len(worker.immediate) for worker in group.workers)
        _require(
            7, owned == len(group.immediate), f"group {group.id} lists {len(group.immediate)} immediate, not {owned}"
        )


def _sleepers_have_nothing(workers: Sequence[LocalityWorker]) -> None:
    for worker in workers:
        listed = worker in worker.group.sleeping
        _require(8, worker.asleep == listed, f"worker {worker.id}: asleep is {worker.asleep}, listed is {listed}")
        idle = worker.node is None and not worker.immediate
        _require(8, idle or not worker.asleep, f"worker {worker.id} sleeps on work")
