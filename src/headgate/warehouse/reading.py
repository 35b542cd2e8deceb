"""Read the tables of a warehouse from its directory: without Spark, the pipeline file or the process that runs it.

Tables are updated one by one, so they are not equally fresh. Several tables are therefore read up to one *edge*: an
event time up to which all of them are complete. It is the least of their freshnesses, or an earlier one that you
choose. It does not pass what is still to be recomputed, in a table or in the versions of its sources that it was
computed from. Rows beyond the edge are left out. Tables without event time (rejected rows) are read whole.

Every table is read at the version that was its newest when it was opened. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from headgate.core import DeclarationError, HeadgateError, UnknownNameError, first_line
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath, delta_table, path_from
from headgate.warehouse.declare.spec import REJECTED_SUFFIX
from headgate.warehouse.declare.sql_text import read_query
from headgate.warehouse.late_rows import LateRows, committed_state, late_rows
from headgate.warehouse.run.lock import FILE_NAME
from headgate.warehouse.storage import PARTITION_COLUMN
from headgate.warehouse.storage.errors import StorageError
from headgate.warehouse.storage.history import LOG_DIRECTORY
from headgate.warehouse.storage.partitions import EVENT_TIME, format_time, partition_start
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.repairs import Repairs, repairs_in

_FOLDER = "tables"

#: {(table, version): the first event time to be recomputed there or above, None if there is none}
_Repairs = dict[tuple[str, int], int | None]


class NotAWarehouseError(DeclarationError):
    """The directory does not exist or holds no warehouse."""


class BeyondTheEdgeError(DeclarationError):
    """A table was asked for at an event time up to which it is not complete yet."""


class NoCommonEdgeError(HeadgateError):
    """Among tables to be read together, one has no data yet."""


class SqlError(DeclarationError):
    """A query cannot be understood or has failed."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as its newest commit leaves it.

    ``freshness`` is the event time in microseconds up to which it reflects its sources, and ``time`` the column that
    holds event times; both are None in tables without. ``repairs`` are the event times before that which are still to
    be recomputed, and ``complete`` is up to where nothing is, neither here nor in the sources. ``update`` is the number
    of the last update, ``kind`` how it was computed. ``rejected_of`` is the stream whose rejected rows the table holds.
    ``error`` says why a table cannot be read, empty if it can: its log is damaged. Then its version is -1.
    """

    name: str
    version: int
    rows: int
    files: int
    bytes: int
    freshness: int | None
    complete: int | None
    repairs: Repairs | None
    update: int
    kind: str
    time: str | None
    rejected_of: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query, the edge at which it read its tables, and the tables that it read whole.

    ``unrepaired`` are the tables in which event times are still to be recomputed, or in their sources, each with its
    freshness: without these repairs it could have been read up to there. ``late`` are rows before the edge that came
    late, and that some of the tables have taken in already and others have not.
    """

    rows: pa.Table
    edge: int | None
    whole: tuple[str, ...]
    unrepaired: Mapping[str, int]
    late: tuple[LateRows, ...] = ()


def tables(path: AnyPath | str) -> tuple[TableStatus, ...]:
    """Every table of the warehouse in ``path`` by name, one of rejected rows right after its stream."""
    directories = _directories(path)
    known: _Repairs = {}
    found = [_status(directories, name, known) for name in directories]
    return tuple(sorted(found, key=lambda table: (table.rejected_of or table.name, table.name)))


def _status(directories: Mapping[str, AnyPath], name: str, known: _Repairs) -> TableStatus:
    try:
        return _Opened(directories, name, known).status()
    except StorageError as error:
        return TableStatus(name, -1, 0, 0, 0, None, None, None, 0, "", None, _rejected_of(name), str(error))


def _rejected_of(name: str) -> str | None:
    return name.removesuffix(REJECTED_SUFFIX) if name.endswith(REJECTED_SUFFIX) else None


def trailing_edge(tables: Iterable[TableStatus]) -> int | None:
    """The event time up to which all of ``tables`` are complete; None if none of them has any.

    Raises NoCommonEdgeError if only some have no data yet: no moment is known to be complete in all of them.
    """
    return _edge({table.name: table.complete for table in tables if table.time is not None})


