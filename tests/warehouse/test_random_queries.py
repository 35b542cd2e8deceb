"""The judge of the promise: after every commit, a table equals its query over its sources, whatever the query.

Each seed gives a warehouse with many random tables (``random_queries``) and a random sequence of what happens to it
(``random_steps``): rows come in order and late, the dimension changes, updates are cut into pieces, tables lag behind,
the past is computed again, files are merged, everything is restarted. After every update the table that was updated is
compared with its query, computed by Spark in one go (``query_oracle``).

By default two seeds are played, with about half of their tables: together they have every shape of query, and
everything happens that can. ``HEADGATE_SEEDS=100`` plays the seeds 0 to 99 with 30 tables each, ``HEADGATE_SEED=7`` one
seed with as many, ``HEADGATE_TABLES=q3,q5`` only these tables of it and what they read; what happens to each stays the
same. ``scripts/judge_queries.py`` plays as many as you like, and makes what is found smaller.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.warehouse.query_oracle import difference
from tests.warehouse.random_expressions import LONG_AGO, ORDERS
from tests.warehouse.random_queries import Query, random_queries
from tests.warehouse.random_steps import SHARES, Step, random_steps
from tests.warehouse.random_trial import Trial, interpreted, with_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: what is tried by default: in one of them the driver writes results, in the other Spark does
SEEDS = (77, 103)
#: the size of a seed
TABLES, STEPS = 30, 4
#: by default, how many queries there are of a shape; those on data frames are one shape here
OF_A_SHAPE = {"frame": 2}


def seeds() -> list[int]:
    if "HEADGATE_SEED" in os.environ:
        return [int(os.environ["HEADGATE_SEED"])]
    return list(range(int(os.environ["HEADGATE_SEEDS"]))) if "HEADGATE_SEEDS" in os.environ else list(SEEDS)


def chosen(queries: list[Query]) -> list[Query]:
    """The queries named in HEADGATE_TABLES and those that they read; all, if seeds are asked for."""
    names = list(filter(None, os.environ.get("HEADGATE_TABLES", "").split(",")))
    if names:
        return with_sources(queries, names)
    return queries if {"HEADGATE_SEED", "HEADGATE_SEEDS"} & os.environ.keys() else varied(queries)


def varied(queries: list[Query]) -> list[Query]:
    """The first query of each shape, and those that they read."""
    there: Counter[str] = Counter()
    names = []
    for query in queries:
        there[kind(query)] += 1
        if there[kind(query)] <= OF_A_SHAPE.get(kind(query), 1):
            names.append(query.name)
    return with_sources(queries, names)


def kind(query: Query) -> str:
    return query.shape.partition(":")[0]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", seeds())
def test_after_every_update_a_table_equals_its_query(
    seed: int, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 3 == 1:  # as if all results were large: Spark writes them, not the driver
        for module in ("load", "derive"):
            monkeypatch.setattr(f"headgate.warehouse.updates.{module}.LARGE_BYTES", 0)
    queries = chosen(random_queries(seed, TABLES))
    trial = Trial(seed, queries, random_steps(seed, STEPS), tmp_path, interpreted(spark))
    trial.play()
    assert not trial.wrong, trial.report()
    assert trial.compared >= len(queries), "every table is compared at least once"


def test_the_seeds_that_are_tried_by_default_have_every_shape_of_query_and_all_that_can_happen() -> None:
    every = {kind(query) for seed in range(40) for query in random_queries(seed, TABLES)}
    assert {kind(query) for seed in SEEDS for query in varied(random_queries(seed, TABLES))} == every
    steps = [step for seed in SEEDS for step in random_steps(seed, STEPS)]
    assert all(any(getattr(step, share) for step in steps) for share in SHARES)
    assert any(step.restart for step in steps) and any(step.chop < float("inf") for step in steps)
    assert {"late", "long ago", "in order", "dimension", "much"} <= {step.what for step in steps}
    assert sorted(seed % 3 == 1 for seed in SEEDS) == [False, True]


# --- what was found ------------------------------------------------------------------------------------------------


def table(name: str, sql: str, *sources: str) -> Query:
    return Query(name, "found", sources, ORDERS, sql=sql)


BEGIN = random_steps(1, 1)
AGAIN = [*BEGIN, *(Step(number, "again", backfill=1.0) for number in range(1, 4))]

#: {what was wrong: (tables, steps)}: as small as they could be made
FOUND: dict[str, tuple[list[Query], list[Step]]] = {
    "a table computed as a whole makes rows although its sources have none": (
        [
            table("q0", "select ts, k from orders where k = 'nobody'", "orders"),
            table("q1", f"select coalesce(max(ts), {LONG_AGO}) as ts, count(*) as n from q0", "q0"),
        ],
        BEGIN,
    ),
    "a source has rows later than its freshness": (
        [
            table("q0", "select ts + interval 1 hour as ts, k from orders", "orders"),
            table("q1", "select date_trunc('hour', ts) as ts, count(*) as n from q0 group by 1", "q0"),
        ],
        BEGIN,
    ),
    "the past of an appended table is computed again, whose times are not those of its source": (
        [replace(table("q0", "select ts - interval 3 hours as ts, k from orders", "orders"), partition="10 minutes")],
        AGAIN,
    ),
    "the past of an appended table is computed again, whose times are rounded to more than its partitions": (
        [table("q0", "select date_trunc('day', ts) as ts, k from orders", "orders")],
        AGAIN,
    ),
    "times of a table that is computed again are moved to other partitions": (
        [
            table("q0", "select distinct ts, k from orders", "orders"),
            table("q1", "select ts - interval 3 hours as ts, k from q0", "q0"),
        ],
        random_steps(1, 3),
    ),
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("case", FOUND)
def test_what_random_queries_found(case: str, tmp_path: Path, spark: SparkSession) -> None:
    queries, steps = FOUND[case]
    trial = Trial(2, queries, steps, tmp_path, interpreted(spark))
    trial.play()
    assert not trial.wrong, trial.report()


# --- the judge itself -------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
def test_a_table_that_differs_from_its_query_is_found(tmp_path: Path, spark: SparkSession) -> None:
    right = Query("q0", "total", ("orders",), ORDERS, sql="select max(ts) as ts, count(*) as n from orders group by b")
    trial = Trial(0, [right], random_steps(0, 2), tmp_path, interpreted(spark))
    assert right.sql is not None
    trial.oracle.queries["q0"] = replace(right, sql=right.sql.replace("count(*)", "count(n)"))
    trial.play()
    assert "rows not in the table" in trial.wrong["q0"]
    assert "HEADGATE_SEED=0 HEADGATE_TABLES=q0" in trial.report()


def times(*micros: int) -> pa.Array:
    return pa.array(micros, pa.timestamp("us", tz="UTC"))


TWO = pa.table({"ts": times(1, 2), "x": [0.1 + 0.2, None], "l": [["a"], []]})


@pytest.mark.parametrize(
    ("table", "batch", "exempt", "differs"),
    [
        (TWO, TWO, (), False),
        (TWO, TWO.take([1, 0]), (), False),
        (TWO, TWO.set_column(1, "x", pa.array([0.3, None])), (), False),
        (TWO, TWO.set_column(1, "x", pa.array([0.3001, None])), (), True),
        (TWO, TWO.set_column(1, "x", pa.array([0.3, 0.0])), (), True),
        (TWO, pa.concat_tables([TWO, TWO]), (), True),
        (pa.concat_tables([TWO, TWO]), TWO, (), True),
        (TWO, TWO.slice(0, 1), (), True),
        (TWO, TWO.slice(0, 1), [(2, 5)], False),
        (TWO, TWO.slice(1, 1), [(2, 5)], True),
        (TWO, TWO.drop_columns(["l"]), (), True),
        (TWO, TWO.set_column(0, "ts", times(1, 3)), (), True),
    ],
)
def test_differences_are_those_of_multisets_with_a_tolerance_for_doubles(
    table: pa.Table, batch: pa.Table, exempt: list[tuple[int, int]], differs: bool
) -> None:
    assert bool(difference(table, batch, exempt)) is differs
