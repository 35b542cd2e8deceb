"""Those who hear of everything that happens in a run: its trace, whoever shows it to people, the user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headgate.core import Update
from headgate.core.trace import RunNotice, TraceHeader, TraceTable
from headgate.warehouse.run.observers import Observer
from headgate.warehouse.run.trace import TraceWriter

if TYPE_CHECKING:
    from headgate.warehouse.run.runtime import Runtime


class RunWatcher(Protocol):
    """Somebody who shows a run to people: told of everything that happens, and given the run to ask and to change."""

    def begin(self, header: TraceHeader) -> None:
        """A run begins; called first."""

    def start(self, run: Runtime) -> None:
        """The run goes on and can be asked."""

    def stop(self) -> None:
        """The run ends."""

    def updated(self, update: Update) -> None: ...

    def changed(self, at: float, what: Mapping[str, object]) -> None: ...

    def noticed(self, notice: RunNotice) -> None: ...

    def redeclared(self, tables: Iterable[TraceTable]) -> None: ...


@dataclass(frozen=True, slots=True)
class RunListeners:
    """Tells the trace first, then the watchers, then the others."""

    trace: TraceWriter
    watchers: tuple[RunWatcher, ...]
    observers: tuple[Observer, ...]
    say: Callable[[str], None]

    def begin(self, header: TraceHeader) -> None:
        for watcher in self.watchers:
            watcher.begin(header)

    def updated(self, update: Update) -> None:
        self.trace.note(update)
        for watcher in self.watchers:
            watcher.updated(update)
        for observer in self.observers:
            observer(update)

    def changed(self, at: float, what: Mapping[str, object]) -> None:
        self.trace.change(at, what)
        for watcher in self.watchers:
            watcher.changed(at, what)

    def noticed(self, notice: RunNotice) -> None:
        self.trace.notice(notice)
        for watcher in self.watchers:
            watcher.noticed(notice)
        self.say(f"{notice.details}\n{notice}" if notice.details else str(notice))

    def redeclared(self, at: float, tables: tuple[TraceTable, ...]) -> None:
        self.trace.redeclared(at, tables)
        for watcher in self.watchers:
            watcher.redeclared(tables)
