"""The lease of a warehouse in an object store: one process runs it, and a dead one is replaced after a stated time.

An object store has no locks that end with their process. So the lock object says who runs the warehouse, with a
fencing number, and its owner renews it every few seconds. Both, taking and renewing, are conditional writes: of two
processes that try at once, one succeeds.

Who wants a warehouse that somebody has watches the object. If it changes, its owner lives. If it does not change for
as long as the lease lasts, its owner is dead, or cut off, and is replaced, with the next fencing number. The owner in
turn stops committing when its last renewal was begun as long ago. Each measures lengths of time by its own clock, so
the clocks of two machines need not agree.

Should a commit of the old owner still be on its way then, the log decides: an entry is written only where none is.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from headgate.core import DeclarationError, InvariantError
from headgate.places.object_path import ObjectPath
from headgate.warehouse.run.lock import FILE_NAME, WarehouseInUseError
from headgate.warehouse.storage.fence import LeaseLostError

#: how long a lease lasts without being renewed, in seconds: so long after its death a process is replaced
LEASE_SECONDS = 30.0
#: a lease is renewed when this part of it has passed
_RENEWAL = 1 / 3
#: how often the lease of another process is looked at
_LOOK_SECONDS = 1.0


class LeaseTimer(Protocol):
    """Time, as the lease needs it: replaced in tests."""

    def now(self) -> float:
        """Seconds that only grow."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait so long, or until ``event`` is set; whether it is."""


class _SystemLeaseTimer:
    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


@dataclass(frozen=True, slots=True)
class LeaseNote:
    """The content of the lock object. ``owner`` is random; ``renewed`` counts, so that every renewal changes it.

    A lease that was given back has no owner; its fencing number stays, so that the next one is larger.
    """

    owner: str
    fence: int
    seconds: float = LEASE_SECONDS
    renewed: int = 0
    host: str = ""
    process: int | None = None
    control: str | None = None
    #: the address at which the run can be looked at; leases of earlier versions do not say it
    page: str | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes, where: ObjectPath) -> LeaseNote:
        try:
            fields = json.loads(content)
            return cls(**{name: fields[name] for name in cls.__dataclass_fields__ if name != "page" or name in fields})
        except (ValueError, TypeError, LookupError) as error:
            raise DeclarationError(
                f"{where} is not the lease of a warehouse: {error}. If no process runs the warehouse, delete it"
            ) from None

    @property
    def who(self) -> str:
        return f"process {'unknown' if self.process is None else self.process} on {self.host or 'an unknown machine'}"


