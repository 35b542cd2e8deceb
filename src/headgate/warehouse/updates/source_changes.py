"""What has changed in one source of a table since the table consumed it, version by version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.warehouse.storage.errors import HistoryLostError
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.history import LogEntry
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.spans import Span, join


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """One version of a source: its freshness, and the files with the rows that it added and removed.

    ``version_id`` tells it from another one of the same number.
    """

    version: int
    version_id: str
    freshness: int | None
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        return (*self.added, *self.removed)


class SourceChanges:
    """The versions of a source that a table has not consumed yet.

    ``begin`` takes the first of them for an update; they are consumed if it is committed, pending again if it fails.
    If the source's log does not tell what has changed, ``lost`` says why: only a rebuild gets the table right again.
    Then the newest version of the source stands for all.

    ``consumed`` is the version that the table has consumed, ``version_id`` its id; empty if that is not known.
    """

    def __init__(self, name: str, store: TableStore, consumed: int, version_id: str) -> None:
        self.name = name
        self._store = store
        self._pending: list[SourceVersion] = []
        self._taken: list[SourceVersion] = []
        self._seen = consumed
        #: the id of the newest version that was read
        self.version_id = version_id
        self._spans: tuple[Span, ...] = ()
        self.lost = ""

    @property
    def version(self) -> int:
        """The newest version that was read."""
        return self._seen

    @property
    def is_current(self) -> bool:
        """Whether there is no newer version than the newest that was read."""
        if not self._store.exists:
            return True
        return self._store.version == self._seen and self._store.version_id == self.version_id

    @property
    def pending(self) -> tuple[SourceVersion, ...]:
        """The versions that no update has taken, oldest first; those that changed no rows, too."""
        return tuple(self._pending)

    @property
    def changed(self) -> bool:
        """Whether rows have changed in a pending version."""
        return any(each.added or each.removed for each in self._pending)

    @property
    def rows(self) -> int:
        """How many rows the pending versions added and removed."""
        return sum(file.rows for version in self._pending for file in version.files)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The event times of the pending changes."""
        return self._spans

    @property
    def freshness(self) -> int | None:
        """The source's freshness at the newest version that was read."""
        if self._pending:
            return self._pending[-1].freshness
        if self._taken:
            return self._taken[-1].freshness
        return CommitState.from_json(self._store.state, self.name).freshness

    def read(self) -> tuple[SourceVersion, ...]:
        """Read new versions from the source's log; returns them."""
        if self.is_current:
            return ()
        try:
            entries = self._store.versions(self._seen, self.version_id)
        except HistoryLostError as error:
            self.lost = error.reason
            entries = (self._store.whole(),)
            # What was read before may have been of another table.
            self._pending, self._taken, self._spans = [], [], ()
        new = tuple(map(self._version, entries))
        if new:
            self._seen, self.version_id = new[-1].version, new[-1].version_id
        else:  # it was not known
            self.version_id = self._store.version_id
        self._pending.extend(new)
        self._spans = join([*self._spans, *_spans(new)])
        return new

    def _version(self, entry: LogEntry) -> SourceVersion:
        state = {} if entry.state is None else entry.state
        freshness = CommitState.from_json(state, self.name).freshness
        version_id = f"{self._store.table_id}/{entry.token}"
        return SourceVersion(entry.version, version_id, freshness, entry.added, entry.removed)

    def begin(self, until: int) -> tuple[SourceVersion, ...]:
        """Take the pending versions up to ``until`` for an update."""
        self._taken = [each for each in self._pending if each.version <= until]
        self._pending = [each for each in self._pending if each.version > until]
        self._spans = join(_spans(self._pending))
        return tuple(self._taken)

    def end(self, committed: bool) -> None:
        """The update was committed, or it failed and what it took is pending again."""
        if not committed:
            self._pending = [*self._taken, *self._pending]
            self._spans = join(_spans(self._pending))
        self._taken = []


def _spans(versions: Iterable[SourceVersion]) -> Iterable[Span]:
    for version in versions:
        for file in version.files:
            if file.first is not None and file.last is not None:
                yield (file.first, file.last)
