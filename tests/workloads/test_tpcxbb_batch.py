"""What the streams derived from TPCx-BB come to in the end is what Spark SQL answers over the whole input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.core.errors import UnknownNameError
from tests.workloads.serial_driver import ListSink, Rows, SerialRun, TableSource, rows_of
from workloads.tpcxbb import q1, q2, q3, q4, q15
from workloads.tpcxbb.batch import numbered, oracle_sql
from workloads.tpcxbb.clicks import web_clickstreams
from workloads.tpcxbb.dims import Dims
from workloads.tpcxbb.sales import store_sales

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000
DIMS = Dims(seed=7, customers=300)
#: 25 days, at a rate at which an hour has some tickets
SALES = {"seed": DIMS.seed, "lines_per_hour": 17.0}


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> SparkSession:
    tables = {
        "store_sales": numbered(store_sales(ROWS, **SALES)),
        "web_clickstreams": numbered(web_clickstreams(ROWS, seed=DIMS.seed, customers=DIMS.customers)),
        "item": DIMS.item_table(),
        "web_page": DIMS.page_table(),
    }
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    return spark


def everything(rows: Rows) -> Rows:
    return rows


def at_the_end(rows: Rows) -> Rows:
    return [row for row in rows if row[0] == -1]


def with_a_rank(rows: Rows) -> Rows:
    return [row for row in rows if row[3] != 0]


def last(rows: Rows) -> Rows:
    return rows[-1:]


def last_of_categories_that_do_not_grow(rows: Rows) -> Rows:
    lines = {row[0]: row for row in rows}
    return [lines[category] for category in sorted(lines) if lines[category][3] <= 0]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("module", "parameters", "answer"),
    [
        pytest.param(q1, replace(q1.PAPER, window=86_400, top=20), everything, id="q1 paper, by day"),
        pytest.param(q1, replace(q1.TPC, min_count=2), everything, id="q1 tpc, rare pairs too"),
        pytest.param(q2, q2.PAPER, at_the_end, id="q2 paper"),
        pytest.param(q2, q2.TPC, at_the_end, id="q2 tpc"),
        pytest.param(q3, q3.PAPER, with_a_rank, id="q3 paper"),
        pytest.param(q3, q3.TPC, with_a_rank, id="q3 tpc"),
        pytest.param(q4, q4.TPC, last, id="q4"),
        pytest.param(q15, q15.PAPER, last_of_categories_that_do_not_grow, id="q15 paper"),
        pytest.param(q15, q15.TPC, last_of_categories_that_do_not_grow, id="q15 tpc"),
    ],
)
def test_the_stream_ends_with_the_answer_of_the_batch(
    views: SparkSession, module: Any, parameters: Any, answer: Callable[[Rows], Rows]
) -> None:
    if module in (q1, q15):
        stream = store_sales(ROWS, **SALES)
    else:
        stream = web_clickstreams(ROWS, seed=DIMS.seed, customers=DIMS.customers)
    query = module.query(TableSource(stream), ListSink(), parameters, dims=DIMS)
    SerialRun(query).to_the_end(4_096)
    streamed = answer(rows_of(query.sinks[0].sink.batches))
    batch = [tuple(row) for row in views.sql(oracle_sql(module.NAME, parameters)).collect()]
    assert batch, "the case shows nothing"
    if module is q15:
        assert [row[:3] for row in streamed] == [row[:3] for row in batch]
        assert [row[3] for row in streamed] == pytest.approx([row[3] for row in batch], rel=1e-9)
        assert [row[4] for row in streamed] == pytest.approx([row[4] for row in batch], rel=1e-6)
    else:
        assert streamed == batch


def test_a_query_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownNameError, match="q15"):
        oracle_sql("q16", None)
