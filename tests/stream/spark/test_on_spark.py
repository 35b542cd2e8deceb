"""Queries inside Spark tasks: the rows of a serial run, over any number of updates, from states that commits name."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import HeadgateError, ParameterError, UserCodeError
from headgate.stream import Collect, Query, QueryDeclarationError, Stream, from_batches, run
from headgate.stream.spark.on_spark import on_spark
from headgate.stream.spark.state_files import SnapshotError, read_rejected, read_snapshots, read_states
from headgate.stream.spark.update import HostedUpdate, StoredStates, share_passes

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


def updated(frame: DataFrame, update: HostedUpdate, build: Any = totals, **options: Any) -> list[dict[str, Any]]:
    update.take(on_spark(frame, build, **{"keys": ["user"], "time": "ts", "buckets": 3, **options}))
    return list(update.frame.toArrow().to_pylist())


def test_a_query_without_states_gives_each_row_its_answer(spark: SparkSession, tmp_path: Path) -> None:
    table = rows(0, 200)
    frame = files(spark, tmp_path, 1, table)
    assert list(on_spark(frame, expensive).toArrow().to_pylist()) == serially(expensive, table)


#: whether updates are small ones, with one task for all buckets
SIZES = pytest.mark.parametrize("small", [False, True], ids=["a task for each bucket", "one task"])


@pytest.mark.parametrize(
    "small",
    [(False, False, False), (True, True, True), (False, True, False)],
    ids=["a task for each bucket", "one task", "now so, now so"],
)
def test_updates_go_on_from_the_states_of_the_one_before(
    spark: SparkSession, tmp_path: Path, small: tuple[bool, ...]
) -> None:
    stored: dict[str, StoredStates] = {}
    found: list[dict[str, Any]] = []
    for number, first in enumerate((0, 40, 90), start=1):
        update = HostedUpdate(number, tmp_path / "states", stored, small=small[number - 1])
        found += updated(files(spark, tmp_path / "in", number, rows(first, 50)), update)
        stored = {name: StoredStates.from_json(each.to_json()) for name, each in update.states().items()}
    everything = pa.concat_tables([rows(first, 50) for first in (0, 40, 90)])
    # rows 40 to 49 and 90 to 99 come twice, the second time late: in the order of arrival of their update
    expected = serially(totals, everything)
    assert by_user(found) == by_user(expected)
    assert len(found) == len(expected) > 100
    assert set(stored["query"].files) <= {0, 1, 2}


def test_an_update_that_is_made_again_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    first = HostedUpdate(1, tmp_path / "states")
    updated(files(spark, tmp_path / "in", 1, rows(0, 50)), first)
    stored = first.states()
    frame = files(spark, tmp_path / "in", 2, rows(50, 50))
    attempts = [by_user(updated(frame, HostedUpdate(2, tmp_path / "states", stored))) for _ in range(3)]
    assert attempts[0] == attempts[1] == attempts[2]
    expected = by_user(serially(totals, rows(0, 100)))
    assert {user: found[-1] for user, found in attempts[0].items()} == {u: f[-1] for u, f in expected.items()}


def test_what_tasks_did_is_told(spark: SparkSession, tmp_path: Path) -> None:
    update = HostedUpdate(1, tmp_path / "states")
    updated(files(spark, tmp_path / "in", 1, rows(0, 100)), update)
    done = update._queries["query"].task_reports()
    assert sum(each.rows_in for each in done) == 100
    assert {operator["name"] for operator in done[0].operators} == {"source", "filter", "running", "sink"}
    for each in done:
        assert each.states is not None
        states, note = read_states(tmp_path / "states", each.states)
        assert list(states) == ["running"]
        assert (note["update"], note["bucket"]) == (1, each.bucket)


def test_a_query_that_was_changed_is_detected(spark: SparkSession, tmp_path: Path) -> None:
    first = HostedUpdate(1, tmp_path / "states")
    frame = files(spark, tmp_path / "in", 1, rows(0, 50))
    updated(frame, first)
    stored = first.states()

    def other_filter(stream: Stream) -> Stream:
        return stream.filter(pc.field("price") > 5).key_by("user").running(n="count", spent=("sum", "price"))

    def other_state(stream: Stream) -> Stream:
        return stream.key_by("user").running(n="count", least=("min", "price"))

    updated(frame, HostedUpdate(2, tmp_path / "states", stored), other_filter)
    with pytest.raises(QueryDeclarationError, match="states do not fit any more: operator 'running' is"):
        updated(frame, HostedUpdate(2, tmp_path / "states", stored), other_state)
    with pytest.raises(QueryDeclarationError, match="it has 4 buckets, and its states are in 3"):
        updated(frame, HostedUpdate(2, tmp_path / "states", stored), buckets=4)


@pytest.mark.parametrize("buckets", [0, -1, 2.5])
def test_a_number_of_buckets_that_is_none_is_refused(buckets: Any) -> None:
    frame: Any = None  # refused before the frame is looked at
    with pytest.raises(ParameterError, match=rf"buckets is a whole number of at least 1, or None; got {buckets}"):
        on_spark(frame, totals, keys=["user"], buckets=buckets)


def test_keys_that_would_tear_states_apart_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = files(spark, tmp_path / "in", 1, rows(0, 5))
    with pytest.raises(QueryDeclarationError, match="Spark was to partition by item"):
        on_spark(frame, totals, keys=["item"])
    with pytest.raises(QueryDeclarationError, match="it takes one bucket"):
        on_spark(frame, lambda stream: stream.top_k("price", 3), buckets=2)
    with pytest.raises(SnapshotError, match="cannot be read"):
        read_snapshots(tmp_path / "nothing.state")


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 2},
        {"workers": 1, "policy": "fcfs"},
        {"workers": 2, "loop": "rounds"},
        {"loop": "threads"},
        {"packet_rows": 7, "memory_limit": 1 << 40},
    ],
    ids=str,
)
def test_an_engine_on_any_terms_gives_the_same_rows(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    stored: dict[str, StoredStates] = {}
    found: list[dict[str, Any]] = []
    for number in (1, 2):
        update = HostedUpdate(number, tmp_path / "states", stored)
        found += updated(files(spark, tmp_path / "in", number, rows(50 * number, 50)), update, buckets=1, **options)
        stored = update.states()
    assert by_user(found) == by_user(serially(totals, rows(50, 100)))


def test_states_of_an_engine_with_parts_are_taken_up_with_the_parts_they_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    stored: dict[str, StoredStates] = {}
    found: list[dict[str, Any]] = []
    for number, options in enumerate(({"workers": 3}, {}, {"workers": 2}), start=1):
        update = HostedUpdate(number, tmp_path / "states", stored)
        found += updated(files(spark, tmp_path / "in", number, rows(50 * number, 50)), update, **options)
        stored = update.states()
    assert by_user(found) == by_user(serially(totals, rows(50, 150)))


def test_rows_later_than_what_their_key_has_seen_are_rejected_if_the_query_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = HostedUpdate(1, tmp_path / "states")
    updated(files(spark, tmp_path / "in", 1, rows(20, 30)), first, late="reject")
    second = HostedUpdate(2, tmp_path / "states", first.states())
    # rows 0 to 19 lie before what their keys have seen, rows 50 to 59 do not
    frame = files(spark, tmp_path / "in", 2, pa.concat_tables([rows(0, 20), rows(50, 10)]))
    found = updated(frame, second, late="reject")
    second.check()
    rejected = read_rejected(tmp_path / "states", second.rejected_files()).to_pylist()
    assert second.rejected_rows() == len(rejected) == 20
    assert {json.loads(row["raw"])["ts"] for row in rejected} == {10 * n for n in range(20)}
    assert all("late" in row["reason"] for row in rejected)
    in_time = serially(totals, pa.concat_tables([rows(20, 30), rows(50, 10)]))
    last = {user: made[-1] for user, made in by_user(in_time).items()}
    assert {user: made[-1] for user, made in by_user(found).items()}.items() <= last.items()


STAMPED = pa.schema([("at", pa.timestamp("us", "UTC")), ("user", pa.int64())])


def clicks(moments: list[tuple[int, int]]) -> pa.Table:
    """Rows of (second, user)."""
    return pa.Table.from_pylist([{"at": second * 1_000_000, "user": user} for second, user in moments], STAMPED)


def per_minute(stream: Stream) -> Stream:
    return stream.key_by("user").tumbling("at", timedelta(minutes=1)).aggregate(n="count")


@SIZES
def test_windows_close_by_the_time_of_the_whole_stream(spark: SparkSession, tmp_path: Path, small: bool) -> None:
    everybody = [(second, user) for second in range(0, 50, 10) for user in range(6)]
    stored: dict[str, StoredStates] = {}
    found = []
    # the second update has rows of one user only, but its time closes the windows of all
    for number, (moments, clock) in enumerate([(everybody, 40), ([(70, 0)], 70)], start=1):
        update = HostedUpdate(number, tmp_path / "states", stored, clock=("at", clock * 1_000_000), small=small)
        frame = files(spark, tmp_path / "in", number, clicks(moments))
        found.append(updated(frame, update, per_minute, time="at"))
        update.check()
        stored = update.states()
    assert found[0] == []
    assert sorted((row["user"], row["n"]) for row in found[1]) == [(user, 5) for user in range(6)]


def cheap(stream: Stream) -> Stream:
    return stream.key_by("user").running(least=("min", "price"))


def broken(stream: Stream) -> Stream:
    return stream.map(_broken, over="row", schema=SCHEMA, name="divide").key_by("user").running(n="count")


def _broken(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "price": 1 / (row["price"] - row["price"])}


def shared(frame: DataFrame, updates: dict[str, tuple[HostedUpdate, Any]]) -> dict[str, DataFrame]:
    """The frames of several tables' queries, computed in one pass."""
    for update, build in updates.values():
        update.take(on_spark(frame, build, keys=["user"], time="ts", buckets=3))
    assert len(share_passes(update for update, _ in updates.values())) == 1
    return {name: update.frame for name, (update, _) in updates.items()}


