"""The entry of a table in a catalog of Spark: Hive's metastore, Unity Catalog, or the one of a single Spark.

An entry is the name of an external Delta table and its folder. Rows and columns are read from the folder, so an entry
stays right when the table changes or grows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headgate.core import HeadgateError, first_line, said_by
from headgate.places.place import AnyPath, spark_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: a schema, or a catalog and a schema
CATALOG_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?")

#: how Spark and Delta say that Spark cannot make Delta tables
_NO_DELTA = ("DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG")


class CatalogError(HeadgateError):
    """A table has no right entry in the catalog; the message says what to do. The table itself goes on."""


def entry_name(catalog: str, table: str) -> str:
    """The full name of a table in SQL."""
    return ".".join(f"`{part}`" for part in (*catalog.split("."), table))


def register(spark: SparkSession, catalog: str, table: str, folder: AnyPath) -> None:
    """Make the entry of a table that is there; nothing is changed if it is right already."""
    name, readable = entry_name(catalog, table), f"{catalog}.{table}"
    try:
        if not spark.catalog.tableExists(name):
            schema = name.rpartition(".")[0]
            if not spark.catalog.databaseExists(schema):
                spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            location = spark_name(folder).replace("\\", "\\\\").replace("'", "\\'")
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{location}'")
            return
        described = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}
    except Exception as error:
        raise CatalogError(f"{readable} is not in the catalog: {_reason(error)}") from error
    there = described.get("Location", "")
    if _same_place(there) != _same_place(spark_name(folder)):
        raise CatalogError(
            f"the catalog has another table as {readable}, {f'at {there}' if there else 'without a folder'}; this one "
            f"is at {spark_name(folder)}. DROP TABLE {readable} if it is not needed, or state another catalog="
        )


def _reason(error: Exception) -> str:
    text = said_by(error)
    if any(part in text for part in _NO_DELTA):
        return (
            "Spark cannot make Delta tables. It needs Delta's package, and the settings spark.sql.extensions="
            "io.delta.sql.DeltaSparkSessionExtension and spark.sql.catalog.spark_catalog="
            "org.apache.spark.sql.delta.catalog.DeltaCatalog; see docs/catalogs.md"
        )
    if "NoSuchMethodError" in text or "NoClassDefFoundError" in text:
        return f"the package of Delta, or of the catalog, is for another version of Spark: {_told(text)}"
    return _told(text) or first_line(error)


def _told(text: str) -> str:
    """What Java said, without what py4j puts before it."""
    lines = [line.removeprefix(": ") for line in text.splitlines() if not line.startswith("An error occurred while")]
    return lines[0] if lines else ""


def _same_place(location: str) -> str:
    """A location as text that is the same however it is written: ``file:/a`` and ``file:///a/``, s3 and s3a."""
    scheme, colon, rest = location.partition(":")
    if not colon:
        scheme, rest = "file", location
    path = re.sub("^/+", "/", rest) if scheme == "file" else rest
    return f"{scheme.removesuffix('a') if scheme == 's3a' else scheme}:{unquote(path).rstrip('/')}"
