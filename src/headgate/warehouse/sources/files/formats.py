"""The file formats, the options that each accepts, and how parquet and orc are read.

Parquet and ORC files contain their types. Columns are found by name: a declared column that a file lacks is null, other
columns are not read. A single row cannot be malformed, only a whole file; then Spark's job fails and names the file.
``lines`` reads the formats with one row per line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.core import DeclarationError
from headgate.warehouse.sources.errors import SourceBroken, SourceUnreadable
from headgate.warehouse.sources.files.batch import FileBatch, finished, load, union
from headgate.warehouse.sources.files.lines import read_csv, read_json, read_text
from headgate.warehouse.sources.schema import Column
from headgate.warehouse.sources.sql import as_json, ddl, no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: options of Spark's readers that would change which rows are read or whether bad ones are noticed
_OURS = {
    *("path", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "maxfilespertrigger"),
    *("ignoremissingfiles", "ignorecorruptfiles", "mergeschema", "inferschema", "enforceschema", "mode"),
    *("columnnameofcorruptrecord", "multiline", "wholetext", "linesep", "encoding", "charset", "comment"),
    *("singlevariantcolumn", "columnpruning"),
}
#: options that Headgate uses itself, too
_SPELLED = ("header", "sep", "quote", "escape")
_WHY_NOT = {
    "multiline": "a row is one line",
    "wholetext": "a row is one line",
    "linesep": "lines end in \\n, \\r\\n or \\r",
    "encoding": "text is UTF-8",
    "charset": "text is UTF-8",
    "comment": "every line that is not blank is a row",
    "pathglobfilter": "use pattern",
    "recursivefilelookup": "use recursive",
}
_PARQUET_MAGIC = (b"PAR1", b"PARE")
_ORC_MAGIC = b"ORC"


def _whole(_path: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files of one format are read, and how to tell from its content that one is complete (may raise OSError)."""

    name: str
    read: Callable[[SparkSession, FileBatch], DataFrame]
    complete: Callable[[str], bool] = _whole
    default_schema: str = ""
    nested: bool = True
    #: whether a row is a line of text
    has_lines: bool = False

    def check_columns(self, columns: Sequence[Column], where: str) -> None:
        if self.default_schema and [(c.name, c.kind) for c in columns] != [("value", "string")]:
            raise DeclarationError(f"{where}: the format text has the schema 'value string'; leave the schema out")
        for column in columns:
            if not self.nested and column.kind in ("array", "map", "struct", "variant", "binary"):
                raise DeclarationError(
                    f"{where}: the column {column.name!r} is {column.type}, which {self.name} files cannot hold; "
                    "declare it as string"
                )

    def checked_options(self, options: Mapping[str, object], where: str) -> dict[str, str]:
        """The user's options as texts, with one spelling for each name."""
        checked = {}
        for name, value in options.items():
            if name.lower() in _OURS or (name.lower() == "header" and self.name != "csv"):
                why = _WHY_NOT.get(name.lower(), "Headgate sets it itself")
                raise DeclarationError(f"{where}: the option {name!r} cannot be set: {why}")
            spelling = {"delimiter": "sep"}.get(name.lower(), name.lower() if name.lower() in _SPELLED else name)
            checked[spelling] = str(value).lower() if isinstance(value, bool) else str(value)
        return checked


def read_orc(spark: SparkSession, batch: FileBatch) -> DataFrame:
    if not batch.names:
        return no_rows(spark, batch.columns)
    return _read(spark, batch, batch.names, "orc", frozenset())


def read_parquet(spark: SparkSession, batch: FileBatch) -> DataFrame:
    """Parquet files, also with timestamps in nanoseconds, as pandas writes them and Spark refuses to read them."""
    by_nanoseconds: dict[frozenset[str], list[str]] = {}
    for name in batch.names:
        by_nanoseconds.setdefault(_in_nanoseconds(batch, name), []).append(name)
    if not by_nanoseconds:
        return no_rows(spark, batch.columns)
    return union([_read(spark, batch, names, "parquet", nanos) for nanos, names in by_nanoseconds.items()])


def _read(
    spark: SparkSession, batch: FileBatch, names: Sequence[str], format_name: str, nanoseconds: frozenset[str]
) -> DataFrame:
    stored = [Column(c.name, "bigint") if c.name in nanoseconds else c for c in batch.columns]
    options = {**batch.options, "mergeSchema": "false"}
    rows = load(spark, batch, names, format_name, ddl(stored), options)
    values = [_from_nanoseconds(c.quoted) if c.name in nanoseconds else c.quoted for c in batch.columns]
    fields = [f"{value} AS {column.quoted}" for value, column in zip(values, batch.columns, strict=True)]
    return finished(rows, batch, values, raw=as_json(fields), error="NULL")


def _from_nanoseconds(column: str) -> str:
    # rounded down, also before 1970
    return f"timestamp_micros(({column} - pmod({column}, 1000)) div 1000)"


def _in_nanoseconds(batch: FileBatch, name: str) -> frozenset[str]:
    """The declared timestamps that one file keeps in nanoseconds."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    path = batch.path(name)
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise SourceUnreadable(f"{path} cannot be read: {error.strerror}") from None
        raise SourceBroken({name: f"it is not a readable Parquet file ({error}); mend it or take it away"}) from None
    kept = {field.name.lower(): field.type for field in schema}
    return frozenset(
        column.name
        for column in batch.columns
        if column.kind == "timestamp"
        and (kind := kept.get(column.name.lower())) is not None
        and pa.types.is_timestamp(kind)
        and kind.unit == "ns"
    )


def parquet_is_complete(path: str) -> bool:
    """Whether the end of a Parquet file, which is written last, is there."""
    beginning, end, size = _ends(path, 4, 8)
    footer = int.from_bytes(end[:4], "little")
    return beginning in _PARQUET_MAGIC and end[4:] in _PARQUET_MAGIC and footer + 12 <= size


def orc_is_complete(path: str) -> bool:
    """Whether the end of an ORC file, which is written last, is there: the magic, then the length of what it ends."""
    beginning, end, size = _ends(path, 3, 4)
    return size > 4 and beginning == _ORC_MAGIC and end[:3] == _ORC_MAGIC


def _ends(path: str, first: int, last: int) -> tuple[bytes, bytes, int]:
    """The first and last bytes of a file, and its size."""
    with open(path, "rb") as file:
        beginning = file.read(first)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - last))
        return beginning, file.read(last), size


#: all formats, by name
FORMATS = {
    format_.name: format_
    for format_ in (
        FileFormat("json", read_json, has_lines=True),
        FileFormat("csv", read_csv, nested=False, has_lines=True),
        FileFormat("parquet", read_parquet, parquet_is_complete),
        FileFormat("orc", read_orc, orc_is_complete),
        FileFormat("text", read_text, default_schema="value string", has_lines=True),
    )
}
