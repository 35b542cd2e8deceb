"""The data files of a table as plain frozen data, and the directories that updates write them into."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.places.place import AnyPath

#: the directory of a table that holds all its data files
DATA_DIRECTORY = "data"
#: the JSON object that a commit carries: everything needed to continue after a restart
State = Mapping[str, Any]


class Everything(enum.Enum):
    """The type of `ALL`."""

    ALL = "all"


#: as ``replace`` of a commit: every file of the table
ALL: Final = Everything.ALL


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file that a version of the table consists of.

    ``path`` is relative to the table. ``first`` and ``last`` are the least and the largest event time in the file, in
    microseconds. They and ``partition`` are None in tables without event time.

    ``arrived`` orders files by the commit that added their rows: files of one update have the same number, those of
    a later update a larger one. It is the time of the commit in milliseconds, as written in the log. A file that
    maintenance has merged has the largest number of its sources. It is 0 before the commit and in removed files.
    """

    path: str
    partition: str | None
    rows: int
    size: int
    first: int | None
    last: int | None
    arrived: int = 0


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file that is written but not committed yet, with its statistics as JSON and its columns."""

    file: DataFile
    statistics: str = field(repr=False)
    schema: pa.Schema = field(repr=False, compare=False)

    def arriving(self, at: int) -> NewFile:
        """This file in a commit whose rows arrive ``at``."""
        return replace(self, file=replace(self.file, arrived=at))


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows that a commit adds and removes, in files of their own that are not part of the table.

    A commit that replaces a large file because of a few rows says with them which rows have changed.
    """

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One version of the table: the files it consists of and the state that its commit carries."""

    version: int
    state: State
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """How large the newest version is, and how many updates have staged files that are not committed."""

    version: int
    partitions: int
    files: int
    rows: int
    size: int
    staged: int


class Staging:
    """The directories that updates write their files into, before a commit names them.

    Every directory is registered before it exists and until its update is committed. So a directory that is neither
    registered nor named by the log belongs to an update that failed, or to a process that died. Not thread-safe.
    """

    def __init__(self, table: AnyPath) -> None:
        self._data = table / DATA_DIRECTORY
        #: directory name -> the update that writes there, None for maintenance
        self._staged: dict[str, int | None] = {}

    def __len__(self) -> int:
        return len(self._staged)

    def __contains__(self, directory: AnyPath) -> bool:
        return directory.name in self._staged

    def stage(self, update: int | None) -> AnyPath:
        """Register a new directory; the writer creates it."""
        name = f"{'m' if update is None else f'u{update}'}-{secrets.token_hex(6)}"
        self._staged[name] = update
        return self._data / name

    def release(self, directory: AnyPath) -> None:
        del self._staged[directory.name]

    def release_updates(self, newest: int) -> None:
        """Forget the directories of all updates up to ``newest``: they are committed or abandoned."""
        self._staged = {name: update for name, update in self._staged.items() if update is None or update > newest}


def directory_of(path: str) -> str:
    """The name of the staged directory of the file ``path``, relative to its table; '' if there is none."""
    top, _, rest = path.partition("/")
    return rest.split("/")[0] if top == DATA_DIRECTORY else ""
