"""The queries derived from TPCx-BB give the rows that a loop with dictionaries gives, however the input is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.stream.spec import Kind, QuerySpec
from tests.workloads.oracles_tpcxbb import STAGES, Stages
from tests.workloads.serial_driver import ListSink, SerialRun, TableSource, rows_of
from workloads.tpcxbb import q1, q2, q3, q4, q15
from workloads.tpcxbb.clicks import web_clickstreams
from workloads.tpcxbb.dims import Dims
from workloads.tpcxbb.sales import store_sales

DIMS = Dims(seed=7, customers=300)
ROWS = 20_000


@cache
def source_rows(stream: str) -> pa.Table:
    """20,000 rows: sales of ten hours, sales of forty days, clicks of five days, and of hours with long sessions.

    Of sales "with nulls", every third store and every fifth item is unknown.
    """
    if stream.endswith(" with nulls"):
        sales = source_rows(stream.removesuffix(" with nulls"))
        for name, every in (("store", 3), ("item", 5)):
            place, column = sales.schema.get_field_index(name), sales.column(name).to_numpy().copy()
            column[::every] = -1
            sales = sales.set_column(place, name, pa.array(column))
        return sales
    if stream == "sales by hour":
        return store_sales(ROWS, seed=DIMS.seed, lines_per_hour=2_000)
    if stream == "sales by day":
        return store_sales(ROWS, seed=DIMS.seed, lines_per_hour=21)
    rate, spread = (3_706, 86_400) if stream == "clicks" else (40_000, 7_200)
    return web_clickstreams(
        ROWS, seed=DIMS.seed, customers=DIMS.customers, clicks_per_day=rate, spread=spread
    ).combine_chunks()


@dataclass(frozen=True)
class Case:
    module: Any
    stream: str
    parameters: Any

    def query(self, rows: pa.Table, buckets: int = 8) -> QuerySpec:
        query: QuerySpec = self.module.query(TableSource(rows), ListSink(), self.parameters, buckets, dims=DIMS)
        return query

    def expected(self, rows: pa.Table) -> Stages:
        tuples = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        return STAGES[self.module.NAME](tuples, self.parameters, DIMS)


CASES = {
    "q1 paper": Case(q1, "sales by hour", q1.PAPER),
    "q1 tpc, rare pairs too": Case(q1, "sales by hour", replace(q1.TPC, min_count=2)),
    "q1 short windows": Case(q1, "sales by hour", replace(q1.PAPER, window=60, top=3, stores=(0, 3, 4))),
    "q1 nulls": Case(q1, "sales by hour with nulls", q1.PAPER),
    "q1 nulls, the last store": Case(q1, "sales by hour with nulls", replace(q1.PAPER, stores=(1, DIMS.stores - 1))),
    "q1 nulls, the last item's category": Case(
        q1, "sales by hour with nulls", replace(q1.PAPER, categories=(int(DIMS.category[-1]),))
    ),
    "q2 paper": Case(q2, "clicks", q2.PAPER),
    "q2 tpc": Case(q2, "clicks", replace(q2.TPC, period=7_200)),
    "q2 long sessions": Case(q2, "clicks in long sessions", replace(q2.PAPER, period=3_600)),
    "q3 paper": Case(q3, "clicks", q3.PAPER),
    "q3 tpc": Case(q3, "clicks", q3.TPC),
    "q3 short horizon and ring": Case(q3, "clicks", replace(q3.PAPER, horizon=20_000, views=2, top=1)),
    "q4": Case(q4, "clicks", q4.PAPER),
    "q4 long sessions": Case(q4, "clicks in long sessions", q4.TPC),
    "q15 paper": Case(q15, "sales by day", q15.PAPER),
    "q15 tpc": Case(q15, "sales by day", q15.TPC),
    "q15 nulls": Case(q15, "sales by day with nulls", q15.PAPER),
    "q15 nulls, the last store": Case(q15, "sales by day with nulls", replace(q15.PAPER, stores=(1, DIMS.stores - 1))),
    "q15 few days": Case(
        q15, "sales by day", q15.Q15Parameters((1, 2), q15.PAPER.first_day + 2, q15.PAPER.first_day + 9)
    ),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
#: one of each query
each_query = pytest.mark.parametrize("name", ["q1 paper", "q2 paper", "q3 paper", "q4", "q15 paper"])


def output(case: Case, rows: pa.Table, packet_rows: int, buckets: int) -> list[tuple[object, ...]]:
    query = case.query(rows, buckets)
    SerialRun(query).to_the_end(packet_rows)
    return rows_of(query.sinks[0].sink.batches)


@pytest.mark.slow
@each_case
def test_every_operator_gives_out_what_a_loop_over_rows_does(case: Case) -> None:
    rows = source_rows(case.stream)
    expected = case.expected(rows)
    run = SerialRun(case.query(rows), watched=list(expected))
    run.to_the_end(3_000)
    for operator, wanted in expected.items():
        assert rows_of(run.outputs[operator]) == wanted, operator
    assert expected[list(expected)[-1]], "the case shows nothing"


@pytest.mark.slow
@each_query
@pytest.mark.parametrize(
    ("packet_rows", "buckets"),
    [(65_536, 1), (65_536, 8), (1_000, 1), (4_099, 3), (257, 5)],
    ids=lambda number: f"{number:,}",
)
def test_the_output_does_not_depend_on_packets_and_buckets(name: str, packet_rows: int, buckets: int) -> None:
    case = CASES[name]
    rows = source_rows(case.stream)
    assert output(case, rows, packet_rows, buckets) == output(case, rows, 3_000, 8)


@pytest.mark.slow
@each_query
@pytest.mark.parametrize("buckets", [1, 4])
def test_packets_of_single_rows_give_the_same(name: str, buckets: int) -> None:
    case = CASES[name]
    rows = source_rows(case.stream).slice(0, 900)
    assert output(case, rows, 1, buckets) == output(case, rows, 65_536, 2) != []


@pytest.mark.slow
@each_query
def test_a_run_goes_on_from_snapshots_as_if_never_interrupted(name: str) -> None:
    case = CASES[name]
    rows = source_rows(case.stream)
    cuts = np.sort(np.random.default_rng(5).integers(1, ROWS, size=4))
    run = SerialRun(case.query(rows, 3))
    given_out: list[tuple[object, ...]] = []
    for start, end in zip([0, *cuts], [*cuts, ROWS], strict=True):
        query = case.query(rows, 3)
        kept = run.snapshot()
        # The old run goes on meanwhile, which must not change what was kept.
        run.push(rows.slice(start, end - start).to_batches()[0])
        run = SerialRun(query)
        run.restore(kept)
        for batch in rows.slice(start, end - start).to_batches(max_chunksize=2_000):
            run.push(batch)
        if end == ROWS:
            run.end()
        given_out += rows_of(query.sinks[0].sink.batches)
    assert given_out == output(case, rows, 3_000, 8)


@each_query
def test_a_source_without_rows_gives_none(name: str) -> None:
    case = CASES[name]
    assert output(case, source_rows(case.stream).slice(0, 0), 10, 2) == []


@pytest.mark.parametrize(
    ("module", "kinds"),
    [
        pytest.param(q1, "stateless partitioned partitioned stateful", id="q1"),
        pytest.param(q2, "stateless partitioned stateless partitioned stateful", id="q2"),
        pytest.param(q3, "stateless partitioned partitioned", id="q3"),
        pytest.param(q4, "stateless partitioned stateless stateful", id="q4"),
        pytest.param(q15, "stateless stateless partitioned", id="q15"),
    ],
)
def test_queries_have_the_operators_of_the_paper(module: Any, kinds: str) -> None:
    source, *operators, sink = module.query(TableSource(pa.table({})), ListSink(), module.PAPER, 5).operators
    assert (source.kind, sink.kind) == (Kind.SOURCE, Kind.SINK)
    assert [operator.kind.value for operator in operators] == kinds.split()
    assert {operator.buckets for operator in operators if operator.kind is Kind.PARTITIONED} == {5}


def test_lines_of_a_ticket_need_not_be_neighbours_within_a_second() -> None:
    rows = pa.table(
        {
            "ts": pa.array([7, 7, 7, 7, 8, 8], pa.int64()),
            "ticket": pa.array([5, 2, 5, 2, 5, 5], pa.int64()),
            "item": pa.array([30, 1, 10, 1, 20, 30], pa.int32()),
            "store": pa.array([0] * 6, pa.int16()),
            "net_cents": pa.array([0] * 6, pa.int32()),
        }
    )
    case = Case(q1, "", q1.PAPER)
    wanted = [(0, 1, 10, 30, 1), (0, 2, 20, 30, 1)]
    assert [output(case, rows, packet_rows, 2) for packet_rows in (1, 2, 3, 6)] == [wanted] * 4
