"""The Spark that the functions of a project see: theirs reads tables of the project, ours answers with data frames.

A project's functions take no parameters: they ask ``spark`` for what they read. While a function is called for an
update, ``spark.table``, ``spark.read`` and ``spark.readStream`` answer with the data frames of that update, and
``SparkSession.active()`` with its session. While the files are read, Spark need not run: ``spark`` is then a stand-in
that finds its session when it is used.

For that, some methods of PySpark's classes are replaced, once and for good, by ones that look at a context variable
first. Without a context, which is per thread, they do what they did.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BY_PATH = ("load", "json", "csv", "parquet", "orc", "text")


@dataclass(frozen=True, slots=True)
class ReadFrames:
    """What is read by the functions that are being called: tables by name in lower case, files by path and way."""

    session: SparkSession
    tables: Mapping[str, DataFrame]
    #: by path, and whether as a stream
    files: Mapping[tuple[str, bool], DataFrame]


_FRAMES: ContextVar[ReadFrames | None] = ContextVar("frames", default=None)
_CAPTURING: ContextVar[bool] = ContextVar("capturing", default=False)


class StandInSession:
    """``spark`` in the files of a project: the session of the update that is being computed."""

    def __getattr__(self, name: str) -> Any:
        from pyspark.sql import SparkSession

        if name.startswith("__") or name not in dir(SparkSession):
            raise AttributeError(name)
        frames = _FRAMES.get()
        session = SparkSession.getActiveSession() if frames is None else frames.session
        if session is None or isinstance(session, StandInSession):
            raise DeclarationError(f"spark.{name} is used while the file is read: use spark inside of functions only")
        return getattr(session, name)


@contextmanager
def capturing() -> Iterator[None]:
    """Files of a project are executed: the session is a stand-in."""
    _replace_methods()
    token = _CAPTURING.set(True)
    try:
        yield
    finally:
        _CAPTURING.reset(token)


@contextmanager
def reading(frames: ReadFrames) -> Iterator[None]:
    """Functions of a project are called for an update, and read ``frames``.

    SQL finds them as views, which end with the call: the session has other tables computed, too, and a name must never
    lead to what one of them has read.
    """
    _replace_methods()
    token = _FRAMES.set(frames)
    made: list[str] = []
    try:
        for name, frame in frames.tables.items():
            frame.createOrReplaceTempView(f"`{name}`")
            made.append(name)
        yield
    finally:
        _FRAMES.reset(token)
        for name in made:
            frames.session.catalog.dropTempView(name)


@functools.cache
def _replace_methods() -> None:
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    for name in ("active", "getActiveSession"):
        setattr(SparkSession, name, classmethod(_session_method(getattr(SparkSession, name).__func__)))
    builder: Any = SparkSession.Builder
    builder.getOrCreate = _session_method(builder.getOrCreate)
    for reader in (DataFrameReader, DataStreamReader):
        reader.table = _table_method(reader.table)  # type: ignore[method-assign]
        for name in _BY_PATH:
            setattr(reader, name, _path_method(getattr(reader, name), reader is DataStreamReader))
    SparkSession.table = _table_method(SparkSession.table)  # type: ignore[method-assign]


def _session_method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def session(this: Any, *arguments: Any, **named: Any) -> Any:
        frames = _FRAMES.get()
        if frames is not None:
            return frames.session
        return StandInSession() if _CAPTURING.get() else original(this, *arguments, **named)

    return session


def _table_method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def table(this: Any, tableName: str) -> Any:  # noqa: N803 (Spark's name for it)
        frames = _FRAMES.get()
        found = None if frames is None else frames.tables.get(tableName.rpartition(".")[2].strip("`").lower())
        return original(this, tableName) if found is None else found

    return table


def _path_method(original: Callable[..., Any], streaming: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(this: Any, path: Any = None, *arguments: Any, **named: Any) -> Any:
        frames = _FRAMES.get()
        found = frames.files.get((path, streaming)) if frames is not None and isinstance(path, str) else None
        if found is not None:
            return found
        return original(this, *arguments, **named) if path is None else original(this, path, *arguments, **named)

    return read
