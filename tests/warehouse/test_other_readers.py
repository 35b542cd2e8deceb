"""What other programs read is what is there: deltalake, polars, DuckDB, and Delta's own reader for Spark.

One table with everything that a table goes through; an account of its rows is kept beside it by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.store import TableStore
from tests.services.delta_spark import DeltaSpark
from tests.warehouse.storage_helpers import HOUR, clicks, hours, load

Rows = Counter[tuple[int, int | None]]
#: the rows of a table, at a version or at the newest: the time in microseconds and the amount, null where there is none
Reader = Callable[[Path, int | None], Rows]


@dataclass
class Account:
    """A table and, version by version, the rows that it must have, as values of ``v`` and ``amount``."""

    store: TableStore
    rows: dict[int, Rows] = field(default_factory=dict)
    #: the versions that changed files, but no rows
    maintained: list[int] = field(default_factory=list)

    def note(self, rows: Rows) -> None:
        self.rows[self.store.version] = rows

    def note_maintenance(self) -> None:
        self.maintained.append(self.store.version)
        self.note(self.rows[self.store.version - 1])


def without_amount(*seconds: int) -> Rows:
    return Counter((round(second * 1e6), None) for second in seconds)


def with_amount(*seconds: int) -> tuple[pa.Table, Rows]:
    amounts = [7 * second for second in seconds]
    rows = clicks(*seconds).append_column("amount", pa.array(amounts, pa.int64()))
    return rows, Counter((round(second * 1e6), amount) for second, amount in zip(seconds, amounts, strict=True))


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Account:
    """Appended, replaced, made of fewer files, grown by a column, erased in part, rolled up, with a checkpoint."""
    kept = Account(TableStore(tmp_path_factory.mktemp("readers") / "clicks", "ts"))
    store = kept.store
    load(store, 1, clicks(1, 2, HOUR))
    kept.note(without_amount(1, 2, HOUR))
    load(store, 2, clicks(2, 3, HOUR + 1))
    kept.note(without_amount(1, 2, 2, 3, HOUR, HOUR + 1))
    store.compact()
    kept.note_maintenance()
    load(store, 3, clicks(4, 5), hours(0))
    kept.note(without_amount(4, 5, HOUR, HOUR + 1))
    rows, grown = with_amount(6, 7, HOUR + 2, 2 * HOUR)
    load(store, 4, rows, ALL)
    kept.note(grown)
    store.checkpoint()
    rows, more = with_amount(8, 9)
    load(store, 5, rows)
    kept.note(grown + more)
    erased, rest = with_amount(HOUR + 2, 2 * HOUR)
    load(store, 6, erased, hours(0, 1, 2))
    kept.note(rest)
    store.roll_up(48 * HOUR * 1_000_000, 24 * HOUR)
    kept.note_maintenance()
    return kept


def _counted(rows: pa.Table) -> Rows:
    amounts = rows["amount"].to_pylist() if "amount" in rows.column_names else [None] * rows.num_rows
    return Counter(zip(rows["v"].to_pylist(), amounts, strict=True))


def read_by_deltalake(table: Path, version: int | None) -> Rows:
    return _counted(DeltaTable(table, version=version).to_pyarrow_table())


def read_by_polars(table: Path, version: int | None) -> Rows:
    polars = pytest.importorskip("polars")
    return _counted(polars.read_delta(str(table), version=version).to_arrow())


def read_by_duckdb(table: Path, version: int | None) -> Rows:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with duckdb.connect() as connection:
        connection.register("clicks", DeltaTable(table, version=version).to_pyarrow_dataset())
        return _counted(pa.table(connection.sql("select * exclude (ts) from clicks").fetch_arrow_table()))


@pytest.mark.parametrize("read", [read_by_deltalake, read_by_polars, read_by_duckdb])
def test_every_version_reads_as_it_was_committed(read: Reader, account: Account) -> None:
    table = account.store.directory
    for version, rows in account.rows.items():
        assert read(table, version) == rows, version
    assert read(table, None) == account.rows[account.store.version]


@pytest.fixture(scope="module")
def delta_spark() -> Iterator[DeltaSpark]:
    if reason := DeltaSpark.missing():
        pytest.skip(reason)
    with DeltaSpark() as reader:
        yield reader


@pytest.mark.services
@pytest.mark.long
def test_deltas_own_reader_reads_every_version(delta_spark: DeltaSpark, account: Account) -> None:
    table = account.store.directory
    for version, rows in account.rows.items():
        columns = ("v", "amount") if any(amount is not None for _, amount in rows) else ("v", "null as amount")
        assert Counter(delta_spark.read(table, *columns, versionAsOf=version)) == rows, version
    # Partition values and statistics are used to leave out files.
    newest = account.rows[account.store.version]
    times = delta_spark.read(table, "count(*)", "count(distinct _partition)", "sum(unix_micros(ts))")
    assert times == [(newest.total(), 1, sum(micros for micros, _ in newest.elements()))]


#: rows of a change feed: the time in microseconds, the amount, "insert" or "delete", the version
Change = tuple[int, int | None, str, int]
CHANGE = ("v", "amount", "_change_type", "_commit_version")


def leads_to_the_newest_version(feed: Callable[[int], list[Change]], account: Account) -> None:
    """The changes since any version lead to the newest one; maintenance changes nothing."""
    newest = account.store.version
    signs = {"insert": 1, "delete": -1}
    for version in range(1, newest + 1):
        rows = Counter(account.rows[version - 1])
        seen = feed(version)
        for value, amount, kind, _ in seen:
            rows[value, amount] += signs[kind]
        assert +rows == account.rows[newest], version
        assert not {number for *_, number in seen}.intersection(account.maintained)


def test_the_change_feed_of_deltalake_leads_to_the_newest_version(account: Account) -> None:
    def feed(since: int) -> list[Change]:
        changes = pa.table(DeltaTable(account.store.directory).load_cdf(starting_version=since).read_all())
        return list(zip(*(changes[name].to_pylist() for name in CHANGE), strict=True))

    leads_to_the_newest_version(feed, account)


@pytest.mark.services
@pytest.mark.long
def test_the_change_feed_of_deltas_own_reader_leads_to_the_newest_version(
    delta_spark: DeltaSpark, account: Account
) -> None:
    def feed(since: int) -> list[Change]:
        options: dict[str, Any] = {"readChangeFeed": "true", "startingVersion": since}
        return delta_spark.read(account.store.directory, *CHANGE, **options)

    leads_to_the_newest_version(feed, account)
