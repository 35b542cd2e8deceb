"""Texts of SQL that sources have in common: columns and literals, rows as JSON, and a frame without rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: the columns that a read adds to the declared ones
ADDED = (FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)


def no_rows(spark: SparkSession, columns: Iterable[Column]) -> DataFrame:
    """The result of a read when there is nothing to read."""
    return spark.createDataFrame([], ddl([*columns, *(Column(n, "string") for n in ADDED)]))


def as_json(fields: Iterable[str]) -> str:
    """SQL for a row of ``fields`` as JSON: the raw text of rows that were not read from text."""
    options = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    return f"to_json(struct({', '.join(fields)}), {sql_map(options)})"


def ddl(columns: Iterable[Column], separator: str = " ") -> str:
    """A column list for Spark; inside ``struct<...>`` the separator is a colon."""
    return ", ".join(f"{column.quoted}{separator}{column.type}" for column in columns)


def sql_text(text: str) -> str:
    """``text`` as a literal in SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def sql_map(options: Mapping[str, str]) -> str:
    """``options`` as a literal in SQL."""
    return f"map({', '.join(sql_text(part) for option in options.items() for part in option)})"
