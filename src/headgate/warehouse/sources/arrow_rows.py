"""Rows that the driver has read as Arrow, handed to Spark in the shape that every source returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, Column
from headgate.warehouse.sources.sql import ADDED, as_json, ddl, no_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

#: the column beside the declared ones that names the chunk of a row
CHUNK_NAME = f"{PRIVATE_PREFIX}chunk"
#: and one that says why a row is bad, which a table may have
PROBLEM_NAME = f"{PRIVATE_PREFIX}problem"
#: the contents of a dimension are at most this large, in bytes: the driver holds them in memory, some times as large
MOST_CONTENTS = 512 << 20


def plain_arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column whose values a text can be cast to; a string for all other kinds."""
    import pyarrow as pa

    plain = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return plain.get(kind, pa.string())


def refuse_large(size: int, where: str) -> None:
    """SourceError if the contents of a dimension are too large for the driver, which reads them as a whole."""
    if size > MOST_CONTENTS:
        raise SourceError(
            f"{where} has about {size >> 20:,} MB, too much for a dimension, which is read as a whole in the driver: "
            f"at most {MOST_CONTENTS >> 20:,} MB. Declare it as a stream, or only the columns (schema=) or rows "
            "that are needed"
        )


def with_chunk(rows: pa.Table, chunk: str) -> pa.Table:
    """``rows`` with the name of their chunk."""
    import pyarrow as pa

    return rows.append_column(CHUNK_NAME, pa.repeat(pa.scalar(chunk, pa.string()), rows.num_rows))


def as_frame(spark: SparkSession, columns: Sequence[Column], tables: Sequence[pa.Table], where: str) -> DataFrame:
    """``tables``, each with its chunk, as a data frame: declared columns by name, without regard to case.

    The plan is the same for every update. A column that a table does not have is null. Either all tables say which
    rows are bad, or none.
    """
    import pyarrow as pa

    tables = [table for table in tables if table.num_rows]
    if not tables:
        return no_rows(spark, columns)
    has_problems = PROBLEM_NAME in tables[0].column_names
    schema = f"{ddl(columns)}, {CHUNK_NAME} string{f', {PROBLEM_NAME} string' if has_problems else ''}"
    try:
        rows = pa.concat_tables([_declared(table, columns) for table in tables], promote_options="permissive")
        frame = spark.createDataFrame(rows, schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SourceError(
            f"the rows of {where} do not fit the schema {ddl(columns)!r}: {error}. Declare the columns as "
            "they are there"
        ) from None
    file, raw, problem = ADDED
    return frame.selectExpr(
        *(column.quoted for column in columns),
        f"{CHUNK_NAME} AS {file}",
        f"{as_json(column.quoted for column in columns)} AS {raw}",
        f"{PROBLEM_NAME if has_problems else 'CAST(NULL AS STRING)'} AS {problem}",
    )


def _declared(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    import pyarrow as pa

    found = {name.lower(): name for name in table.column_names}
    arrays, names = [], []
    for column in columns:
        name = found.get(column.name.lower())
        arrays.append(pa.nulls(table.num_rows) if name is None else _plain(table.column(name)))
        names.append(column.name)
    kept = [name for name in (CHUNK_NAME, PROBLEM_NAME) if name in table.column_names]
    return pa.table([*arrays, *map(table.column, kept)], names=[*names, *kept])


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values in a layout that Spark knows."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain(values.cast(kind.value_type))
    if pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return values.cast(pa.binary())
    return values
