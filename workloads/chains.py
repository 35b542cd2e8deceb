"""Haren's synthetic queries: a source, a chain of filters with given cost and selectivity, a sink.

A filter really computes, for as long as its cost says, and drops rows by a hash of their number: which ones, does not
depend on packets. Costs and selectivities of a set of queries are drawn from a seed as Haren's generator draws them
(its section 7.1 and published code), with costs in microseconds per row instead of multiplications.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import ParameterError
from headgate.stream import Kind, OperatorSpec, Output, QuerySpec

if TYPE_CHECKING:
    from headgate.stream import Sink, Source, Writer

_PAYLOAD = 10
TUPLES = pa.schema(
    [
        ("number", pa.int64()),
        ("value", pa.float64()),
        ("key", pa.int32()),
        ("payload", pa.list_(pa.int64(), _PAYLOAD)),
    ]
)
#: numbers multiplied at once: small enough for the cache, large enough that NumPy's call does not count
_STRIP = 16_384
_FACTOR = 1.0000001


class Draw(Enum):
    """How the queries of a set differ."""

    RANDOM = "random"
    #: all alike: cost as given, and the selectivity that lets through as much of the chain as asked
    FIXED = "fixed"
    #: as RANDOM, but expensive queries are rarer: the exponent of the cost is exponential with mean 1
    IMPROVED = "improved"


@dataclass(frozen=True)
class ChainSettings:
    """The published parameters; ``selectivity`` and ``operator_variance`` in percent, ``cost`` in microseconds."""

    queries: int = 20
    length: int = 3
    cost: float = 10.0
    selectivity: float = 1.0
    variance_factor: int = 5
    operator_variance: float = 10.0
    seed: int = 0
    draw: Draw = Draw.RANDOM

    def __post_init__(self) -> None:
        if self.queries < 1 or self.length < 1 or self.cost < 0 or self.variance_factor < 0 or self.seed < 0:
            raise ParameterError(f"queries and length start at 1, cost, variance_factor and seed at 0; got {self}")
        if not 0 < self.selectivity <= 100 or not 0 <= self.operator_variance < 100:
            raise ParameterError(f"selectivity and operator_variance are percentages; got {self}")

    @property
    def least_selectivity(self) -> float:
        """That of each operator if the chain lets through ``selectivity`` percent."""
        return float((self.selectivity / 100) ** (1 / self.length))


@dataclass(frozen=True)
class Filter:
    """One operator: microseconds a row, the share of rows that pass (all, from 1 on), and what decides which."""

    cost: float
    selectivity: float
    salt: int


@dataclass(frozen=True)
class ChainPlan:
    """A query before it has a source and a sink."""

    name: str
    filters: tuple[Filter, ...]
    sink_cost: float
    priority: float = 1.0
    importance_class: int = 0


#: (priority, class) of queries that matter more and less
HIGH = (3.0, 1)
LOW = (1.0, 0)


def chain_plans(settings: ChainSettings) -> tuple[ChainPlan, ...]:
    """The queries of a set. The n-th is the same whatever the number of queries."""
    return tuple(_plan(settings, number) for number in range(settings.queries))


def two_class_plans(settings: ChainSettings, high: int) -> tuple[ChainPlan, ...]:
    """The same queries, the first ``high`` of them in the class that matters more."""
    if not 0 <= high <= settings.queries:
        raise ParameterError(f"high is a number of queries from 0 to {settings.queries}; got {high}")
    plans = chain_plans(settings)
    return tuple(
        replace(plan, name=f"{'high' if number < high else 'low'}{number}", priority=priority, importance_class=rank)
        for number, plan in enumerate(plans)
        for priority, rank in [HIGH if number < high else LOW]
    )


def _plan(settings: ChainSettings, number: int) -> ChainPlan:
    random = np.random.Generator(np.random.Philox(key=[settings.seed, number]))
    salts = random.integers(1 << 63, size=settings.length)
    if settings.draw is Draw.FIXED:
        alike = settings.cost, settings.least_selectivity
        return ChainPlan(f"chain{number}", tuple(Filter(*alike, int(salt)) for salt in salts), settings.cost)
    if settings.draw is Draw.RANDOM:
        exponent = int(random.integers(settings.variance_factor + 1))
    else:
        exponent = min(round(float(random.exponential())), settings.variance_factor)
    cost = settings.cost * 2.0**exponent
    selectivity = float(random.uniform(settings.least_selectivity, 1.0))
    vary = 1 + random.uniform(-1, 1, size=(settings.length + 1, 2)) * settings.operator_variance / 100
    filters = (
        Filter(cost * float(by_cost), selectivity * float(by_selectivity), int(salt))
        for (by_cost, by_selectivity), salt in zip(vary[:-1], salts, strict=True)
    )
    return ChainPlan(f"chain{number}", tuple(filters), cost * float(vary[-1, 0]))


# --- work -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Burner:
    """Spends processor time by multiplying numbers, ``rate`` of them in a microsecond.

    With ``releases_lock`` NumPy multiplies and lets other threads run meanwhile; otherwise the interpreter does,
    and other threads must wait. The amount of work depends on the rate only; ``calibrated`` measures it.
    """

    rate: float
    releases_lock: bool = True

    def burn(self, microseconds: float) -> None:
        """Work that takes so long at the rate given."""
        left = round(microseconds * self.rate)
        if self.releases_lock:
            _multiply_arrays(left)
        else:
            _multiply_numbers(left)

    @classmethod
    def calibrated(cls, releases_lock: bool = True, seconds: float = 0.02) -> Burner:
        """A burner whose microseconds are those of this machine, as it is now: the best of a few tries."""
        work = _multiply_arrays if releases_lock else _multiply_numbers
        amount, best = _STRIP, 0.0
        deadline = time.perf_counter() + seconds
        while True:
            start = time.perf_counter()
            work(amount)
            now = time.perf_counter()
            best = max(best, amount / (now - start) / 1e6)
            if now >= deadline:
                return cls(best, releases_lock)
            amount = min(2 * amount, 64 * _STRIP)


def _multiply_arrays(count: int) -> None:
    strip = np.ones(min(count, _STRIP))
    for _ in range(count // _STRIP):
        np.multiply(strip, _FACTOR, out=strip)
    rest = strip[: count % _STRIP]
    np.multiply(rest, _FACTOR, out=rest)


def _multiply_numbers(count: int) -> None:
    value = 1.0
    for _ in range(count):
        value *= _FACTOR


# --- queries ----------------------------------------------------------------------------------------------------


def chain_query(plan: ChainPlan, source: Source, sink: Sink, burner: Burner) -> QuerySpec:
    """``source`` has rows with an int64 column ``number``, as ``tuples`` makes them."""
    operators = [OperatorSpec("source", Kind.SOURCE, source=source)]
    for place, each in enumerate(plan.filters, start=1):
        operators.append(
            OperatorSpec(
                f"filter{place}",
                Kind.STATELESS,
                (operators[-1].name,),
                function=partial(passing, each, burner),
                cost=each.cost / 1e6,
                selectivity=min(each.selectivity, 1.0),
            )
        )
    burning = BurningSink(sink, plan.sink_cost, burner)
    operators.append(OperatorSpec("sink", Kind.SINK, (operators[-1].name,), sink=burning, cost=plan.sink_cost / 1e6))
    return QuerySpec(plan.name, tuple(operators), plan.priority, plan.importance_class)


def passing(filter_: Filter, burner: Burner, batch: pa.RecordBatch) -> Output:
    """Work for every row, then let pass those whose hash is below the selectivity."""
    burner.burn(filter_.cost * batch.num_rows)
    if filter_.selectivity >= 1:
        return Output(batch)
    number = batch.column("number").to_numpy().view(np.uint64)
    rows = np.flatnonzero(_share(number, filter_.salt) < filter_.selectivity)
    return Output(batch.take(pa.array(rows)), rows)


def _share(number: NDArray[np.uint64], salt: int) -> NDArray[np.float64]:
    """A number from 0 to 1, without 1, that hangs together neither with row numbers nor with that of another salt."""
    hashed = number * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((hashed ^ (hashed >> np.uint64(31))) >> np.uint64(11)) / float(1 << 53)


@dataclass(frozen=True)
class BurningSink:
    """Works for every row before it hands it on."""

    sink: Sink
    cost: float
    burner: Burner

    def open(self) -> Writer:
        return _BurningWriter(self.sink.open(), self.cost, self.burner)


class _BurningWriter:
    def __init__(self, writer: Writer, cost: float, burner: Burner) -> None:
        self._writer = writer
        self._cost = cost
        self._burner = burner

    def write(self, batch: pa.RecordBatch) -> None:
        self._burner.burn(self._cost * batch.num_rows)
        self._writer.write(batch)

    def close(self) -> None:
        self._writer.close()


def tuples(first: int, count: int, seed: int = 0) -> pa.RecordBatch:
    """Rows ``first`` to ``first + count - 1`` of a stream of ``TUPLES``: pi, a key from 0 to 999 and a payload."""
    if first < 0 or count < 0:
        raise ParameterError(f"rows are numbered from 0; got first={first}, count={count}")
    number = np.arange(first, first + count, dtype=np.int64)
    key = (_share(number.view(np.uint64), seed) * 1000).astype(np.int32)
    payload = (number[:, None] + np.arange(_PAYLOAD)).ravel()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(payload), _PAYLOAD)
    columns = [pa.array(number), pa.array(np.full(count, np.pi)), pa.array(key), lists]
    return pa.record_batch(columns, schema=TUPLES)
