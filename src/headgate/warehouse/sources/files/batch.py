"""Have Spark read exactly the named files: without listing, without schema inference, and without skipping any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark's name for the path of a row's file, in frames returned by ``load``
PATH = "_metadata.file_path"

#: names are not patterns, whatever characters they have; directories called date=2026-11-15 add no columns; a file
#: that cannot be read fails the job
_EXACTLY = {
    "__globPaths__": "false",
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
#: Hadoop's default file system looks for a checksum file beside each file, which fails if the name has a colon, as
#: in a timestamp; this one does not
_WITHOUT_CHECKSUMS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Files to read together: their directory, their names in it, the declared columns, and the user's options."""

    folder: str
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    options: Mapping[str, str]

    def path(self, name: str) -> str:
        return f"{self.folder.rstrip('/')}/{name}"


def load(
    spark: SparkSession,
    batch: FileBatch,
    names: Iterable[str],
    format_name: str,
    schema: str,
    options: Mapping[str, str],
) -> DataFrame:
    """The rows of the named files with the columns of ``schema``; ``PATH`` can be selected from them, too."""
    paths = [f"file://{batch.path(name)}" for name in names]
    exactly = _EXACTLY | (_WITHOUT_CHECKSUMS if any(":" in path[len("file:") :] for path in paths) else {})
    return spark.read.format(format_name).schema(schema).options(**{**options, **exactly}).load(paths)


def finished(
    rows: DataFrame, batch: FileBatch, columns: Iterable[str], *, path: str = PATH, raw: str, error: str
) -> DataFrame:
    """The result of a read: ``columns`` as SQL expressions in the declared order, then file, raw text and error."""
    return rows.selectExpr(
        *(f"{expression} AS {column.quoted}" for expression, column in zip(columns, batch.columns, strict=True)),
        f"{_relative_name(batch, path)} AS {FILE_COLUMN}",
        f"{raw} AS {RAW_COLUMN}",
        f"CAST({error} AS STRING) AS {ERROR_COLUMN}",
    )


def union(frames: list[DataFrame]) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.union(other)
    return first


def _relative_name(batch: FileBatch, path: str) -> str:
    """The name of a row's file in the batch's directory; ``path`` gives one such as ``file:/landing/a%20b+c.json``."""
    # url_decode would turn a plus sign into a space, which is right for forms but not for paths
    decoded = f"regexp_replace(url_decode(replace({path}, '+', '%2B')), '^file:/+', '/')"
    return f"substring({decoded}, {len(batch.path('')) + 1})"
