"""The sources of a warehouse that stand for what a project reads: files, topics, and tables of other programs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headgate.core import DeclarationError
from headgate.warehouse.declare.durations import Lengths
from headgate.warehouse.declare.spec import StreamSpec
from headgate.warehouse.pipelines.computed import Computed
from headgate.warehouse.pipelines.definitions import DELTA, KAFKA, FileRead
from headgate.warehouse.pipelines.reader_calls import PACE
from headgate.warehouse.pipelines.topics import topic_source
from headgate.warehouse.sources import Delta, Files, Kafka, SourceError
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN
from headgate.warehouse.sources.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream_of(read: FileRead, name: str, options: Mapping[str, Any], lengths: Lengths, folder: Path) -> StreamSpec:
    """The stream of what is read as one; ``options`` are what the side file says of it."""
    source = _stream_source(read, options, folder)
    return StreamSpec(
        name=name,
        source=source,
        time=_time_of(read, source, options),
        partition=lengths.needed("partition", options.get("partition", "1 hour"), 3600.0),
        place=read.place,
        period=lengths.optional("period", options.get("period")),
        priority=options.get("priority", 1.0),
        target_lag=lengths.optional("target_lag", options.get("target_lag")),
        importance_class=options.get("importance_class", 0),
        patience=lengths.optional("patience", options.get("patience")),
        catch_up=options.get("catch_up", "oldest"),
        max_future=lengths.optional("max_future", options.get("max_future")),
        comment=told_of(read),
    )


def told_of(read: FileRead) -> str:
    """What is read, for people."""
    what = "topic" if read.format == KAFKA else "Delta table" if read.format == DELTA else "files"
    return f"the table {read.table!r} in {read.path!r}" if read.table else f"the {what} {read.path!r}"


def _part(read: FileRead) -> str:
    """Where the side file speaks of it."""
    return f"headgate.yml, under {f'external, {read.table}' if read.table else f'sources, {read.path}'}"


def _stream_source(read: FileRead, options: Mapping[str, Any], folder: Path) -> Files | Delta | Kafka:
    if read.format == KAFKA:
        return topic_source(read, options.get("options") or {})
    schema = str(options.get("schema", read.schema))
    if read.format == DELTA:
        return _followed(read, schema, folder)
    if not schema and read.format != "text":
        text = "the columns of a stream of files must be stated: by .schema(...) of the reader, or by 'schema:'"
        raise DeclarationError(f"{text} in {_part(read)}")
    where, pattern = _folder_and_pattern(read.path)
    made_of = {key: options[key] for key in ("order", "settle", "recursive") if key in options}
    spark_options = {key: value for key, value in read.options.items() if key.lower() not in PACE}
    if read.format == "csv" and "header" not in {key.lower() for key in spark_options}:
        spark_options["header"] = "false"  # as Spark has it
    return Files(where, format=read.format, schema=schema, pattern=pattern, options=spark_options, **made_of)


def _followed(read: FileRead, schema: str, folder: Path) -> Delta:
    """The stream of a Delta table: as in Spark, the rows that are there, and then those that are added."""
    given = {} if read.table else {key.lower(): value for key, value in read.options.items()}
    start: Any = given.get("startingversion", "contents")
    ignores = any(given.get(key) == "true" for key in ("skipchangecommits", "ignorechanges", "ignoredeletes"))
    return Delta(
        local_or_address(read.path, folder),
        schema=schema,
        start="now" if start == "latest" else int(start) if start.isdigit() else start,
        changes="ignore" if ignores else "refuse",
        storage_options=read.options if read.table else None,
    )


def _time_of(read: FileRead, source: Files | Delta | Kafka, options: Mapping[str, Any]) -> str:
    if "time" in options:
        return str(options["time"])
    try:
        times = [c.name for c in parse_schema(source.schema, read.path) if c.kind == "timestamp"]
    except SourceError as error:
        raise DeclarationError(f"{error}; state 'schema:' and 'time:' in {_part(read)}") from None
    if len(times) != 1:
        has = f"has the timestamps {', '.join(times)}" if times else "has no column of type timestamp"
        what = f"table {read.table!r}" if read.table else f"stream of files {read.path!r}"
        raise DeclarationError(f"the {what} {has}: state its event time, as 'time:' in {_part(read)}")
    return times[0]


# --- as it is now -------------------------------------------------------------------------------------------------


def newest(read: FileRead, folder: Path) -> Delta:
    """A Delta table as it is now."""
    storage = read.options if read.table else None
    return Delta(local_or_address(read.path, folder), schema=read.schema, storage_options=storage)


def batch_of(read: FileRead, folder: Path) -> Computed:
    """Files or a Delta table as they are now; DeclarationError if nobody could tell when they change."""
    if read.format == DELTA:
        delta = newest(read, folder)

        def contents(spark: SparkSession) -> DataFrame:
            found, pending = delta.contents(None)
            if found is None:
                raise SourceError(pending.note)
            return delta.read(spark, found).drop(FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN)

        return Computed(contents, (), f"{DELTA} {read.schema}", tables=(delta,))
    if is_address(read.path):
        text = f"the files {read.path!r} cannot be watched for changes: what is read as a batch must be below a folder"
        raise DeclarationError(f"{text} of this machine, or be a Delta table")
    path = local_or_address(read.path, folder)

    def rows(spark: SparkSession) -> DataFrame:
        reader = spark.read.format(read.format).options(**read.options)
        return (reader.schema(read.schema) if read.schema else reader).load(path)

    return Computed(rows, (path,), f"{read.format} {read.schema} {sorted(read.options.items())}")


# --- paths --------------------------------------------------------------------------------------------------------


def local_or_address(path: str, folder: Path) -> str:
    """An absolute path, or an address as it is."""
    return path if is_address(path) else os.path.normpath(os.path.join(folder, _local(path)))


def is_address(path: str) -> bool:
    return "://" in _local(path)


def _local(path: str) -> str:
    """A path without ``file:``; other addresses as they are."""
    match = re.match(r"file:(?://)?(/.*)", path)
    return unquote(match[1]) if match else path


def _folder_and_pattern(path: str) -> tuple[str, str]:
    """``in/*.json`` as the folder ``in`` and the pattern ``*.json``."""
    folder, last = os.path.split(_local(path).rstrip("/"))
    return (folder or ".", last) if re.search(r"[*?\[]", last) else (_local(path), "*")