def read(
    path: AnyPath | str, names: Sequence[str], at: int | None = None, *, incomplete: bool = False
) -> dict[str, pa.Table]:
    """The tables called ``names`` at one common edge, or at the earlier event time ``at``, in microseconds.

    With ``incomplete`` they are read up to their least freshness, even where rows are still to be recomputed.
    """
    opened = _open(path, names)
    edge = _common_edge(opened, at, incomplete)
    return {name: table.rows(edge) for name, table in opened.items()}


def query(path: AnyPath | str, sql: str, at: int | None = None, *, incomplete: bool = False) -> QueryResult:
    """What ``sql``, in the dialect of DataFusion, gives over the tables that it names, at one edge as in ``read``."""
    reads = read_query(sql)
    if reads.problems:
        raise SqlError("; ".join(reads.problems))
    opened = _open(path, reads.sources)
    edge = _common_edge(opened, at, incomplete)
    builder = QueryBuilder()
    try:
        for table in opened.values():
            table.register(builder, edge)
        rows = pa.table(builder.execute(sql).read_all())
    except Exception as error:  # failures while a query runs come as plain Exceptions
        raise SqlError(f"the query failed: {' '.join(str(error).split())}") from error
    whole = tuple(name for name, table in opened.items() if table.state.time is None)
    fresh = {name: table.state.freshness for name, table in opened.items() if table.complete != table.state.freshness}
    unrepaired = {name: moment for name, moment in fresh.items() if moment is not None}
    return QueryResult(rows, edge, whole, unrepaired, _late(path, opened, edge))


def _late(path: AnyPath | str, opened: Mapping[str, _Opened], edge: int | None) -> tuple[LateRows, ...]:
    timed = {name: (table.version, table.state) for name, table in opened.items() if table.state.time is not None}
    if edge is None or len(timed) < 2:
        return ()
    try:
        return late_rows(_directories(path), timed, edge)
    except (HeadgateError, OSError):  # the answer is right without this note
        return ()


class _Opened:
    """One table at the version that is its newest now."""

    def __init__(self, directories: Mapping[str, AnyPath], name: str, known: _Repairs) -> None:
        self.name = name
        try:
            table, options = delta_table(directories[name])
            self._delta = DeltaTable(table, **options)
            self.version = self._delta.version()
            self.state = committed_state(directories, name, self.version)
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(
                f"table {name!r} cannot be read, because its log is damaged: {first_line(error)}"
            ) from error
        self.repairs = repairs_in(self.state.dirty, self.state.freshness)
        #: the event time up to which it is complete
        self.complete = self._complete(directories, known)
        self._columns = [field.name for field in self._delta.schema().fields if field.name != PARTITION_COLUMN]

    def _complete(self, directories: Mapping[str, AnyPath], known: _Repairs) -> int | None:
        edges = [] if self.state.freshness is None else [self.state.freshness]
        if self.repairs is not None:
            edges.append(self.repairs.complete)
        upstream = _first_repair_above(directories, self.state, known)
        if upstream is not None and edges and upstream <= min(edges):
            # A row may tell of all of its partition, so the rows of the partition that the repair lies in do not count.
            labels = pa.table(self._delta.get_add_actions(flatten=True)).column(f"partition.{PARTITION_COLUMN}")
            starts = [start for label in labels.unique().to_pylist() if (start := partition_start(label)) <= upstream]
            edges.append(max(starts, default=upstream) - 1)
        return min(edges, default=None)

    def status(self) -> TableStatus:
        files = pa.table(self._delta.get_add_actions())
        return TableStatus(
            name=self.name,
            version=self.version,
            rows=pc.sum(files.column("num_records")).as_py() or 0,
            files=files.num_rows,
            bytes=pc.sum(files.column("size_bytes")).as_py() or 0,
            freshness=self.state.freshness,
            complete=self.complete,
            repairs=self.repairs,
            update=self.state.update,
            kind=self.state.kind,
            time=self.state.time,
            rejected_of=_rejected_of(self.name),
        )

    def rows(self, edge: int | None) -> pa.Table:
        wanted = None
        if self.state.time is not None:
            # Without an edge, nothing is known to be complete, though there may be rows.
            wanted = pc.scalar(False) if edge is None else pc.field(self.state.time) <= pa.scalar(edge, EVENT_TIME)
        return self._delta.to_pyarrow_dataset().to_table(columns=self._columns, filter=wanted)

    def register(self, builder: QueryBuilder, edge: int | None) -> None:
        """Name the rows up to ``edge`` for SQL: as a view, because only whole Delta tables can be registered."""
        whole = f"{self.name} without edge"
        builder.register(whole, self._delta)
        view = f"select {', '.join(map(_quoted, self._columns))} from {_quoted(whole)}"
        if self.state.time is not None:
            moment = f"""arrow_cast({edge}, 'Timestamp(Microsecond, Some("UTC"))')"""
            view += " where false" if edge is None else f" where {_quoted(self.state.time)} <= {moment}"
        builder.execute(f"create view {_quoted(self.name)} as {view}").read_all()


