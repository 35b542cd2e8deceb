"""Queries inside Spark tasks: the rows of a serial run, over any number of updates, from states that commits name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from headgate.stream import Collect, Query, QueryDeclarationError, Stream, from_batches, run
from headgate.stream.spark.on_spark import on_spark
from headgate.stream.spark.snapshot_file import SnapshotError, read_snapshots
from headgate.stream.spark.update import StoredStates, Update, working_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string()), ("price", pa.float64())])


def rows(first: int, count: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"ts": 10 * n, "user": n * 7 % 11, "item": f"item{n % 5}", "price": float(n % 13)}
            for n in range(first, first + count)
        ],
        SCHEMA,
    )


def files(spark: SparkSession, folder: Path, number: int, table: pa.Table) -> DataFrame:
    """Rows as an update would find them: in a file named after the update that brought them."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f"u{number:06d}.parquet")
    return spark.read.parquet(str(folder / f"u{number:06d}.parquet"))


def expensive(stream: Stream) -> Stream:
    return stream.filter(pc.field("price") > 6).project("ts", "user", gross=pc.field("price") * 1.2)


def totals(stream: Stream) -> Stream:
    return stream.filter(pc.field("price") > 2).key_by("user").running(n="count", spent=("sum", "price"))


def serially(build: Any, table: pa.Table) -> list[dict[str, Any]]:
    sink, query = Collect(), Query("q")
    build(query.source(from_batches(table))).to(sink)
    run(query, workers=1)
    return sink.rows()


def by_user(found: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The sequence of each key: buckets come in any order, the rows of a key do not."""
    users: dict[int, list[dict[str, Any]]] = {}
    for row in found:
        users.setdefault(row["user"], []).append(row)
    return users


def updated(frame: DataFrame, update: Update, build: Any = totals, **options: Any) -> list[dict[str, Any]]:
    with working_on(update):
        made = on_spark(frame, build, **{"keys": ["user"], "time": "ts", "buckets": 3, **options})
    return list(made.toArrow().to_pylist())


def test_a_query_without_states_gives_each_row_its_answer(spark: SparkSession, tmp_path: Path) -> None:
    table = rows(0, 200)
    frame = files(spark, tmp_path, 1, table)
    assert list(on_spark(frame, expensive).toArrow().to_pylist()) == serially(expensive, table)


def test_updates_go_on_from_the_states_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    stored: dict[str, StoredStates] = {}
    found: list[dict[str, Any]] = []
    for number, first in enumerate((0, 40, 90), start=1):
        update = Update(number, tmp_path / "states", stored)
        found += updated(files(spark, tmp_path / "in", number, rows(first, 50)), update)
        stored = {name: StoredStates.from_json(each.to_json()) for name, each in update.states().items()}
    everything = pa.concat_tables([rows(first, 50) for first in (0, 40, 90)])
    # rows 40 to 49 and 90 to 99 come twice, the second time late: in the order of arrival of their update
    expected = serially(totals, everything)
    assert by_user(found) == by_user(expected)
    assert len(found) == len(expected) > 100
    assert set(stored["query"].files) <= {0, 1, 2}


def test_an_update_that_is_made_again_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    first = Update(1, tmp_path / "states")
    updated(files(spark, tmp_path / "in", 1, rows(0, 50)), first)
    stored = first.states()
    frame = files(spark, tmp_path / "in", 2, rows(50, 50))
    attempts = [by_user(updated(frame, Update(2, tmp_path / "states", stored))) for _ in range(3)]
    assert attempts[0] == attempts[1] == attempts[2]
    expected = by_user(serially(totals, rows(0, 100)))
    assert {user: found[-1] for user, found in attempts[0].items()} == {u: f[-1] for u, f in expected.items()}


def test_what_tasks_did_is_told(spark: SparkSession, tmp_path: Path) -> None:
    update = Update(1, tmp_path / "states")
    updated(files(spark, tmp_path / "in", 1, rows(0, 100)), update)
    done = update.queries["query"].done()
    assert sum(each.rows_in for each in done) == 100
    assert {operator["name"] for operator in done[0].operators} == {"source", "filter", "running", "sink"}
    for each in done:
        assert each.file is not None
        states, note = read_snapshots(Path(each.file))
        assert list(states) == ["running"]
        assert (note["update"], note["bucket"]) == (1, each.bucket)


def test_a_query_that_was_changed_is_detected(spark: SparkSession, tmp_path: Path) -> None:
    first = Update(1, tmp_path / "states")
    frame = files(spark, tmp_path / "in", 1, rows(0, 50))
    updated(frame, first)
    stored = first.states()

    def other_filter(stream: Stream) -> Stream:
        return stream.filter(pc.field("price") > 5).key_by("user").running(n="count", spent=("sum", "price"))

    def other_state(stream: Stream) -> Stream:
        return stream.key_by("user").running(n="count", least=("min", "price"))

    updated(frame, Update(2, tmp_path / "states", stored), other_filter)
    with pytest.raises(QueryDeclarationError, match="states do not fit any more: 'running' was"):
        updated(frame, Update(2, tmp_path / "states", stored), other_state)
    with pytest.raises(QueryDeclarationError, match="it has 4 buckets, and its states are in 3"):
        updated(frame, Update(2, tmp_path / "states", stored), buckets=4)


def test_keys_that_would_tear_states_apart_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = files(spark, tmp_path / "in", 1, rows(0, 5))
    with pytest.raises(QueryDeclarationError, match="Spark was to partition by item"):
        on_spark(frame, totals, keys=["item"])
    with pytest.raises(QueryDeclarationError, match="it takes one bucket"):
        on_spark(frame, lambda stream: stream.top_k("price", 3), buckets=2)
    with pytest.raises(SnapshotError, match="cannot be read"):
        read_snapshots(tmp_path / "nothing.state")
