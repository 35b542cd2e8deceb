"""Every workload on the real engine: the complete output is that of its oracle, whatever runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.core.policies import SHIPPED
from headgate.stream import LOOPS, Collect, Engine, QuerySpec, from_batches
from tests.workloads.dag_driver import Collected
from tests.workloads.dag_driver import run as run_plainly
from tests.workloads.oracles_tpcxbb import STAGES
from workloads.chains import Burner, ChainSettings, chain_plans, chain_query, tuples
from workloads.riot.city import City
from workloads.riot.etl import EtlSettings, etl_query
from workloads.riot.pred import pred_query
from workloads.riot.stats import StatsSettings, stats_query
from workloads.riot.train import requests, train_query
from workloads.tpcxbb import q1, q2, q3, q4, q15
from workloads.tpcxbb.clicks import web_clickstreams
from workloads.tpcxbb.dims import Dims
from workloads.tpcxbb.sales import store_sales

TIMEOUT = 60.0
ROWS = 600
DIMS = Dims(seed=7, customers=40)
CITY = City(seed=7, sources=6, missing=0.08, unknown=0.05, malformed=0.06)
Make = Callable[[Any, Any], QuerySpec]


@dataclass(frozen=True)
class Workload:
    """Its input, how many sinks it has, and the query over a source into them."""

    rows: pa.RecordBatch
    sinks: int
    query: Make
    #: rows of the only sink by an oracle that goes row by row; without one, the plain driver, which other tests hold
    #: against oracles
    oracle: Callable[[pa.RecordBatch], list[tuple[Any, ...]]] | None = None


def _tpcxbb(module: Any, table: pa.Table) -> Workload:
    def oracle(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
        tuples_in = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        stages = STAGES[module.NAME](tuples_in, module.PAPER, DIMS)
        return list(stages[list(stages)[-1]])

    (batch,) = table.combine_chunks().to_batches()
    return Workload(batch, 1, lambda source, sinks: module.query(source, sinks[0], module.PAPER, 5, dims=DIMS), oracle)


@cache
def workload(name: str) -> Workload:
    hourly = store_sales(ROWS, seed=DIMS.seed, lines_per_hour=150)
    daily = store_sales(ROWS, seed=DIMS.seed, lines_per_hour=1)
    clicks = web_clickstreams(ROWS, seed=DIMS.seed, customers=DIMS.customers, clicks_per_day=200)
    lines = CITY.lines(0, ROWS)
    readings = CITY.readings(0, 200)
    (plan,) = chain_plans(ChainSettings(queries=1, selectivity=20))
    names = CITY.names.slice(0, CITY.sources)
    made: dict[str, Callable[[], Workload]] = {
        "q1": lambda: _tpcxbb(q1, hourly),
        "q2": lambda: _tpcxbb(q2, clicks),
        "q3": lambda: _tpcxbb(q3, clicks),
        "q4": lambda: _tpcxbb(q4, clicks),
        "q15": lambda: _tpcxbb(q15, daily),
        "etl": lambda: Workload(
            lines, 2, lambda s, k: etl_query(s, k[0], k[1], CITY.annotations(), EtlSettings(bloom_capacity=100))
        ),
        "stats": lambda: Workload(
            CITY.csv_lines(0, ROWS), 1, lambda s, k: stats_query(s, k[0], names, StatsSettings(bloom_capacity=100))
        ),
        "pred": lambda: Workload(lines, 1, lambda s, k: pred_query(s, k[0])),
        "train": lambda: Workload(requests(0, 12, 60, 200), 1, lambda s, k: train_query(s, k[0], readings)),
        "chain": lambda: Workload(tuples(0, ROWS), 1, lambda s, k: chain_query(plan, s, k[0], Burner(rate=0.0))),
    }
    return made[name]()


NAMES = ("q1", "q2", "q3", "q4", "q15", "etl", "stats", "pred", "train", "chain")
each_workload = pytest.mark.parametrize("name", NAMES)


Rows = list[tuple[Any, ...]]


def rows_of(sink: Collect | Collected) -> Rows:
    return [tuple(row.values()) for row in sink.rows()]


def fingerprint(sinks: Sequence[Rows]) -> str:
    """A hash of the complete sequences of rows, however they were cut into batches."""
    return hashlib.sha256(repr(list(sinks)).encode()).hexdigest()


@cache
def expected(name: str) -> str:
    chosen = workload(name)
    if chosen.oracle is not None:
        return fingerprint([chosen.oracle(chosen.rows)])
    sinks = [Collected() for _ in range(chosen.sinks)]
    run_plainly(chosen.query(from_batches([chosen.rows]), sinks), chosen.rows, 100)
    return fingerprint([rows_of(sink) for sink in sinks])


def on_engine(name: str, **options: Any) -> str:
    chosen = workload(name)
    sinks = [Collect() for _ in range(chosen.sinks)]
    with Engine(**{"packet_rows": 50, "period": 0.005, **options}) as engine:
        engine.add(chosen.query(from_batches([chosen.rows]), sinks)).result(TIMEOUT)
    return fingerprint([rows_of(sink) for sink in sinks])


@each_workload
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_every_loop_and_number_of_workers(name: str, loop: str, workers: int) -> None:
    assert on_engine(name, loop=loop, workers=workers) == expected(name)


@each_workload
@pytest.mark.parametrize("scheme", ["hybrid", "partitioned", "shared"])
@pytest.mark.parametrize("buffer", ["non-blocking", "locked"])
def test_every_queue_scheme_and_buffer(name: str, scheme: str, buffer: str) -> None:
    assert on_engine(name, scheme=scheme, buffer=buffer, workers=4) == expected(name)


@each_workload
@pytest.mark.parametrize("policy", sorted(policy.name for policy in SHIPPED))
def test_every_policy(name: str, policy: str) -> None:
    loop = "rounds" if len(policy) % 2 else "dispatch"
    assert on_engine(name, policy=policy, loop=loop, workers=2, packet_rows=100) == expected(name)


@pytest.mark.slow
@each_workload
@pytest.mark.parametrize("packet_rows", [1, 7, 1000, 65_536])
def test_every_packet_size(name: str, packet_rows: int) -> None:
    assert on_engine(name, packet_rows=packet_rows, workers=2) == expected(name)
