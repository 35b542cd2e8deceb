"""The lease of a warehouse in a database, which decides for a store that has no writes with a condition.

The store has a copy of the lease, for those who only look, and for those who do not know of the database: they must not
run the warehouse. Nothing is decided by the copy.
"""

from __future__ import annotations

from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath
from headgate.warehouse.run.lock_table import LockTable
from headgate.warehouse.storage.fence import GuardedObject
from headgate.warehouse.storage.history import LOG_DIRECTORY


class LeaseDatabase:
    """The database at ``uri``; ``shown`` is the object with the copy."""

    def __init__(self, uri: str, shown: ObjectPath) -> None:
        # Renewals have a connection of their own, so that they do not wait for commits.
        self._leases, self._entries = LockTable(uri), LockTable(uri)
        self.shown = shown
        self.lease: GuardedObject = self._leases.row(str(shown))

    def name(self) -> tuple[str, str]:
        """Its id, which does not depend on how it is reached, and its address, without secrets."""
        return self._leases.id(), str(self._leases)

    def decider(self, table: AnyPath) -> GuardedObject:
        """What decides between two that commit to ``table``."""
        return self._entries.row(f"{table}/{LOG_DIRECTORY}")

    def show(self, content: bytes, must: bool = False) -> None:
        """Copy the lease to the store; an error passes only if it ``must``."""
        try:
            self.shown.write_bytes(content)
        except OSError:
            if must:
                raise

    def close(self) -> None:
        self._leases.close()
        self._entries.close()
