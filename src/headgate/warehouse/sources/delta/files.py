"""The columns and the files of a Delta table as rows: types in Spark's notation, and partition columns filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.warehouse.sources.arrow_rows import plain_arrow_type
from headgate.warehouse.sources.delta.log import AddedFile, ForeignLog
from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.files.batch import FileBatch
from headgate.warehouse.sources.files.formats import read_parquet
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, RESERVED, Column
from headgate.warehouse.sources.sql import sql_text

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

#: the types whose names differ in Delta's logs and in Spark's SQL
_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def spark_schema(log: ForeignLog) -> str:
    """The columns of a Delta table in Spark's notation, without those that Headgate adds to its own tables."""
    fields = json.loads(log.table().schema().to_json())["fields"]
    columns = [Column(field["name"], _spark_type(field["type"])) for field in fields]
    kept = [c for c in columns if c.name.lower() not in RESERVED and not c.name.lower().startswith(PRIVATE_PREFIX)]
    return ", ".join(f"{column.quoted} {column.type}" for column in kept)


def _spark_type(kind: Any) -> str:
    if isinstance(kind, str):
        return _NAMES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{_spark_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_spark_type(kind['keyType'])}, {_spark_type(kind['valueType'])}>"
    fields = (f"{Column(field['name'], '').quoted}: {_spark_type(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def read_file(log: ForeignLog, file: AddedFile, columns: Sequence[Column]) -> pa.Table:
    """The rows of a file with the declared columns that it has, and its partition columns."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    wanted = {column.name.lower() for column in columns}
    with pq.ParquetFile(file.path, filesystem=log.files) as opened:
        names = [name for name in opened.schema_arrow.names if name.lower() in wanted]
        rows = opened.read(columns=names) if names else opened.read()
    for column in columns:
        found = _partition_value(file.partition, column)
        if found is not None:
            rows = rows.append_column(column.name, _values(found[0], column, rows.num_rows))
    return rows


def read_large_file(spark: SparkSession, log: ForeignLog, file: AddedFile, columns: Sequence[Column]) -> DataFrame:
    """As ``read_file``, read by Spark: for a file of a local table that is too large for the driver."""
    batch = FileBatch(log.uri, (file.path,), tuple(columns), {})
    rows = read_parquet(spark, batch)
    values = []
    for column in columns:
        found = _partition_value(file.partition, column)
        if found is None:
            values.append(column.quoted)
        else:
            text = "NULL" if found[0] is None else sql_text(found[0])
            values.append(f"CAST({text} AS {column.type}) AS {column.quoted}")
    return rows.selectExpr(*values, FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)


def _partition_value(partition: Mapping[str, str | None], column: Column) -> tuple[str | None] | None:
    """The value of a partition column, None if it is none."""
    for name, value in partition.items():
        if name.lower() == column.name.lower():
            return (value or None,)  # Delta writes null as an empty text, too
    return None


def _values(text: str | None, column: Column, count: int) -> pa.Array:
    import pyarrow as pa

    if text is None:
        return pa.nulls(count)
    try:
        return pa.repeat(_scalar(text, column), count)
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"the partition column {column.name!r} is {text!r}, not a {column.type}: {error}") from None


def _scalar(text: str, column: Column) -> pa.Scalar:
    import pyarrow as pa

    if column.kind == "timestamp":  # in UTC, whether that is written or not
        plain = text.removesuffix("Z").removesuffix("+00:00").replace("T", " ")
        return pa.scalar(plain).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    return pa.scalar(text).cast(plain_arrow_type(column.kind))
