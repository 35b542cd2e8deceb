"""SQL that takes a text apart into typed columns, and says what is wrong with one that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.warehouse.sources.schema import PRIVATE_PREFIX, Column
from headgate.warehouse.sources.sql import ddl, sql_map, sql_text

TEXT = f"{PRIVATE_PREFIX}text"
PARSED = f"{PRIVATE_PREFIX}parsed"
CORRUPT = f"{PRIVATE_PREFIX}corrupt"

#: how much of a bad value is shown
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class JsonRow:
    """SQL that takes one JSON object in the column ``TEXT`` apart.

    ``parse`` is to be computed once per row, as the column ``PARSED``; from that follow the ``values`` of the columns,
    whether the row is ``good``, and the ``reason`` if it is not.
    """

    parse: str
    values: list[str]
    good: str
    reason: str


def json_row(columns: Sequence[Column], options: Mapping[str, str], *, otherwise: str) -> JsonRow:
    """How rows with ``columns`` are parsed; ``otherwise`` says what is wrong with a text that is no JSON object.

    Spark's parser stops at the end of the first value and ignores what follows in the text, such as a second object. So
    every text is wrapped into an object before it is parsed: the result is as expected only around a single object.
    """

    def parse(columns: Sequence[Column]) -> str:
        schema = f"r array<struct<{ddl(columns, ': ')}>>, _end int, {CORRUPT} string"
        wrapped = f"""concat('{{"r":[', {TEXT}, '],"_end":1}}')"""
        return f"from_json({wrapped}, {sql_text(schema)}, {sql_map(permissive(options))})"

    def single(parsed: str) -> str:
        return f"(size({parsed}.r) <=> 1 AND {parsed}.r[0] IS NOT NULL AND {parsed}._end <=> 1)"

    values = [f"get({PARSED}.r, 0).{column.quoted}" for column in columns]
    reason = why_bad(
        parse([Column(column.name, "string") for column in columns]),
        unless=single,
        otherwise=otherwise,
        columns=columns,
        values=values,
        texts=lambda seen, column: f"get({seen}.r, 0).{column.quoted}",
    )
    return JsonRow(parse(columns), values, f"{single(PARSED)} AND {PARSED}.{CORRUPT} IS NULL", reason)


def permissive(options: Mapping[str, str]) -> dict[str, str]:
    return {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def why_bad(
    parsed_as_texts: str,
    *,
    unless: Callable[[str], str],
    otherwise: str,
    columns: Sequence[Column],
    values: Sequence[str],
    texts: Callable[[str, Column], str],
) -> str:
    """SQL for why a row is bad: the columns whose text is not of their type, or ``otherwise`` if it has no columns.

    The row is parsed a second time with every column as a string. A ``transform`` over an array of one binds the result
    to ``seen``, so that it is computed once, and only for bad rows.
    """
    misfits = ", ".join(
        _misfit(column, value, texts("seen", column)) for column, value in zip(columns, values, strict=True)
    )
    named = f"coalesce(nullif(concat_ws('; ', {misfits}), ''), 'does not fit the schema')"
    complaint = f"CASE WHEN {unless('seen')} THEN {named} ELSE {sql_text(otherwise)} END"
    return f"transform(array({parsed_as_texts}), seen -> {complaint})[0]"


def _misfit(column: Column, value: str, text: str) -> str:
    before, after = sql_text(f"{column.name}: '"), sql_text(f"' is not of the type {column.type}")
    return (
        f"CASE WHEN {value} IS NULL AND {text} IS NOT NULL THEN concat({before}, left({text}, {_SHOWN}), {after}) END"
    )