class WarehouseLease:
    """Held from ``acquire`` to ``release``, or as a context; renewed by a thread of its own.

    ``on_lost`` is called, once, if it is lost in between: nothing can be committed from then on. ``on_message`` gets a
    line for the user if another process has to be waited for.

    Invariant: ``_note`` and ``_tag`` are what this process wrote last, at a time when the lease was its own.
    ``_guard`` is held while the object is written, so that a renewal and an announcement do not meet.
    """

    def __init__(
        self,
        warehouse: ObjectPath,
        seconds: float = LEASE_SECONDS,
        timer: LeaseTimer | None = None,
        on_message: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._warehouse = warehouse
        # A renewal that takes longer than this has failed: there is time for another one then.
        self._object = (warehouse / FILE_NAME).with_patience(max(1.0, seconds * _RENEWAL / 2))
        self._seconds = seconds
        self._timer = timer or _SystemLeaseTimer()
        self._on_message = on_message
        self.on_lost: Callable[[LeaseLostError], None] = lambda error: None
        self._note = LeaseNote(secrets.token_hex(8), 0, seconds, host=socket.gethostname(), process=os.getpid())
        self._tag: str | None = None
        #: when the last renewal that succeeded was begun
        self._renewed_at = 0.0
        self._lost: LeaseLostError | None = None
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="headgate-lease", daemon=True)

    # ---- the fence that commits go through ---------------------------------------------------------------------

    @property
    def number(self) -> int:
        return self._note.fence

    def check(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._timer.now() - self._renewed_at >= self._seconds:
            raise self._lose(
                f"the lease of {self._warehouse} could not be renewed for {self._seconds:g} s, so another process may "
                "have taken the warehouse over. Nothing is committed any more; start this run again"
            )

    def lost_to(self, number: int, where: str) -> LeaseLostError:
        return self._lose(
            f"another process has taken {self._warehouse} over: {where} was committed with the fencing number "
            f"{number}, this process has {self.number}. It commits nothing any more; stop one of the two"
        )

    # ---- taking it, keeping it, giving it back -----------------------------------------------------------------

    def acquire(self) -> None:
        """Take the lease. If another process has it, wait whether that one renews it: then this raises."""
        try:
            self._take()
            self._check_conditions()
        except OSError as error:
            raise DeclarationError(
                f"the warehouse cannot be in {self._warehouse}: {error.strerror} ({error.filename}). "
                "Its path takes a bucket that is there, which these credentials may write to"
            ) from None
        self._thread.start()

    def _take(self) -> None:
        seen: tuple[str, float] | None = None
        while True:
            begun = self._timer.now()
            try:
                content, tag = self._object.read_with_tag()
            except FileNotFoundError:
                if self._write(replace(self._note, fence=1), None, begun):
                    return
                continue
            there = LeaseNote.from_bytes(content, self._object)
            if there.owner and (seen is None or seen[0] == tag):
                if seen is None:
                    seen = (tag, begun)
                    self._on_message(
                        f"{there.who} has the lease of {self._warehouse}; if it does not renew it within "
                        f"{there.seconds:g} s, it is taken over ..."
                    )
                if begun - seen[1] < there.seconds:
                    self._timer.wait(self._ended, min(_LOOK_SECONDS, there.seconds / 10))
                    continue
            elif there.owner:
                raise WarehouseInUseError(
                    f"the warehouse {self._warehouse} is being run by {there.who}; "
                    "stop that one first, or run this pipeline with another path"
                )
            if self._write(replace(self._note, fence=there.fence + 1), tag, begun):
                return
            seen = None

    def _check_conditions(self) -> None:
        """Refuse a store that ignores the conditions of writes: two processes could both commit there."""
        if self._object.create(self._note.to_bytes()) is not None:
            raise DeclarationError(
                f"the object store of {self._warehouse} does not support conditional writes (If-None-Match), by which "
                "commits are kept apart; it cannot keep tables"
            )

    def _write(self, note: LeaseNote, over: str | None, begun: float) -> bool:
        """Write the object, over the one with the tag ``over`` or where none is; whether it is ours then."""
        content = note.to_bytes()
        tag = self._object.create(content) if over is None else self._object.replace(content, over)
        if tag is None:
            # The answer to a first request may have been lost, so that the client asked twice.
            try:
                there, tag = self._object.read_with_tag()
            except FileNotFoundError:
                return False
            if there != content:
                return False
        self._note, self._tag, self._renewed_at = note, tag, begun
        return True

    def announce(self, control: Path | None) -> None:
        """Say in the object on which socket commands are taken; None if there is none."""
        if self._tag is None:
            raise InvariantError("only the holder of the lease can say where commands are taken: call acquire first")
        with self._guard:
            self._note = replace(self._note, control=None if control is None else str(control))
        self.renew()

    def announce_page(self, address: str | None) -> None:
        """Say in the object at which address the run can be looked at; None if there is none."""
        with self._guard:
            self._note = replace(self._note, page=address)
        self.renew()

    def _renew(self) -> None:
        with self._guard:
            if self._lost is not None or self._tag is None:
                return
            note = replace(self._note, renewed=self._note.renewed + 1)
            if not self._write(note, self._tag, self._timer.now()):
                self._lose(
                    f"another process has taken {self._warehouse} over, or its lease was deleted. This process commits "
                    "nothing any more; stop one of the two"
                )

    def renew(self) -> None:
        """Renew the lease now; a request that fails may succeed the next time."""
        with suppress(OSError):
            self._renew()
        with suppress(LeaseLostError):
            self.check()

    def _keep(self) -> None:
        while not self._timer.wait(self._ended, self._seconds * _RENEWAL):
            if self._lost is not None:
                return
            self.renew()

    def _lose(self, why: str) -> LeaseLostError:
        first = self._lost is None
        error = self._lost = self._lost or LeaseLostError(why)
        if first:
            self.on_lost(error)
        return error

    def release(self) -> None:
        """Give the lease back, so that nobody has to wait; does nothing if it was lost."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._guard:
            if self._tag is None or self._lost is not None:
                return
            with suppress(OSError):  # then it runs out by itself
                self._object.replace(replace(self._note, owner="", control=None, page=None).to_bytes(), self._tag)
            self._tag = None
            self._lost = LeaseLostError(f"the run of {self._warehouse} has ended")

    def __enter__(self) -> WarehouseLease:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lease_of(warehouse: ObjectPath) -> LeaseNote | None:
    """Who has the lease of a warehouse, None if nobody has; for people to read, because it compares two clocks.

    A process that has not renewed it for twice its length, by the clock of the store and by ours, is taken for dead.
    """
    where = warehouse / FILE_NAME
    try:
        note = LeaseNote.from_bytes(where.read_bytes(), where)
        written = where.stat().st_mtime
    except FileNotFoundError:
        return None
    return note if note.owner and time.time() < written + 2 * note.seconds else None
