"""The two atomic primitives of ordered processing: a counter and a flag.

What the interpreter guarantees: putting an item into a list's place, reading it, reading and storing an attribute, and
``append`` and ``popleft`` of a deque are each one indivisible step: with the interpreter lock because a thread is not
interrupted inside them, in an interpreter without that lock because lists and deques lock themselves. The stream engine
relies on these, and on nothing else that happens to be atomic: not on ``value += 1`` (a load, an addition and a store),
and not on the *order* in which another thread sees steps on different objects.

What it does not give is fetch-and-add and test-and-set. Both are therefore a few bytecodes under a small lock, which
costs as much as a few calls of a function: nothing beside the work on a packet. Nothing is ever waited for while such a
lock is held, so "non-blocking" keeps the meaning that counts: no worker waits until another one has processed or
delivered something. The lock also makes the order: whoever sees what was done under it sees everything that the other
thread did before. (Acquire and release are written out, as a ``with`` of a lock takes twice the time.)

Not for counting in a loop over rows: count there in a local variable and add the sum.
"""

from __future__ import annotations

# By name, so that tests can put a lock in its place that hands the turn to the next thread.
from threading import Lock


class AtomicInt:
    """A counter that any thread may change at any time.

    inv1: the value is the first one plus all that was added; no addition is lost.
    inv2: the old values that ``fetch_add`` returns are those of one serial order of the calls.
    """

    __slots__ = ("_lock", "_value")

    def __init__(self, value: int = 0) -> None:
        #: guards ``_value`` while it is changed; held for one addition
        self._lock = Lock()
        self._value = value

    def fetch_add(self, n: int) -> int:
        """Add ``n``; the value before."""
        lock = self._lock
        lock.acquire()
        try:
            old = self._value
            self._value = old + n
        finally:
            lock.release()
        return old

    @property
    def value(self) -> int:
        """The value at some moment during the call; it may be another one already."""
        return self._value

    def __repr__(self) -> str:
        return f"AtomicInt({self._value})"


class TryFlag:
    """A flag that one thread at a time can have set; the others learn that it is set and go on.

    ``Lock.acquire(blocking=False)`` does nearly this, but when it fails it promises no order: without an interpreter
    lock, what the failing thread wrote before need not be visible to the holder after its ``clear``. It is here: of a
    failed ``test_and_set`` and the ``clear`` after it, the second sees all that came before the first. Whoever looks
    again after ``clear`` therefore misses nothing.

    inv1: between two calls of ``clear``, ``test_and_set`` answers False exactly once, to its first caller.
    """

    __slots__ = ("_lock", "_set")

    def __init__(self) -> None:
        #: guards ``_set``; held for one look and one store
        self._lock = Lock()
        self._set = False

    def test_and_set(self) -> bool:
        """Set the flag. Was it set before? False means that the caller has it now, and must ``clear`` it."""
        lock = self._lock
        lock.acquire()
        try:
            before = self._set
            self._set = True
        finally:
            lock.release()
        return before

    def clear(self) -> None:
        """Only for the thread that has it."""
        lock = self._lock
        lock.acquire()
        try:
            self._set = False
        finally:
            lock.release()

    @property
    def is_set(self) -> bool:
        return self._set

    def __repr__(self) -> str:
        return f"TryFlag({'set' if self._set else 'clear'})"
