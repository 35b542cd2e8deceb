"""Checks of a commit before it is written. The Delta library checks none of this itself."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath, relative
from headgate.warehouse.storage import schemas
from headgate.warehouse.storage.errors import SchemaError, StorageError
from headgate.warehouse.storage.files import ALL, DATA_DIRECTORY, DataFile, Everything, NewFile, State, directory_of
from headgate.warehouse.storage.live import FileIndex
from headgate.warehouse.storage.partitions import EVENT_TIME, partition_start


def admit_files(
    table: AnyPath, files: Iterable[NewFile], index: FileIndex, schema: pa.Schema, partitioned: bool
) -> None:
    """Refuse files that are not there, not new, not below the table's data, or unfit for its partitions or columns."""
    seen: set[str] = set()
    files = list(files)
    listed = _listed(table, files) if isinstance(table, ObjectPath) else None
    for new in files:
        file = new.file
        if file.path in seen or file.path in index:
            raise StorageError(f"{file.path} is in the table or in this commit already; each file is added once")
        seen.add(file.path)
        _admit_path(table, file, listed)
        _admit_times(file, partitioned)
        schemas.check_file(new.schema, schema, file.path)


def admit_state(state: State) -> None:
    """Refuse a state that JSON cannot store without a change."""
    try:
        returned = json.loads(json.dumps(dict(state), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise StorageError(f"the state of a commit must be plain JSON: {error}; got {state!r}") from error
    if returned != state:
        raise StorageError(f"the state of a commit must come back from JSON as it is; got {state!r}")


def admit_schema(
    current: pa.Schema | None,
    update: pa.Schema,
    time_column: str | None,
    replaced: Collection[str] | Collection[DataFile] | Everything | None,
) -> pa.Schema | None:
    """The table's new columns if ``update`` creates the table or changes them; None if they stay as they are.

    Columns are added. In a commit that replaces all of the table, they may also be lost or change their types.
    """
    stored = schemas.storable(update)
    if time_column is not None and (time_column not in stored.names or stored.field(time_column).type != EVENT_TIME):
        raise SchemaError(f"the time column {time_column!r} must be a column of {EVENT_TIME}; got {stored}")
    if current is None:
        return stored
    merged = _replacing(current, stored) if replaced is ALL else schemas.merge(current, stored)
    if merged is current:
        return None
    if time_column is None and replaced is not ALL:
        # Delta's library changes columns only together with replacing something, and here there is no partition.
        raise StorageError(
            "a table without event time can gain columns only in a commit that replaces all of it; "
            f"gained: {merged.names[len(current.names) :]}"
        )
    return merged


def _replacing(current: pa.Schema, update: pa.Schema) -> pa.Schema:
    """The columns after all rows were replaced; those there are, if they differ in order only."""
    same = {(field.name, field.type) for field in current} == {(field.name, field.type) for field in update}
    return current if same else update


def _listed(table: ObjectPath, files: Iterable[NewFile]) -> dict[str, int]:
    """{path: size} of all objects in the directories of ``files``: a request for each directory, not for each file."""
    names = {directory_of(new.file.path) for new in files} - {""}
    found = [path for name in names for path in (table / DATA_DIRECTORY / name).rglob("*")]
    return {relative(path, table): path.stat().st_size for path in found}


def _admit_path(table: AnyPath, file: DataFile, listed: dict[str, int] | None) -> None:
    parts = PurePosixPath(file.path).parts
    if len(parts) < 2 or parts[0] != DATA_DIRECTORY or ".." in parts:
        raise StorageError(f"{file.path!r} must be a path below {table / DATA_DIRECTORY}, relative to {table}")
    try:
        size = (table / file.path).stat().st_size if listed is None else listed[file.path]
    except (FileNotFoundError, KeyError):
        raise StorageError(f"{table / file.path} does not exist; it was deleted after it was written") from None
    if size != file.size:
        raise StorageError(f"{table / file.path} has {size} bytes; expected {file.size}, as when it was written")


def _admit_times(file: DataFile, partitioned: bool) -> None:
    if (file.partition is not None) != partitioned:
        has = "has" if partitioned else "does not have"
        raise StorageError(f"{file.path} is in partition {file.partition!r}, but its table {has} event time")
    if file.partition is None:
        return
    if file.first is None or file.last is None or not partition_start(file.partition) <= file.first <= file.last:
        raise StorageError(
            f"{file.path} has event times {file.first} to {file.last}, which do not lie in its partition "
            f"{file.partition!r} (from {partition_start(file.partition)})"
        )
