"""The stream queries inside one update of a table: the states they start from, and the reports of their tasks.

The warehouse creates a ``HostedUpdate`` and passes the result of the table's function to ``take``. It computes
``frame`` with Spark, calls ``check``, and puts ``states`` and ``rejected_files`` into the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError, OperatorFigures, UserCodeError
from headgate.places.place import AnyPath
from headgate.stream.errors import QueryDeclarationError
from headgate.stream.spark.fingerprint import Fingerprint, check_fit, fingerprint, stateful
from headgate.stream.spark.hosted_frame import HostedFrame, Request, requests_in
from headgate.stream.spark.hosted_query import TaskReport
from headgate.stream.spark.limits import read_verdict
from headgate.stream.spark.ordering import NO_COMMITS, ArrivalOrder
from headgate.stream.spark.passes import new_reports, rows_for, rows_of, rows_of_all, that_go_together
from headgate.stream.spark.state_files import Chain, SnapshotError, UnseenStatesError, read_states
from headgate.stream.spark.task import verdict_file

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame


class WorkerTracebackError(Exception):
    """The traceback of user code that failed in a worker, as text."""


@dataclass(frozen=True)
class StoredStates:
    """The states of one query in a commit: the fingerprint of the query, and the files of each bucket."""

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
class _RunningQuery:
    """A query of the update. ``fingerprint`` is empty if it has no states.

    ``rows`` are its rows from a pass that it shares with queries of other tables; None if it has its own pass. If
    ``is_read``, another query of the update reads its rows.
    """

    request: Request
    fingerprint: Fingerprint
    reports: Accumulator[list[TaskReport]]
    rows: DataFrame | None = None
    is_read: bool = False

    def task_reports(self) -> list[TaskReport]:
        """The reports of tasks, one for each bucket; of several attempts, the last one."""
        label = self.request.query.label
        by_bucket = {report.bucket: report for report in self.reports.value if report.query == label}
        return [by_bucket[bucket] for bucket in sorted(by_bucket)]


@dataclass
class HostedUpdate:
    """The queries of one update. ``folder`` has the state files, ``stored`` names those to start from.

    ``clock`` is the source's time column and the event time that it has reached, ``arrival`` the order in which its
    rows arrived. ``small``: there are so few rows that one task for all buckets is fastest. ``refusal`` is the error
    for queries with states, if these are not possible in this update. ``priority`` and ``importance_class`` are those
    of the table: queries of several tables that are computed in one pass are ranked by them.
    """

    number: int
    folder: AnyPath
    stored: Mapping[str, StoredStates] = field(default_factory=dict)
    table: str = ""
    clock: tuple[str, int] | None = None
    arrival: ArrivalOrder = NO_COMMITS
    small: bool = False
    refusal: str = ""
    priority: float = 1.0
    importance_class: int = 0
    _queries: dict[str, _RunningQuery] = field(default_factory=dict)
    _result: DataFrame | HostedFrame | None = None

    @classmethod
    def without_states(cls, table: str) -> HostedUpdate:
        """An update that recomputes a span of time: there are no states to start from."""
        refusal = (
            f"table {table!r} is computed stretch by stretch, but its query has states that go on from row to row: "
            'declare it with mode="append"'
        )
        return cls(0, Path(), table=table, refusal=refusal)

    # --- before the job -------------------------------------------------------------------------------------

    def take(self, result: DataFrame | HostedFrame) -> None:
        """Take the result of the table's function, and give its queries their states."""
        if result is None:
            raise QueryDeclarationError("its function must return a Spark DataFrame; got None: is there a return?")
        self._result = result
        for request in requests_in(result):
            frame = request.frame
            if isinstance(frame, HostedFrame):
                for read in frame.requests():
                    self._queries[read.query.name].is_read = True
                frame = frame.resolve(self._rows)
            self._add(replace(request, frame=frame))

    def _add(self, request: Request) -> None:
        query, name = request.query, request.query.name
        written = fingerprint(stateful(request.spec.operators))
        if written and self.refusal:
            raise DeclarationError(self.refusal)
        query = replace(query, priority=self.priority, importance_class=self.importance_class)
        if self.refusal:
            query = replace(query, table=self.table)
        else:
            query = replace(
                query,
                table=self.table,
                folder=self.folder,
                update=self.number,
                previous=self._previous(name, written, request.buckets),
                ends_at=self._end(request),
            )
        bound = replace(request, query=query, arrival=self.arrival, together=self.small)
        frame: DataFrame = request.frame  # type: ignore[assignment] # resolved by ``take``
        self._queries[name] = _RunningQuery(bound, written, new_reports(frame))

    def _previous(self, name: str, written: dict[str, str], buckets: int) -> dict[int, Chain]:
        """The state files of each bucket; raises if the states do not fit the query any more."""
        stored = self.stored.get(name)
        if stored is None or not written:
            return {}
        check_fit(name, stored.fingerprint, stored.buckets, written, buckets)
        return dict(stored.files)

    def _end(self, request: Request) -> tuple[str, int] | None:
        """The event time that the stream has reached, if it is known and windows of the query use it."""
        time = request.time
        if time is None or self.clock is None or self.clock[0] != time:
            return None
        if request.input.field(time).type != pa.timestamp("us", "UTC"):
            return None  # the clock of the source is in microseconds
        times = [operator.time.column for operator in request.spec.operators if operator.time is not None]
        return self.clock if time in times else None

    @property
    def frame(self) -> DataFrame:
        """What the table's function returned, as a DataFrame."""
        result = self._result
        assert result is not None, "take comes first"
        return result.resolve(self._rows) if isinstance(result, HostedFrame) else result

    def _rows(self, request: Request) -> DataFrame:
        query = self._queries[request.query.name]
        return rows_of(query.request, query.reports) if query.rows is None else query.rows

    # --- after the job --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error of a query that failed in a task; SnapshotError if the files with its states are damaged.

        UnseenStatesError if they are not, and an executor could not read them; or if the driver does not see a file
        that an executor has written.
        """
        for query in self._queries.values():
            for report in query.task_reports():
                if report.failure is not None and report.failure.damaged_states:
                    self._check_readable(query.request.query.previous.get(report.bucket, ()))
                    raise SnapshotError(report.failure.message)
                if report.failure is not None:
                    traceback = WorkerTracebackError(f"\n{report.failure.traceback}")
                    raise UserCodeError(report.failure.message) from traceback
        for name in (*self.new_state_files(), *self.rejected_files()):
            if not (self.folder / name).exists():
                raise UnseenStatesError(self.folder / name)

    def _check_readable(self, chain: Chain) -> None:
        """Raise UnseenStatesError if the driver can read states that an executor could not read."""
        try:
            read_states(self.folder, chain)
        except SnapshotError:
            return
        raise UnseenStatesError(self.folder / chain[0])

    def verdict(self) -> str | None:
        """Why a worker process had to end itself, if one did and had a folder to say so in."""
        return None if self.refusal else read_verdict(verdict_file(self.folder, self.number))

    def states(self) -> dict[str, StoredStates]:
        """The states for the commit; buckets without new rows keep their files."""
        states = {}
        for name, query in self._queries.items():
            if not query.fingerprint:
                continue
            before = self.stored[name].files if name in self.stored else {}
            new = {report.bucket: report.states for report in query.task_reports() if report.states is not None}
            states[name] = StoredStates(query.fingerprint, query.request.buckets, {**before, **new})
        return states

    def new_state_files(self) -> tuple[str, ...]:
        """The files in ``folder`` that this update has written states to."""
        return tuple(report.states[0] for report in self._reports() if report.states)

    def _reports(self) -> Iterable[TaskReport]:
        return (report for query in self._queries.values() for report in query.task_reports())

    def rejected_files(self) -> tuple[str, ...]:
        """The files in ``folder`` with rejected rows."""
        return tuple(report.rejected for report in self._reports() if report.rejected)

    def rejected_rows(self) -> int:
        return sum(report.rejected_rows for report in self._reports())

    def figures(self) -> tuple[OperatorFigures, ...]:
        """What each operator of each query did, over all tasks."""
        return tuple(figure for name, query in self._queries.items() for figure in _figures(name, query.task_reports()))


def share_passes(updates: Iterable[HostedUpdate]) -> list[DataFrame]:
    """Compute queries of several updates that read the same rows in one pass; returns the frames that Spark keeps.

    Every table still commits its own rows and states, so a failure of one does not affect the others. A query whose
    rows another one reads is computed along with that one, and reports from there.
    """
    every = (query for update in updates for query in update._queries.values())
    queries = {id(query.request): query for query in every if not query.is_read}
    kept = []
    for requests in that_go_together(query.request for query in queries.values()):
        if len(requests) == 1:
            continue
        reports = queries[id(requests[0])].reports
        rows = rows_of_all(requests, reports)
        kept.append(rows)
        for number, request in enumerate(requests):
            query = queries[id(request)]
            query.reports, query.rows = reports, rows_for(number, rows)
    return kept


def _figures(query: str, reports: list[TaskReport]) -> list[OperatorFigures]:
    total = sum(report.seconds for report in reports) or 1.0
    by_name: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for report in reports:
        for operator in report.operators:
            by_name.setdefault(operator["name"], []).append((report.seconds, operator))

    def per_row(tasks: list[tuple[float, Mapping[str, Any]]], key: str) -> float:
        rows = sum(figures["rows_in"] for _, figures in tasks)
        return sum(figures["rows_in"] * figures[key] for _, figures in tasks) / rows if rows else 0.0

    return [
        OperatorFigures(
            query=query,
            name=name,
            kind=tasks[0][1]["kind"],
            rows_in=sum(figures["rows_in"] for _, figures in tasks),
            rows_out=sum(figures["rows_out"] for _, figures in tasks),
            rejected=sum(figures["rejected"] for _, figures in tasks),
            processor=sum(figures["processor"] for _, figures in tasks),
            peak_rows_waiting=max(figures["peak_rows_waiting"] for _, figures in tasks),
            utilisation=sum(seconds * figures["utilisation"] for seconds, figures in tasks) / total,
            seconds=total,
            in_queue=per_row(tasks, "in_queue"),
            for_a_turn=per_row(tasks, "for_a_turn"),
            computing=per_row(tasks, "computing"),
            inputs=tuple(tasks[0][1]["inputs"]),
        )
        for name, tasks in by_name.items()
    ]


# --- files of states and of rejected rows ---------------------------------------------------------------------


def state_folder(table: AnyPath) -> AnyPath:
    """The folder with the states of a table's queries: beside its data, where Delta readers do not look."""
    return table / "_headgate_state"


def tidy_states(
    folder: AnyPath,
    named: Mapping[str, StoredStates],
    rejected: tuple[str, ...],
    older_than_seconds: float,
    check: Callable[[], None],
) -> int:
    """Delete the files that the newest commit does not name and that no update can still be writing; how many.

    ``check`` raises if that commit may not be the newest one any more, because another process commits by now.
    """
    if not folder.is_dir():
        return 0
    kept = {file for states in named.values() for chain in states.files.values() for file in chain} | set(rejected)
    limit = time.time() - older_than_seconds
    old = [path for path in folder.iterdir() if path.name not in kept and path.stat().st_mtime <= limit]
    for path in old:
        check()
        path.unlink(missing_ok=True)
    return len(old)
