"""A source that follows a Delta table of another program: the rows that its versions add.

A chunk is a file that a version added. A stream takes appended rows only. A version that removed or replaced rows stops
it, with a message, unless these are to be ignored: then the version is left out as a whole, because the files that it
added repeat rows which are in the stream already. Versions of maintenance, which move rows to other files, add nothing.

As the source of a dimension, it is the rows of the newest version.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headgate.core import DeclarationError, first_line
from headgate.places.place import SPARK_PACKAGES, SPARK_SCHEMES
from headgate.places.secret_text import refuse_secrets, without
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.shipping import is_local
from headgate.warehouse.sources.arrow_rows import MOST_CONTENTS, as_frame, refuse_large, with_chunk
from headgate.warehouse.sources.delta.files import fetch, read_far_file, read_file, read_large_file, spark_schema
from headgate.warehouse.sources.delta.follow import DeltaFollower, Followed, FoundFile
from headgate.warehouse.sources.delta.log import AddedFile, ForeignLog
from headgate.warehouse.sources.delta.offsets import DeltaContents, DeltaOffset, DeltaRange
from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.lookout import Lookout
from headgate.warehouse.sources.protocol import Limit, Offset, Pending, Range, expect_kind, within
from headgate.warehouse.sources.schema import Column, parse_schema
from headgate.warehouse.updates.object_copies import has_file_system

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

#: a range of more than one file is at most this large: the driver holds its rows in memory
MOST_BYTES = 64 << 20

_STARTS = ("beginning", "now", "contents")


class Delta:
    """The rows that are added to a Delta table of somebody else.

    - ``path``: its folder, or its address (``s3://bucket/table``). ``storage_options`` are those of `deltalake` for
      that address; they are never printed.
    - ``schema``: the columns to read, as Spark writes them; by default those that the table has when the warehouse is
      opened. With it, the warehouse also opens while the table cannot be reached.
    - ``start``: ``"beginning"``, with the first version; the number of a version; ``"now"``, with what is added after
      the stream was opened for the first time; or ``"contents"``, with all rows that are there then. A stream that has
      not come to the stated version yet goes on there.
    - ``changes``: what to do at a version that removed or replaced rows: ``"refuse"`` waits there and says so,
      ``"ignore"`` leaves the version out.

    As the source of a dimension, ``start`` and ``changes`` do not matter.
    """

    @noting_a_mistake()
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        schema: str = "",
        start: int | Literal["beginning", "now", "contents"] = "beginning",
        changes: Literal["refuse", "ignore"] = "refuse",
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        written = os.fspath(path)
        refuse_secrets(written, "Delta", "give it as storage_options=")
        where = f"Delta({written!r})"
        if not written:
            raise DeclarationError("Delta needs the folder or the address of a Delta table")
        if start not in _STARTS and (not isinstance(start, int) or isinstance(start, bool) or start < 0):
            known = ", ".join(map(repr, _STARTS))
            raise DeclarationError(f"{where}: start takes {known} or the number of a version; got {start!r}")
        if changes not in ("refuse", "ignore"):
            raise DeclarationError(f"{where}: changes takes 'refuse' or 'ignore'; got {changes!r}")
        self._columns = parse_schema(schema, where) if schema else None
        self._path, self._schema, self._start, self._changes = written, schema, start, changes
        self._options = dict(storage_options or {})
        is_address = "://" in written
        self._log = ForeignLog(written if is_address else os.path.abspath(written), self._options)
        self._since = start if isinstance(start, int) else 0
        follower = DeltaFollower(self._log, ignores_changes=changes == "ignore", since=self._since)
        self._follower = follower
        self._lookout = Lookout[DeltaOffset, Followed](
            follower.look, self._explained, name="headgate-delta", inline=not is_address
        )
        self._newest = Lookout[DeltaContents | None, tuple[DeltaContents | None, str]](
            self._look_at_contents, self._explained, every=1.0, name="headgate-delta", inline=not is_address
        )
        #: whether columns are known to have the same names in the files; looked at once, later changes are in the log
        self._is_plain = False
        #: where the copy of a large file is that Spark reads
        self._copy: Path | None = None
        #: the newest offset that was asked for, and what is pending after it
        self._known: tuple[Followed, DeltaOffset, Pending] | None = None

    def __repr__(self) -> str:
        return f"Delta({self._path!r}, start={self._start!r}, changes={self._changes!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delta) and self._declared == other._declared

    def __hash__(self) -> int:
        return hash(self._path)

    @property
    def _declared(self) -> tuple[object, ...]:
        return self._path, self._schema, self._start, self._changes, self._options

    @property
    def schema(self) -> str:
        if not self._schema:
            try:
                self._schema = spark_schema(self._log)
            except Exception as error:
                raise SourceError(
                    f"{self._explained(error)}. Its columns cannot be known without it: declare the source with "
                    "schema=, and the stream waits for the table"
                ) from None
        return self._schema

    @property
    def _all_columns(self) -> tuple[Column, ...]:
        if self._columns is None:
            self._columns = parse_schema(self.schema, f"Delta({self._path!r})")
        return self._columns

    def resolve(self, base: Path) -> Delta:
        if not self._log.is_local:
            return self
        return Delta(
            os.path.join(base, self._path),
            schema=self._schema if self._columns is not None else "",
            start=self._start,
            changes=self._changes,
            storage_options=self._options,
        )

    # --- the stream -------------------------------------------------------------------------------------------

    def start(self) -> DeltaOffset:
        if self._start in ("now", "contents"):
            try:
                versions = self._log.versions()
            except Exception as error:
                raise SourceError(self._explained(error)) from None
            if versions and self._start == "now":
                return DeltaOffset(versions[-1] + 1)
            if versions:
                return DeltaOffset(versions[-1], contents=True)
        return DeltaOffset(self._since)

    def fixed_start(self, offset: Offset) -> Offset | None:
        return offset if self._start in ("now", "contents") else None

    def latest(self, offset: Offset) -> Pending:
        here = expect_kind(offset, DeltaOffset, self)
        sight = self._lookout.ask(here)
        if sight.seen is None:
            return Pending(note=sight.problem, missing=bool(sight.problem), looked_at=sight.at)
        pending = replace(self._pending(sight.seen, here), looked_at=sight.at)
        if sight.problem:
            return replace(pending, note=sight.problem, missing=not pending.chunks)
        return pending

    def _pending(self, followed: Followed, here: DeltaOffset) -> Pending:
        known = self._known
        if known is not None and known[0] is followed and known[1] == here:
            return known[2]
        files = [found for run in followed.runs(here, self._since) for found in run]
        pending = Pending(
            chunks=len(files),
            bytes=sum(found.size for found in files),
            oldest=min((found.arrived for found in files), default=None),
            newest=max((found.arrived for found in files), default=None),
            note=followed.note,
            missing=followed.is_stuck and not files,
        )
        self._known = (followed, here, pending)
        return pending

    def next_range(self, offset: Offset, limit: Limit) -> DeltaRange | None:
        here = expect_kind(offset, DeltaOffset, self)
        followed = self._lookout.ask(here).seen
        runs = [] if followed is None else list(followed.runs(here, self._since))
        if not runs:
            return None
        most = MOST_BYTES if limit.bytes is None else min(limit.bytes, MOST_BYTES)
        limit = replace(limit, bytes=most)
        if limit.first == "oldest":
            return _range(within(limit, runs[0]))
        return _range(within(limit, reversed(runs[-1]))[::-1])

    def advance(self, offset: Offset, loaded: Range) -> DeltaOffset:
        return expect_kind(offset, DeltaOffset, self).after(expect_kind(loaded, DeltaRange, self))

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        columns, where = self._all_columns, f"the Delta table {self._log.uri}"
        if isinstance(wanted, DeltaContents):
            refuse_large(wanted.bytes, where)
            return as_frame(spark, columns, [self._read_contents(wanted)], where)
        files = self._follower.files_of(expect_kind(wanted, DeltaRange, self))
        if files is None:
            raise SourceError(
                f"the log of {where} was cleaned up before its files were read; the next look says how to go on"
            )
        if not self._is_plain:
            if self._log.renames_columns():
                raise SourceError(self._follower.mapped_columns())
            self._is_plain = True
        for file in files:
            if file.has_deleted_rows:
                raise SourceError(
                    f"{file.path} of {where} has rows that are marked as deleted. Declare the source with "
                    "start='now', or the table as a dimension"
                )
        try:
            if self.is_spread(wanted):  # one file
                return self._read_with_spark(spark, files[0])
            return as_frame(spark, columns, [self._rows(file) for file in files], where)
        except FileNotFoundError as error:
            raise SourceError(
                f"{first_line(error)}: a file of {where} was removed before it was loaded. Keep removed files longer "
                "(VACUUM, delta.deletedFileRetentionDuration); to go on without it, declare start= with a later version"
            ) from None

    def is_spread(self, wanted: Range) -> bool:
        """Whether Spark reads a range: a file that is too large for the driver."""
        return isinstance(wanted, DeltaRange) and wanted.bytes > MOST_BYTES

    def _read_with_spark(self, spark: SparkSession, file: AddedFile) -> DataFrame:
        """The rows of a large file. Spark on this machine reads a copy, a cluster reads where the file is."""
        columns, log = self._all_columns, self._log
        if log.is_local:
            return read_large_file(spark, log.uri, file, columns)
        if is_local(spark.sparkContext.master):
            self.release()
            self._copy = Path(tempfile.mkdtemp(prefix="headgate-delta-"))
            fetch(log, file, self._copy)
            return read_large_file(spark, str(self._copy), file, columns)
        scheme = SPARK_SCHEMES.get(log.uri.partition("://")[0], "")
        if scheme and has_file_system(spark.sparkContext, scheme):
            return read_far_file(spark, log, file, columns)
        if file.size > MOST_CONTENTS:
            raise SourceError(
                f"{file.path} of the Delta table {log.uri} has about {file.size >> 20:,} MB, too much for the driver, "
                f"and Spark at {spark.sparkContext.master} has no file system for it. Add the package "
                f"{SPARK_PACKAGES.get(scheme, 'of that file system')}, with --conf spark.jars.packages=..."
            )
        return as_frame(spark, columns, [self._rows(file)], f"the Delta table {log.uri}")

    def release(self) -> None:
        """Delete the copy of a file that Spark has read."""
        copy, self._copy = self._copy, None
        if copy is not None:
            shutil.rmtree(copy, ignore_errors=True)

    def _rows(self, file: AddedFile) -> pa.Table:
        return with_chunk(read_file(self._log, file, self._all_columns), file.path)

    def folders(self) -> tuple[str, ...]:
        return (glob.escape(self._log.uri),) if self._log.is_local else ()

    def verify(self, loaded: Range) -> None:
        """Files of a Delta table never change; one that is removed is noticed when it is read."""

    # --- contents of dimensions -------------------------------------------------------------------------------

    def contents(self, loaded: Range | None) -> tuple[DeltaContents | None, Pending]:
        before = None if loaded is None else expect_kind(loaded, DeltaContents, self)
        sight = self._newest.ask(before)
        found, note = sight.seen or (None, "")
        note = sight.problem or note
        return found, Pending(note=note, missing=bool(note) and before is None, looked_at=sight.at)

    def _look_at_contents(self, loaded: DeltaContents | None) -> tuple[DeltaContents | None, str]:
        known = self._newest.last
        before = loaded if known is None or known[0] is None else known[0]
        if before is not None and self._log.entry(before.version) and self._log.entry(before.version + 1) is None:
            return before, ""
        if not self._log.versions():
            return None, f"waiting for the Delta table {self._log.uri}, which does not exist"
        table = self._log.table()
        name, version = str(table.metadata().id), table.version()
        if before is not None and before.table == name and not self._changed_between(before.version, version):
            return replace(before, version=before.version), ""
        files = self._log.contents(version)
        entry = self._log.entry(version)
        committed = 0.0 if entry is None else entry.committed / 1000
        size = sum(file.size for file in files)
        return DeltaContents(version, name, len(files), size=size, newest=committed), ""

    def _changed_between(self, before: int, version: int) -> bool:
        """Whether rows have changed after a version; True if it is not known."""
        if version < before:
            return True
        entries = (self._log.entry(each) for each in range(before + 1, version + 1))
        return any(entry is None or entry.added or entry.changes_rows for entry in entries)

    def _read_contents(self, wanted: DeltaContents) -> pa.Table:
        import pyarrow as pa
        from deltalake import QueryBuilder

        table = self._log.table(wanted.version)
        there = {field.name.lower(): field.name for field in table.schema().fields}
        names = [there[column.name.lower()] for column in self._all_columns if column.name.lower() in there]
        quoted = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names) or "1"
        rows = pa.table(QueryBuilder().register("contents", table).execute(f"SELECT {quoted} FROM contents").read_all())
        return with_chunk(rows, f"version {wanted.version}")

    def _explained(self, error: Exception) -> str:
        if isinstance(error, SourceError):
            return str(error)
        text = without(first_line(error), map(str, self._options.values()), shortest=4)
        return f"the Delta table {self._log.uri} cannot be read: {text}"


def _range(files: list[FoundFile]) -> DeltaRange:
    last = files[-1]
    return DeltaRange(
        begin=files[0].place,
        end=last.following,
        blocks=len(files),
        size=sum(found.size for found in files),
        newest_version=(last.place[0], last.committed),
        oldest=min(found.arrived for found in files),
        newest=max(found.arrived for found in files),
        of_contents=last.of_contents,
    )
