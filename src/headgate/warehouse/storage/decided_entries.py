"""The entries of a table's log in a store that has no writes with a condition: something else decides, a database.

It has one content for each table: the newest entry, as a whole, with its version. Who commits puts the next entry
there, on the condition that nobody else has since it looked. That is the commit. Then the entry is written to the
store, with exactly the content that was decided. If a process dies in between, the next one that opens the table, or
commits to it, writes the entry for it. A process that was paused in between, and wakes up later, writes what is there
already. So it does not matter who writes an entry, how often and when: for one version there is one content only.

That an entry was written is noted, so that it does not come back when somebody deletes the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath
from headgate.warehouse.storage.errors import ForeignCommitError, StorageError, TableVanishedError
from headgate.warehouse.storage.fence import GuardedObject
from headgate.warehouse.storage.history import entry_path

#: so long the store is asked to write an entry, in seconds: one that comes much later may find another table there
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class DecidedEntry:
    """The newest entry of a log; ``is_written`` if it is known to be in the store, or to be of a deleted table."""

    version: int
    content: bytes
    is_written: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps({"version": self.version, "written": self.is_written}).encode() + b"\n" + self.content

    def noted(self) -> DecidedEntry:
        """As it is kept when nobody has to write it any more: without its content."""
        return replace(self, content=b"", is_written=True)

    @classmethod
    def from_bytes(cls, content: bytes, where: object) -> DecidedEntry:
        head, _, entry = content.partition(b"\n")
        try:
            fields = json.loads(head)
            return cls(int(fields["version"]), entry, bool(fields["written"]))
        except (ValueError, TypeError, LookupError) as error:
            raise StorageError(f"{where} does not have the newest entry of a table's log: {error}") from None


class DecidedEntries:
    """The log of the table in a place, whose entries are decided by ``newest``. Not thread-safe.

    ``check`` is asked before an entry is written: one that was replaced leaves that to its successor.
    """

    def __init__(self, table: AnyPath, newest: GuardedObject, check: Callable[[], None] = lambda: None) -> None:
        self._table = table
        self._newest = newest
        self._check = check

    def complete(self) -> str | None:
        """Write the newest entry if it is not in the store; the tag of what was decided, None if nothing was."""
        try:
            content, tag = self._newest.read_with_tag()
        except FileNotFoundError:
            return None
        found = DecidedEntry.from_bytes(content, self._newest)
        if found.is_written:
            return tag
        # An object is whole or not there. One that is there may be of somebody who decides elsewhere by now.
        if not entry_path(self._table, found.version).exists() and self._has_place(found):
            self._write(found)
        return self._noted(found, tag)

    def forget(self) -> None:
        """Give up an entry that is not in the store, because the table is about to be deleted."""
        try:
            content, tag = self._newest.read_with_tag()
        except FileNotFoundError:
            return
        found = DecidedEntry.from_bytes(content, self._newest)
        if found.is_written:
            return
        self._check()  # it may be of a successor
        if self._newest.replace(found.noted().to_bytes(), tag) is None:
            raise ForeignCommitError(self._table, found.version + 1)

    def append(self, version: int, content: bytes) -> None:
        """Commit ``content`` as the entry of ``version``; ForeignCommitError if there is one, or is to be another one.

        TableVanishedError if the table was deleted meanwhile: the entry is not in its log, and will not be.
        If this raises something else, it may be committed or not: whoever opens the table next finds out.
        """
        before = self.complete()
        # Also one that was not decided here, by a program that does not know of this.
        if entry_path(self._table, version).exists():
            raise ForeignCommitError(self._table, version)
        # A version that was decided and written before is not there any more: the table was deleted, and begins anew.
        entry = DecidedEntry(version, content)
        self._check()  # the store may have taken its time since the lease was looked at
        if before is None:
            tag = self._newest.create(entry.to_bytes())
        else:
            tag = self._newest.replace(entry.to_bytes(), before)
        if tag is None:
            self.complete()
            raise ForeignCommitError(self._table, version)
        if not self._has_place(entry):
            self._noted(entry, tag)
            raise TableVanishedError(self._table)
        self._write(entry)
        self._noted(entry, tag)

    def _has_place(self, entry: DecidedEntry) -> bool:
        """False if the entry before is not there: the table was deleted, and there is nothing to add this one to."""
        return entry.version == 0 or entry_path(self._table, entry.version - 1).exists()

    def _write(self, entry: DecidedEntry) -> None:
        self._check()
        there = entry_path(self._table, entry.version)
        there = there.with_patience(_PATIENCE) if isinstance(there, ObjectPath) else there
        there.write_bytes(entry.content)

    def _noted(self, entry: DecidedEntry, tag: str) -> str:
        """Note that nobody has to write an entry any more."""
        with suppress(OSError):  # then the next one looks for it in the store
            return self._newest.replace(entry.noted().to_bytes(), tag) or tag
        return tag
