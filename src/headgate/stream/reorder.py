"""Putting outputs back into the order of their serial numbers before they go downstream.

Several workers process inputs of one operator at once and finish in any order. Each hands its output to a reordering
buffer, which delivers output t as soon as it has delivered all before it. Any worker's call may do so: often a call
delivers the outputs of others, and often its own output is delivered by the call of another.

Two schemes with one interface, after Prasaad, Ramalingam and Rajan, "Scaling Ordered Stream Processing on Shared-Memory
Multicores", section 3:

    NonBlockingBuffer   figure 4: workers never wait for the one that delivers. The one to use.
    LockedBuffer        figure 2: one lock around everything; workers wait while another one delivers. For comparison.

A buffer knows neither packets nor operators nor threads: it gets numbers, outputs and a function that delivers.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

# By name, so that tests can put a lock in its place that hands the turn to the next thread.
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

from headgate.core import InvariantError, ParameterError
from headgate.stream.atomic import TryFlag

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

#: Enough that workers rarely run so far ahead of the slowest one that they find no room
DEFAULT_SIZE = 1024


class ReorderBuffer(Protocol[T_contra]):
    """Takes outputs in any order and delivers them in the order of their serial numbers."""

    def send(self, serial: int, output: T_contra) -> bool:
        """Hand over an output, and deliver what can be delivered. False: no room yet, try again later.

        Any thread may call it, at any time, once for each serial number until it answers True. It raises what
        ``deliver`` raises, see the classes.
        """

    @property
    def next(self) -> int:
        """The serial number of the next output to be delivered."""

    @property
    def size(self) -> int:
        """How many outputs there is room for: only numbers from ``next`` to ``next + size - 1`` are taken."""

    def waiting(self) -> int:
        """How many outputs have been taken and not been delivered. Looks at every place: for statistics."""

    def validate(self) -> None:
        """Raise InvariantError if a numbered invariant does not hold. Only while no thread is inside ``send``."""


class _Empty(Enum):
    EMPTY = "EMPTY"


_EMPTY: Final = _Empty.EMPTY


class _Ring(Generic[T]):
    """What both schemes have in common: a bounded circular array, and the two things done with it."""

    __slots__ = ("_deliver", "_failed", "_first", "_next", "_size", "_slots")

    def __init__(self, deliver: Callable[[T], None], size: int = DEFAULT_SIZE, first: int = 0) -> None:
        if size < 1:
            raise ParameterError(f"a reordering buffer needs room for at least one output; got size={size}")
        self._deliver = deliver
        self._size = size
        self._first = first
        #: changed only by the thread that delivers, always by one; read by all
        self._next = first
        #: place t mod size: the output with serial number t, or empty. Filled by the thread that sends t, emptied by
        #: the one that delivers it
        self._slots: list[T | _Empty] = [_EMPTY] * size
        #: the serial number whose delivery failed last
        self._failed: int | None = None

    @property
    def next(self) -> int:
        return self._next

    @property
    def size(self) -> int:
        return self._size

    def waiting(self) -> int:
        return sum(output is not _EMPTY for output in self._slots)

    def validate(self) -> None:
        if self._next < self._first:
            raise InvariantError(f"inv1: {self!r} began with serial number {self._first}")
        if len(self._slots) != self._size:
            raise InvariantError(f"inv2: {self!r} has {len(self._slots)} places")
        if self._slots[self._next % self._size] is not _EMPTY and self._failed != self._next:
            raise InvariantError(f"inv3: {self!r} has output {self._next} and nobody delivers it")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(next={self._next}, size={self._size}, waiting={self.waiting()})"

    def _try_add(self, serial: int, output: T) -> bool:
        """Put the output into its place if its place is free for it (the paper's entry condition)."""
        # One look: a value that is no longer the newest is smaller, so at worst an output is refused that has room.
        expected = self._next
        if expected <= serial < expected + self._size:
            self._slots[serial % self._size] = output
            return True
        if serial < expected:
            raise InvariantError(f"output {serial} was sent again: {self!r} has delivered it; each is to be sent once")
        return False

    def _deliver_ready(self) -> int:
        """Deliver all outputs whose turn it is; the place of the first missing one. For one thread at a time."""
        slots, size, deliver = self._slots, self._size, self._deliver
        serial = self._next
        try:
            while (output := slots[place := serial % size]) is not _EMPTY:
                deliver(output)
                # In this order: from the moment that `next` moves, output serial + size may come into the place.
                slots[place] = _EMPTY
                serial += 1
                self._next = serial
        except BaseException:
            self._failed = serial
            raise
        return place


class NonBlockingBuffer(_Ring[T]):
    """Delivers in serial order; a worker that finds another one delivering leaves its output there and goes on.

    Who may call what: ``send`` any thread, each serial number from ``first`` on once until it is taken. ``deliver`` is
    called by one thread at a time, but not always the same; it may itself call ``send``.

    inv1: the outputs delivered are exactly those numbered ``first`` to ``next - 1``, each once, in this order.
    inv2: place i is empty or has the output t with t mod size = i and ``next`` <= t < ``next + size``.
    inv3: while no thread is inside ``send``, the output ``next`` is not there, unless its delivery has failed.
    inv4: while no thread is inside ``send``, the flag is clear.

    Why inv3: before a thread that delivers leaves, it clears the flag and *then* looks once more at the place that it
    saw empty. An output put there before the look is seen by it; a thread that puts it there later finds the flag
    clear, or set by another one that will look. No sender looks at the flag before its output is in its place.

    Order is strict, fairness is not promised: a thread delivers for as long as others bring what comes next. A thread
    whose output is too far ahead gets False until the outputs before it have come.

    Failure: what ``deliver`` raises goes to the caller of ``send``, whoever's output it was. The output counts as not
    delivered and keeps its place; nothing behind it is delivered. The buffer is not locked, and the next ``send``
    of any thread begins with the output that failed. The caller's own output was taken if there was room for it, as
    ever, and must not be sent again then.

    Cost: ``size`` references; a send is a few steps, and the flag once (another thread delivers) or twice (this one).
    Prior art: figure 4 and theorem 3.1 of the paper; its recursion is a loop here.
    """

    __slots__ = ("_delivering",)

    def __init__(self, deliver: Callable[[T], None], size: int = DEFAULT_SIZE, first: int = 0) -> None:
        super().__init__(deliver, size, first)
        #: set by the one thread that may call ``_deliver_ready``
        self._delivering = TryFlag()

    def send(self, serial: int, output: T) -> bool:
        taken = self._try_add(serial, output)
        # Also when it was not taken: room may be missing only because a delivery failed.
        while not self._delivering.test_and_set():
            try:
                place = self._deliver_ready()
            finally:
                self._delivering.clear()
            if self._slots[place] is _EMPTY:
                break
        return taken

    def validate(self) -> None:
        super().validate()
        if self._delivering.is_set:
            raise InvariantError(f"inv4: {self!r} has its flag set and nobody delivers")


class LockedBuffer(_Ring[T]):
    """Delivers in serial order under one lock: workers with outputs wait until the one that delivers has done.

    Use NonBlockingBuffer; this is what it is compared with. Calls, failure and inv1 to inv3 are the same, but
    ``deliver`` must not call ``send``, which would wait for itself.

    inv4: while no thread is inside ``send``, the lock is free.

    The paper's figure 2 lets the buffer grow without bound; it has the bound of the other one here, so that the two
    need the same memory and differ in nothing but the waiting.
    """

    __slots__ = ("_lock",)

    def __init__(self, deliver: Callable[[T], None], size: int = DEFAULT_SIZE, first: int = 0) -> None:
        super().__init__(deliver, size, first)
        #: guards everything; the longest thing done under it is to deliver all outputs there are
        self._lock = Lock()

    def send(self, serial: int, output: T) -> bool:
        with self._lock:
            taken = self._try_add(serial, output)
            self._deliver_ready()
        return taken

    def validate(self) -> None:
        super().validate()
        if self._lock.locked():
            raise InvariantError(f"inv4: {self!r} is locked and nobody delivers")
