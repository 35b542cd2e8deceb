"""Whether stored states still fit a query: a fingerprint of each operator with states, compared with the stored one.

Operators without states may change freely. If an operator with states was removed, its states are dropped. If one was
added or changed, there are no right states for it: the table must be rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from headgate.stream.errors import QueryDeclarationError
from headgate.stream.spec import Kind, OperatorSpec

#: {operator: its kind, keys, state class and arguments, as text}
Fingerprint = Mapping[str, str]


class StatesDoNotFitError(QueryDeclarationError):
    """A query has changed so that it cannot continue from its stored states."""


def fingerprint(stateful: Sequence[OperatorSpec]) -> dict[str, str]:
    return {operator.name: _described(operator) for operator in stateful}


def stateful(operators: Sequence[OperatorSpec]) -> list[OperatorSpec]:
    """The operators that have states."""
    return [operator for operator in operators if operator.kind in (Kind.PARTITIONED, Kind.STATEFUL)]


def check_fit(query: str, then: Fingerprint, buckets_then: int, now: Fingerprint, buckets: int) -> None:
    """Raise if the stored states of a query (``then``) do not fit it any more (``now``)."""
    if buckets != buckets_then:
        changed = [f"it has {buckets} buckets, and its states are in {buckets_then}"]
    else:
        changed = [
            f"operator {name!r} is <{written}> and was <{then[name]}>"
            if name in then
            else f"operator {name!r}, <{written}>, is new"
            for name, written in now.items()
            if then.get(name) != written
        ]
    if changed:
        raise StatesDoNotFitError(
            f"query {query!r} has changed so that its states do not fit any more: {'; '.join(changed)}. "
            "Undo the change, or have the table built anew with headgate backfill DIR TABLE"
        )


def _described(operator: OperatorSpec) -> str:
    factory = operator.state
    parts = [operator.kind.value]
    if operator.partitioning is not None:
        parts.append(",".join(operator.partitioning.columns))
    if isinstance(factory, partial):
        arguments = [_argument(each) for each in factory.args]
        arguments += [f"{key}={_argument(value)}" for key, value in factory.keywords.items()]
        parts += [factory.func.__qualname__, *arguments]
    else:
        parts.append(getattr(factory, "__qualname__", type(factory).__qualname__))
    return " ".join(parts)


def _argument(value: object) -> str:
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return " ".join(str(value).split())
