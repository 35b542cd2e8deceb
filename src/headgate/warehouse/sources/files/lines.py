"""Formats with one row per line, read so that the text of every row is kept: json, csv, text.

Lines are read as text and parsed by an expression, not by Spark's reader of the format. Spark's reader parses only the
columns that a query uses: the same row would be bad in one query and good in another, and be lost or loaded twice. It
also does not keep the text of good rows, and some of these have no event time and must be rejected with their text.

Blank lines are not rows. A byte order mark at the beginning of a line is ignored.
"""

from __future__ import annotations

import csv
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headgate.warehouse.sources.errors import SourceBroken, SourceUnreadable
from headgate.warehouse.sources.files.batch import PATH, FileBatch, finished, load, union
from headgate.warehouse.sources.files.limits import OPENERS
from headgate.warehouse.sources.parsed_texts import CORRUPT, PARSED, TEXT, json_row, permissive, why_bad
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, Column
from headgate.warehouse.sources.sql import ddl, no_rows, sql_map, sql_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINE = f"{PRIVATE_PREFIX}line"
_PATH = f"{PRIVATE_PREFIX}path"


def read_text(spark: SparkSession, batch: FileBatch) -> DataFrame:
    if not batch.names:
        return no_rows(spark, batch.columns)
    valid = f"make_valid_utf8({_LINE})"
    rows = load(spark, batch, batch.names, "text", f"{_LINE} string", {})
    error = f"CASE WHEN NOT is_valid_utf8({_LINE}) THEN 'not valid UTF-8' END"
    return finished(rows, batch, [valid], raw=valid, error=error)


def read_json(spark: SparkSession, batch: FileBatch) -> DataFrame:
    """One JSON object per line."""
    if not batch.names:
        return no_rows(spark, batch.columns)
    row = json_row(batch.columns, batch.options, otherwise="not one JSON object on one line")
    rows = _parsed_lines(spark, batch, batch.names, row.parse)
    return finished(rows, batch, row.values, path=_PATH, raw=TEXT, error=_error(row.good, row.reason))


def read_csv(spark: SparkSession, batch: FileBatch) -> DataFrame:
    """One record per line, columns by the names in each file's header, or by position if there is none.

    A quote inside a quoted value is doubled, as RFC 4180 says, unless the options say otherwise.
    """
    options = {"sep": ",", "quote": '"', "escape": '"', **batch.options}
    if options.pop("header", "true").lower() != "true":
        frames = [_read_records(spark, batch, batch.names, batch.columns, options, "")] if batch.names else []
    else:
        by_header: dict[str, list[str]] = {}
        for name in batch.names:
            by_header.setdefault(_header(batch, name), []).append(name)
        by_header.pop("", None)
        frames = [_with_header(spark, batch, names, header, options) for header, names in sorted(by_header.items())]
    return union(frames) if frames else no_rows(spark, batch.columns)


def _with_header(
    spark: SparkSession, batch: FileBatch, names: Sequence[str], header: str, options: Mapping[str, str]
) -> DataFrame:
    """The records of files that all begin with ``header``.

    If it has none of the declared columns, they are files of another kind, or have no header. All their lines are then
    rejected, also the first: it may be a row. An error would hold up the files after them.
    """
    found = _found_columns(header, batch, options)
    if any(column in batch.columns for column in found):
        return _read_records(spark, batch, names, found, options, header)
    reason = (
        f"the header of the file has none of the columns {', '.join(c.name for c in batch.columns)}: {header[:200]!r}; "
        "correct the file or the schema, or set options={'header': False} if files have no header"
    )
    lines = _parsed_lines(spark, batch, names, "NULL")
    nulls = [f"CAST(NULL AS {column.type})" for column in batch.columns]
    return finished(lines, batch, nulls, path=_PATH, raw=TEXT, error=sql_text(reason))


