"""The invariants in the docstring of :class:`LocalityScheduler`, as code, under the same numbers.

Each check counts from scratch what the scheduler keeps incrementally. Reads, never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headgate.core.locality.errors import broken_invariant
from headgate.core.locality.structures import NumaNode, SharedRequest, Task, Thread
from headgate.core.locality.table import OperatorTable
from headgate.core.locality.tasks import OperatorState


def check_invariants(nodes: Sequence[NumaNode], threads: Sequence[Thread], table: OperatorTable[SharedRequest]) -> None:
    """Raise :class:`InvariantError` for the first invariant that does not hold."""
    _operators_run_once(threads, table)
    _tasks_wait_once(threads, table)
    _responsibilities_add_up(nodes, table)
    _no_wake_up_is_lost(nodes)
    _nodes_and_requests_agree(nodes, table)
    _ready_requests_are_found(table)
    _node_lists_mirror_thread_lists(nodes)
    _sleepers_have_nothing(threads)


def _require(number: int, holds: bool, detail: str) -> None:
    if not holds:
        raise broken_invariant(number, detail)


def _operators_run_once(threads: Sequence[Thread], table: OperatorTable[SharedRequest]) -> None:
    runs = Counter(thread.operator for thread in threads if thread.operator is not None)
    for task, count in runs.items():
        _require(1, count == 1, f"operator {task.id!r} runs on {count} threads")
        _require(1, task.is_running, f"operator {task.id!r} runs on a thread while {task.state.value}")
    for task in table.operators.values():
        _require(1, task.is_running == (task in runs), f"operator {task.id!r} is {task.state.value} on no thread")
        pending = task.state is OperatorState.RUNNING_AND_SCHEDULED
        _require(1, pending == (task.pending is not None), f"operator {task.id!r}: pending does not match its state")


def _tasks_wait_once(threads: Sequence[Thread], table: OperatorTable[SharedRequest]) -> None:
    listed: Counter[Task] = Counter()
    for thread in threads:
        listed.update(list(thread.immediate))
        for task in thread.immediate:
            _require(2, task.home == thread.id, f"operator {task.id!r} waits with thread {thread.id}, not {task.home}")
    for request in table.requests.values():
        listed.update(list(request.deferred))
        for task in request.deferred:
            _require(2, task.home is None, f"operator {task.id!r} waits deferred but has home thread {task.home}")
    waiting = {task for task in table.operators.values() if task.state is OperatorState.SCHEDULED}
    for task in waiting | set(listed):
        expected = 1 if task in waiting else 0
        _require(2, listed[task] == expected, f"operator {task.id!r} ({task.state.value}) is in {listed[task]} lists")


def _responsibilities_add_up(nodes: Sequence[NumaNode], table: OperatorTable[SharedRequest]) -> None:
    owed = Counter(task.responsible for node in nodes for thread in node.threads for task in thread.immediate)
    for request in table.requests.values():
        for task in request.deferred:
            owed[task.responsible] += 1
            known = task.responsible in {node.id for node in request.nodes}
            _require(3, known, f"node {task.responsible} owes a task of request {request.id!r} it does not evaluate")
    for node in nodes:
        _require(3, node.waiting == owed[node.id], f"node {node.id} counts {node.waiting} tasks, owes {owed[node.id]}")
        for task in node.immediate:
            _require(3, task.responsible == node.id, f"immediate operator {task.id!r} is not node {node.id}'s duty")


def _no_wake_up_is_lost(nodes: Sequence[NumaNode]) -> None:
    for node in nodes:
        searching = sum(not thread.asleep and thread.operator is None for thread in node.threads)
        _require(4, node.searching == searching, f"node {node.id} counts {node.searching} searching, has {searching}")
        _require(
            4,
            not node.sleeping or node.waiting <= searching,
            f"node {node.id} lets {len(node.sleeping)} threads sleep while {node.waiting} tasks wait "
            f"and {searching} threads search",
        )


def _nodes_and_requests_agree(nodes: Sequence[NumaNode], table: OperatorTable[SharedRequest]) -> None:
    for request in table.requests.values():
        _require(5, len(request.nodes) > 0, f"request {request.id!r} is on no node")
        _require(5, len(set(request.nodes)) == len(request.nodes), f"request {request.id!r} is on a node twice")
    for node in nodes:
        evaluated = {request.id for request in table.requests.values() if node in request.nodes}
        _require(5, evaluated == set(node.requests), f"node {node.id} lists {set(node.requests)}, has {evaluated}")


def _ready_requests_are_found(table: OperatorTable[SharedRequest]) -> None:
    for request in table.requests.values():
        for node in request.nodes if request.deferred else ():
            entries = sum(entry is request for _, entry in node.ready)
            _require(6, entries == 1, f"node {node.id} lists request {request.id!r} as ready {entries} times, not once")


def _node_lists_mirror_thread_lists(nodes: Sequence[NumaNode]) -> None:
    for node in nodes:
        for thread in node.threads:
            mirrored = [task for task in node.immediate if task.home == thread.id]
            _require(7, mirrored == list(thread.immediate), f"node {node.id} and thread {thread.id} disagree on order")
        owned = sum(len(thread.immediate) for thread in node.threads)
        _require(7, owned == len(node.immediate), f"node {node.id} lists {len(node.immediate)} immediate, not {owned}")


def _sleepers_have_nothing(threads: Sequence[Thread]) -> None:
    for thread in threads:
        listed = thread in thread.node.sleeping
        _require(8, thread.asleep == listed, f"thread {thread.id}: asleep is {thread.asleep}, listed is {listed}")
        idle = thread.operator is None and not thread.immediate
        _require(8, idle or not thread.asleep, f"thread {thread.id} sleeps on work")
