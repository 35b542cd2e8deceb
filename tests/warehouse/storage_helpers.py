"""Small tables of clicks for the tests of the storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headgate.places.place import AnyPath, delta_table
from headgate.warehouse.storage.fence import GuardedObject, LeaseLostError
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.parquet import read_file
from headgate.warehouse.storage.partitions import partition_label
from headgate.warehouse.storage.store import TableStore

SECOND = 1_000_000
HOUR = 3_600
TIME = pa.timestamp("us", tz="UTC")
CLICKS = pa.schema([("ts", TIME), ("v", pa.int64())])


class Ends:
    """The right to commit, which is lost after so many looks at it."""

    number = 1
    looks = 1_000

    def check(self) -> None:
        self.looks -= 1
        if self.looks < 0:
            raise LeaseLostError("replaced")

    def lost_to(self, number: int, where: str) -> LeaseLostError:
        return LeaseLostError(where)

    def decider(self, table: AnyPath) -> GuardedObject | None:
        return None


def clicks(*seconds: float) -> pa.Table:
    """One row for each event time in seconds since the epoch; ``v`` is the event time in microseconds."""
    micros = [round(second * SECOND) for second in seconds]
    return pa.table({"ts": pa.array(micros, TIME), "v": pa.array(micros, pa.int64())})


def hours(*numbers: int) -> list[str]:
    """The names of hourly partitions, by the number of the hour since the epoch."""
    return [partition_label(number * HOUR * SECOND, HOUR) for number in numbers]


def load(
    store: TableStore, update: int, rows: pa.Table, replace: Any = None, state: dict[str, object] | None = None
) -> int:
    """Write ``rows`` into hourly partitions and commit them as ``update``."""
    files = store.write_arrow(update, rows, HOUR)
    return store.commit(update, files, replace=replace, state=state or {"update": update}, schema=rows.schema)


def values(rows: pa.Table) -> Counter[int]:
    return Counter(rows.column("v").to_pylist())


def seen_by_delta(store: TableStore, version: int | None = None) -> Counter[int]:
    """What another Delta reader finds in the table."""
    table, options = delta_table(store.directory)
    return values(DeltaTable(table, version=version, **options).to_pyarrow_table())


def rows_of(store: TableStore, files: Iterable[Any]) -> Counter[int]:
    """The rows of data files, read one by one."""
    return sum((values(read_file(store.path_of(file))) for file in files), Counter())


@dataclass(frozen=True)
class Changes:
    """How the rows of a table changed between two versions: rows(until) = rows(since) + rows(added) - rows(removed)."""

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]


def changes(store: TableStore, since: int, until: int | None = None) -> Changes:
    """The changes after ``since`` up to ``until``, without files that were added and removed in between."""
    added: dict[str, DataFile] = {}
    removed: dict[str, DataFile] = {}
    for entry in store.versions(since):
        if until is not None and entry.version > until:
            break
        for file in entry.removed:
            if added.pop(file.path, None) is None:
                removed[file.path] = file
        added.update((file.path, file) for file in entry.added)
    return Changes(tuple(added.values()), tuple(removed.values()))


def on_disk(store: TableStore) -> set[str]:
    """Every data file that is there, whether or not a commit names it."""
    return {path.relative_to(store.directory).as_posix() for path in (store.directory / "data").rglob("*.parquet")}


def paths(files: Iterable[Any]) -> set[str]:
    return {file.path for file in files}


def log_entries(store: TableStore) -> list[Path]:
    return sorted((store.directory / "_delta_log").glob("*.json"))


def spark_like(directory: Path, partitions: dict[str, pa.Table], extra: Collection[str] = ()) -> None:
    """Write what Spark leaves behind when it writes ``partitionBy`` the partition column."""
    import pyarrow.parquet as pq

    for label, rows in partitions.items():
        folder = directory / f"_partition={label.replace(':', '%3A')}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / "part-00000-a b.c000.snappy.parquet", store_schema=False)
        (folder / ".part-00000-a b.c000.snappy.parquet.crc").write_bytes(b"crc")
    (directory / "_SUCCESS").touch()
    (directory / "._SUCCESS.crc").touch()