@SIZES
def test_queries_of_several_tables_share_one_pass_and_one_may_fail(
    spark: SparkSession, tmp_path: Path, small: bool
) -> None:
    builds = {"spent": totals, "cheapest": cheap, "broken": broken}
    stored: dict[str, dict[str, StoredStates]] = {name: {} for name in builds}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in builds}
    for number in (1, 2):
        frame = files(spark, tmp_path / "in", number, rows(50 * number, 50))
        updates = {
            name: (HostedUpdate(number, tmp_path / name, stored[name], table=name, small=small), build)
            for name, build in builds.items()
        }
        for name, made in shared(frame, updates).items():
            found[name] += made.toArrow().to_pylist()
            if name != "broken":
                updates[name][0].check()
                stored[name] = updates[name][0].states()
        with pytest.raises(UserCodeError, match=r"query 'broken.query' stopped: operator 'divide' failed at packet 0"):
            updates["broken"][0].check()
    for name in ("spent", "cheapest"):
        assert by_user(found[name]) == by_user(serially(builds[name], rows(50, 100)))


def test_a_query_outside_of_any_update_fails_with_the_traceback_of_the_user(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = files(spark, tmp_path / "in", 1, rows(0, 5))
    with pytest.raises(Exception, match=r"operator 'divide' failed(.|\n)*in _broken"):
        on_spark(frame, broken, keys=["user"]).toArrow()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"late": "drop"}, "late is 'process' or 'reject'; got 'drop'"),
        ({"late": "reject", "time": None}, "say keys=.* and time= as well"),
        ({"workers": 0}, "workers must be at least 1; got 0"),
        ({"loop": "merry-go-round"}, "loop is one of dispatch, .*; got 'merry-go-round'"),
        ({"policy": "best"}, "best"),
        ({"time_limit": 0}, "time_limit is a number of seconds above 0"),
    ],
    ids=str,
)
def test_wrong_terms_are_told_at_once(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    frame = files(spark, tmp_path / "in", 1, rows(0, 5))
    with pytest.raises(HeadgateError, match=problem):
        on_spark(frame, totals, **{"keys": ["user"], "time": "ts", **options})
