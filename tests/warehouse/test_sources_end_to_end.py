"""Sources that other programs write, through a running warehouse: the tables have every row once, also after faults."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

import headgate as hg
from headgate.errors import NotFreshError
from tests.services.postgres import PostgresServer, Session
from tests.warehouse.shop_under_fire import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "id bigint, at timestamp, city string, amount double"


def warehouse(folder: Path, source: Any, cities: Any) -> hg.Warehouse:
    wh = hg.Warehouse("shop", path=folder / "wh", sync=False)
    wh.stream("orders", source, time="at")
    wh.dimension("cities", cities)
    wh.sql(
        "sums",
        "SELECT date_trunc('hour', at) AS at, country, count(*) AS n, sum(amount) AS amount FROM orders "
        "JOIN cities USING (city) GROUP BY 1, 2",
        time="at",
    )
    return wh


def totals(wh: hg.Warehouse) -> dict[str, tuple[int, float]]:
    rows = wh.read("sums", incomplete=True).to_pylist()
    found: dict[str, tuple[int, float]] = {}
    for row in rows:
        n, amount = found.get(row["country"], (0, 0.0))
        found[row["country"]] = (n + row["n"], amount + row["amount"])
    return found


def is_fresh(run: Any) -> bool:
    try:
        run.wait_until_fresh()
    except NotFreshError:
        return False
    return True


def orders(first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    moments = pa.array([1_790_000_000_000_000 + 60_000_000 * n for n in numbers], pa.timestamp("us", "UTC"))
    cities = ["bern" if n % 2 else "paris" for n in numbers]
    return pa.table({"id": numbers, "at": moments, "city": cities, "amount": [1.0] * count})


CITIES = pa.table({"city": ["bern", "paris"], "country": ["ch", "fr"]})


def test_tables_follow_delta_tables_of_another_program(tmp_path: Path, spark: Any) -> None:
    write_deltalake(str(tmp_path / "orders"), orders(0, 10), partition_by=["city"])
    write_deltalake(str(tmp_path / "cities"), CITIES)
    wh = warehouse(tmp_path, hg.Delta(tmp_path / "orders"), hg.Delta(tmp_path / "cities"))
    with wh.start(spark=spark) as run:
        run.wait_until_fresh()
        assert totals(wh) == {"ch": (5, 5.0), "fr": (5, 5.0)}
        write_deltalake(str(tmp_path / "orders"), orders(10, 10), mode="append", partition_by=["city"])
        run.wait_until_fresh()
    assert totals(wh) == {"ch": (10, 10.0), "fr": (10, 10.0)}
    write_deltalake(str(tmp_path / "orders"), orders(20, 2), mode="append", partition_by=["city"])
    again = warehouse(tmp_path, hg.Delta(tmp_path / "orders"), hg.Delta(tmp_path / "cities"))
    with again.start(spark=spark) as run:
        run.wait_until_fresh()
    assert totals(again) == {"ch": (11, 11.0), "fr": (11, 11.0)}


@pytest.mark.parametrize(
    ("start", "expected"),
    [("now", {"ch": (2, 2.0), "fr": (3, 3.0)}), ("contents", {"ch": (7, 7.0), "fr": (8, 8.0)})],
)
def test_a_stream_from_now_on_has_what_came_before_its_first_row_and_a_restart(
    tmp_path: Path, spark: Any, start: Any, expected: dict[str, tuple[int, float]]
) -> None:
    log = tmp_path / "wh" / "tables" / "orders" / "_delta_log"
    write_deltalake(str(tmp_path / "orders"), orders(0, 10))
    write_deltalake(str(tmp_path / "cities"), CITIES)
    for moved in (None, orders(10, 3), orders(13, 2)):
        if moved is not None:  # while nobody runs the warehouse
            write_deltalake(str(tmp_path / "orders"), moved, mode="append")
        wh = warehouse(tmp_path, hg.Delta(tmp_path / "orders", start=start), hg.Delta(tmp_path / "cities"))
        with wh.start(spark=spark) as run:
            run.wait_until_fresh()
            wait_for(lambda: log.exists() or None, "the first commit of the stream", 600.0)
    assert totals(wh) == expected


@pytest.mark.services
def test_tables_follow_postgres_through_a_server_that_is_killed(
    tmp_path: Path, spark: Any, postgres: PostgresServer
) -> None:
    uri = postgres.new_database()
    insert = (
        "INSERT INTO orders (at, city, amount) SELECT '2026-09-21Z'::timestamptz + n * interval '1 minute', "
        "CASE n % 2 WHEN 1 THEN 'bern' ELSE 'paris' END, 1 FROM generate_series({}, {}) AS n"
    )
    with Session(uri) as session:
        session.execute(
            "CREATE TABLE orders (id bigserial PRIMARY KEY, at timestamptz, city text, amount double precision)",
            "CREATE TABLE cities (city text PRIMARY KEY, country text)",
            "INSERT INTO cities VALUES ('bern', 'ch'), ('paris', 'fr')",
            insert.format(0, 9),
        )
    wh = warehouse(
        tmp_path,
        hg.Postgres(uri, "orders", key="id", schema=COLUMNS, chunk_rows=4),
        hg.Postgres(uri, "cities", schema="city string, country string"),
    )
    with wh.start(spark=spark) as run:
        run.wait_until_fresh()
        assert totals(wh) == {"ch": (5, 5.0), "fr": (5, 5.0)}
        postgres.kill()
        postgres.start()
        with Session(uri) as session:
            session.execute(insert.format(10, 19))
        # Until the source has looked again, it says that the server cannot be reached.
        wait_for(lambda: is_fresh(run) or None, "tables that are fresh again", 600.0)
    assert totals(wh) == {"ch": (10, 10.0), "fr": (10, 10.0)}


@pytest.mark.long
@pytest.mark.services
def test_a_table_stays_equal_to_one_of_postgres_through_changes_and_a_killed_server(
    tmp_path: Path, spark: Any, postgres: PostgresServer
) -> None:
    uri = postgres.new_database()
    chance = random.Random(5)

    def changed(session: Session, truncates: bool = False) -> None:
        for _ in range(30):
            key, big = chance.randrange(20), f"repeat('{chance.choice('xyz')}', {chance.choice([1, 9000])})"
            statements = [
                f"INSERT INTO items VALUES ({key}, {key}.5, {big}) ON CONFLICT (id) DO UPDATE SET big = excluded.big",
                f"UPDATE items SET price = price + 1 WHERE id = {key}",
                f"DELETE FROM items WHERE id = {key}",
            ]
            session.execute(chance.choice(statements))
        if truncates:
            session.execute("TRUNCATE items", "INSERT INTO items VALUES (1, 2, 'after')")

    def warehouse_of_items() -> hg.Warehouse:
        wh = hg.Warehouse("shop", path=tmp_path / "wh", sync=False)
        columns = "id int, price decimal(10, 2), big string"
        source = hg.PostgresChanges(uri, "items", slot=f"e_{uri[-12:]}", schema=columns, truncate="row")
        wh.stream("changes", source, time="_committed")
        wh.sql("items", source.current_rows("changes", "id"), time=None)
        never_truncated = hg.PostgresChanges(uri, "items", schema=columns)
        wh.sql("items_by_key", never_truncated.current_rows("changes", "id"), time=None, mode="keys", key="id")
        return wh

    def rows_here(wh: hg.Warehouse, table: str = "items") -> dict[int, tuple[Any, ...]]:
        rows = wh.read(table, incomplete=True).to_pylist()
        return {row["id"]: (str(row["price"]), row["big"]) for row in rows}

    def rows_there(session: Session) -> dict[int, tuple[Any, ...]]:
        return {row[0]: row[1:] for row in session.rows("SELECT id, price::text, big FROM items")}

    with Session(uri) as session:
        session.execute("CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2), big text)")
        session.execute("ALTER TABLE items ALTER big SET STORAGE EXTERNAL")
        changed(session)
        wh = warehouse_of_items()
        with wh.start(spark=spark) as run:
            run.wait_until_fresh()
            assert rows_here(wh) == rows_there(session)
            changed(session)
            there = rows_there(session)

            def all_are_the_same() -> bool | None:
                return rows_here(wh) == rows_here(wh, "items_by_key") == there or None

            wait_for(all_are_the_same, "tables that are those of the server", 600.0)
        changed(session, truncates=True)
    wh = warehouse_of_items()
    with wh.start(spark=spark) as run:
        postgres.kill()
        postgres.start()
        with Session(uri) as session:
            changed(session)
            wait_for(lambda: is_fresh(run) or None, "tables that are fresh again", 600.0)
            assert rows_here(wh) == rows_there(session)
