"""JSON that is parsed without Spark gives the rows that Spark gives, and what Spark alone understands goes to it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.warehouse.sources.kafka.columns import KEY, OFFSET, PARTITION, VALUE, RecordColumns
from headgate.warehouse.sources.kafka.formats import JsonValues
from headgate.warehouse.sources.kafka.quick import QuickJson
from headgate.warehouse.sources.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = parse_schema("ts timestamp, s string, n long, i int, x double, b boolean", "a test")
RECORDS = RecordColumns.of({"id": "key", "gone": "tombstone"}, "a test")
FORMAT = JsonValues(COLUMNS)
PLAIN = {"ts": "2026-01-01T00:00:00Z", "s": 'é\n"😀', "n": -5, "i": 7, "x": 1.5, "b": True}

#: a value of one column, as JSON; Arrow or Spark may find any of them strange
STRANGE = {
    "ts": [
        *('"2026-01-01T00:00:00.123456Z"', '"2026-01-01T00:00:00.1234567Z"', '"2026-01-01"', '"2026-01-01 00:00:00"'),
        *('"2026-01-01T00:00:00+01:00"', '"2026-02-30T00:00:00Z"', '"2026-01-01T24:00:00Z"', "1767225600", '"soon"'),
        *('"2026-01-01T00:00Z"', '"0001-01-01T00:00:00Z"', '"1500-01-01T00:00:00Z"', '"2026-01-01T00:00:60Z"', "null"),
    ],
    "s": [r'"\ud83d\ude00"', r'"\ud800"', r'"\u0000"', "5", "1.50", "true", '{"a": 1}', "[1]", "null", '""', "'x'"],
    "n": ["9223372036854775807", "9223372036854775808", "1.0", "1e2", '"5"', "-0", "true", "null", "01", "+1", "NaN"],
    "i": ["2147483647", "2147483648", "-1", "1.5", '""'],
    "x": ["1", "1e400", "1e-400", "-0.0", "0.1", '"NaN"', "NaN", '"Infinity"', '"1.5"', "12345678901234567890", ".5"],
    "b": ["false", "0", '"true"', "null"],
}
#: whole values
OTHERS = [
    *(None, b"", b" ", b"{}", b"{", b"}", b"null", b"[]", b"[{}]", b'{"n":1}{"n":2}', b'{"n":1} {"n":2}', b'{"n": 1} '),
    *(b' {"n": 1}', b'{"n":1}\n{"n":2}', b'{"n":\n1}', b'{"n":1,"n":2}', b'{"N": 1}', b'{"n": 1,}', b"{n: 1}"),
    *(
        b'\xef\xbb\xbf{"n": 1}',
        b'{"s": "\xff"}',
        b'{"other": {"deep": [1, {"x": null}]}, "n": 1}',
        b'{"n": 1}}',
        b"{}{}",
    ),
    *(b'{"n": 1}/* */', b'{"other": nonsense, "n": 1}', b'{"other": 1e999, "n": 1}', b'{"a":1}, {"b":2}', b'{"r": []}'),
]


def strange_values() -> list[bytes | None]:
    values = [*OTHERS]
    for column, texts in STRANGE.items():
        for text in texts:
            rest = json.dumps({name: value for name, value in PLAIN.items() if name != column})
            values.append(f'{{"{column}": {text}, {rest[1:]}'.encode())
    return values


def packet_of(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    keys = keys or [b"k"] * len(values)
    numbers = range(len(values))
    columns = {
        PARTITION: pa.array([n % 3 for n in numbers], pa.int32()),
        OFFSET: pa.array(numbers, pa.int64()),
        VALUE: pa.array(values, pa.binary()),
        KEY: pa.array(keys, pa.binary()),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in RECORDS.read})


def quick() -> QuickJson:
    found = QuickJson.of(COLUMNS, {}, RECORDS, "t")
    assert found is not None
    return found


def by_spark(spark: SparkSession, packets: list[pa.RecordBatch]) -> pa.Table:
    frame = spark.createDataFrame(pa.Table.from_batches(packets), FORMAT.decoded_columns(RECORDS))
    return FORMAT.rows(frame, RECORDS, "t").toArrow().cast(quick().schema)


@pytest.mark.spark
@pytest.mark.slow
def test_rows_are_the_same_with_and_without_spark(spark: SparkSession) -> None:
    strange = strange_values()
    plain: list[bytes | None] = [json.dumps({**PLAIN, "n": n}).encode() for n in range(600)]
    values = [*strange, *plain]
    keys: list[bytes | None] = [None if n % 5 else b"\xff" if n % 15 else b"k" for n in range(len(values))]
    random.Random(1).shuffle(values)
    # One by one, so that no value hides behind another that Arrow refuses.
    alone = [packet_of([value]) for value in strange]
    for packets in ([packet_of(values), packet_of(values, keys), packet_of(plain)], alone):
        taken = [quick().take_apart(packet) for packet in packets]
        found = [table for each in taken for table in each.rows]
        rest = [packet for each in taken for packet in each.rest]
        assert found, "Arrow parses some of them"
        both = [*found, by_spark(spark, rest)]
        expected = by_spark(spark, packets)
        assert rows_of(pa.concat_tables(both)) == rows_of(expected)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_one_record_that_is_at_fault_does_not_send_many_to_spark() -> None:
    values: list[bytes | None] = [json.dumps({**PLAIN, "n": n}).encode() for n in range(10_000)]
    values[1234] = b'{"n": "x"}'
    values[7000] = b"poison"
    values[7001] = None
    found = quick().take_apart(packet_of(values))
    assert sum(packet.num_rows for packet in found.rest) <= 32 + 2
    assert sum(table.num_rows for table in found.rows) + sum(packet.num_rows for packet in found.rest) == 10_000


@pytest.mark.parametrize(
    ("schema", "options", "parts"),
    [
        ("d date", {}, ()),
        ("n array<int>", {}, ()),
        ("n long", {"timestampFormat": "yyyy"}, ()),
        ("n long", {}, ("headers",)),
    ],
)
def test_what_arrow_might_read_in_another_way_is_left_to_spark(
    schema: str, options: dict[str, str], parts: tuple[str, ...]
) -> None:
    records = RecordColumns.of(parts, "a test")
    assert QuickJson.of(parse_schema(schema, "a test"), options, records, "t") is None
