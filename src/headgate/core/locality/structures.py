"""The lists of section 5.1: requests per node, deferred tasks per request, immediate tasks per thread.

The records hold the lists and answer "which task would this step take?" without changing anything; only
:class:`LocalityScheduler` changes them. Lists of tasks are ordered dicts keyed by operator: an operator has at most
one waiting task, both ends are O(1), and so is taking a task out of the middle (a steal, a removal).
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush

from headgate.core.locality.instructions import Wake
from headgate.core.locality.tasks import NodeId, Operator, Request, RequestId, Step, ThreadId


class SharedRequest(Request):
    """A request together with its deferred tasks and the nodes that evaluate it."""

    __slots__ = ("_turn", "deferred", "listed", "nodes")

    def __init__(self, request: RequestId, age: int) -> None:
        super().__init__(request, age)
        #: oldest first
        self.deferred: OrderedDict[Task, None] = OrderedDict()
        #: never empty while the request is known; more than one exactly if it is shared
        self.nodes: tuple[NumaNode, ...] = ()
        #: nodes whose `ready` heap holds this request; may include nodes it has left
        self.listed: set[NodeId] = set()
        self._turn = 0

    def next_responsible(self) -> NumaNode:
        """The node that must see to the next deferred task: round robin among the sharing nodes."""
        nodes = self.nodes
        if len(nodes) == 1:
            return nodes[0]
        self._turn += 1
        return nodes[self._turn % len(nodes)]


Task = Operator[SharedRequest]


class Thread:
    """A worker thread as the scheduler sees it: running, searching (awake, no task) or sleeping."""

    __slots__ = ("asleep", "id", "immediate", "last_request", "node", "operator", "wake")

    def __init__(self, thread: ThreadId, node: NumaNode) -> None:
        self.id = thread
        self.node = node
        #: created by this thread, oldest first; empty while it sleeps
        self.immediate: OrderedDict[Task, None] = OrderedDict()
        #: what it runs now; None while searching or sleeping
        self.operator: Task | None = None
        #: request of the last task it took; may since have been moved or removed
        self.last_request: SharedRequest | None = None
        self.asleep = True
        #: the instruction to wake it, built once
        self.wake: tuple[Wake, ...] = (Wake(thread),)

    def newest_own(self) -> Task | None:
        """Step 1."""
        return next(reversed(self.immediate)) if self.immediate else None

    def oldest_of_last_request(self) -> Task | None:
        """Step 2. A request that has left the node is no longer this thread's business."""
        request = self.last_request
        if request is None or not request.deferred or self.node not in request.nodes:
            return None
        return next(iter(request.deferred))

    def choose(self) -> tuple[Step, Task] | None:
        """The first of the steps 1 to 4 that finds a task; None means step 5."""
        if (task := self.newest_own()) is not None:
            return Step.OWN_NEWEST, task
        if (task := self.oldest_of_last_request()) is not None:
            return Step.LAST_REQUEST, task
        if (task := self.node.oldest_of_oldest_request()) is not None:
            return Step.OLDEST_REQUEST, task
        if (task := self.node.oldest_immediate()) is not None:
            return Step.STEAL, task
        return None


class NumaNode:
    """A NUMA node: its threads, the requests it evaluates, and the count that keeps threads from oversleeping."""

    __slots__ = ("id", "immediate", "ready", "requests", "searching", "sleeping", "threads", "waiting")

    def __init__(self, node: NodeId) -> None:
        self.id = node
        self.threads: list[Thread] = []
        self.requests: dict[RequestId, SharedRequest] = {}
        #: immediate tasks of all its threads, oldest first: the head is what a thief takes
        self.immediate: OrderedDict[Task, None] = OrderedDict()
        #: heap of (age, request): every request of the node with deferred tasks, and some without (lazily dropped)
        self.ready: list[tuple[int, SharedRequest]] = []
        #: waiting tasks it is responsible for
        self.waiting = 0
        #: threads awake without a task
        self.searching = 0
        #: sleeping threads, the one that fell asleep last at the end
        self.sleeping: OrderedDict[Thread, None] = OrderedDict()

    def oldest_of_oldest_request(self) -> Task | None:
        """Step 3: the oldest request *that has a task*, so that no task is stranded behind an empty old request."""
        ready = self.ready
        while ready:
            request = ready[0][1]
            if request.deferred and self in request.nodes:
                return next(iter(request.deferred))
            heappop(ready)
            request.listed.discard(self.id)
        return None

    def oldest_immediate(self) -> Task | None:
        """Step 4: asked only by a thread without immediate tasks, so it is always another thread's."""
        return next(iter(self.immediate)) if self.immediate else None

    def list_ready(self, request: SharedRequest) -> None:
        """The request has deferred tasks: step 3 must find it."""
        if self.id not in request.listed:
            request.listed.add(self.id)
            heappush(self.ready, (request.age, request))

    def unlist(self, request: SharedRequest) -> None:
        """Drop a removed request at once: a long-lived older one would keep lazy deletion from ever reaching it."""
        if self.id in request.listed:
            request.listed.discard(self.id)
            self.ready = [entry for entry in self.ready if entry[1] is not request]
            heapify(self.ready)

    @property
    def lacks_runners(self) -> bool:
        """More tasks than running threads although a thread sleeps: one must be woken."""
        return self.waiting > self.searching and bool(self.sleeping)
