"""What is kept of stateful operators in files: a warehouse written by an older version must still open.

Beside the states of an operator stands how the operator is written. A kernel, a parameter object or a parameter that is
renamed changes this text, and with it every table with such a query would have to be built anew. The layout of the
states themselves, tables and values, is what older files hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from headgate.stream import Aggregate, Collect, OperatorSpec, Output, Part, Query, Snapshot, Stream, from_batches
from headgate.stream.spark.fingerprint import fingerprint, stateful

ROWS = pa.schema([("item", pa.int64()), ("user", pa.string()), ("ts", pa.timestamp("ms")), ("price", pa.float64())])
TOTAL = pa.schema([("total", pa.float64())])
SCHEMA = "item: int64 user: string ts: timestamp[ms] price: double"
JOINED = (
    "item: int64 ts: timestamp[ms] left_user: string left_ts: timestamp[ms] left_price: double "
    "right_user: string right_ts: timestamp[ms] right_price: double headgate_side: string"
)
JOIN_COLUMNS = "['left_user', 'left_ts', 'left_price'] ['right_user', 'right_ts', 'right_price']"
COUNT = "Aggregate(function='count', column=None, name='n')"
SPENT = "Aggregate(function='sum', column='price', name='spent')"
HIGHEST = "Aggregate(function='max', column='price', name='highest')"


def add_price(state: float, row: Mapping[str, Any]) -> tuple[float, list[Mapping[str, Any]]]:
    return state + row["price"], []


def last_total(state: float, key: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{"total": state}]


class Passing:
    """A state of the user's."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit

    def process(self, part: Part) -> Output:
        return Output(part.batch, part.rows)

    def flush(self) -> Output:
        return Output(pa.RecordBatch.from_pylist([], ROWS))

    def snapshot(self) -> Snapshot:
        return Snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Nothing was kept."""


def joined_to_itself(rows: Stream) -> Stream:
    other = rows.map(lambda batch: batch, name="other")
    return rows.key_by("item").interval_join(other.key_by("item"), "ts", before=5, after=timedelta(seconds=1))


class Case(NamedTuple):
    build: Callable[[Stream], Stream]
    operator: str
    fingerprint: str
    #: the columns of each table of a snapshot, and the names of its values
    tables: dict[str, list[str]]
    values: list[str]


CASES = {
    "running": Case(
        lambda rows: rows.key_by("item", "user").running(n="count", spent=("sum", "price")),
        "running",
        f"partitioned item,user RunningAggregate {SCHEMA} ('item', 'user') ({COUNT}, {SPENT})",
        {"keys": ["item", "user"], "totals": ["0 count", "1 count", "1 value"]},
        [],
    ),
    "tumbling": Case(
        lambda rows: rows.key_by("item").tumbling("ts", timedelta(minutes=1), offset=5).aggregate(n="count"),
        "tumbling",
        f"partitioned item TumblingAggregate {SCHEMA} ('item',) ts 60000 ({COUNT},) 5",
        {"keys": ["item"], "cells": ["pane", "0 count"]},
        ["clock"],
    ),
    "sliding": Case(
        lambda rows: rows.key_by("item").sliding("ts", 60, 20).aggregate(highest=Aggregate("max", "price", "unused")),
        "sliding",
        f"partitioned item SlidingAggregate {SCHEMA} ('item',) ts 60 20 ({HIGHEST},)",
        {"keys": ["item"], "cells": ["pane", "0 count", "0 value"]},
        ["clock"],
    ),
    "session": Case(
        lambda rows: rows.key_by("user").session("ts", 30).aggregate(n="count"),
        "session",
        f"partitioned user SessionAggregate {SCHEMA} ('user',) ts 30 ({COUNT},)",
        {"keys": ["user"], "sessions": ["first", "last", "over", "0 count"]},
        ["clock"],
    ),
    "dedupe": Case(
        lambda rows: rows.key_by("user").dedupe(),
        "dedupe",
        f"partitioned user Dedupe {SCHEMA} ('user',) None None",
        {"keys": ["user"], "passed": ["passed_at"]},
        ["clock"],
    ),
    "dedupe within": Case(
        lambda rows: rows.key_by("user").dedupe(within=30, time="ts"),
        "dedupe",
        f"partitioned user Dedupe {SCHEMA} ('user',) 30 ts",
        {"keys": ["user"], "passed": ["passed_at"]},
        ["clock"],
    ),
    "in_order": Case(
        lambda rows: rows.key_by("user").in_order("ts"),
        "in_order",
        f"partitioned user InOrder {SCHEMA} ('user',) ts",
        {"keys": ["user"], "latest": ["latest"]},
        [],
    ),
    "top_k": Case(
        lambda rows: rows.key_by("user").top_k("price", 2),
        "top_k",
        f"partitioned user TopK {SCHEMA} ('user',) price 2 True",
        {"keys": ["user"], "best": ["0", "1"], "rows": ["item", "user", "ts", "price"]},
        [],
    ),
    "top_k of all": Case(
        lambda rows: rows.top_k("price", 1, descending=False),
        "top_k",
        f"stateful TopK {SCHEMA} () price 1 False",
        {"keys": [], "best": ["0"], "rows": ["item", "user", "ts", "price"]},
        [],
    ),
    "fold": Case(
        lambda rows: rows.key_by("user").fold(add_price, 0.0, TOTAL),
        "add_price",
        f"partitioned user Fold {SCHEMA} ('user',) add_price 0.0 total: double None",
        {"keys": ["user"], "states": ["state"]},
        [],
    ),
    "fold of all": Case(
        lambda rows: rows.fold(add_price, 1, TOTAL, finish=last_total),
        "add_price",
        f"stateful Fold {SCHEMA} () add_price 1 total: double last_total",
        {"keys": [], "states": ["state"]},
        [],
    ),
    "interval_join": Case(
        joined_to_itself,
        "join",
        f"partitioned item IntervalJoin {JOINED} ('item',) ts {JOIN_COLUMNS} 5 1000 headgate_side ('left', 'right') "
        "('', '')",
        {
            "left keys": ["item"],
            "left times": ["time", "arrival"],
            "left rows": ["left_user", "left_ts", "left_price"],
            "right keys": ["item"],
            "right times": ["time", "arrival"],
            "right rows": ["right_user", "right_ts", "right_price"],
        },
        ["clock", "arrived"],
    ),
    "ranges": Case(
        lambda rows: rows.key_by("item", ranges=[10, 20]).running(n="count"),
        "running",
        f"partitioned item RunningAggregate {SCHEMA} ('item',) ({COUNT},)",
        {"keys": ["item"], "totals": ["0 count"]},
        [],
    ),
    "a class of the user's": Case(
        lambda rows: rows.key_by("item").state(Passing),
        "state",
        "partitioned item Passing",
        {},
        [],
    ),
    "a partial of the user's": Case(
        lambda rows: rows.stateful(partial(Passing, limit=3)),
        "stateful",
        "stateful Passing limit=3",
        {},
        [],
    ),
}


def stateful_operator(case: Case) -> OperatorSpec:
    query = Query("q")
    case.build(query.source(from_batches([], schema=ROWS))).to(Collect())
    (operator,) = stateful(query.spec().operators)
    return operator


def snapshot_of(operator: OperatorSpec) -> Snapshot:
    """Of a state that has seen one packet, some of whose columns are null."""
    assert operator.state is not None
    state = operator.state()
    row: dict[str, Any] = {"item": 1, "user": "u", "ts": 7, "price": 2.0, "headgate_side": "left", "left_ts": 7}
    schema = operator.state.args[0] if isinstance(operator.state, partial) and operator.state.args else ROWS
    batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names}], schema)
    state.process(Part.whole(batch, pa.array([7]).to_numpy()))
    return state.snapshot()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_operator_is_written_as_it_always_was(case: Case) -> None:
    assert fingerprint([stateful_operator(case)]) == {case.operator: case.fingerprint}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_snapshot_has_the_tables_and_values_it_always_had(case: Case) -> None:
    snapshot = snapshot_of(stateful_operator(case))
    assert {name: table.schema.names for name, table in snapshot.tables.items()} == case.tables
    assert list(snapshot.values) == case.values
