"""``on_spark``: a stream query inside a table. Spark reads and partitions, engines in Python workers run the operators.

    @wh.table(time="window_end", mode="append")
    def sessions(clicks):
        return on_spark(clicks, by_session, keys=["user"], time="ts")

    def by_session(rows):
        return rows.key_by("user").session("ts", timedelta(hours=1)).aggregate(n="count")

A query without states runs on the partitions that Spark has. A query with states gets the rows of each bucket of keys
in one task, ordered by event time and then by arrival. It continues from the states that the table's last commit names.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import ParameterError, consumption_from, placement_from, policy_from
from headgate.stream.bucket_queues import Scheme
from headgate.stream.engine import LOOPS
from headgate.stream.errors import QueryDeclarationError
from headgate.stream.query import Query, Stream
from headgate.stream.sinks.sink import Collect
from headgate.stream.sources.batches import from_batches
from headgate.stream.spark.fingerprint import stateful
from headgate.stream.spark.hosted_frame import HostedFrame, Request
from headgate.stream.spark.hosted_query import Build, EngineOptions, HostedQuery, TaskLoop
from headgate.stream.spec import Kind, OperatorSpec, QuerySpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_BUCKETS = 8
#: seconds per packet and operator
DEFAULT_TIME_LIMIT = 600.0

Late = Literal["process", "reject"]


def on_spark(
    frame: DataFrame | HostedFrame,
    build: Build,
    *,
    keys: Sequence[str] = (),
    time: str | None = None,
    buckets: int | None = None,
    name: str = "query",
    late: Late = "process",
    workers: int | None = None,
    policy: str | None = None,
    loop: TaskLoop | None = None,
    packet_rows: int | None = None,
    time_limit: float | None = DEFAULT_TIME_LIMIT,
    memory_limit: int | None = None,
    placement: str | None = None,
    consumption: str | None = None,
    scheme: Scheme | None = None,
    period: float | None = None,
    batch: int | None = None,
) -> HostedFrame:
    """Run a stream query over a data frame; returns its rows, as a frame with the methods of a DataFrame.

    ``build`` gets a stream with the frame's columns and returns the output stream. In a table's function, return the
    frame: the update computes it, continuing from the states of the table's last commit.

    ``keys`` are the columns by which rows find their states; every ``key_by`` in the query must contain them. ``time``
    is the event time by which rows are ordered. A query with a state over all rows (``fold``, ``top_k``) takes one
    bucket. ``late`` is what happens to a row of a later update whose time is before a time that its key has already
    seen: it is processed, or rejected.

    An engine in each task runs the operators: those of one query by default one after the other in the task's thread,
    those of several tables (of one ``group``, over the same rows) by the importance class of their tables. ``workers``,
    ``policy``, ``loop``, ``placement``, ``consumption``, ``scheme``, ``period`` and ``batch`` are those of ``Engine``;
    only queries that state the same are computed together. ``loop="serial"`` runs all of them in the task's thread, in
    turn. ``time_limit`` is how many seconds an operator may take for
    one packet, ``memory_limit`` how many bytes the worker process may use; a query that exceeds a limit fails.
    """
    if buckets is not None and (not isinstance(buckets, int) or buckets < 1):
        raise ParameterError(f"on_spark: buckets is a whole number of at least 1, or None; got {buckets!r}")
    options = EngineOptions(
        workers=workers,
        loop=loop,
        policy=policy,
        packet_rows=packet_rows,
        time_limit=time_limit,
        memory_limit=memory_limit,
        placement=placement,
        consumption=consumption,
        scheme=scheme,
        period=period,
        batch=batch,
    )
    _check_options(options)
    from pyspark.sql.pandas.types import to_arrow_schema

    _send_along(build)
    columns = to_arrow_schema(frame.schema, timezone="UTC")
    if late != "process":
        build = _in_time(build, keys, time, late, name)
    spec, output = _declared(build, columns, name)
    with_states = stateful(spec.operators)
    count = _checked_buckets(with_states, keys, buckets, name) if with_states else 1
    query = HostedQuery("", name, build, output, bool(with_states))
    return HostedFrame(Request(frame, columns, query, options, tuple(keys), time, count, spec))


def _check_options(options: EngineOptions) -> None:
    """Report here what would fail in a worker."""
    for what in ("workers", "packet_rows", "memory_limit", "batch"):
        value = getattr(options, what)
        if value is not None and value < 1:
            raise ParameterError(f"on_spark: {what} must be at least 1; got {value}")
    for what in ("time_limit", "period"):
        value = getattr(options, what)
        if value is not None and value <= 0:
            raise ParameterError(f"on_spark: {what} is a number of seconds above 0, or None; got {value}")
    loops = (*LOOPS, "serial")
    for what, value, known in (("loop", options.loop, loops), ("scheme", options.scheme, get_args(Scheme))):
        if value is not None and value not in known:
            raise ParameterError(f"on_spark: {what} is one of {', '.join(known)}; got {value!r}")
    if options.policy is not None:
        policy_from(options.policy)
    if options.placement is not None:
        placement_from(options.placement)
    if options.consumption is not None:
        consumption_from(options.consumption)


def _in_time(build: Build, keys: Sequence[str], time: str | None, late: str, name: str) -> Build:
    if late != "reject":
        raise ParameterError(f"on_spark: late is 'process' or 'reject'; got {late!r}")
    if not keys or time is None:
        raise QueryDeclarationError(
            f"query {name!r}: which rows come late is known by key and time; say keys=[...] and time= as well"
        )
    return partial(_after_rejecting, build, tuple(keys), time)


def _after_rejecting(build: Build, keys: tuple[str, ...], time: str, stream: Stream) -> Stream:
    return build(stream.key_by(*keys).in_order(time))


def _send_along(build: Build) -> None:
    """Send the function's module to the workers, unless it is installed: only the driver has the pipeline file."""
    from pyspark import cloudpickle

    module = sys.modules.get(getattr(build, "__module__", ""))
    if module is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "headgate":
        return
    installed = {sysconfig.get_paths()[kind] for kind in ("purelib", "platlib", "stdlib")}
    if not any(str(getattr(module, "__file__", "")).startswith(folder) for folder in installed):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _declared(build: Build, columns: pa.Schema, name: str) -> tuple[QuerySpec, pa.Schema]:
    query = Query(name)
    stream = build(query.source(from_batches([], columns)))
    stream.to(Collect())
    spec = query.spec()
    for operator in spec.operators:
        if operator.kind is Kind.UNION or (operator.kind is Kind.SOURCE and operator.name != "source"):
            raise QueryDeclarationError(
                f"query {name!r} on Spark has one source, the data frame; {operator.name!r} is another: "
                "join the frames with Spark before, or declare a table for each"
            )
    return spec, stream.schema


def _checked_buckets(stateful: Sequence[OperatorSpec], keys: Sequence[str], buckets: int | None, name: str) -> int:
    for operator in stateful:
        if operator.kind is Kind.STATEFUL:
            if buckets not in (None, 1):
                raise QueryDeclarationError(
                    f"operator {operator.name!r} of query {name!r} has one state that sees everything: "
                    f"it takes one bucket; got buckets={buckets}"
                )
            return 1
        assert operator.partitioning is not None
        if buckets != 1 and (not keys or not set(keys) <= set(operator.partitioning.columns)):
            raise QueryDeclarationError(
                f"operator {operator.name!r} of query {name!r} has states by "
                f"{', '.join(operator.partitioning.columns)}, but Spark was to partition by "
                f"{', '.join(keys) or 'nothing'}: rows of one key would meet different states. "
                "Say keys=[...] with columns that every key_by has, split the query in two, or say buckets=1"
            )
    return buckets or DEFAULT_BUCKETS
