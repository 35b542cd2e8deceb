"""Sinks that keep rows in the program or hand them to a function."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headgate.core.errors import ParameterError, UserCodeError
from headgate.stream import Collect, Sink, to_function, to_list

FIRST, SECOND = pa.RecordBatch.from_pydict({"n": [1, 2]}), pa.RecordBatch.from_pydict({"n": [3]})


def write(sink: Sink) -> None:
    writer = sink.open()
    writer.write(FIRST)
    writer.write(SECOND)
    writer.close()
    writer.close()


def test_a_list_gets_every_batch_in_order() -> None:
    target: list[pa.RecordBatch] = []
    write(to_list(target))
    assert target == [FIRST, SECOND]


def test_collected_rows_are_those_of_the_last_run() -> None:
    sink = Collect()
    write(sink)
    write(sink)
    assert sink.batches == [FIRST, SECOND]
    assert sink.table() == pa.table({"n": [1, 2, 3]})
    assert sink.rows() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_run_without_rows_gives_a_table_without_rows() -> None:
    sink = Collect(FIRST.schema)
    sink.open().close()
    assert sink.table() == pa.table({"n": pa.array([], pa.int64())})
    assert Collect().rows() == []


@pytest.mark.parametrize(("per", "expected"), [("batch", [FIRST, SECOND]), ("row", [{"n": 1}, {"n": 2}, {"n": 3}])])
def test_a_function_gets_batches_or_rows(per: Any, expected: list[Any]) -> None:
    got: list[Any] = []
    write(to_function(got.append, per))
    assert got == expected


def test_an_error_of_the_function_is_the_users() -> None:
    def fails(batch: pa.RecordBatch) -> None:
        raise LookupError("gone")

    with pytest.raises(UserCodeError, match=r"to_function\(fails, per='batch'\) failed: LookupError: gone"):
        write(to_function(fails))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [pytest.param((print, "rows"), "per is 'batch' or 'row'", id="per"), pytest.param((3,), "got int", id="function")],
)
def test_what_is_no_function_sink_is_said_at_once(arguments: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        to_function(*arguments)
