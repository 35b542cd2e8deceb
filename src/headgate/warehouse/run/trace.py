"""Record a run of a warehouse: one file of lines for each run, in the folder ``runs`` of the warehouse.

Every line is written to the file at once, so that the trace of a process that is killed is complete up to then. The
format of the lines is in ``headgate.core.trace``. Importing this module imports neither Spark nor Arrow.

An object store cannot append a line. There a trace is a folder of numbered pieces, which ``trace_copy`` copies from a
file of the machine that runs the warehouse; read one after the other, they are the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path
from typing import overload

from headgate.core import Update
from headgate.core.trace import (
    Change,
    NotLoaded,
    Redeclared,
    RunNotice,
    Trace,
    TraceError,
    TraceHeader,
    TraceTable,
    trace_from,
)
from headgate.core.trace.lines import (
    change_line,
    end_line,
    full_line,
    header_line,
    not_loaded_line,
    notice_line,
    redeclared_line,
    update_line,
)
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath
from headgate.warehouse.declare.spec import DimensionSpec, NodeSpec, StreamSpec, TableSpec, WarehouseSpec

#: recording stops when a trace has reached this size
MOST_BYTES = 64 * 1024 * 1024
#: a file larger than this is no trace, and is not read
MOST_READ = 2 * MOST_BYTES
#: how many traces of a warehouse are kept, the newest ones
KEPT = 20

_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z\.jsonl")


@overload
def runs_folder(warehouse: Path) -> Path: ...
@overload
def runs_folder(warehouse: ObjectPath) -> ObjectPath: ...
def runs_folder(warehouse: AnyPath) -> AnyPath:
    """Where the traces of a warehouse are kept: beside its tables."""
    return warehouse / "runs"


def local_runs(warehouse: AnyPath) -> Path:
    """The folder of this machine that traces are written to: that of the warehouse, or one that is copied to it."""
    if isinstance(warehouse, Path):
        return warehouse / "runs"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    number = hashlib.sha256(str(warehouse).encode()).hexdigest()[:8]
    return Path(state).expanduser() / "headgate" / f"{warehouse.name or 'bucket'}-{number}" / "runs"


@overload
def newest_trace(warehouse: Path) -> Path | None: ...
@overload
def newest_trace(warehouse: ObjectPath) -> ObjectPath | None: ...
def newest_trace(warehouse: AnyPath) -> AnyPath | None:
    """The trace of the latest run of a warehouse."""
    traces = traces_in(runs_folder(warehouse))
    return traces[0] if traces else None


@overload
def traces_in(folder: Path) -> list[Path]: ...
@overload
def traces_in(folder: ObjectPath) -> list[ObjectPath]: ...
def traces_in(folder: AnyPath) -> list[Path] | list[ObjectPath]:
    """The traces in a folder, the newest first; an object store that does not answer is a TraceError."""
    if isinstance(folder, Path):
        return sorted(_traces(folder), reverse=True)
    try:
        return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
    except OSError as error:
        raise TraceError(f"cannot look for traces in {folder}: {error.strerror}") from None


class TraceWriter:
    """The trace of one run, from its start to ``close``. For one thread at a time.

    It never raises: a run does not fail because it cannot be recorded. ``trouble`` says why, if it is not recorded.
    """

    def __init__(self, folder: Path, header: TraceHeader, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> None:
        self.trouble: str | None = None
        self._most_bytes = most_bytes
        self._written = 0
        self._file: FileIO | None = None
        self.path = _path(folder, header.started)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in sorted(_traces(folder), reverse=True)[kept - 1 :]:
                old.unlink(missing_ok=True)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            self.trouble = f"the run is not recorded: cannot write to {folder}: {error.strerror}"
        self._append(header_line(header), header.started)

    def note(self, update: Update) -> None:
        """Record an update that was committed or failed."""
        self._append(update_line(update), update.ended)

    def change(self, at: float, what: Mapping[str, object]) -> None:
        """Record a change by a user, such as ``{"policy": "fifo"}``."""
        self._append(change_line(Change(at, what)), at)

    def notice(self, notice: RunNotice) -> None:
        """Record something that users should know."""
        self._append(notice_line(notice), notice.at)

    def redeclared(self, at: float, tables: tuple[TraceTable, ...]) -> None:
        """Record that the run continues with these tables."""
        self._append(redeclared_line(Redeclared(at, tables)), at)

    def not_loaded(self, waiting: NotLoaded) -> None:
        """Record what has come to streams and is not loaded."""
        self._append(not_loaded_line(waiting), waiting.at)

    def close(self, at: float) -> None:
        """Record the end of the run. Closing a second time does nothing."""
        self._append(end_line(at), at)
        self._close_file()

    def _append(self, line: str, at: float) -> None:
        if self._file is None:
            return
        content = line.encode()
        full = self._written + len(content) > self._most_bytes
        if full:
            content = full_line(at, self._most_bytes).encode()
        try:
            # Unbuffered and in one write: nothing is lost if the process dies, and only the last line can be cut off.
            whole = self._file.write(content) == len(content)
            why = None if whole else "no space left"
        except OSError as error:
            why = error.strerror
        self._written += len(content)
        if why is not None:
            self._give_up(f"cannot write to {self.path}: {why}")
        elif full:
            self._give_up(f"{self.path} has become too large")

    def _give_up(self, why: str) -> None:
        self.trouble = f"the run is no longer recorded: {why}"
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def read_trace(path: AnyPath) -> Trace:
    """The trace in a file or in pieces, also of a run that was killed or is still running."""
    try:
        content = _file_content(path) if isinstance(path, Path) else _joined(path)
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from None
    if len(content) > MOST_READ:
        raise TraceError(f"{path} is larger than a trace can be, {MOST_READ >> 20} MB; it was not read")
    # A character that was cut in two is not UTF-8. It can only be in the last line, which is then skipped.
    return trace_from(content.decode("utf-8", errors="replace").split("\n"), str(path))


def _file_content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_READ + 1)


def _joined(trace: ObjectPath) -> bytes:
    """The pieces of a trace, up to one more than can be read; or the object itself, if somebody has copied a file."""
    content = b""
    # Beside them, HDFS may have files that are being written, or that a killed process has left.
    pieces = sorted(piece for piece in trace.iterdir() if piece.name.isdigit())
    for piece in pieces or [trace]:
        size = piece.stat().st_size
        content += piece.read_bytes() if len(content) + size <= MOST_READ else bytes(MOST_READ + 1)
        if len(content) > MOST_READ:
            break
    return content


def traced_tables(
    spec: WarehouseSpec, freshness: Mapping[str, int | None], declared: float | None = None
) -> tuple[TraceTable, ...]:
    """The tables of a warehouse as a trace names them, each with the freshness that it has now.

    ``declared`` is when, if it was while the run went on.
    """
    return tuple(_traced(node, freshness.get(node.name), declared) for node in spec.nodes())


def _traced(node: NodeSpec, freshness: int | None, declared: float | None) -> TraceTable:
    if isinstance(node, DimensionSpec):
        return TraceTable(node.name, priority=node.priority, kind="dimension", declared=declared)
    return TraceTable(
        name=node.name,
        sources=node.sources if isinstance(node, TableSpec) else (),
        period=node.period if isinstance(node, StreamSpec) else None,
        priority=node.priority,
        importance_class=node.importance_class,
        patience=node.patience,
        target_lag=node.target_lag,
        kind="stream" if isinstance(node, StreamSpec) else "table",
        freshness=freshness,
        declared=declared,
        catch_up=node.catch_up,
    )


def _traces(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.jsonl") if _NAME.fullmatch(path.name)]


def _path(folder: Path, started: float) -> Path:
    """A file named by the start in UTC, so that names sort by time; no two runs have the same name."""
    moment = datetime.fromtimestamp(started, UTC)
    while (path := folder / f"{moment:%Y%m%dT%H%M%S.%fZ}.jsonl").exists():
        moment += timedelta(microseconds=1)
    return path
