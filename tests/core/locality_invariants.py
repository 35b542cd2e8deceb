"""The invariants of the two task schedulers, under the numbers that they have in the docstrings of the classes.

Each check counts from scratch what a scheduler keeps incrementally.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headgate.core.locality import FifoStealScheduler, LocalityScheduler, NodeState
from headgate.core.locality.groups import LocalityTask, LocalityWorker, SharedQuery, WorkerGroup
from headgate.core.locality.tasks import NodeTable, broken_invariant


def validate(scheduler: LocalityScheduler | FifoStealScheduler) -> None:
    """Raise InvariantError for the first invariant that does not hold."""
    if isinstance(scheduler, LocalityScheduler):
        _check_locality(scheduler)
    else:
        _check_fifo(scheduler)


def _check_locality(scheduler: LocalityScheduler) -> None:
    groups, workers, table = scheduler._groups, scheduler._workers, scheduler._table
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


def _check_fifo(scheduler: FifoStealScheduler) -> None:
    running = [worker.node for worker in scheduler._workers if worker.node is not None]
    if len(set(running)) != len(running):
        raise broken_invariant(1, "a node runs on two workers")
    listed = [(task, worker.id) for worker in scheduler._workers for task in worker.tasks]
    for task in scheduler._nodes.values():
        if task.is_running != (task in running):
            raise broken_invariant(1, f"node {task.id!r} is {task.state.value}, against the workers' word")
        lists = [home for other, home in listed if other is task]
        expected = [task.home] if task.state is NodeState.SCHEDULED else []
        if lists != expected:
            raise broken_invariant(2, f"node {task.id!r} is in lists {lists}, expected {expected}")
    if scheduler._semaphore != len(listed):
        raise broken_invariant(3, f"the semaphore is {scheduler._semaphore}, {len(listed)} tasks wait")
    searching = len(scheduler._workers) - len(running) - len(scheduler._sleeping)
    if scheduler._sleeping and scheduler._semaphore > searching:
        raise broken_invariant(4, f"{scheduler._semaphore} tasks wait, {searching} workers search, others sleep")
