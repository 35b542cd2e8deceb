"""Handing the inputs of a partitioned operator to several workers: one worker at a time per bucket, each in order.

Items of different buckets may be worked on at once; items of one bucket are worked on one after the other, in the order
in which they were added. The outputs go through a reordering buffer afterwards, so it matters also that items are
taken *nearly* in the order of arrival: what is taken far too early waits in that buffer and keeps others out.

Three schemes, one interface, after Prasaad, Ramalingam and Rajan, "Scaling Ordered Stream Processing on Shared-Memory
Multicores", section 4:

    HybridQueues        figure 7: nearly in order of arrival, and nobody ever waits. The one to use.
    PartitionedQueues   section 4.2: nobody waits, but workers run ahead on the buckets they have. For comparison.
    SharedQueue         section 4.1: in order of arrival, but one busy bucket holds up everybody. For comparison.

They know neither packets nor operators nor threads, and nothing of what ``operate`` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import repeat

# By name, so that tests can put a lock in its place that hands the turn to the next thread.
from threading import Lock
from typing import Generic, Literal, Protocol, TypeVar, get_args

from headgate.core import InvariantError, ParameterError, UnknownNameError
from headgate.stream.atomic import AtomicInt

T = TypeVar("T")

Scheme = Literal["hybrid", "partitioned", "shared"]


class BucketQueues(Protocol[T]):
    """Items waiting in buckets, taken by workers.

    What ``operate`` raises goes to the caller of ``consume``. The item counts as taken and is not given to anybody
    again; its bucket is free, and all other items, those delegated to the worker included, can be taken.
    """

    def add(self, bucket: int, item: T) -> None:
        """Add an item to a bucket from 0 to ``buckets - 1``. One thread at a time, in serial order."""

    def consume(self, operate: Callable[[int, T], int], limit: int) -> int:
        """Take items and call ``operate(bucket, item)``, which returns how many tuples it has processed.

        Ends when at least ``limit`` tuples are processed or nothing can be taken; the number of tuples processed. Any
        number of threads may be in it; ``operate`` must not call it.
        """

    def can_take(self) -> bool:
        """Whether it looks as if ``consume`` would find something to do.

        While no thread is inside ``consume``, True exactly if something waits. While there are some it may be wrong, so
        look again after each ``consume``.
        """

    def __len__(self) -> int:
        """How many items wait: added, and no worker has begun with them. Items being worked on do not count."""

    def validate(self) -> None:
        """Raise InvariantError if a numbered invariant does not hold. Only while no thread is inside a method."""


def bucket_queues(scheme: Scheme, buckets: int) -> BucketQueues[T]:
    """Empty queues of the scheme with this name."""
    if scheme == "hybrid":
        return HybridQueues(buckets)
    if scheme == "partitioned":
        return PartitionedQueues(buckets)
    if scheme == "shared":
        return SharedQueue(buckets)
    raise UnknownNameError("scheme of bucket queues", scheme, get_args(Scheme))


def _at_least_one(buckets: int) -> int:
    if buckets < 1:
        raise ParameterError(f"a partitioned operator needs at least one bucket; got buckets={buckets}")
    return buckets


class HybridQueues(Generic[T]):
    """A queue for each bucket, and a master queue that says in which order to take from them.

    A worker takes the next bucket number from the master queue. If another worker has this bucket, it *delegates*: it
    counts one more item for that worker and goes on with the next number. A worker leaves a bucket only when nothing
    is delegated to it, even if that takes it beyond its limit: a delegated item has no number in the master queue any
    more, so nobody else would ever come to it.

    Who may call what: ``add`` one thread at a time; everything else any thread, at any time.

    inv1: a bucket's queue has as many items as the master queue has its number, plus its count, less one if a worker
          is at an item of it (the count includes that one).
    inv2: the count of a bucket is 0 exactly if no worker has the bucket.
    inv3: at most one worker has a bucket: the one whose addition found the count at 0, until its subtraction leaves 0.

    Order: strict per bucket; over all buckets nearly that of arrival, as only delegated items are overtaken. Nobody
    waits for anybody. A worker can be kept at a bucket for as long as others delegate to it.

    Failure: if ``operate`` raises, what was delegated to it gets numbers again, at the front of the master queue.

    Cost: two additions to a counter for each item. Prior art: figure 7 and theorem 4.1 of the paper.
    """

    __slots__ = ("_counts", "_master", "_queues")

    def __init__(self, buckets: int) -> None:
        #: bucket numbers, one for each item that no worker has come to
        self._master: deque[int] = deque()
        self._queues: tuple[deque[T], ...] = tuple(deque() for _ in range(_at_least_one(buckets)))
        #: items of each bucket that its worker has begun with or has been delegated
        self._counts = tuple(AtomicInt() for _ in range(buckets))

    def add(self, bucket: int, item: T) -> None:
        # In this order: whoever has taken a number must find an item.
        self._queues[bucket].append(item)
        self._master.append(bucket)

    def consume(self, operate: Callable[[int, T], int], limit: int) -> int:
        next_bucket, queues, counts = self._master.popleft, self._queues, self._counts
        done = 0
        while done < limit:
            try:
                bucket = next_bucket()
            except IndexError:
                break
            count = counts[bucket].fetch_add
            if count(1) > 0:
                continue  # delegated to the worker that has the bucket
            take = queues[bucket].popleft
            try:
                done += operate(bucket, take())
                while count(-1) > 1:
                    done += operate(bucket, take())
            except BaseException:
                self._give_back(bucket)
                raise
        return done

    def _give_back(self, bucket: int) -> None:
        """Leave a bucket without working on what was delegated."""
        delegated = 0
        while self._counts[bucket].fetch_add(-1) > 1:
            delegated += 1
        # Only now: a number put back while the bucket is still held could be delegated here again and again.
        self._master.extendleft(repeat(bucket, delegated))

    def can_take(self) -> bool:
        return bool(self._master)

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def validate(self) -> None:
        for bucket, (queue, count) in enumerate(zip(self._queues, self._counts, strict=True)):
            numbers = self._master.count(bucket)
            if len(queue) != numbers + count.value:
                raise InvariantError(
                    f"inv1: bucket {bucket} has {len(queue)} items; its number is {numbers} times in the master queue, "
                    f"its count is {count.value}"
                )
            if count.value:
                raise InvariantError(f"inv2: bucket {bucket} counts {count.value} items of a worker, and has no worker")


class PartitionedQueues(Generic[T]):
    """A queue for each bucket; a worker takes a bucket nobody has, works on it, and gives it back.

    Use HybridQueues; this is what it is compared with: a worker follows its bucket and not the order of arrival, so it
    produces outputs that have to wait for inputs of buckets without a worker (figure 6).

    Who may call what: ``add`` one thread at a time; everything else any thread, at any time.

    inv1: the number of each bucket is once among the free ones, or one worker has it and it is not among them.
    inv2: a bucket marked as worked on is not among the free ones.

    Order: strict per bucket, none over buckets. Fair: the free buckets stand in a row, workers take from its front and
    give back to its end, so every bucket has its turn before any has its second. A worker leaves a bucket
    when its queue is empty or the limit is reached.

    Failure: if ``operate`` raises, the bucket is given back.

    Cost: two steps for each bucket looked at; if nothing waits, all buckets are looked at.
    Prior art: section 4.2 of the paper, which leaves open how workers choose buckets.
    """

    __slots__ = ("_free", "_queues", "_worked_on")

    def __init__(self, buckets: int) -> None:
        self._queues: tuple[deque[T], ...] = tuple(deque() for _ in range(_at_least_one(buckets)))
        #: the buckets nobody has; to take a number out is to have the bucket
        self._free = deque(range(buckets))
        #: written by the worker that has the bucket, read by ``can_take``
        self._worked_on = [False] * buckets

    def add(self, bucket: int, item: T) -> None:
        self._queues[bucket].append(item)

    def consume(self, operate: Callable[[int, T], int], limit: int) -> int:
        free, queues = self._free, self._queues
        done = in_vain = 0
        while done < limit and in_vain < len(queues):
            try:
                bucket = free.popleft()
            except IndexError:
                break  # every bucket has a worker
            try:
                if queues[bucket]:
                    in_vain = 0
                    self._worked_on[bucket] = True
                    done += _work_off(queues[bucket], bucket, operate, limit - done)
                else:
                    in_vain += 1
            finally:
                self._worked_on[bucket] = False
                free.append(bucket)
        return done

    def can_take(self) -> bool:
        return any(queue and not worked_on for queue, worked_on in zip(self._queues, self._worked_on, strict=True))

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def validate(self) -> None:
        if sorted(self._free) != list(range(len(self._queues))):
            raise InvariantError(f"inv1: of {len(self._queues)} buckets without workers, {list(self._free)} are free")
        if any(self._worked_on):
            raise InvariantError(f"inv2: bucket {self._worked_on.index(True)} is worked on, and has no worker")


def _work_off(queue: deque[T], bucket: int, operate: Callable[[int, T], int], limit: int) -> int:
    done = 0
    while queue and done < limit:
        done += operate(bucket, queue.popleft())
    return done


class SharedQueue(Generic[T]):
    """One queue of all items, and a lock for each bucket.

    Use HybridQueues; this is what it is compared with: a worker that comes to an item of a busy bucket waits for the
    bucket, and all others wait for this worker, even if the items behind belong to free buckets.

    That is the price of order. Taking the item and locking its bucket must be one action: of two workers with items
    of one bucket the second could otherwise lock the bucket first (figure 5).

    Who may call what: ``add`` one thread at a time; everything else any thread, at any time.

    inv1: the lock of a bucket is held exactly while a worker is at an item of the bucket.
    inv2: the head of the queue is taken only by the worker that has the turn, after it has got the bucket's lock.

    Order: that of arrival, strict per bucket and for the beginning of work over all buckets.
    Failure: if ``operate`` raises, the bucket is unlocked.
    Cost: two locks for each item, and all the waiting. Prior art: section 4.1 and figure 5 of the paper.
    """

    __slots__ = ("_busy", "_queue", "_turn")

    def __init__(self, buckets: int) -> None:
        self._queue: deque[tuple[int, T]] = deque()
        #: one for each bucket, held while ``operate`` runs
        self._busy = tuple(Lock() for _ in range(_at_least_one(buckets)))
        #: guards the head of the queue; the longest thing done under it is to wait for another worker's ``operate``
        self._turn = Lock()

    def add(self, bucket: int, item: T) -> None:
        self._queue.append((bucket, item))

    def consume(self, operate: Callable[[int, T], int], limit: int) -> int:
        queue = self._queue
        done = 0
        while done < limit:
            with self._turn:
                if not queue:
                    break
                bucket, item = queue[0]
                busy = self._busy[bucket]
                busy.acquire()
                queue.popleft()
            try:
                done += operate(bucket, item)
            finally:
                busy.release()
        return done

    def can_take(self) -> bool:
        return bool(self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def validate(self) -> None:
        for bucket, busy in enumerate(self._busy):
            if busy.locked():
                raise InvariantError(f"inv1: bucket {bucket} is locked, and has no worker")
        if self._turn.locked():
            raise InvariantError("inv2: a worker has the turn, and there is none")
