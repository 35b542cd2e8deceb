"""How a linear query is written down: operators in their order, each fed by the one before."""

from __future__ import annotations

from dataclasses import replace

from headgate.stream import ByHash, Function, Kind, OperatorSpec, QuerySpec, Sink, Source, StateFactory


def linear(name: str, source: Source, operators: tuple[OperatorSpec, ...], sink: Sink) -> QuerySpec:
    """A query from a source called ``source`` to a sink called ``sink``."""
    chain = [OperatorSpec("source", Kind.SOURCE, source=source)]
    for operator in (*operators, OperatorSpec("sink", Kind.SINK, sink=sink)):
        chain.append(replace(operator, inputs=(chain[-1].name,)))
    return QuerySpec(name, tuple(chain))


def stateless(name: str, function: Function) -> OperatorSpec:
    return OperatorSpec(name, Kind.STATELESS, function=function)


def partitioned(name: str, key: str, state: StateFactory, buckets: int) -> OperatorSpec:
    return OperatorSpec(name, Kind.PARTITIONED, state=state, partitioning=ByHash((key,)), buckets=buckets)


def stateful(name: str, state: StateFactory) -> OperatorSpec:
    return OperatorSpec(name, Kind.STATEFUL, state=state)
