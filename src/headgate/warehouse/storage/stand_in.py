"""The next entry of a table's log as a content: for logs that `deltalake` cannot write to itself.

The library has no way to make an entry without writing it, and none to say how it is written. So it writes to a table
that stands in for the real one: a temporary folder with a log of the same table, as far as entries depend on it. That
is its protocol, its metadata, and the files that the library looks for by itself. Then the entry is read from there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from deltalake import DeltaTable
from deltalake.transaction import AddAction

from headgate.places.place import AnyPath
from headgate.warehouse.storage.history import LOG_DIRECTORY, entry_path


def stand_in(table: DeltaTable, folder: Path, files: Sequence[AddAction]) -> DeltaTable:
    """A table in ``folder``, which is made, with the schema, id and settings of ``table`` and with these files only."""
    protocol, metadata = table.protocol(), table.metadata()
    versions: dict[str, object] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    for key, features in (("readerFeatures", protocol.reader_features), ("writerFeatures", protocol.writer_features)):
        if features is not None:
            versions[key] = features
    described = {
        "id": str(metadata.id),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": metadata.partition_columns,
        "createdTime": metadata.created_time,
        "configuration": metadata.configuration,
    }
    entry = entry_path(folder, 0)
    assert isinstance(entry, Path)
    entry.parent.mkdir(parents=True)
    entry.write_text("".join(f"{json.dumps(each)}\n" for each in ({"protocol": versions}, {"metaData": described})))
    made = DeltaTable(folder)
    if files:
        made.create_write_transaction(list(files), "append", made.schema(), metadata.partition_columns)
        made.update_incremental()
    return made


def newest_content(folder: Path, table: AnyPath) -> bytes:
    """The newest entry of the log in ``folder``, with the place of ``table`` where it names its own."""
    newest = max((folder / LOG_DIRECTORY).glob("*.json"))
    first, _, others = newest.read_text(encoding="utf-8").partition("\n")
    action = json.loads(first)
    parameters = action.get("commitInfo", {}).get("operationParameters", {})
    if "location" in parameters:
        parameters["location"] = str(table)
        first = json.dumps(action, separators=(",", ":"))
    return f"{first}\n{others}".encode()
