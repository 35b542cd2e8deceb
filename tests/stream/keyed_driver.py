"""Runs keyed states as the engine does: cuts rows into packets, packets into buckets, and puts the outputs together.

Also what the tests of keyed operators share: rows made by Hypothesis, and aggregates computed by plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from headgate.stream.kernel import Output, Part, Snapshot, State
from headgate.stream.keyed import Aggregate, Plan
from headgate.stream.partition import ByHash, Split

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        ("user", pa.int64()),
        ("place", pa.string()),
        ("time", pa.int64()),
        ("amount", pa.int64()),
        ("value", pa.float64()),
        ("at", pa.timestamp("ms")),
        ("side", pa.string()),
    ]
)
AGGREGATES = (
    Aggregate("count"),
    Aggregate("count", "value"),
    Aggregate("sum", "amount"),
    Aggregate("sum", "value"),
    Aggregate("mean", "amount"),
    Aggregate("mean", "value"),
    Aggregate("min", "value"),
    Aggregate("max", "amount"),
    Aggregate("first", "value"),
    Aggregate("last", "amount"),
    Aggregate("max", "at"),
)
KEYS = {"no key": (), "a number": ("user",), "a text": ("place",), "both": ("place", "user")}

few_examples = settings(max_examples=max(1, settings().max_examples // 8))


@dataclass(frozen=True)
class Cutting:
    """How a stream is cut: the sizes of packets, over and over, and after which packets the states are replaced."""

    sizes: tuple[int, ...]
    buckets: int = 1
    restarts: frozenset[int] = frozenset()


@dataclass
class Ran:
    """All that came out: rows with the row of the stream that they stand for (None: flushed), and rejected rows."""

    rows: list[tuple[int | None, Row]] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)

    def exactly(self) -> list[str]:
        """For comparing to the last bit, with NaN equal to NaN."""
        return [repr(row) for row in self.rows] + [repr(row) for row in sorted(self.rejected)]


WHOLE = Cutting((1 << 30,))


def cuttings() -> st.SearchStrategy[Cutting]:
    return st.builds(
        Cutting,
        st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any).map(tuple),
        st.sampled_from([1, 3, 8]),
        st.frozensets(st.integers(0, 12), max_size=3),
    )


def streams(late: bool = False, exact: bool = False, most: int = 30) -> st.SearchStrategy[list[Row]]:
    """Rows in the order of time, with ties; if ``late``, some are older than rows before them. ``exact`` values can be
    added in any order."""
    values = st.integers(-4, 4).map(lambda n: n / 4) if exact else st.floats(-1e6, 1e6)
    one = st.fixed_dictionaries(
        {
            "user": st.none() | st.integers(-3, 3),
            "place": st.none() | st.sampled_from(["", "x", "yy", "é"]),
            "time": st.sampled_from([0, 0, 1, 1, 2, 5, 30]),
            "amount": st.none() | st.integers(-1, 1) | st.integers(-100, 100),
            "value": st.none() | values,
            "at": st.none() | st.integers(0, 10**6),
            "side": st.sampled_from(["left", "right"]),
            "late": st.sampled_from([0, 0, 0, 1, 4, 12]) if late else st.just(0),
        }
    )
    return st.lists(one, max_size=most).map(_timed)


def _timed(rows: list[Row]) -> list[Row]:
    clock = -20
    made = []
    for row in rows:
        clock += row["time"]
        made.append({**row, "time": clock - row["late"]})
        del made[-1]["late"]
    return made


def batch_of(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def drive(planned: Plan, batch: pa.RecordBatch, keys: Sequence[str], cutting: Cutting = WHOLE) -> Ran:
    """Run the stream through new states."""
    states: list[State] = [planned.factory() for _ in range(cutting.buckets if keys else 1)]
    times = None
    if planned.time is not None:
        times, _ = planned.time.of_rows(batch, None)
    ran = Ran()
    begin = packet = 0
    while begin < batch.num_rows:
        size = cutting.sizes[packet % len(cutting.sizes)]
        outputs = _packet(planned, states, batch.slice(begin, size), keys, times, begin)
        _assemble(planned, outputs, begin, ran)
        if packet in cutting.restarts:
            states = [_replaced(planned, state) for state in states]
        begin, packet = begin + size, packet + 1
    _assemble(planned, [state.flush() for state in states], None, ran)
    return ran


def _packet(
    planned: Plan, states: list[State], batch: pa.RecordBatch, keys: Sequence[str], times: Any, begin: int
) -> list[Output]:
    parts = {0: np.arange(batch.num_rows)}
    if keys:
        split = Split.of(batch, ByHash(tuple(keys)), len(states))
        parts = {bucket: split.rows_of(place) for place, bucket in enumerate(split.buckets)}
    outputs = []
    for bucket, state in enumerate(states):
        rows = parts.get(bucket, np.empty(0, dtype=np.int64))
        if len(rows) or _must_hear(planned, times, begin, batch.num_rows):
            own = None if times is None else times[begin : begin + batch.num_rows]
            outputs.append(state.process(Part(batch.take(pa.array(rows)), rows, own)))
    return outputs


def _must_hear(planned: Plan, times: Any, begin: int, size: int) -> bool:
    if planned.time is None or not size:
        return False
    return planned.time.crosses(int(times[begin - 1]) if begin else None, int(times[begin + size - 1]))


def _replaced(planned: Plan, state: State) -> State:
    new = planned.factory()
    kept = state.snapshot()
    assert all(isinstance(table, pa.Table) for table in kept.tables.values())
    new.restore(Snapshot(kept.tables, dict(kept.values)))
    return new


def _assemble(planned: Plan, outputs: list[Output], begin: int | None, ran: Ran) -> None:
    """Rows of all buckets by parent, then by the order that the states ask for; flushed ones by the order alone."""
    placed = []
    for output in outputs:
        assert output.batch.schema.equals(planned.schema)
        output.batch.validate(full=True)
        assert all(len(array) == output.batch.num_rows and not array.null_count for array in output.order)
        order = list(zip(*(array.to_pylist() for array in output.order), strict=True)) or [()] * output.batch.num_rows
        parents: list[int] = [0] * output.batch.num_rows
        if begin is not None:
            assert output.parents is not None
            parents = output.parents.tolist()
            assert parents == sorted(parents)
            assert len(parents) == output.batch.num_rows
            ran.rejected += [(begin + rejected.row, rejected.reason) for rejected in output.rejected]
        assert list(zip(parents, order, strict=True)) == sorted(zip(parents, order, strict=True))
        placed += zip(parents, order, output.batch.to_pylist(), strict=True)
    placed.sort(key=lambda each: each[:2])
    ran.rows += [(None if begin is None else begin + parent, row) for parent, _, row in placed]


def same_for_any_cutting(planned: Plan, batch: pa.RecordBatch, keys: Sequence[str], cutting: Cutting) -> Ran:
    """The output of the stream in one packet and one bucket, after checking that another cutting gives the same."""
    whole = drive(planned, batch, keys)
    assert drive(planned, batch, keys, cutting).exactly() == whole.exactly()
    return whole


def key_of(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in keys)


def in_key_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """What keys sort by: nulls first."""
    return tuple((0,) if part is None else (1, part) for part in key)


def aggregated(rows: list[Row]) -> Row:
    """The aggregates of rows in their order, computed one value after the other."""
    return {aggregate.output: _plainly(aggregate, rows) for aggregate in AGGREGATES}


def _plainly(aggregate: Aggregate, rows: list[Row]) -> Any:
    if aggregate.column is None:
        return len(rows)
    values = [row[aggregate.column] for row in rows if row[aggregate.column] is not None]
    if aggregate.function == "count":
        return len(values)
    return _FUNCTIONS[aggregate.function](values) if values else None


def _total(values: list[Any]) -> Any:
    total = 0.0 if isinstance(values[0], float) else 0
    for value in values:
        total += value
    return total


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": _total,
    "mean": lambda values: _total(values) / len(values),
    # -0 counts as 0
    "min": lambda values: min(value + 0.0 if isinstance(value, float) else value for value in values),
    "max": lambda values: max(value + 0.0 if isinstance(value, float) else value for value in values),
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}