def _first_repair_above(directories: Mapping[str, AnyPath], state: CommitState, known: _Repairs) -> int | None:
    """The first event time to be recomputed in the versions of its sources that a table in ``state`` has consumed."""
    found = []
    for source in state.sources.items():
        if source not in known and source[0] in directories:
            try:
                there = committed_state(directories, *source)
            except StorageError:  # cleaned up; the table is far behind, and its freshness tells that
                continue
            repairs = repairs_in(there.dirty, there.freshness)
            above = _first_repair_above(directories, there, known)
            own = None if repairs is None else repairs.first
            known[source] = min((first for first in (own, above) if first is not None), default=None)
        found.append(known.get(source))
    return min((first for first in found if first is not None), default=None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _directories(path: AnyPath | str) -> dict[str, AnyPath]:
    """{name: directory} of the tables that have been committed to at least once."""
    root = path_from(path)
    if isinstance(root, ObjectPath):
        try:
            return _folders_in(root)
        except OSError as error:
            raise NotAWarehouseError(f"{root} cannot be read: {error.strerror}") from None
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise NotAWarehouseError(
            f"{root} {what}; expected the directory of a warehouse, which its pipeline file states as path and "
            "`headgate run` makes"
        )
    folder = root / _FOLDER
    if not folder.is_dir():
        if (root / FILE_NAME).exists():
            return {}  # its first run is just starting
        raise NotAWarehouseError(
            f"{root} is not a warehouse: it has no folder {_FOLDER!r}. Give the directory that the pipeline file "
            "states as path; `headgate run` makes it."
        )
    return {d.name: d for d in sorted(folder.iterdir()) if d.is_dir() and DeltaTable.is_deltatable(str(d))}


def _folders_in(root: ObjectPath) -> dict[str, AnyPath]:
    folders = sorted(path for path in (root / _FOLDER).iterdir() if path.listed is None)
    if not folders and not root.is_dir():
        raise NotAWarehouseError(f"there is nothing in {root}; expected what a pipeline file states as path")
    return {path.name: path for path in folders if next((path / LOG_DIRECTORY).glob("*.json"), None) is not None}


def _open(path: AnyPath | str, names: Sequence[str]) -> dict[str, _Opened]:
    directories = _directories(path)
    for name in names:
        if name not in directories:
            raise UnknownNameError("table", name, directories, hint="A table exists from its first update on.")
    return _opened(directories, names)


def _opened(directories: Mapping[str, AnyPath], names: Iterable[str]) -> dict[str, _Opened]:
    known: _Repairs = {}
    return {name: _Opened(directories, name, known) for name in names}


def _common_edge(opened: Mapping[str, _Opened], at: int | None, incomplete: bool) -> int | None:
    timed = {name: table for name, table in opened.items() if table.state.time is not None}
    edges = {name: table.state.freshness if incomplete else table.complete for name, table in timed.items()}
    if at is None:
        return _edge(edges)
    for name, edge in edges.items():
        if edge is None or at > edge:
            reached = "has no data yet" if edge is None else f"is complete up to {format_time(edge)}"
            repairs = "" if edge == timed[name].state.freshness else ", because what follows is still to be recomputed"
            raise BeyondTheEdgeError(
                f"table {name!r} cannot be read at {format_time(at)}: it {reached}{repairs}. Choose an earlier time, "
                "or none to read up to where all tables are complete."
            )
    return at if edges else None


def _edge(freshness: Mapping[str, int | None]) -> int | None:
    known = [complete for complete in freshness.values() if complete is not None]
    empty = [name for name, complete in freshness.items() if complete is None]
    if known and empty:
        raise NoCommonEdgeError(
            f"{', '.join(empty)}: no data yet, so there is no time up to which all of "
            f"{', '.join(freshness)} are complete. Wait for the first update with rows, or read the others alone."
        )
    return min(known, default=None)
