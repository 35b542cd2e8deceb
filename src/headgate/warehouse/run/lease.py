"""The lease of a warehouse that several machines reach: one runs it, and a dead one is replaced after a stated time.

An object store has no locks that end with their process, and a folder that machines share need not have any that count
for all of them. So the lock object says who runs the warehouse, with a fencing number. Its owner renews it every few
seconds. Both, taking and renewing, are conditional writes: of two processes that try at once, one succeeds.

Who wants a warehouse that somebody has watches the object. If it changes, its owner lives. If it does not change for
as long as the lease lasts, its owner is dead, or cut off, and is replaced, with the next fencing number. The owner in
turn stops committing when its last renewal was begun as long ago. Each measures lengths of time by its own clock, so
the clocks of two machines need not agree. The time in which a machine sleeps counts. If only its wall clock has noticed
that time has passed, the lease is renewed before the next commit.

Should a commit of the old owner still be on its way then, the log decides: an entry is written only where none is.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from headgate.core import DeclarationError, InvariantError
from headgate.places.hdfs_path import HdfsPath
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath
from headgate.warehouse.run.lease_database import LeaseDatabase
from headgate.warehouse.run.lease_folder import FOLDER_NAME, LeaseFolder
from headgate.warehouse.run.lock import FILE_NAME, WarehouseInUseError, WarehouseLock
from headgate.warehouse.storage.fence import GuardedObject, LeaseLostError
from headgate.warehouse.storage.history import newest_fence

#: how long a lease lasts without being renewed, in seconds: so long after its death a process is replaced
LEASE_SECONDS = 30.0
#: a lease is renewed when this part of it has passed
_RENEWAL = 1 / 3
#: how often the lease of another process is looked at
_LOOK_SECONDS = 1.0
#: so many writes of its own, whose answers were lost, a process finds before it waits for the next renewal
_OWN_WRITES = 3
#: if the wall clock has gone on by so much more than the other one, the process may have been stopped unnoticed
_GAP_SECONDS = 5.0
#: what leases of earlier versions do not say
_LATER = ("page", "lock")
_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class LeaseTimer(Protocol):
    """Time, as the lease needs it: replaced in tests."""

    def now(self) -> float:
        """Seconds that only grow, and also while the machine sleeps, where it can tell."""

    def wall(self) -> float:
        """Seconds of the wall clock, which may be set."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait so long, or until ``event`` is set; whether it is."""


