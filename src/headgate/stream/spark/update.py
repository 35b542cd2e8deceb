"""The update that a query on Spark is part of: which states it goes on from, and what its tasks have told.

Whoever runs updates, the warehouse, opens an ``Update`` around the user's function, runs the job, has it ``check``ed,
and puts what comes of it into the commit. Outside of any, queries start without states and leave none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError, UserCodeError
from headgate.core.trace import OperatorFigures
from headgate.stream.query_run import REJECTED_SCHEMA
from headgate.stream.spark.arrival import Arrival
from headgate.stream.spark.fingerprint import Fingerprint
from headgate.stream.spark.guest import Done
from headgate.stream.spark.hosting import verdict_file
from headgate.stream.spark.limits import read_verdict
from headgate.stream.spark.state_chain import Chain

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame

    from headgate.stream.spark.passes import Request


class WorkerTracebackError(Exception):
    """The traceback of user code that failed in a worker, as text."""


@dataclass(frozen=True)
class StoredStates:
    """The states of one query as a commit names them: how it was written then, and the files of each bucket."""

    fingerprint: Fingerprint
    buckets: int
    files: Mapping[int, Chain]

    def to_json(self) -> dict[str, Any]:
        files = {str(bucket): list(chain) for bucket, chain in sorted(self.files.items())}
        return {"fingerprint": dict(self.fingerprint), "buckets": self.buckets, "files": files}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> StoredStates:
        files = {int(bucket): tuple(map(str, chain)) for bucket, chain in stored["files"].items()}
        return cls(dict(stored["fingerprint"]), int(stored["buckets"]), files)


@dataclass
class HostedQuery:
    """A query that the update's function has put on Spark, and where its tasks tell what they did.

    ``fingerprint`` is empty if the query keeps no states.
    """

    label: str
    fingerprint: Fingerprint
    buckets: int
    told: Accumulator[list[Done]]

    def done(self) -> list[Done]:
        """What tasks have told, once for each bucket: of several attempts the last one's word counts."""
        by_bucket = {each.bucket: each for each in self.told.value if each.guest == self.label}
        return [by_bucket[bucket] for bucket in sorted(by_bucket)]


@dataclass
class Update:
    """An update under way. ``folder`` is where states are written and found, by names relative to it.

    ``clock`` is the source's column of event time and how far it has come, ``arrival`` what tells the order in which
    its rows arrived; ``small`` says that there are so few of them that one task does all of it soonest. ``refusal``
    says why there can be no states, if so. ``hosts`` tells whether the function has put any query on Spark. While
    ``collecting``, queries are only taken down as ``requests``; ``shared`` are the frames of those that a pass for
    several tables computes.
    """

    number: int
    folder: Path
    stored: Mapping[str, StoredStates] = field(default_factory=dict)
    table: str = ""
    clock: tuple[str, int] | None = None
    arrival: Arrival = field(default_factory=Arrival)
    small: bool = False
    refusal: str = ""
    hosts: bool = False
    collecting: bool = False
    queries: dict[str, HostedQuery] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    shared: dict[str, tuple[DataFrame, Accumulator[list[Done]]]] = field(default_factory=dict)

    @classmethod
    def without_states(cls, table: str) -> Update:
        """An update that computes a stretch of time again: there is no state to begin it with."""
        refusal = (
            f"table {table!r} is computed stretch by stretch, but its query has states that go on from row to row: "
            'declare it with mode="append"'
        )
        return cls(0, Path(), table=table, refusal=refusal)

    def add(self, name: str, query: HostedQuery) -> None:
        if name in self.queries:
            raise DeclarationError(
                f"two queries of one table are called {name!r}: give each on_spark call a name of its own"
            )
        self.queries[name] = query

    def must_keep_states(self) -> None:
        if self.refusal:
            raise DeclarationError(self.refusal)

    @property
    def has_states(self) -> bool:
        """Whether any query that was put on Spark keeps states."""
        return any(query.fingerprint for query in self.queries.values())

    # --- what the tasks told, after the job -----------------------------------------------------------------

    def check(self) -> None:
        """Raise the error of a query that failed in a task."""
        for query in self.queries.values():
            for done in query.done():
                if done.error is not None:
                    raise UserCodeError(done.error.message) from WorkerTracebackError(f"\n{done.error.traceback}")

    def verdict(self) -> str | None:
        """Why a worker process had to end itself, if one did."""
        return read_verdict(verdict_file(self.folder, self.number))

    def states(self) -> dict[str, StoredStates]:
        """What the commit has to name: buckets that had no rows keep the files that they had."""
        made = {}
        for name, query in self.queries.items():
            if not query.fingerprint:
                continue
            before = self.stored[name].files if name in self.stored else {}
            new = {each.bucket: each.states for each in query.done() if each.states is not None}
            made[name] = StoredStates(query.fingerprint, query.buckets, {**before, **new})
        return made

    def rejected(self) -> tuple[str, ...]:
        """The files, in ``folder``, with the rows that queries could not take."""
        return tuple(done.rejected for query in self.queries.values() for done in query.done() if done.rejected)

    def rejected_rows(self) -> int:
        return sum(done.rejected_rows for query in self.queries.values() for done in query.done())

    def figures(self) -> tuple[OperatorFigures, ...]:
        """What each operator of each query did, over all tasks."""
        return tuple(figure for name, query in self.queries.items() for figure in _figures(name, query.done()))


def _figures(query: str, done: list[Done]) -> list[OperatorFigures]:
    total = sum(each.seconds for each in done) or 1.0
    by_name: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for each in done:
        for told in each.operators:
            by_name.setdefault(told["name"], []).append((each.seconds, told))
    return [
        OperatorFigures(
            query=query,
            name=name,
            kind=told[0][1]["kind"],
            rows_in=sum(one["rows_in"] for _, one in told),
            rows_out=sum(one["rows_out"] for _, one in told),
            rejected=sum(one["rejected"] for _, one in told),
            processor=sum(one["processor"] for _, one in told),
            peak_rows_waiting=max(one["peak_rows_waiting"] for _, one in told),
            utilisation=sum(seconds * one["utilisation"] for seconds, one in told) / total,
            seconds=total,
        )
        for name, told in by_name.items()
    ]


def read_rejected(folder: Path, names: tuple[str, ...]) -> pa.Table:
    """The rows in files of rejected rows."""
    tables = [pa.ipc.open_file(pa.memory_map(str(folder / name))).read_all() for name in names]
    return pa.concat_tables([REJECTED_SCHEMA.empty_table(), *tables])


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


def tidy_states(
    folder: Path, named: Mapping[str, StoredStates], rejected: tuple[str, ...], older_than_seconds: float
) -> int:
    """Delete the files that the newest commit does not name and that no update can still be writing; how many."""
    if not folder.is_dir():
        return 0
    kept = {file for states in named.values() for chain in states.files.values() for file in chain} | set(rejected)
    limit = time.time() - older_than_seconds
    old = [path for path in folder.iterdir() if path.name not in kept and path.stat().st_mtime <= limit]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
