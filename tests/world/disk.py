"""The simulated disk: real files in memory, with every call that changes one, and every job of Spark, a *step*.

At a step time passes, other things happen in the world, the call may fail, and the process may die: before the step,
after it, or in the middle. A process that is dead changes nothing any more, whatever its handlers of errors try.

Everything in the standard library and in other packages that the warehouse changes files with is replaced while
``installed``: the warehouse itself runs as it is.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyspark.sql

from headgate.warehouse.sources.files import formats as file_formats
from headgate.warehouse.storage import log
from headgate.warehouse.updates.merge import GroupMerger
from tests.world import delta, spark
from tests.world.clock import WorldClock

#: what is done at a step; "look" reads a folder or the times of a landed file
StepKind = Literal["write", "change", "sync", "commit", "checkpoint", "job", "look"]
#: how the process dies at a step, or that it does but does not get the answer; empty if all is well
Death = Literal["", "before", "after", "torn", "answer lost"]
LOG_DIRECTORY = "_delta_log"


class ProcessDied(BaseException):
    """The process has died at this step."""


class Disk:
    """Files below ``root``. ``step`` is called at every step with its kind and target; it may raise, or say how to die.

    ``inside``: the warehouse runs, so its calls are steps. ``dead``: it has died.
    """

    def __init__(self, root: Path, clock: WorldClock, rng: random.Random, real_log: bool = False) -> None:
        self.root = str(root)
        self._real_log = real_log
        self.clock = clock
        self.inside = False
        self.dead = False
        self.step: Callable[[StepKind, str], Death] = lambda kind, target: ""
        #: when files in the landing folders were last renamed or written
        self.changed: dict[str, float] = {}
        self._rng = rng
        #: files that were written and perhaps are not on the disk yet, in this order
        self._unsynced: dict[str, None] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """The warehouse runs: its calls are steps."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Somebody else does something."""
        before, self.inside = self.inside, False
        try:
            yield
        finally:
            self.inside = before

    def _at(self, kind: StepKind, target: str, call: Callable[[], Any], tear: Callable[[], None]) -> Any:
        """One step: the call, unless the process dies before it, or it fails."""
        if not self.inside:
            return call()
        death = self._stepped(kind, target)
        result = call()
        if death == "answer lost":
            raise OSError(errno.ETIMEDOUT, "Connection timed out", target)
        if death == "torn":
            tear()
        if death:
            self.die()
        return result

    def _stepped(self, kind: StepKind, target: str) -> Death:
        if self.dead:
            raise ProcessDied
        with self.outside():
            death = self.step(kind, target)
        if death == "before":
            self.die()
        return death

    def die(self) -> None:
        self.dead = True
        raise ProcessDied

    def job(self, group: str) -> None:
        """A job of Spark."""
        self._at("job", group, lambda: None, lambda: None)

    # --- what is not on the disk yet ------------------------------------------------------------------------

    def lose_unsynced(self) -> list[Path]:
        """What a power cut does to files that were not synced: each is there, torn, empty or gone.

        Returns those that are not there as they were.
        """
        lost = []
        for path in self._unsynced:
            fate = self._rng.choice(("there", "there", "torn", "empty", "gone"))
            if fate == "gone":
                Path(path).unlink(missing_ok=True)
            elif fate != "there" and os.path.exists(path):
                os.truncate(path, os.path.getsize(path) // 2 if fate == "torn" else 0)
            if fate != "there":
                lost.append(Path(path))
        self._unsynced.clear()
        return lost

    def _written(self, path: str) -> None:
        self._unsynced[path] = None
        self._set_time(path)
        self._set_time(os.path.dirname(path))

    def _set_time(self, path: str) -> None:
        moment = self.clock.time_ns()
        if os.path.exists(path):
            os.utime(path, ns=(moment, moment))

    # --- the replaced functions -----------------------------------------------------------------------------

    @contextmanager
    def installed(self) -> Iterator[None]:
        with ExitStack() as stack:

            def replaced(owner: Any, name: str, value: Any) -> None:
                stack.enter_context(patch.object(owner, name, value))

            clock = self.clock
            for name in ("time", "time_ns", "monotonic", "monotonic_ns", "sleep"):
                replaced(time, name, _of_this_thread(getattr(clock, name), getattr(time, name)))
            replaced(time, "perf_counter", _of_this_thread(clock.monotonic, time.perf_counter))
            replaced(secrets, "token_hex", lambda size: self._rng.randbytes(size).hex())
            for name in ("mkdir", "unlink", "remove", "rmdir", "replace", "rename", "link"):
                replaced(os, name, self._changing(getattr(os, name)))
            replaced(os, "stat", self._with_times(os.stat))
            replaced(os, "lstat", self._with_times(os.lstat))
            replaced(os, "scandir", self._scandir(os.scandir))
            replaced(os, "fsync", self._fsync(os.fsync))
            opened = self._opening(builtins.open)
            replaced(builtins, "open", opened)
            replaced(io, "open", opened)
            replaced(pq, "write_table", self._write_table(pq.write_table))
            replaced(pq, "read_table", _read_table)
            replaced(ds, "dataset", _Dataset)
            create = log.create_table_with_add_actions if self._real_log else delta.create_table
            replaced(log, "create_table_with_add_actions", self._creating(create))
            replaced(log, "DeltaTable", self._delta_table(log.DeltaTable if self._real_log else delta.WorldDelta))
            # What is done by several threads at once is done one after the other here, always in the same order.
            replaced(ThreadPoolExecutor, "map", lambda pool, function, *items: map(function, *items))
            replaced(pyspark.sql, "functions", spark.FUNCTIONS)
            reader = replace(file_formats.FORMATS["json"], read=spark.read_json)
            stack.enter_context(patch.dict(file_formats.FORMATS, {"json": reader}))
            # All keys and states of the world's aggregates are columns of their tables.
            replaced(GroupMerger, "states", lambda merger, result: result)
            yield

    def _is_ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.root)

    def _changing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *others: Any, **options: Any) -> Any:
            if not self._is_ours(path):
                return real(path, *others, **options)
            return self._at("change", os.fspath(path), lambda: real(path, *others, **options), lambda: None)

        return call

    def _with_times(self, real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        """When a file was changed last cannot be set on a real file, so it is told here."""

        def call(path: Any, **options: Any) -> os.stat_result:
            found = real(path, **options)
            changed = self.changed.get(os.fspath(path)) if self._is_ours(path) else None
            if changed is None:
                return found
            times = {name: getattr(found, name) for name in ("st_atime", "st_mtime", "st_atime_ns", "st_mtime_ns")}
            times |= {"st_ctime": changed, "st_ctime_ns": round(changed * 1e9)}
            return os.stat_result((*found[:9], int(changed)), times)

        return call

    def _scandir(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".") -> Any:
            if not self._is_ours(path):
                return real(path)
            self._at("look", os.fspath(path), lambda: None, lambda: None)
            return real(path)

        return call

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if not self._is_ours(path):
                return real(descriptor)
            self._at("sync", path, lambda: self._unsynced.pop(path, None), lambda: None)
            return None

        return call

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *others: Any, **options: Any) -> Any:
            if self.inside and self._is_ours(file) and set(mode) & set("wax+"):
                death = self._stepped("write", os.fspath(file))
                self._unsynced[os.fspath(file)] = None
                if death:  # nothing is in the file yet
                    real(file, mode, *others, **options).close()
                    self.die()
            return real(file, mode, *others, **options)

        return call

    def _write_table(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(rows: Any, where: Any, **options: Any) -> Any:
            path = os.fspath(where)

            def write() -> None:
                real(rows, where, **options)
                self._written(path)

            return self._at("write", path, write, lambda: os.truncate(path, os.path.getsize(path) // 2))

        return call

    # --- the Delta log --------------------------------------------------------------------------------------

    def _creating(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(table: str, *others: Any, **options: Any) -> Any:
            return self._commit(table, lambda: real(table, *others, **options))

        return call

    def _commit(self, table: str, call: Callable[[], Any]) -> Any:
        def commit() -> Any:
            with self.outside():
                result = call()
                self._written(_newest_entry(table))
            return result

        return self._at("commit", table, commit, lambda: _tear(_newest_entry(table)))

    def _delta_table(self, real: Any) -> Any:
        disk = self

        class StepwiseDelta(real):  # type: ignore[misc, valid-type]
            """A Delta table whose commits and checkpoints are steps."""

            def __init__(self, table: Any, *others: Any, **options: Any) -> None:
                super().__init__(table, *others, **options)
                self._world_folder = os.fspath(table)

            def create_write_transaction(self, *others: Any, **options: Any) -> Any:
                write = super().create_write_transaction
                return disk._commit(self._world_folder, lambda: write(*others, **options))

            def create_checkpoint(self) -> Any:
                folder, write = self._world_folder, super().create_checkpoint
                pointer = f"{folder}/{LOG_DIRECTORY}/_last_checkpoint"

                def call() -> None:
                    with disk.outside():
                        write()
                        disk._written(str(max(Path(folder, LOG_DIRECTORY).glob("*.checkpoint.parquet"))))
                        disk._written(pointer)

                return disk._at("checkpoint", folder, call, lambda: os.truncate(pointer, 0))

        return StepwiseDelta


class _Dataset:
    """Takes the place of ``pyarrow.dataset.dataset``, for some Parquet files with the columns of a schema."""

    def __init__(self, paths: Sequence[str], schema: pa.Schema, format: str) -> None:
        self._paths = paths
        self._schema = schema

    def to_table(self) -> pa.Table:
        tables = [_read_table(path) for path in self._paths]
        return pa.concat_tables([self._with_columns(table) for table in tables] or [self._schema.empty_table()])

    def _with_columns(self, rows: pa.Table) -> pa.Table:
        there = set(rows.column_names)
        columns = [
            rows.column(field.name).cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)


def _of_this_thread(simulated: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Other threads keep the real time: a library's thread that sleeps in a loop would let the world's time pass."""
    thread = threading.get_ident()

    def chosen(*given: Any) -> Any:
        return (simulated if threading.get_ident() == thread else real)(*given)

    return chosen


def _read_table(path: Any, columns: list[str] | None = None, **options: Any) -> pa.Table:
    """The same as the real one for a single file, on this thread: handing over to others takes longer than reading."""
    checked = options.get("page_checksum_verification", False)
    file = pq.ParquetFile(pa.BufferReader(Path(path).read_bytes()), page_checksum_verification=checked)
    rows = file.read(columns=columns, use_threads=False)
    return rows if columns is None else rows.select(columns)


def _newest_entry(table: str) -> str:
    return str(max(Path(table, LOG_DIRECTORY).glob("*.json")))


def _tear(path: str) -> None:
    os.truncate(path, os.path.getsize(path) // 2)