class SystemLeaseTimer:
    """The clocks of this machine."""

    def now(self) -> float:
        # Linux's monotonic clock stands still while the machine is suspended.
        return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)

    def wall(self) -> float:
        return time.time()

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
    #: the database that decides, by its id and its address; None if the store does
    lock: tuple[str, str] | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes, where: object) -> LeaseNote:
        try:
            fields = json.loads(content)
            lock = fields.get("lock")
            told = {name: fields[name] for name in cls.__dataclass_fields__ if name in fields or name not in _LATER}
            return cls(**{**told, "lock": None if lock is None else (str(lock[0]), str(lock[1]))})
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
    line for the user if another process has to be waited for. ``lock`` is the database that decides for a store without
    conditional writes.

    Invariant: ``_note`` and ``_tag`` are what this process wrote last, at a time when the lease was its own.
    ``_guard`` is held while the object is written, so that two renewals do not meet.

    A file server or a database may not answer at all. So the object is written by threads of their own, for which
    others wait, as for ``_guard``, no longer than ``_patience``.
    """

    def __init__(
        self,
        warehouse: AnyPath,
        seconds: float = LEASE_SECONDS,
        timer: LeaseTimer | None = None,
        on_message: Callable[[str], None] = lambda line: None,
        lock: str = "",
    ) -> None:
        self._warehouse = warehouse
        #: a renewal that takes longer than this has failed: there is time for another one then
        self._patience = max(1.0, seconds * _RENEWAL / 2)
        self._object: GuardedObject = _object_of(warehouse, self._patience)
        self._database: LeaseDatabase | None = None
        if lock:
            assert isinstance(self._object, ObjectPath), "folders have a lease of their own"
            self._database = LeaseDatabase(lock, self._object)
            self._object = self._database.lease
        self._seconds = seconds
        self._timer = timer or SystemLeaseTimer()
        self._on_message = on_message
        self.on_lost: Callable[[LeaseLostError], None] = lambda error: None
        self._note = LeaseNote(secrets.token_hex(8), 0, seconds, host=socket.gethostname(), process=os.getpid())
        self._tag: str | None = None
        #: what the next renewal says
        self._control: str | None = None
        self._page: str | None = None
        #: when the last renewal that succeeded was begun
        self._renewed_at = 0.0
        self._renewed_wall = 0.0
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
        if self._timer.wall() - self._renewed_wall - (self._timer.now() - self._renewed_at) > _GAP_SECONDS:
            # As after the pause of a virtual machine, of which its own clock knows nothing; or the clock was set.
            self._within(self._renew)
            if self._lost is not None:
                raise self._lost

    def lost_to(self, number: int, where: str) -> LeaseLostError:
        return self._lose(
            f"another process has taken {self._warehouse} over: {where} was committed with the fencing number "
            f"{number}, this process has {self.number}. It commits nothing any more; stop one of the two. If there is "
            f"no other, the table comes from another warehouse: delete {self._object}, and start this run again"
        )

    def decider(self, table: AnyPath) -> GuardedObject | None:
        return None if self._database is None else self._database.decider(table)

    # ---- taking it, keeping it, giving it back -----------------------------------------------------------------

    def acquire(self) -> None:
        """Take the lease. If another process has it, wait whether that one renews it: then this raises."""
        try:
            if isinstance(self._warehouse, Path):
                self._warehouse.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._database is not None:
                self._check_database(self._database)
            self._take()
            self._check_taken()
        except OSError as error:
            needed = "a bucket that is there, which these credentials may write to"
            if self._database is not None:
                needed += ", and with lock= a database in which this user may make a table"
            if isinstance(self._warehouse, Path):
                needed = "a folder in which this user may create files and hard links"
            elif isinstance(self._warehouse, HdfsPath):
                needed = "a folder of a name node that answers, in which this user may create files"
            raise DeclarationError(
                f"the warehouse cannot be in {self._warehouse}: {error.strerror} ({error.filename}). "
                f"Its path takes {needed}"
            ) from None
        self._thread.start()

    def _check_taken(self) -> None:
        """Refuse a place where the lease does not keep others out; it is given back then."""
        try:
            self._check_lock()
            self._check_conditions()
            if self._database is not None:
                self._database.show(self._note.to_bytes(), must=True)
        except BaseException:
            self.release()
            raise

    def _take(self) -> None:
        seen: tuple[str, float] | None = None
        while True:
            begun = self._timer.now()
            try:
                content, tag = self._object.read_with_tag()
            except FileNotFoundError:
                note = replace(self._note, fence=self._largest_fence() + 1)
                # The logs of many tables take long to read; nobody has the lease meanwhile.
                if self._write(note, None, self._timer.now()):
                    return
                continue
            there = LeaseNote.from_bytes(content, self._object)
            if there.lock is not None and self._database is None:
                raise DeclarationError(
                    f"commits to {self._warehouse} are decided by a database, {there.lock[1]}: give it as "
                    f"Warehouse(lock=...). If that is over, delete {self._object} while nobody runs the warehouse"
                )
            if there.owner and (seen is None or seen[0] == tag):
                if seen is None:
                    # Not ``begun``: the look may have taken long, and the owner may have renewed the lease meanwhile.
                    seen = (tag, self._timer.now())
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

    def _largest_fence(self) -> int:
        """The largest fencing number in the logs: there are some if the lock object was deleted, or not copied."""
        with ThreadPoolExecutor(8, "headgate-lease") as requests:
            tables = self._warehouse / "tables"
            return max(requests.map(newest_fence, tables.iterdir() if tables.is_dir() else ()), default=0)

    def _check_lock(self) -> None:
        """Refuse a folder that a process runs without knowing of the lease: it began before the folder was shared."""
        if isinstance(self._warehouse, Path):
            with WarehouseLock(self._warehouse):
                pass  # who takes the lock after this sees that there is a lease

    def _check_database(self, database: LeaseDatabase) -> None:
        """Refuse a warehouse that another database decides, or that somebody runs without any."""
        mine = database.name()
        self._note = replace(self._note, lock=mine)
        try:
            there = LeaseNote.from_bytes(database.shown.read_bytes(), database.shown)
        except FileNotFoundError:
            return
        if there.lock is not None and there.lock[0] != mine[0]:
            raise DeclarationError(
                f"commits to {self._warehouse} are decided by another database, {there.lock[1]}; got lock={mine[1]!r}. "
                f"If it has moved, delete {database.shown} while nobody runs the warehouse"
            )
        if there.lock is None and lease_of(self._warehouse) is not None:
            raise WarehouseInUseError(
                f"the warehouse {self._warehouse} is being run by {there.who}, without lock=; stop that one first"
            )

    def _check_conditions(self) -> None:
        """Refuse a store that ignores the conditions of writes: two processes could both commit there."""
        if not isinstance(self._object, ObjectPath):
            return
        content, ignored = self._note.to_bytes(), ""
        if self._object.create(content) is not None:
            ignored = "If-None-Match"
        elif self._object.replace(content, self._object.foreign_tag) is not None:
            ignored = "If-Match"
        if ignored:
            raise DeclarationError(
                f"the object store of {self._warehouse} does not support conditional writes ({ignored}), by which "
                "commits are kept apart; it can keep tables only together with a database that decides: "
                "Warehouse(lock='postgresql://user@host/database')"
            )

    def _write(self, note: LeaseNote, over: str | None, begun: float) -> bool:
        """Write the object, over the one with the tag ``over`` or where none is; whether it is ours then."""
        content, wall = note.to_bytes(), self._timer.wall()
        for _ in range(_OWN_WRITES):
            tag = self._object.create(content) if over is None else self._object.replace(content, over)
            if tag is None:
                # The answer to an earlier request may have been lost: to the same one, which the client then repeated,
                # or to one with another content. Then that one is written over.
                try:
                    there, over = self._object.read_with_tag()
                except FileNotFoundError:
                    return False
                if there != content:
                    found = LeaseNote.from_bytes(there, self._object)
                    if (found.owner, found.fence) != (note.owner, note.fence):
                        return False
                    continue
                tag = over
            self._note, self._tag, self._renewed_at, self._renewed_wall = note, tag, begun, wall
            if self._database is not None:
                self._database.show(content)
            return True
        raise OSError(errno.EAGAIN, "the lease could not be written over what this process wrote", str(self._object))

    def announce(self, control: Path | None) -> None:
        """Say in the object on which socket commands are taken; None if there is none."""
        if self._tag is None:
            raise InvariantError("only the holder of the lease can say where commands are taken: call acquire first")
        self._control = None if control is None else str(control)
        self.renew()

    def announce_page(self, address: str | None) -> None:
        """Say in the object at which address the run can be looked at; None if there is none."""
        self._page = address
        self.renew()

    def _renew(self) -> None:
        with self._guarded():
            if self._lost is not None or self._tag is None:
                return
            note = replace(self._note, renewed=self._note.renewed + 1, control=self._control, page=self._page)
            if not self._write(note, self._tag, self._timer.now()):
                self._lose(
                    f"another process has taken {self._warehouse} over, or its lease was deleted. This process commits "
                    "nothing any more; stop one of the two"
                )

    def renew(self) -> None:
        """Renew the lease now; a request that fails may succeed the next time, one that does not end is not awaited."""
        with suppress(OSError):
            self._within(self._renew)
        with suppress(LeaseLostError, OSError):
            self.check()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """``_guard``; OSError if whoever has it gets no answer."""
        if not self._guard.acquire(timeout=self._patience):
            raise self._unanswered()
        try:
            yield
        finally:
            self._guard.release()

    def _within(self, work: Callable[[], None]) -> None:
        """Do ``work``, and raise what it raises; OSError if it takes too long. It goes on by itself then."""
        outcome: Future[None] = Future()

        def do() -> None:
            try:
                work()
            except BaseException as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(None)

        threading.Thread(target=do, name="headgate-lease-request", daemon=True).start()
        try:
            outcome.result(self._patience)
        except TimeoutError:
            if outcome.done():
                raise
            raise self._unanswered() from None

    def _unanswered(self) -> OSError:
        return OSError(errno.ETIMEDOUT, f"no answer within {self._patience:g} s", str(self._object))

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
            self._thread.join(self._seconds)
            if self._thread.is_alive():  # a renewal does not end; the lease runs out by itself
                return
        with suppress(OSError):  # as then
            self._within(self._end)

    def _end(self) -> None:
        with self._guarded():
            try:
                self._give_back()
            finally:
                if self._database is not None:
                    self._database.close()

    def _give_back(self) -> None:
        if self._tag is None or self._lost is not None:
            return
        with suppress(OSError):  # then it runs out by itself
            content = replace(self._note, owner="", control=None, page=None).to_bytes()
            was_ours = self._object.replace(content, self._tag) is not None
            if was_ours and self._database is not None:
                self._database.show(content)
        self._tag = None
        self._lost = LeaseLostError(f"the run of {self._warehouse} has ended")

    def __enter__(self) -> WarehouseLease:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _object_of(warehouse: AnyPath, patience: float | None = None) -> ObjectPath | LeaseFolder:
    if isinstance(warehouse, ObjectPath) and patience is not None:
        warehouse = warehouse.with_patience(patience)
    if isinstance(warehouse, Path | HdfsPath):
        return LeaseFolder(warehouse / FOLDER_NAME)
    return warehouse / FILE_NAME


def has_lease(warehouse: Path) -> bool:
    """Whether a folder was ever run as one that machines share: then whoever runs it takes the lease."""
    return (warehouse / FOLDER_NAME).is_dir()


def lease_of(warehouse: AnyPath) -> LeaseNote | None:
    """Who has the lease of a warehouse, None if nobody has; for people to read, because it compares two clocks.

    A process that has not renewed it for twice its length, by the clock of the store and by ours, is taken for dead.
    """
    where = _object_of(warehouse)
    try:
        note = LeaseNote.from_bytes(where.read_with_tag()[0], where)
        written = where.written_at() if isinstance(where, LeaseFolder) else where.stat().st_mtime
    except FileNotFoundError:
        return None
    return note if note.owner and time.time() < written + 2 * note.seconds else None
