"""What the tables must hold, computed from the landed files with plain Python, and what they do hold.

Nothing of Headgate is used: files are parsed here, and tables are read with `deltalake`, as any reader would.
"""

from __future__ import annotations

import csv
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from benchmarks.fault.feeder import BAD

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE, HOUR = 60_000_000, 3_600_000_000
#: the columns that are compared, in this order; the last of a rejected row is its raw text
COLUMNS = {
    "orders": ("ts", "id", "customer", "item", "amount"),
    "clicks": ("ts", "id", "customer"),
    "items": ("item", "category"),
    "large": ("ts", "id", "customer", "amount"),
    "categorised": ("ts", "id", "amount", "category"),
    "marked": ("ts", "id", "mark"),
    "by_minute": ("minute", "item", "orders", "amount"),
    "totals": ("customer", "orders", "amount"),
    "visitors": ("minute", "customers"),
    "active": ("customer", "items"),
    "top": ("customer", "amount"),
    "by_hour": ("hour", "orders", "largest"),
    "orders__rejected": ("raw",),
}
#: those computed from other tables, which may be computed again if they are lost
DERIVED = tuple(name for name in COLUMNS if name not in ("orders", "clicks", "items", "orders__rejected"))

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Difference:
    """How a table differs from what it must hold. `error` if it cannot be read at all."""

    table: str
    missing: int = 0
    surplus: int = 0
    example: str = ""
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"{self.table} cannot be read: {self.error}"
        return f"{self.table}: {self.missing} rows missing, {self.surplus} too many, such as {self.example}"


def compare(landing: Path, tables: Path, names: Iterable[str] = tuple(COLUMNS)) -> list[Difference]:
    """The tables below `tables` that do not hold what the files below `landing` say."""
    wanted = expected(landing)
    differences = []
    for name in names:
        try:
            got = read(tables / name, COLUMNS[name])
        except Exception as error:
            if wanted[name] or (tables / name).exists():
                differences.append(Difference(name, error=f"{type(error).__name__}: {error}"[:300]))
            continue
        missing, surplus = wanted[name] - got, got - wanted[name]
        if missing or surplus:
            example = str(next(iter((missing or surplus).items())))
            differences.append(Difference(name, missing.total(), surplus.total(), example))
    return differences


def expected(landing: Path) -> dict[str, Rows]:
    """What every table must hold."""
    orders, rejected = _orders(landing / "orders")
    clicks = [
        (micros(row["ts"]), int(row["id"]), int(row["customer"]))
        for path in _files(landing / "clicks")
        for row in _csv(path)
    ]
    items = {int(row["item"]): row["category"] for path in _files(landing / "items") for row in _csv(path)}
    by_minute: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    kinds: dict[int, set[int]] = defaultdict(set)
    for ts, _, customer, item, amount in orders:
        for group in (by_minute[ts // MINUTE * MINUTE, item], totals[customer]):
            group[0] += 1
            group[1] += amount
        kinds[customer].add(item)
    visitors: dict[int, set[int]] = defaultdict(set)
    for ts, _, customer in clicks:
        visitors[ts // MINUTE * MINUTE].add(customer)
    by_hour: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for (minute, _), (count, amount) in by_minute.items():
        hour = by_hour[minute // HOUR * HOUR]
        hour[:] = hour[0] + count, max(hour[1], amount)
    top = sorted((-amount, customer) for customer, (_, amount) in totals.items())[:10]
    return {
        "orders": Counter(orders),
        "clicks": Counter(clicks),
        "items": Counter(items.items()),
        "large": Counter((ts, id, customer, amount) for ts, id, customer, _, amount in orders if amount >= 500),
        "categorised": Counter((ts, id, amount, items[item]) for ts, id, _, item, amount in orders if item in items),
        "marked": Counter((ts, id, amount * 7 % 13) for ts, id, _, _, amount in orders),
        "by_minute": Counter((*key, *value) for key, value in by_minute.items()),
        "totals": Counter((key, *value) for key, value in totals.items()),
        "visitors": Counter((minute, len(customers)) for minute, customers in visitors.items()),
        "active": Counter((customer, len(kinds[customer])) for customer, (n, _) in totals.items() if n >= 5),
        "top": Counter((customer, -amount) for amount, customer in top),
        "by_hour": Counter((key, *value) for key, value in by_hour.items()),
        "orders__rejected": Counter((line,) for line in rejected),
    }


def read(table: Path, columns: tuple[str, ...]) -> Rows:
    """The rows of a Delta table; times as microseconds. Of rejected rows only those of files that are not bad."""
    if columns == ("raw",):
        found = _verified(table, ["raw", "file"])
        kept = zip(found["raw"].to_pylist(), found["file"].to_pylist(), strict=True)
        return Counter((raw,) for raw, file in kept if not Path(file).name.startswith(BAD))
    found = _verified(table, list(columns))
    values = [[_plain(value) for value in found[column].to_pylist()] for column in columns]
    return Counter(zip(*values, strict=True))


def is_damaged(table: Path, columns: tuple[str, ...]) -> bool:
    """Whether a reader that compares checksums cannot read a table that is there."""
    if not table.exists():
        return False
    for _ in range(3):  # files may be deleted while they are read
        try:
            read(table, columns)
            return False
        except Exception:
            time.sleep(0.5)
    return True


def _verified(table: Path, columns: list[str]) -> pa.Table:
    """Columns of a Delta table, from files whose checksums are compared wherever they have any."""
    from deltalake import DeltaTable

    opened = DeltaTable(table)
    files = [unquote(urlparse(uri).path) for uri in opened.file_uris()]
    parts = [pq.ParquetFile(file, page_checksum_verification=True).read(columns) for file in files]
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({name: [] for name in columns})


def micros(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def _files(folder: Path) -> Iterator[Path]:
    """The good files, each complete: hidden ones are still being written."""
    for path in sorted(folder.iterdir()):
        if not path.name.startswith((".", BAD)):
            yield path


def _csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _orders(folder: Path) -> tuple[list[tuple[int, int, int, int, int]], list[str]]:
    """The rows, and the lines that are none."""
    rows, rejected = [], []
    for path in _files(folder):
        for line in path.read_text("utf-8").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                rejected.append(line)
                continue
            rows.append((micros(row["ts"]), row["id"], row["customer"], row["item"], row["amount"]))
    return rows, rejected
