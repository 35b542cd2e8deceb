"""Looking at a locality scheduler without touching it: what a worker would choose, and why."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.locality.groups import LocalityTask, LocalityWorker, WorkerGroup
from headgate.core.locality.tasks import GroupId, NodeId, SearchStep, TaskStart, WorkerId


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
