"""Sources made of what the program has already."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.core.errors import DeclarationError
from headgate.stream import InputError, from_batches, from_rows
from tests.stream.sources.reading import nobody, read_all

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("name", pa.string())])


def batch(*numbers: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64()), "name": [str(n) for n in numbers]})


def test_an_iterator_can_be_opened_once_and_says_so_the_second_time() -> None:
    source = from_batches(iter([batch(1), batch(2)]))
    assert [row["n"] for row in read_all(source).rows] == [1, 2]
    with pytest.raises(DeclarationError, match=r"only once.*Pass a list, or a function"):
        source.open(nobody, 0.0)


def test_the_schema_may_leave_columns_out() -> None:
    assert read_all(from_batches([batch(1)], pa.schema([("name", pa.string())]))).rows == [{"name": "1"}]


def test_a_null_where_none_may_be_is_rejected_in_its_place() -> None:
    everything = read_all(from_batches([batch(1, None, 3, None)], SCHEMA), most=1)
    assert [row["n"] for row in everything.rows] == [1, 3]
    assert [position for position, _, _ in everything.rejected] == [1, 2]
    assert everything.reasons[0] == "batch 0 of from_batches: column 'n' is null, and the schema says that it never is"


def test_rows_before_an_error_are_read_and_the_error_comes_every_time() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(1)
        yield batch(2)
        raise OSError("unplugged")

    reader = from_batches(broken).open(nobody, 0.0)
    chunk = reader.read(10, 0.0)
    assert chunk is not None
    assert chunk.batch.num_rows == 2
    for _ in range(2):
        with pytest.raises(OSError, match="unplugged"):
            reader.read(10, 0.0)
        assert not reader.ended


def test_a_batch_of_another_schema_is_named_with_what_was_expected_and_what_came() -> None:
    source = from_batches([batch(1), pa.RecordBatch.from_pydict({"n": ["x"]})])
    with pytest.raises(
        InputError, match=r"batch 1 of from_batches.*'n'.*Expected: n int64, name string. Got: n string"
    ):
        read_all(source, most=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param([], "no batch and no schema", id="nothing at all"),
        pytest.param([{"n": 1}], "item 0 is of type dict.*from_rows", id="rows instead of batches"),
    ],
)
def test_what_cannot_be_batches_is_said_at_once(given: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        from_batches(given)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param({"n": "x", "name": "a"}, "column 'n' takes int64", id="a value of another type"),
        pytest.param({"n": 2.5}, "column 'n' takes int64: 2.5 is not a whole number", id="a fraction"),
        pytest.param({"n": 2**63, "name": "a"}, "column 'n' takes int64", id="too large a number"),
        pytest.param({"name": "a"}, "column 'n' is null", id="a column that may not be missing"),
        pytest.param((1,), "expected 2 values (n, name), got 1", id="too few values"),
        pytest.param((1, "a", "b"), "expected 2 values (n, name), got 3", id="too many values"),
        pytest.param("1a", "a row is a dict, a tuple or a list; got str", id="not a row at all"),
    ],
)
def test_a_row_that_does_not_fit_is_rejected_and_the_others_are_not(row: Any, reason: str) -> None:
    everything = read_all(from_rows([{"n": 1}, row, (2, "b")], SCHEMA))
    assert everything.rows == [{"n": 1, "name": None}, {"n": 2, "name": "b"}]
    [(position, why, raw)] = everything.rejected
    assert (position, raw) == (1, str(row))
    assert why.startswith(f"row 1: {reason}")


def test_members_that_the_schema_does_not_have_are_ignored() -> None:
    assert read_all(from_rows([{"n": 1, "name": "a", "at": datetime.min}], SCHEMA)).rows == [{"n": 1, "name": "a"}]
