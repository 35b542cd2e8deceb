"""What ``on_spark`` gives: a frame that is described by the table's function and computed by the update."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import DeclarationError
from headgate.stream import Stream, on_spark
from headgate.stream.spark.hosted_frame import HostedFrame, describing, requests_in
from headgate.stream.spark.update import HostedUpdate, share_passes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def frame(spark: SparkSession, tmp_path: Path) -> DataFrame:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"ts": list(range(8)), "user": [n % 2 for n in range(8)]}), path)
    return spark.read.parquet(str(path))


def even(stream: Stream) -> Stream:
    return stream.filter(pc.field("user") == 0)


def counted(stream: Stream) -> Stream:
    return stream.key_by("user").running(n="count")


def count(frame: DataFrame | HostedFrame, name: str = "query") -> HostedFrame:
    return on_spark(frame, counted, keys=["user"], time="ts", buckets=2, name=name)


def rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[column] for column in columns) for row in frame.toArrow().to_pylist())


def test_methods_of_a_data_frame_are_called_when_the_frame_is_resolved(frame: DataFrame) -> None:
    from pyspark.sql import functions as F

    described = count(frame).where(F.col("n") > 1).withColumn("twice", F.col("n") * 2).select("user", "twice")
    assert isinstance(described, HostedFrame)
    assert rows(described, "user", "twice") == [(0, 4), (0, 6), (0, 8), (1, 4), (1, 6), (1, 8)]


def test_columns_can_be_named_as_in_a_data_frame(frame: DataFrame) -> None:
    described = count(frame)
    assert rows(described.where(described.n == 4).select(described["user"]), "user") == [(0,), (1,)]
    assert rows(described[described.n == 4][["user"]], "user") == [(0,), (1,)]


def test_groups_can_be_aggregated(frame: DataFrame) -> None:
    assert rows(on_spark(frame, even).groupBy("user").count(), "user", "count") == [(0, 4)]


def test_two_queries_of_one_table_can_be_joined_and_united(frame: DataFrame) -> None:
    both = count(frame, "first").unionByName(count(frame, "second"))
    assert [request.query.name for request in requests_in(both)] == ["first", "second"]
    assert len(rows(both, "user")) == 16
    joined = count(frame, "first").join(frame.selectExpr("ts AS at", "user"), on="user", how="inner")
    assert len(rows(joined, "at")) == 32


def test_a_query_can_read_the_rows_of_another(frame: DataFrame) -> None:
    second = count(on_spark(frame, even, name="even").where("ts > 2"), "counted")
    assert [request.query.name for request in requests_in(second)] == ["even", "counted"]
    assert rows(second, "user", "n") == [(0, 1), (0, 2)]


def test_an_update_resolves_it_with_the_states_of_the_one_before(frame: DataFrame, tmp_path: Path) -> None:
    first = HostedUpdate(1, tmp_path / "states", table="t")
    first.take(count(frame).select("user", "n"))
    assert max(rows(first.frame, "n")) == (4,)
    second = HostedUpdate(2, tmp_path / "states", first.states(), table="t")
    second.take(count(frame).select("user", "n"))
    assert max(rows(second.frame, "n")) == (8,)


@pytest.mark.parametrize(
    "use",
    [
        lambda frame: count(frame).na.fill(0),
        lambda frame: count(frame).stat.sampleBy("user", {0: 1.0, 1: 1.0}, seed=1),
        lambda frame: count(frame).groupBy("user").cogroup(frame.groupBy("user")).applyInArrow(_first, "n long"),
        lambda frame: count(frame).transform(lambda rows, least: rows.where(f"n > {least}"), 0),
        lambda frame: on_spark(frame, even, name="even").transform(count),
    ],
    ids=["na", "stat", "cogroup", "transform", "transform with a query"],
)
def test_whatever_leads_to_a_data_frame_goes_on_from_states(frame: DataFrame, tmp_path: Path, use: Any) -> None:
    states: dict[str, Any] = {}
    found = []
    for number in (1, 2):
        update = HostedUpdate(number, tmp_path / "states", states, table="t")
        update.take(use(frame))
        found.append(max(rows(update.frame, "n")))
        states = update.states()
    assert found == [(4,), (8,)]


def _first(rows: pa.Table, _: pa.Table) -> pa.Table:
    return rows.select(["n"])


def test_a_loop_over_it_goes_over_its_columns_and_ends(frame: DataFrame) -> None:
    described = count(frame)
    assert len(list(described)) == 2
    assert rows(described.select(described[1], described[-2]), "user", "n")[-1] == (1, 4)
    with pytest.raises(TypeError, match=r"takes? a column, its name or its number in brackets; got 1\.5"):
        described[1.5]


def test_it_is_true_has_no_length_is_equal_to_itself_alone_and_can_be_copied(frame: DataFrame) -> None:
    described = count(frame)
    assert described
    assert described is not None
    assert described != None  # noqa: E711 - as somebody may write
    assert described == described  # noqa: PLR0124
    with pytest.raises(TypeError):
        len(described)  # type: ignore[arg-type]
    assert rows(copy.copy(described), "user", "n") == rows(described, "user", "n")


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda frame: frame.unionByName(count(frame)), r"call the method on what on_spark gave"),
        (lambda frame: count(frame).createOrReplaceTempView("v"), "createOrReplaceTempView cannot be used"),
        (lambda frame: count(frame).randomSplit([1.0])[0], "randomSplit cannot be used"),
        (lambda frame: count(frame).pandas_api(), "pandas_api cannot be used"),
        (lambda frame: requests_in(count(frame).union(count(frame))), "two queries of one table are called 'query'"),
    ],
    ids=["a plain frame takes it as an argument", "a view of it", "parts of it", "pandas", "two of one name"],
)
def test_what_would_lose_states_is_refused_with_a_way_out(frame: DataFrame, use: Any, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        use(frame)


def test_a_function_without_return_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="must return a Spark DataFrame; got None"):
        HostedUpdate(1, tmp_path, table="t").take(None)  # type: ignore[arg-type]


def test_queries_that_read_another_ones_rows_share_a_pass_without_losing_states(
    frame: DataFrame, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    first, second = (HostedUpdate(1, tmp_path / name, table=name) for name in ("first", "second"))
    for update in (first, second):
        update.take(count(count(frame, "inner").withColumn("ts", F.col("n")), "outer"))
    share_passes([first, second])
    for update in (first, second):
        assert max(rows(update.frame, "n")) == (4,)
        states = update.states()
        assert list(states) == ["inner", "outer"]
        assert all(each.files for each in states.values())


def test_it_says_what_it_is(frame: DataFrame) -> None:
    assert repr(count(frame)) == "HostedFrame[query: user, n]"
    assert repr(count(frame).select("n")) == "HostedFrame[query: user, n].select(...)"


@pytest.mark.parametrize("method", ["collect", "toArrow", "toPandas", "count", "first", "write"])
def test_the_function_of_a_table_cannot_compute_rows_without_the_states_of_the_table(
    frame: DataFrame, method: str
) -> None:
    rows_of_a_query = count(frame)
    with describing("totals"), pytest.raises(DeclarationError, match=rf"{method} would run .* of table 'totals'"):
        getattr(rows_of_a_query, method)
    with describing("totals"):
        assert rows_of_a_query.select("n").columns == ["n"]
    assert getattr(rows_of_a_query, method) is not None
