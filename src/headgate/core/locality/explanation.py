"""Why a thread would choose what it would choose: the five steps, one line each. Reads; changes no decision."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.locality.structures import NumaNode, Task, Thread
from headgate.core.locality.tasks import Choice, NodeId, OperatorId, Step, ThreadId


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step found."""

    step: Step
    operator: OperatorId | None
    """The task it would take; None if it finds none (step 5 never does)."""
    decides: bool
    """True for the one step that settles the choice."""
    why: str


@dataclass(frozen=True, slots=True)
class ChoiceExplanation:
    """What a thread would choose if it were free now, step by step."""

    thread: ThreadId
    node: NodeId
    choice: Choice | None
    """What ``next_task`` would return, wakes left out; None means sleep."""
    steps: tuple[StepReport, ...]

    def __str__(self) -> str:
        lines = [f"thread {self.thread} on node {self.node}"]
        for report in self.steps:
            mark = "->" if report.decides else "  "
            lines.append(f"{mark} {report.step.value} {report.step.name.lower()}: {report.why}")
        return "\n".join(lines)


def explain(thread: Thread) -> ChoiceExplanation:
    """The five steps as `thread` would take them now."""
    chosen = thread.choose()
    decisive = Step.SLEEP if chosen is None else chosen[0]
    candidates: dict[Step, Task | None] = {
        Step.OWN_NEWEST: thread.newest_own(),
        Step.LAST_REQUEST: thread.oldest_of_last_request(),
        Step.OLDEST_REQUEST: thread.node.oldest_of_oldest_request(),
        Step.STEAL: None if thread.immediate else thread.node.oldest_immediate(),
        Step.SLEEP: None,
    }
    reports = tuple(
        StepReport(
            step=step,
            operator=None if task is None else task.id,
            decides=step is decisive,
            why=_reason(step, task, thread, decisive),
        )
        for step, task in candidates.items()
    )
    choice = None if chosen is None else chosen[1].chosen_by(chosen[0])
    return ChoiceExplanation(thread.id, thread.node.id, choice, reports)


def _reason(step: Step, task: Task | None, thread: Thread, decisive: Step) -> str:
    if step is Step.SLEEP:
        return step.reason if decisive is step else f"not reached: step {decisive.value} finds a task"
    if task is None:
        return _reason_for_none(step, thread)
    found = f"operator {task.id!r} of request {task.request.id!r}: {step.reason}"
    if task.home is not None and task.home != thread.id:
        found = f"{found} (from thread {task.home})"
    return found if step is decisive else f"{found}; but step {decisive.value} comes first"


def _reason_for_none(step: Step, thread: Thread) -> str:
    node = thread.node
    if step is Step.OWN_NEWEST:
        return "this thread has no immediate task"
    if step is Step.OLDEST_REQUEST:
        return f"none of the {len(node.requests)} requests of node {node.id} has a deferred task"
    if step is Step.STEAL:
        if thread.immediate:
            return "not asked: this thread has immediate tasks of its own"
        return f"no other thread of node {node.id} has an immediate task"
    return _why_not_last_request(thread, node)


def _why_not_last_request(thread: Thread, node: NumaNode) -> str:
    request = thread.last_request
    if request is None:
        return "this thread has not evaluated any request yet"
    if not request.nodes:
        return f"request {request.id!r}, evaluated last, was removed"
    if node not in request.nodes:
        now = ", ".join(str(other.id) for other in request.nodes)
        return f"request {request.id!r}, evaluated last, has moved to node {now}"
    return f"request {request.id!r}, evaluated last, has no deferred task"
