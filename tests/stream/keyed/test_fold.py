"""A fold is a plain function over rows and a state per key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from headgate.core.errors import DeclarationError, UserCodeError
from headgate.stream.keyed import Fold, plan
from tests.stream.keyed_driver import (
    KEYS,
    SCHEMA,
    Cutting,
    Row,
    batch_of,
    cuttings,
    drive,
    few_examples,
    in_key_order,
    key_of,
    same_for_any_cutting,
    streams,
)

OUTPUT = pa.schema([("seen", pa.int64()), ("amounts", pa.list_(pa.int64()))])


def on_every_third(state: list[Any], row: Row) -> tuple[list[Any], list[Row]]:
    state.append(row["amount"])
    return state, [{"seen": len(state), "amounts": state[-3:]}] * 2 if len(state) % 3 == 0 else []


def at_the_end(state: list[Any], key: Row) -> list[Row]:
    return [{"seen": len(state) + 100 * len(key)}] * (len(state) % 3)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(), cuttings())
def test_each_key_has_a_state_of_its_own_that_sees_its_rows_in_order(
    keys: tuple[str, ...], rows: list[Row], cutting: Cutting
) -> None:
    planned = plan(Fold, SCHEMA, keys, on_every_third, [], OUTPUT, at_the_end)
    ran = same_for_any_cutting(planned, batch_of(rows), keys, cutting)
    amounts: dict[Any, list[Any]] = {}
    expected: list[Any] = []
    for place, row in enumerate(rows):
        held = amounts.setdefault(key_of(row, keys), [])
        held.append(row["amount"])
        if len(held) % 3 == 0:
            expected += [(place, {"seen": len(held), "amounts": held[-3:]})] * 2
    for key in sorted(amounts, key=in_key_order):
        seen = len(amounts[key])
        expected += [(None, {"seen": seen + 100 * len(keys), "amounts": None})] * (seen % 3)
    assert ran.rows == expected


def failing(state: Any, row: Row) -> Any:
    raise KeyError("weight")


def astray(state: Any, row: Row) -> Any:
    return state, [{"seen": "many"}]


@pytest.mark.parametrize(
    ("function", "text"),
    [(failing, "failed on the row .*'user': 7.*KeyError: 'weight'"), (astray, "declared columns .seen: int64")],
    ids=["the function fails", "a value of another type"],
)
def test_an_error_in_the_function_says_on_which_row(function: Any, text: str) -> None:
    with pytest.raises(UserCodeError, match=text):
        drive(plan(Fold, SCHEMA, ["user"], function, 0, OUTPUT), batch_of([{"user": 7}]), ["user"])


def test_the_initial_state_must_be_something_that_can_be_kept() -> None:
    with pytest.raises(DeclarationError, match="must be a JSON value"):
        Fold(SCHEMA, ["user"], on_every_third, {1, 2}, OUTPUT)
