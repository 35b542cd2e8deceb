"""Who is told what while a warehouse runs: every update, changes by users, notices, and new declarations.

Whoever is told may be a user's own function, or write to a disk that is full. It is called by the scheduler thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.core import Update, said_by
from headgate.core.trace import NotLoaded, RunNotice
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

#: called after every update, committed or failed
Observer = Callable[[Update], None]
#: called after a change by a user, with the time and what was changed
ChangeObserver = Callable[[float, Mapping[str, object]], None]
#: called with everything that users should know
NoticeObserver = Callable[[RunNotice], None]
#: called when the run continues with another declaration of the warehouse
RedeclaredObserver = Callable[[float, OpenWarehouse], None]
#: called now and then, and at the end, with what has come to streams and is not loaded
WaitingObserver = Callable[[NotLoaded], None]
#: how many notices are kept for whoever asks
NOTICES_KEPT = 20


@dataclass
class Observers:
    """Those who are told; None for nobody. One that fails is reported, and stops neither the others nor the tables."""

    on_update: Observer | None = None
    on_change: ChangeObserver | None = None
    on_notice: NoticeObserver | None = None
    on_redeclared: RedeclaredObserver | None = None
    on_waiting: WaitingObserver | None = None
    #: the latest notices
    notices: deque[RunNotice] = field(default_factory=lambda: deque(maxlen=NOTICES_KEPT))
    #: {what is called: how it failed the last time}: a user is told once of each failure
    _failures: dict[str, str] = field(default_factory=dict)

    def updated(self, update: Update, now: float) -> None:
        """An update was committed or has failed."""
        if self.on_update is not None:
            with self._contained("after every update", now):
                self.on_update(update)

    def changed(self, now: float, what: Mapping[str, object]) -> None:
        """A user, or the scheduler by itself, has changed something."""
        if self.on_change is not None:
            with self._contained("after every change", now):
                self.on_change(now, what)

    def redeclared(self, now: float, warehouse: OpenWarehouse) -> None:
        """The run goes on with a warehouse that was opened again."""
        if self.on_redeclared is not None:
            with self._contained("when tables were opened again", now):
                self.on_redeclared(now, warehouse)

    def waiting(self, waiting: NotLoaded) -> None:
        """So much has come to streams and is not loaded."""
        if self.on_waiting is not None:
            with self._contained("with what waits", waiting.at):
                self.on_waiting(waiting)

    def notice(self, notice: RunNotice) -> None:
        """There is something that users should know."""
        self.notices.append(notice)
        if self.on_notice is not None:
            with self._contained("with every notice", notice.at):
                self.on_notice(notice)

    @contextmanager
    def _contained(self, when: str, now: float) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # it may be a user's: no reason to stop the tables
            failure = f"{type(error).__name__}: {said_by(error)}"
            if self._failures.get(when) != failure:
                self._failures[when] = failure  # before a user is told, which may fail in the same way
                self.notice(RunNotice(now, None, f"what is called {when} has failed: {failure}"))