def _read_records(
    spark: SparkSession,
    batch: FileBatch,
    names: Sequence[str],
    found: Sequence[Column],
    options: Mapping[str, str],
    header: str,
) -> DataFrame:
    """The records of files that all have the columns ``found``, in that order."""

    def parse(columns: Sequence[Column]) -> str:
        schema = ddl([*columns, Column(CORRUPT, "string")])
        return f"from_csv({TEXT}, {sql_text(schema)}, {sql_map(permissive(options))})"

    rows = _parsed_lines(spark, batch, names, parse(found), header)
    present = {column.name for column in found}
    values = [
        f"{PARSED}.{column.quoted}" if column.name in present else f"CAST(NULL AS {column.type})"
        for column in batch.columns
    ]
    reason = why_bad(
        parse([Column(column.name, "string") for column in found]),
        unless=lambda seen: f"{seen}.{CORRUPT} IS NULL",
        otherwise=f"not {len(found)} fields",
        columns=batch.columns,
        values=values,
        texts=lambda seen, column: f"{seen}.{column.quoted}" if column.name in present else "NULL",
    )
    closed = _quotes_are_closed(options)
    good = f"{closed} AND {PARSED}.{CORRUPT} IS NULL"
    reason = f"CASE WHEN NOT {closed} THEN 'a quote is not closed on the line' ELSE {reason} END"
    return finished(rows, batch, values, path=_PATH, raw=TEXT, error=_error(good, reason))


def _parsed_lines(
    spark: SparkSession, batch: FileBatch, names: Sequence[str], parse: str, header: str = ""
) -> DataFrame:
    """The lines of files, the same as valid UTF-8, and the result of ``parse``, computed once per line.

    Otherwise Spark moves a later filter on the error below this step and repeats ``parse`` for every use of its result:
    four times the work. It does not move a filter past an expression that may change from call to call, such as the
    number of the partition. That is never negative, so it does not change the result.
    """
    lines = load(spark, batch, names, "text", f"{_LINE} string", {}).selectExpr(
        _LINE,
        f"{PATH} AS {_PATH}",
        f"trim(LEADING '\ufeff' FROM make_valid_utf8({_LINE})) AS {TEXT}",
        f"IF(spark_partition_id() >= 0, {parse}, NULL) AS {PARSED}",
    )
    return lines.where(f"trim(BOTH ' \t\r' FROM {TEXT}) <> '' AND {TEXT} <> {sql_text(header)}")


def _error(good: str, reason: str) -> str:
    return f"CASE WHEN NOT is_valid_utf8({_LINE}) THEN 'not valid UTF-8' WHEN {good} THEN NULL ELSE {reason} END"


def _quotes_are_closed(options: Mapping[str, str]) -> str:
    quote, escape = options["quote"], options["escape"]
    if not quote:
        return "true"
    text = TEXT
    if escape and escape != quote:
        text = f"replace({text}, {sql_text(escape + quote)}, '')"
    return f"((length({text}) - length(replace({text}, {sql_text(quote)}, ''))) % 2 = 0)"


_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")


def _header(batch: FileBatch, name: str) -> str:
    """The first line of a file that is not blank; empty if there is none."""
    suffix = os.path.splitext(name)[1].lower()
    opener = OPENERS.get(suffix) if suffix in _COMPRESSED else open
    if opener is None:
        raise SourceBroken({name: "its header cannot be read: compress CSV files as .gz or .bz2, or not at all"})
    try:
        with opener(batch.path(name), "rt", encoding="utf-8-sig") as file:
            return next((line.rstrip("\n") for line in file if line.strip()), "")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise SourceUnreadable(f"{batch.path(name)} cannot be read: {error.strerror}") from None
        raise SourceBroken({name: f"its header cannot be read ({error}); mend it or take it away"}) from None


def _found_columns(header: str, batch: FileBatch, options: Mapping[str, str]) -> list[Column]:
    """The columns of a file in its order; those that were not declared get private names."""
    declared = {column.name.lower(): column for column in batch.columns}
    return [
        declared.pop(title.strip().lower(), Column(f"{PRIVATE_PREFIX}extra_{position}", "string"))
        for position, title in enumerate(_titles(header, options))
    ]


def _titles(header: str, options: Mapping[str, str]) -> list[str]:
    separator = options["sep"].replace("\\t", "\t")
    if len(separator) != 1 or not options["quote"]:
        return header.split(separator)
    return next(csv.reader([header], delimiter=separator, quotechar=options["quote"]))
