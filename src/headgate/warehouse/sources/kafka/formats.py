"""What is in the values of records: JSON, Avro, or a text or bytes as they are.

A format decodes packets of records in Arrow, or leaves that to Spark. Then it says in SQL how
the columns of the stream follow. No value makes it fail: what cannot be decoded becomes a row with an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headgate.core import DeclarationError
from headgate.warehouse.sources.kafka.columns import TAKEN, VALUE, RecordColumns, selected
from headgate.warehouse.sources.parsed_texts import PARSED, TEXT, json_row
from headgate.warehouse.sources.schema import Column
from headgate.warehouse.sources.sql import ddl

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame


class ValueFormat(Protocol):
    """How values become rows."""

    def decoded(self, packet: pa.RecordBatch) -> pa.RecordBatch:
        """A packet with what Python decodes of it."""

    def decoded_columns(self, records: RecordColumns) -> str:
        """The columns of decoded packets, in Spark's notation."""

    def rows(self, packets: DataFrame, records: RecordColumns, topic: str) -> DataFrame:
        """The columns of the stream, from decoded packets."""


@dataclass(frozen=True)
class JsonValues:
    """One JSON object in each value, parsed by Spark as the lines of files are."""

    columns: tuple[Column, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    def decoded(self, packet: pa.RecordBatch) -> pa.RecordBatch:
        return packet

    def decoded_columns(self, records: RecordColumns) -> str:
        return ddl(records.read_columns)

    def rows(
        self,
        packets: DataFrame,
        records: RecordColumns,
        topic: str,
        *,
        problem: str = "",
        taken: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """As of every format; ``problem`` is a column that says why a value is no JSON, null if it is.

        ``taken`` names columns with what Arrow has made of a record, in the order of the columns of the stream and by
        their names; then there is a column ``TAKEN`` that says for which records that is so. Those have no value.
        """
        row = json_row(self.columns, self.options, otherwise="not one JSON object")
        text = f"CAST({VALUE} AS STRING)"
        parsed = packets.selectExpr(
            *records.read,
            *([problem] if problem else []),
            *([TAKEN, *taken.values()] if taken else []),
            f"make_valid_utf8({text}) AS {TEXT}",
            # Computed once per row: see ``files.lines``.
            f"IF(spark_partition_id() >= 0, {row.parse}, NULL) AS {PARSED}",
        )
        values = {column.quoted: value for value, column in zip(row.values, self.columns, strict=True)}
        invalid = f"WHEN NOT is_valid_utf8({text}) THEN 'not valid UTF-8'"
        if problem:
            invalid = f"WHEN {problem} IS NOT NULL THEN {problem} {invalid}"
        error = f"CASE {invalid} WHEN {row.good} THEN NULL ELSE {row.reason} END"
        columns = records.finished(topic, values, raw=TEXT, error=error)
        if taken:
            columns = {name: f"IF({TAKEN}, {taken[name]}, {sql})" for name, sql in columns.items()}
        return parsed.selectExpr(*selected(columns))


@dataclass(frozen=True)
class RawValues:
    """The value as it is, as a text or as bytes."""

    column: Column

    @classmethod
    def of(cls, columns: Sequence[Column], where: str) -> RawValues:
        if len(columns) != 1 or columns[0].kind not in ("string", "binary"):
            raise DeclarationError(f"{where}: the format 'raw' has one column, a string or a binary: 'value string'")
        return cls(columns[0])

    def decoded(self, packet: pa.RecordBatch) -> pa.RecordBatch:
        return packet

    def decoded_columns(self, records: RecordColumns) -> str:
        return ddl(records.read_columns)

    def rows(self, packets: DataFrame, records: RecordColumns, topic: str) -> DataFrame:
        if self.column.kind == "binary":
            columns = records.finished(topic, {self.column.quoted: VALUE}, raw=f"base64({VALUE})", error="NULL")
            return packets.selectExpr(*selected(columns))
        text = f"CAST({VALUE} AS STRING)"
        valid = f"make_valid_utf8({text})"
        error = f"CASE WHEN NOT is_valid_utf8({text}) THEN 'not valid UTF-8' END"
        return packets.selectExpr(
            *selected(records.finished(topic, {self.column.quoted: valid}, raw=valid, error=error))
        )
