"""The update that a query on Spark is part of: which states it goes on from, and what its tasks have told.

Whoever runs updates, the warehouse, opens an ``Update`` around the user's function and the job, and puts what comes of
it into the commit. Outside of any, queries start without states and leave none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.core.errors import DeclarationError
from headgate.stream.spark.hosting import Done

if TYPE_CHECKING:
    from pyspark import Accumulator


@dataclass(frozen=True)
class StoredStates:
    """The states of one query as a commit names them: how it was written then, and the file of each bucket."""

    fingerprint: Mapping[str, str]
    buckets: int
    files: Mapping[int, str]

    def to_json(self) -> dict[str, Any]:
        files = {str(bucket): name for bucket, name in sorted(self.files.items())}
        return {"fingerprint": dict(self.fingerprint), "buckets": self.buckets, "files": files}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> StoredStates:
        files = {int(bucket): str(name) for bucket, name in stored["files"].items()}
        return cls(dict(stored["fingerprint"]), int(stored["buckets"]), files)


@dataclass
class HostedQuery:
    """A query that the update's function has put on Spark, and how its tasks tell what they did."""

    fingerprint: Mapping[str, str]
    buckets: int
    told: Accumulator[list[Done]]

    def done(self) -> list[Done]:
        """What tasks have told, once for each bucket: of several attempts the last one's word counts."""
        by_bucket = {each.bucket: each for each in self.told.value}
        return [by_bucket[bucket] for bucket in sorted(by_bucket)]


@dataclass
class Update:
    """An update under way. ``folder`` is where states are written and found, by names relative to it.

    ``refusal`` says why there can be no states, if so. ``hosts`` tells whether the function has put any query on Spark.
    """

    number: int
    folder: Path
    stored: Mapping[str, StoredStates] = field(default_factory=dict)
    queries: dict[str, HostedQuery] = field(default_factory=dict)
    refusal: str = ""
    hosts: bool = False

    @classmethod
    def without_states(cls, table: str) -> Update:
        """An update that computes a stretch of time again: there is no state to begin it with."""
        refusal = (
            f"table {table!r} is computed stretch by stretch, but its query has states that go on from row to row: "
            'declare it with mode="append"'
        )
        return cls(0, Path(), refusal=refusal)

    def add(self, name: str, query: HostedQuery) -> None:
        if name in self.queries:
            raise DeclarationError(
                f"two queries of one table are called {name!r}: give each on_spark call a name of its own"
            )
        self.queries[name] = query

    def must_keep_states(self) -> None:
        if self.refusal:
            raise DeclarationError(self.refusal)

    def states(self) -> dict[str, StoredStates]:
        """What the commit has to name: buckets that had no rows keep the file that they had."""
        made = {}
        for name, query in self.queries.items():
            before = self.stored[name].files if name in self.stored else {}
            new = {each.bucket: Path(each.file).name for each in query.done() if each.file is not None}
            made[name] = StoredStates(query.fingerprint, query.buckets, {**before, **new})
        return made


_current: ContextVar[Update | None] = ContextVar("headgate_update", default=None)


def current_update() -> Update | None:
    """The update that the calling thread works on."""
    return _current.get()


@contextmanager
def working_on(update: Update) -> Iterator[Update]:
    """While the user's function is called."""
    token = _current.set(update)
    try:
        yield update
    finally:
        _current.reset(token)


def state_folder(table: Path) -> Path:
    """Where the states of a table's queries lie: beside its data, where no reader of the table looks."""
    return table / "_headgate_state"


def tidy_states(folder: Path, named: Mapping[str, StoredStates], older_than_seconds: float) -> int:
    """Delete the files that the newest commit does not name and that no update can still be writing; how many."""
    if not folder.is_dir():
        return 0
    kept = {file for states in named.values() for file in states.files.values()}
    limit = time.time() - older_than_seconds
    old = [path for path in folder.iterdir() if path.name not in kept and path.stat().st_mtime <= limit]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
