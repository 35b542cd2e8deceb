"""Stream queries inside tables: the table is that of one serial run, over restarts, with states where commits say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.core.errors import DeclarationError
from headgate.stream import Collect, Query, Stream, from_batches, on_spark, run
from headgate.stream.spark.update import state_folder
from headgate.warehouse.opened import OpenWarehouse, open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = "ts timestamp, user long, price double"
ARROW = pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.int64()), ("price", pa.float64())])


def totals(stream: Stream) -> Stream:
    """Each row with what its user has spent so far."""
    with_key = stream.filter(pc.field("price") > 1).key_by("user")
    return with_key.fold(_spend, 0.0, pa.schema([*ARROW, ("spent", pa.float64())]))


def _spend(spent: float, row: Any) -> tuple[float, list[dict[str, Any]]]:
    return spent + row["price"], [{**row, "spent": spent + row["price"]}]


def warehouse(folder: Path, mode: str = "append") -> hg.Warehouse:
    wh = hg.Warehouse("streams", folder / "warehouse")
    landing = folder / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    source = hg.Files(str(landing), format="json", schema=SCHEMA, settle=0)
    wh.stream("clicks", source, time="ts", partition="1 hour", period=2.0)

    @wh.table(time="ts", mode=mode, partition="1 hour")
    def spent(clicks: DataFrame) -> DataFrame:
        return on_spark(clicks, totals, keys=["user"], time="ts", buckets=2)

    return wh


def land(folder: Path, number: int, count: int = 40) -> list[dict[str, Any]]:
    """A file of rows, each a second after the one before."""
    first = number * count
    rows = [
        {"ts": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z", "user": n % 7, "price": float(n % 5)}
        for n in range(first, first + count)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "landing" / f"{number:04d}.json").write_text(text, encoding="utf-8")
    return rows


def bring_up_to_date(opened: OpenWarehouse, spark: SparkSession) -> None:
    for name in ("clicks", "spent"):
        while opened.nodes[name].update(spark) is not None:
            opened.updated(name)
        opened.updated(name)


def by_user(rows: list[dict[str, Any]]) -> dict[int, list[tuple[Any, float]]]:
    found: dict[int, list[tuple[Any, float]]] = {}
    for row in sorted(rows, key=lambda row: (row["user"], row["ts"])):
        found.setdefault(row["user"], []).append((row["ts"], row["spent"]))
    return found


def serially(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    typed = pa.Table.from_pylist(rows, pa.schema([("ts", pa.string()), *list(ARROW)[1:]]))
    stamps = pc.strptime(typed.column("ts"), "%Y-%m-%dT%H:%M:%SZ", "us").cast(ARROW.field("ts").type)
    sink, query = Collect(), Query("q")
    totals(query.source(from_batches(typed.set_column(0, "ts", stamps)))).to(sink)
    run(query, workers=1)
    return sink.rows()


def test_a_table_goes_on_from_its_states_after_every_update_and_restart(spark: SparkSession, tmp_path: Path) -> None:
    landed: list[dict[str, Any]] = []
    for number in range(4):
        opened = open_warehouse(warehouse(tmp_path).spec(), spark)
        landed += land(tmp_path, number)
        bring_up_to_date(opened, spark)
    store = opened.nodes["spent"].store
    found = store.rows(store.files()).to_pylist()
    assert by_user(found) == by_user(serially(landed))
    queries: Any = store.state["queries"]
    named = set(queries["query"]["files"].values())
    assert named <= {path.name for path in state_folder(store.directory).iterdir()}
    assert len(named) == 2


def test_a_table_with_states_must_be_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="holds a stream query with states"):
        open_warehouse(warehouse(tmp_path, mode="recompute").spec(), spark)
