"""The log of a Delta table that another program writes, read version by version.

An entry of the log is a JSON file that never changes once it is there. Only what a stream needs is kept of it: the
files whose rows it added, and whether it changed or removed rows. Entries of maintenance move rows to other files and
say ``dataChange: false``; they add nothing. The table may lie in a folder or at any address that `deltalake` can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headgate.warehouse.sources.errors import SourceError

if TYPE_CHECKING:
    import pyarrow.fs as pa_fs  # type: ignore[import-untyped]
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file of a Delta table: its path in it, its size, and the values of the partition columns, which it has not."""

    path: str
    size: int
    partition: Mapping[str, str | None]
    has_deleted_rows: bool = False


@dataclass(frozen=True, slots=True)
class ForeignEntry:
    """One version: when it was committed, in milliseconds, the files whose rows it added, and whether rows changed.

    ``changes_rows``: it removed or replaced rows of earlier versions. ``renames_columns``: from it on, columns have
    other names in the files than in the table.
    """

    version: int
    committed: int
    added: tuple[AddedFile, ...] = ()
    changes_rows: bool = False
    renames_columns: bool = False


class ForeignLog:
    """The log at one place. Every method may be called from every thread; all of them read, and may wait for it."""

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        self.uri = uri
        self.options = dict(storage_options)
        self._files: pa_fs.FileSystem | None = None

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def files(self) -> pa_fs.FileSystem:
        """The files of the table, by their paths in it."""
        if self._files is None:
            import pyarrow.fs as pa_fs
            from deltalake.fs import DeltaStorageHandler

            if self.is_local:
                self._files = pa_fs.SubTreeFileSystem(self.uri, pa_fs.LocalFileSystem())
            else:
                self._files = pa_fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options or None))
        return self._files

    def entry(self, version: int) -> ForeignEntry | None:
        """The entry of a version; None if there is none, not yet or not any more."""
        path = f"_delta_log/{version:020}.json"
        try:
            if self.is_local:  # a third of the time
                with open(os.path.join(self.uri, path), "rb") as file:
                    text = file.read()
            else:
                with self.files.open_input_stream(path) as stream:
                    text = stream.read()
        except FileNotFoundError:
            return None
        try:
            return _parsed(version, [json.loads(line) for line in text.splitlines() if line])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(
                f"version {version} of the Delta table {self.uri} cannot be understood ({type(error).__name__}: "
                f"{error}); it may be just being written"
            ) from None

    def versions(self) -> list[int]:
        """The versions whose entries are there, in order; empty if there is no table."""
        import pyarrow.fs as pa_fs

        listed = self.files.get_file_info(pa_fs.FileSelector("_delta_log", allow_not_found=True))
        names = [os.path.basename(info.path) for info in listed]
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def table(self, version: int | None = None) -> DeltaTable:
        """The table at a version, or at the newest one."""
        from deltalake import DeltaTable

        return DeltaTable(self.uri, version=version, storage_options=self.options or None)

    def contents(self, version: int) -> tuple[AddedFile, ...]:
        """The files that hold all rows at a version."""
        import pyarrow as pa

        table = self.table(version)
        actions = pa.table(table.get_add_actions()).to_pylist()
        with_deleted_rows = _with_deletion_vectors(table)
        found = [
            AddedFile(
                unquote(action["path"]),
                int(action["size_bytes"]),
                {name: _partition_text(value) for name, value in (action.get("partition") or {}).items()},
                any(uri.endswith(f"/{unquote(action['path'])}") for uri in with_deleted_rows),
            )
            for action in actions
        ]
        return tuple(sorted(found, key=lambda file: file.path))

    def renames_columns(self) -> bool:
        """Whether the columns have other names in the files than in the table."""
        return _renames(self.table().metadata().configuration)


def _with_deletion_vectors(table: DeltaTable) -> list[str]:
    """The files, as addresses, in which rows are marked as deleted."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return []
    return [unquote(str(uri)) for batch in table.deletion_vectors() for uri in batch["filepath"].to_pylist()]


def _partition_text(value: object) -> str | None:
    """The value of a partition column as a log entry writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(" ", "microseconds")
    return str(value)


def _parsed(version: int, actions: list[dict[str, Any]]) -> ForeignEntry:
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    adds = [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]
    removes = [action for action in actions if "remove" in action and action["remove"]["dataChange"]]
    committed = info.get("inCommitTimestamp") or info.get("timestamp")
    if committed is None:
        committed = max((int(add.get("modificationTime", 0)) for add in adds), default=0)
    return ForeignEntry(
        version,
        int(committed),
        tuple(
            AddedFile(
                unquote(add["path"]),
                int(add["size"]),
                dict(add.get("partitionValues") or {}),
                bool(add.get("deletionVector")),
            )
            for add in adds
        ),
        bool(removes),
        any(_renames(action["metaData"].get("configuration")) for action in actions if "metaData" in action),
    )


def _renames(configuration: Mapping[str, Any] | None) -> bool:
    return bool((configuration or {}).get("delta.columnMapping.mode", "none") != "none")
