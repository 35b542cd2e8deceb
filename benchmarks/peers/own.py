"""The two chains on Headgate's stream engine: two workers, everything else as it is by default."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from benchmarks.peers.inputs import STREAMS, Inputs, Result, sorted_rows
from benchmarks.peers.protocol import CLICKS, HOUR, Q1, WHOLE, WHOLE_CSV, WORKERS
from headgate.stream import Collect, Engine, Files, Query, QuerySpec, Source, from_batches
from workloads.tpcxbb import q1
from workloads.tpcxbb.dims import Dims


def clicks_query(source: Source, sink: Collect, dims: Dims) -> QuerySpec:
    query = Query(CLICKS)
    (
        query.source(source)
        .filter((pc.field("user") >= 0) & (pc.field("item") >= 0))
        .key_by("item")
        .tumbling("ts", HOUR)
        .aggregate(n="count")
        .to(sink)
    )
    return query.spec()


def q1_query(source: Source, sink: Collect, dims: Dims) -> QuerySpec:
    return q1.query(source, sink, q1.PAPER, dims=dims)


QUERIES: Mapping[str, Callable[[Source, Collect, Dims], QuerySpec]] = {CLICKS: clicks_query, Q1: q1_query}


#: {how Headgate gets its rows: a source of them}
SOURCES: Mapping[str, Callable[[Inputs], Source]] = {
    "parquet": lambda inputs: Files(inputs.folder / WHOLE, schema=inputs.schema()),
    "csv": lambda inputs: Files(inputs.folder / WHOLE_CSV, schema=inputs.schema()),
    "memory": lambda inputs: from_batches(
        pq.read_table(inputs.folder / WHOLE, columns=list(STREAMS[inputs.chain].columns))
    ),
}


def run_once(inputs: Inputs, read: str, dims: Dims) -> tuple[float, Result]:
    """Seconds from handing the query to a started engine until it has let go of everything, and the sorted result."""
    sink = Collect()
    spec = QUERIES[inputs.chain](SOURCES[read](inputs), sink, dims)
    with Engine(workers=WORKERS) as engine:
        began = time.perf_counter()
        engine.add(spec).result()
        seconds = time.perf_counter() - began
    return seconds, _result(inputs.chain, sink.table())


def _result(chain: str, table: pa.Table) -> Result:
    names = {CLICKS: ("window_start", "item", "n"), Q1: ("window", "rank", "a", "b", "count")}[chain]
    columns = [table.column(name).to_numpy().astype(np.int64) for name in names]
    if chain == CLICKS:
        columns[0] //= HOUR
    return sorted_rows(np.column_stack(columns))
