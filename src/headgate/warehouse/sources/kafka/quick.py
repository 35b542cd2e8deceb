"""Rows of JSON records without Spark, where Arrow's parser and Spark's give the same beyond doubt.

Spark takes a tenth of a second for the smallest job, and several times as long as Arrow for a large one. But it accepts
more than Arrow, in ways of its own, and says what is wrong with a text. So Arrow gets the texts that are one plain
object each, and what it does not accept goes to Spark: half of a packet after the other, down to a few records around
the one that is at fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.json as pj  # type: ignore[import-untyped]

from headgate.warehouse.sources.kafka.columns import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE, RecordColumns
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import Column

_UTC = pa.timestamp("us", "UTC")
#: the types that both parsers read in the same way
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": _UTC,
    "binary": pa.binary(),
}
#: of parts of a record
_PARTS = frozenset({"key", "key_bytes", "timestamp", "partition", "offset", "tombstone"})
#: so few records are not divided any more
_FEW = 32
#: the lengths of '2026-01-01T00:00:00Z' and '2026-01-01T00:00:00.000000Z'
_SHORTEST_TIME, _LONGEST_TIME, _TIME_AT = 20, 27, 10
_OTHER_TIMES = "some moments are written in another way"


@dataclass
class TakenApart:
    """Rows of a stream, and the records that only Spark may parse."""

    rows: list[pa.Table] = field(default_factory=list)
    rest: list[pa.RecordBatch] = field(default_factory=list)


@dataclass(frozen=True)
class QuickJson:
    """Parses packets of records with ``columns`` in their values."""

    columns: tuple[Column, ...]
    records: RecordColumns
    topic: str

    @classmethod
    def of(
        cls, columns: Sequence[Column], options: Mapping[str, str], records: RecordColumns, topic: str
    ) -> QuickJson | None:
        """None if the columns, or the options of Spark's parser, are not for Arrow."""
        is_plain = all(column.kind in _TYPES and column.kind != "binary" for column in columns)
        fits = is_plain and not options and _PARTS.issuperset(records.parts.values())
        return cls(tuple(columns), records, topic) if fits else None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream, then file, text and error."""
        declared = [(column.name, _TYPES[column.kind]) for column in (*self.columns, *self.records.columns)]
        return pa.schema([*declared, *((name, pa.string()) for name in (FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN))])

    def take_apart(self, packet: pa.RecordBatch) -> TakenApart:
        found = TakenApart()
        plain = pa.array(_are_objects(packet.column(VALUE)))
        if not pc.all(plain).as_py():
            found.rest.append(packet.filter(pc.invert(plain)))
            packet = packet.filter(plain)
        self._take(packet, found)
        return found

    def _take(self, packet: pa.RecordBatch, found: TakenApart) -> None:
        count = packet.num_rows
        if not count:
            return
        try:
            found.rows.append(self._rows(packet))
        except pa.ArrowException:
            if count <= _FEW:
                found.rest.append(packet)
                return
            self._take(packet.slice(0, count // 2), found)
            self._take(packet.slice(count // 2), found)

    def _rows(self, packet: pa.RecordBatch) -> pa.Table:
        """All records as rows; raises if one of them is not for Arrow."""
        texts = packet.column(VALUE).cast(pa.string())  # raises if they are not valid UTF-8
        parsed = self._parsed(texts)
        count = packet.num_rows
        parts: dict[str, Any] = {
            "key": lambda: packet.column(KEY).cast(pa.string()),
            "key_bytes": lambda: packet.column(KEY),
            "timestamp": lambda: packet.column(TIMESTAMP),
            "partition": lambda: packet.column(PARTITION),
            "offset": lambda: packet.column(OFFSET),
            "tombstone": lambda: pa.repeat(pa.scalar(False), count),
        }
        places = (packet.column(name).cast(pa.string()) for name in (PARTITION, OFFSET))
        file = pc.binary_join_element_wise(f"{self.topic}/", next(places), "@", next(places), "")
        values = [_typed(parsed.column(column.name), column.kind) for column in self.columns]
        others = [parts[part]() for part in self.records.parts.values()]
        return pa.table([*values, *others, file, texts, pa.nulls(count, pa.string())], schema=self.schema)

    def _parsed(self, texts: pa.Array) -> pa.Table:
        kinds = [(c.name, pa.string() if c.kind == "timestamp" else _TYPES[c.kind]) for c in self.columns]
        one_list = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
        lines = pc.binary_join(one_list, "\n")[0].as_buffer()
        parsed = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 16, lines.size + 1)),
            parse_options=pj.ParseOptions(explicit_schema=pa.schema(kinds), unexpected_field_behavior="ignore"),
        )
        # Every line has an object, so it has one row at least; one with two objects would have two.
        if parsed.num_rows != len(texts):
            raise pa.ArrowInvalid("some texts have several objects")
        return parsed


def _are_objects(values: pa.Array) -> Any:
    """Which values begin and end as an object does, on one line; as booleans."""
    starts, ends, data = _bounds(values)
    found = np.zeros(len(values), bool)
    long_enough = np.flatnonzero(ends - starts >= len("{}"))
    found[long_enough] = (data[starts[long_enough]] == ord("{")) & (data[ends[long_enough] - 1] == ord("}"))
    on_one_line = pc.invert(pc.match_substring(values, "\n"))
    return found & on_one_line.fill_null(False).to_numpy(zero_copy_only=False)


def _typed(values: pa.ChunkedArray, kind: str) -> pa.Array:
    whole = values.combine_chunks()
    array = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    return _moments(array) if kind == "timestamp" else array


def _moments(texts: pa.Array) -> pa.Array:
    """Moments as ISO 8601 writes them in UTC; Spark reads more kinds of texts, as those without a time zone."""
    known = texts.drop_null() if texts.null_count else texts
    if len(known):
        starts, ends, data = _bounds(known)
        lengths = ends - starts
        if lengths.min() < _SHORTEST_TIME or lengths.max() > _LONGEST_TIME:
            raise pa.ArrowInvalid(_OTHER_TIMES)
        if (data[starts + _TIME_AT] != ord("T")).any() or (data[ends - 1] != ord("Z")).any():
            raise pa.ArrowInvalid(_OTHER_TIMES)
    return texts.cast(_UTC)


def _bounds(values: pa.Array) -> tuple[Any, Any, Any]:
    """Where each value of an array of texts or bytes begins and ends, in all their bytes."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return bounds[:-1], bounds[1:], np.frombuffer(data if data is not None else b"", np.uint8)
