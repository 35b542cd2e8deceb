"""A key of any type that a query may declare works in every operator; others are refused when the query is written."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import DeclarationError
from headgate.stream import Collect, Query, from_batches
from headgate.stream.engine import Engine
from headgate.stream.query import Stream

MOMENT = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
#: type and two values of each that can be a key
KEYS: dict[str, tuple[pa.DataType, Any, Any]] = {
    **{str(kind): (kind, 3, 5) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32())},
    "the largest unsigned": (pa.uint64(), (1 << 64) - 1, (1 << 63) - 1),
    "bool": (pa.bool_(), False, True),
    "string": (pa.string(), "", "x"),
    "large_string": (pa.large_string(), "", "x"),
    "binary": (pa.binary(), b"", b"\xff"),
    "large_binary": (pa.large_binary(), b"", b"\xff"),
    "date32": (pa.date32(), date(1969, 12, 31), date(2024, 2, 29)),
    "date64": (pa.date64(), date(1969, 12, 31), date(2024, 2, 29)),
    "time32": (pa.time32("s"), time(1), time(2)),
    "time64": (pa.time64("us"), time(1), time(2)),
    "timestamp": (pa.timestamp("us", "UTC"), MOMENT, MOMENT + timedelta(days=1)),
    "duration": (pa.duration("ms"), timedelta(hours=-1), timedelta(hours=2)),
    "dictionary of strings": (pa.dictionary(pa.int32(), pa.string()), "", "x"),
    "dictionary of large binaries": (pa.dictionary(pa.int8(), pa.large_binary()), b"", b"\xff"),
    "dictionary of integers": (pa.dictionary(pa.int32(), pa.int64()), 3, 5),
}
OTHERS = {
    "float": pa.float64(),
    "decimal": pa.decimal128(5, 2),
    "list": pa.list_(pa.int64()),
    "fixed size binary": pa.binary(2),
    "string view": pa.string_view(),
    "binary view": pa.binary_view(),
    "null": pa.null(),
    "month interval": pa.month_day_nano_interval(),
}
OPERATORS: dict[str, Any] = {
    "running": lambda keyed: keyed.running(n="count"),
    "tumbling": lambda keyed: keyed.tumbling("ts", 2).aggregate(n="count"),
    "sliding": lambda keyed: keyed.sliding("ts", 4, 2).aggregate(n="count"),
    "session": lambda keyed: keyed.session("ts", 1).aggregate(n="count"),
    "dedupe": lambda keyed: keyed.dedupe(),
    "in_order": lambda keyed: keyed.in_order("ts"),
    "top_k": lambda keyed: keyed.top_k("ts", 1),
    "fold": lambda keyed: keyed.fold(
        lambda n, row: (n + 1, []),
        0,
        pa.schema([("n", pa.int64())]),
        finish=lambda state, key: [{"n": state}] if list(key) == ["key"] else [],
    ),
    "join": lambda keyed: keyed.interval_join(keyed, "ts", before=1, after=1),
}


def keyed_rows(kind: pa.DataType, values: list[Any]) -> pa.Table:
    keys = pa.array(values, kind.value_type).dictionary_encode() if pa.types.is_dictionary(kind) else None
    return pa.table(
        {
            "key": pa.array(values, kind) if keys is None else keys.cast(kind),
            "ts": pa.array(range(len(values)), pa.int64()),
        }
    )


def found(table: pa.Table, build: Any, packet_rows: int, buckets: int) -> list[dict[str, Any]]:
    sink = Collect()
    with Engine(workers=1, packet_rows=packet_rows) as engine:
        stream: Stream = build(Query("keys").source(from_batches(table)).key_by("key", buckets=buckets))
        engine.add(stream.to(sink)).result(20)
    return sink.rows()


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_every_type_works_in_every_operator(name: str, operator: str) -> None:
    kind, first, second = KEYS[name]
    table = keyed_rows(kind, [first, second, None, first, None, second, first])
    whole = found(table, OPERATORS[operator], 100, 1)
    assert whole
    assert {row["key"] for row in whole if "key" in row} <= {first, second, None}
    assert found(table, OPERATORS[operator], 2, 3) == whole


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", OTHERS)
def test_a_key_of_another_type_is_refused_when_the_query_is_written(name: str, operator: str) -> None:
    table = pa.table({"key": pa.nulls(1, OTHERS[name]), "ts": pa.array([1])})
    with pytest.raises(DeclarationError, match="column 'key' of type"):
        OPERATORS[operator](Query("keys").source(from_batches(table)).key_by("key"))


class Untouched:
    """A state that passes rows on."""

    def process(self, part: Any) -> Any:
        from headgate.stream import Output

        return Output(part.batch, part.rows)


@pytest.mark.parametrize("name", OTHERS)
def test_a_state_of_your_own_needs_such_a_key_too(name: str) -> None:
    table = pa.table({"key": pa.nulls(1, OTHERS[name]), "ts": pa.array([1])})
    with pytest.raises(DeclarationError, match="column 'key' of type"):
        Query("keys").source(from_batches(table)).key_by("key").state(Untouched)  # type: ignore[arg-type]
