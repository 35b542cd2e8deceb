"""The columns and the files of a Delta table as rows: types in Spark's notation, and partition columns filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.places.object_path import ObjectPath
from headgate.places.place import hadoop_settings, path_from, spark_name
from headgate.warehouse.sources.arrow_rows import plain_arrow_type
from headgate.warehouse.sources.delta.log import AddedFile, ForeignLog
from headgate.warehouse.sources.errors import SourceError
from headgate.warehouse.sources.files.batch import FileBatch
from headgate.warehouse.sources.files.formats import read_parquet
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, RESERVED, Column
from headgate.warehouse.sources.sql import as_json, ddl, sql_text

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

#: a file that is copied is in memory in pieces of this size
_PIECE_BYTES = 8 << 20
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


def read_large_file(spark: SparkSession, folder: str, file: AddedFile, columns: Sequence[Column]) -> DataFrame:
    """As ``read_file``, read by Spark: for a file in a folder of this machine that is too large for the driver."""
    rows = read_parquet(spark, FileBatch(folder, (file.path,), tuple(columns), {}))
    return _with_partition(rows, file, columns)


def read_far_file(spark: SparkSession, log: ForeignLog, file: AddedFile, columns: Sequence[Column]) -> DataFrame:
    """The same for a file at an address, for which Spark has the file system."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = path_from(log.uri, log.options)
    assert isinstance(place, ObjectPath)
    _let_in(spark, place)
    there = {field.name.lower(): field.type for field in pq.read_schema(file.path, filesystem=log.files)}
    for column in columns:
        kind = there.get(column.name.lower())
        if kind is not None and pa.types.is_timestamp(kind) and kind.unit == "ns":
            raise SourceError(f"{file.path} of {log.uri} has {column.name!r} in nanoseconds, which Spark does not read")
    rows = spark.read.schema(ddl(columns)).option("__globPaths__", "false").parquet(spark_name(place / file.path))
    names = [column.quoted for column in columns]
    added = [f"CAST(NULL AS STRING) AS {FILE_COLUMN}", f"{as_json(names)} AS {RAW_COLUMN}"]
    return _with_partition(rows.selectExpr(*names, *added, f"CAST(NULL AS STRING) AS {ERROR_COLUMN}"), file, columns)


def _let_in(spark: SparkSession, place: ObjectPath) -> None:
    """Give Spark the options of the source for its bucket alone, as far as nothing else is set for this bucket."""
    of_spark, bucket = spark.sparkContext._jsc.hadoopConfiguration(), place.bucket.url.partition("://")[2]
    for key, value in hadoop_settings(place).items():
        own = key.replace("fs.s3a.", f"fs.s3a.bucket.{bucket}.")
        if of_spark.get(own) is None:
            of_spark.set(own, value)


def fetch(log: ForeignLog, file: AddedFile, folder: Path) -> None:
    """Copy a file of a table at an address into a folder of this machine, a piece at a time."""
    copy = folder / file.path
    copy.parent.mkdir(parents=True, exist_ok=True)
    with log.files.open_input_stream(file.path) as source, copy.open("wb") as target:
        while piece := source.read(_PIECE_BYTES):
            target.write(piece)


def _with_partition(rows: DataFrame, file: AddedFile, columns: Sequence[Column]) -> DataFrame:
    """``rows`` of a file with its partition columns, and its name."""
    values = []
    for column in columns:
        found = _partition_value(file.partition, column)
        if found is None:
            values.append(column.quoted)
        else:
            text = "NULL" if found[0] is None else sql_text(found[0])
            values.append(f"CAST({text} AS {column.type}) AS {column.quoted}")
    return rows.selectExpr(*values, f"{sql_text(file.path)} AS {FILE_COLUMN}", RAW_COLUMN, ERROR_COLUMN)


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
