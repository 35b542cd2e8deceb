"""What a scheduler tells its runtime to do. Frozen facts: the scheduler has already noted each as done."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.locality.tasks import NodeId, RequestId, ThreadId


@dataclass(frozen=True, slots=True)
class Wake:
    """Release the semaphore of this sleeping thread; it must then call ``next_task``."""

    thread: ThreadId


@dataclass(frozen=True, slots=True)
class Place:
    """This new request is evaluated by this node: allocate its memory there."""

    request: RequestId
    node: NodeId


@dataclass(frozen=True, slots=True)
class Move:
    """`source` has handed its part in the request to `target`; packets already made stay where they are."""

    request: RequestId
    source: NodeId
    target: NodeId


@dataclass(frozen=True, slots=True)
class Share:
    """`target` now evaluates the request too, beside `source` and any node that shares it already."""

    request: RequestId
    source: NodeId
    target: NodeId


Instruction = Wake | Place | Move | Share
