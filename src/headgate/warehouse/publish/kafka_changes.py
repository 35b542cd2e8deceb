"""The changes of a table's version as records of Kafka.

With a key, a record has the row that its key has now, or no value if the row has gone, as topics with compaction expect
it. Without, each record says in a header whether its row came or went. A row that a version removed and added again, as
when its file is written anew, has not changed and gives no record.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.publish.protocol import TableRows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: what happened to a row; ``reset``: all that came before to this partition is void
Change = Literal["insert", "update", "delete", "reset"]
Encode = Callable[["pa.Table"], Iterable[bytes]]
#: so many rows of a version are compared at once
MOST_IN_MEMORY = 500_000


class ChangeRecord(NamedTuple):
    """A record to be sent. ``partition`` is -1 where Kafka chooses it, by the key if there is one."""

    change: Change
    key: bytes | None
    value: bytes | None
    partition: int = -1


def keyed(added: TableRows, removed: TableRows, key: Sequence[str], encode: Encode) -> Iterator[ChangeRecord | None]:
    """Records by key. Rows that were removed and added are compared in memory: of many, those of some keys at a time.

    None comes before what takes long to find, if it comes at all: transactions should not stay open meanwhile.
    """
    rounds = _rounds(added.num_rows + removed.num_rows)
    for turn in range(rounds):
        if turn:
            yield None
        chosen = partial(_chosen, turn=turn, rounds=rounds)
        old = dict(_pairs(removed, key, encode, chosen))
        new = dict(_pairs(added, key, encode, chosen))
        for gone in old.keys() - new.keys():
            yield ChangeRecord("delete", gone, None)
        for name, value in new.items():
            if name not in old:
                yield ChangeRecord("insert", name, value)
            elif old[name] != value:
                yield ChangeRecord("update", name, value)


def keyed_anew(rows: TableRows, key: Sequence[str], encode: Encode, there: set[bytes]) -> Iterator[ChangeRecord]:
    """Records by key of a table that is published anew where the keys ``there`` are; these are changed."""
    for name, value in _pairs(rows, key, encode):
        yield ChangeRecord("update" if name in there else "insert", name, value)
        there.discard(name)
    for gone in there:
        yield ChangeRecord("delete", gone, None)


def unkeyed(
    added: TableRows, removed: TableRows, encode: Encode, reset: Iterable[int] = ()
) -> Iterator[ChangeRecord | None]:
    """Records without a key, as by ``keyed``. ``reset`` are partitions in which all that came before is to be void."""
    for partition in reset:
        yield ChangeRecord("reset", None, None, partition)
    rounds = _rounds(removed.num_rows)
    for turn in range(rounds):
        if turn:
            yield None
        gone = Counter(value for value in _values(removed, encode) if _chosen(value, turn, rounds))
        for value in _values(added, encode):
            if not _chosen(value, turn, rounds):
                continue
            if gone[value]:
                gone[value] -= 1
            else:
                yield ChangeRecord("insert", None, value)
        for value in gone.elements():
            yield ChangeRecord("delete", None, value)


def _rounds(rows: int) -> int:
    return max(1, math.ceil(rows / MOST_IN_MEMORY))


def _chosen(value: bytes, turn: int, rounds: int) -> bool:
    return rounds == 1 or zlib.crc32(value) % rounds == turn


def _values(rows: TableRows, encode: Encode) -> Iterator[bytes]:
    import pyarrow as pa

    for batch in rows.batches():
        yield from encode(pa.Table.from_batches([batch]))


def _pairs(
    rows: TableRows, key: Sequence[str], encode: Encode, chosen: Callable[[bytes], bool] | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """The key and the value of every row whose key is chosen."""
    import pyarrow as pa

    for batch in rows.batches():
        table = pa.Table.from_batches([batch])
        names = list(_keys(table, key))
        if chosen is not None:
            taken = [chosen(name) for name in names]
            if not all(taken):
                table = table.filter(pa.array(taken))
                names = [name for name, is_taken in zip(names, taken, strict=True) if is_taken]
        yield from zip(names, encode(table), strict=True)


def as_json(rows: pa.Table) -> Iterator[bytes]:
    """Every row as one JSON object, as the Kafka source and Spark read it."""
    names = rows.column_names
    for values in _lists(rows):
        yield _json(dict(zip(names, values, strict=True)))


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[bytes]:
    """The key of every row: a text as it is, another value in JSON, several as a JSON object."""
    for name in key:
        if rows.column(name).null_count:
            raise PublishError(f"the key column {name!r} is null in some rows, which cannot be told apart without it")
    for values in _lists(rows.select(list(key))):
        if len(values) > 1:
            yield _json(dict(zip(key, values, strict=True)))
        else:
            yield values[0].encode() if isinstance(values[0], str) else _json(values[0])


def _lists(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The values of every row, with times as texts."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    for batch in rows.to_batches():
        columns = []
        for column in batch.columns:
            kind, texts = column.type, column
            if pa.types.is_timestamp(kind) and kind.tz is None:
                texts = pc.strftime(column, "%Y-%m-%dT%H:%M:%S")
            elif pa.types.is_timestamp(kind):
                texts = pc.strftime(column.cast(pa.timestamp(kind.unit, "UTC")), "%Y-%m-%dT%H:%M:%SZ")
            columns.append(texts.to_pylist())
        yield from zip(*columns, strict=True)


def _json(value: object) -> bytes:
    try:
        return _PLAIN.encode(value).encode()
    except ValueError:  # a number that JSON does not have
        return _PLAIN.encode(_finite(value)).encode()


def _finite(value: Any) -> Any:
    """``value`` with what is no number, or infinite, as the texts that Spark reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _text(value: object) -> str:
    """What JSON has no value for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date | time) else str(value)  # the others are decimals


_PLAIN = json.JSONEncoder(default=_text, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
