"""The Spark that the functions of a project see: theirs reads tables of the project, ours answers with data frames.

A project's functions take no parameters: they ask ``spark`` for what they read. While a function is called for an
update, ``spark.table``, ``spark.sql``, ``spark.read`` and ``spark.readStream`` answer with the data frames of that
update, and ``SparkSession.active()`` with its session. A read of anything else is refused, with its line: nobody would
notice when that changes. While the files are read, Spark need not run: ``spark`` is then a stand-in that finds its
session when it is used.

For that, some methods of PySpark's classes are replaced, once and for good, by ones that look at a context variable
first. Without a context, which is per thread, they do what they did.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError
from headgate.warehouse.declare.checks import DeclarationErrors, Mistake
from headgate.warehouse.declare.spec import Place
from headgate.warehouse.pipelines.definitions import KAFKA, FileRead
from headgate.warehouse.pipelines.queries import plain_text
from headgate.warehouse.pipelines.reader_calls import STEPS, ReaderCalls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: methods of Spark's context that read files
_OF_CONTEXT = (
    *("textFile", "wholeTextFiles", "binaryFiles", "binaryRecords", "sequenceFile", "pickleFile", "hadoopFile"),
    *("newAPIHadoopFile", "hadoopRDD", "newAPIHadoopRDD"),
)
_TO_DO = (
    "so changes of it would not be noticed. Write the read into the function of the table or the view, with its name "
    "as a text or a constant"
)


@dataclass(frozen=True, slots=True)
class ReadFrames:
    """What is read by the functions that are being called.

    - ``views``: data frames by name, in lower case, also of the files.
    - ``files``: the reads of files that were found before, with the name of their view.
    - ``view_of``: the name of the view of a table as it is written, and whether as a stream; None if it is not known.
    """

    session: SparkSession
    views: Mapping[str, DataFrame]
    files: Mapping[tuple[str, bool], tuple[FileRead, str]]
    view_of: Callable[[str, bool], str | None]

    def table(self, name: str, streaming: bool) -> DataFrame:
        return self.views[self.view(name, streaming)]

    def view(self, name: str, streaming: bool) -> str:
        view = self.view_of(name, streaming)
        if view is None or view not in self.views:
            raise refused(f"the table {name!r} is read here, which was not found before it was called, {_TO_DO}")
        return view

    def read(self, found: FileRead) -> DataFrame:
        declared, view = self.files.get(found.key, (None, ""))
        if declared is None:
            what = f"the topic {found.path!r} is" if found.format == KAFKA else f"the files {found.path!r} are"
            raise refused(f"{what} read here, which was not found before it was called, {_TO_DO}")
        if found.way != declared.way:
            text = f"the files {found.path!r} are read here with {_difference(found, declared)}, which was not found"
            raise refused(f"{text} before it was called: write all that the reader is told into one expression")
        return self.views[view]


def _difference(found: FileRead, declared: FileRead) -> str:
    if found.format != declared.format:
        return f"the format {found.format!r}"
    if found.schema != declared.schema:
        return f"the columns {found.schema!r}"
    now, before = found.way[2], declared.way[2]
    key = min(key for key in {*now, *before} if now.get(key) != before.get(key))
    return f"the option {key} = {now[key]!r}" if key in now else f"no option {key}"


def refused(text: str) -> DeclarationErrors:
    """A mistake at the line of the user that is being executed."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(("pyspark.", "headgate.")):
        frame = frame.f_back
    return DeclarationErrors([Mistake(Place(frame.f_code.co_filename, frame.f_lineno), text)])


_FRAMES: ContextVar[ReadFrames | None] = ContextVar("frames", default=None)
_CAPTURING: ContextVar[bool] = ContextVar("capturing", default=False)


class StandInSession:
    """``spark`` in the files of a project: the session of the update that is being computed."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandInSession)

    def __hash__(self) -> int:
        return hash(StandInSession)

    def __getattr__(self, name: str) -> Any:
        from pyspark.sql import SparkSession

        if name.startswith("__") or name not in dir(SparkSession):
            raise AttributeError(name)
        frames = _FRAMES.get()
        session = SparkSession.getActiveSession() if frames is None else frames.session
        if session is None or isinstance(session, StandInSession):
            text = f"spark.{name} is used while the file is read: use spark inside of functions only"
            raise refused(f"{text}, and write what a loop goes over as constants")
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
    """Functions of a project are called for an update, and read ``frames``."""
    _replace_methods()
    with named_views(frames):
        token = _FRAMES.set(frames)
        try:
            yield
        finally:
            _FRAMES.reset(token)


@contextmanager
def named_views(frames: ReadFrames) -> Iterator[None]:
    """SQL finds ``frames`` as views, which end with the call.

    The session has other tables computed, too, and a name must never lead to what one of them has read.
    """
    made: list[str] = []
    try:
        for name, frame in frames.views.items():
            frame.createOrReplaceTempView(f"`{name}`")
            made.append(name)
        yield
    finally:
        for name in made:
            frames.session.catalog.dropTempView(name)


@functools.cache
def _replace_methods() -> None:
    from pyspark import SparkContext
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    for name in ("active", "getActiveSession"):
        setattr(SparkSession, name, classmethod(_session_method(getattr(SparkSession, name).__func__)))
    builder: Any = SparkSession.Builder
    builder.getOrCreate = _session_method(builder.getOrCreate)
    for reader in (DataFrameReader, DataStreamReader):
        streaming = reader is DataStreamReader
        for name, method in inspect.getmembers(reader, inspect.isfunction):
            if name == "table":
                setattr(reader, name, _table_method(method, streaming))
            elif name in STEPS:
                setattr(reader, name, _step_method(method, streaming))
            elif not name.startswith("_"):
                setattr(reader, name, _last_method(method, streaming))
    SparkSession.table = _table_method(SparkSession.table, False)  # type: ignore[method-assign]
    SparkSession.sql = _sql_method(SparkSession.sql)  # type: ignore[method-assign]
    for name in _OF_CONTEXT:
        setattr(SparkContext, name, _context_method(getattr(SparkContext, name)))


def _session_method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def session(this: Any, *arguments: Any, **named: Any) -> Any:
        frames = _FRAMES.get()
        if frames is not None:
            return frames.session
        return StandInSession() if _CAPTURING.get() else original(this, *arguments, **named)

    return session


def _table_method(original: Callable[..., Any], streaming: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def table(this: Any, tableName: str) -> Any:  # noqa: N803 (Spark's name for it)
        frames = _FRAMES.get()
        return original(this, tableName) if frames is None else frames.table(tableName, streaming)

    return table


def _sql_method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def sql(this: Any, sqlQuery: str, *arguments: Any, **named: Any) -> Any:  # noqa: N803
        frames = _FRAMES.get()
        if frames is None:
            return original(this, sqlQuery, *arguments, **named)
        query = plain_text(sqlQuery, Place("", 1))
        for _, problem in query.reads.problems:
            raise refused(problem)
        return original(this, query.with_names(frames.view), *arguments, **named)

    return sql


def _step_method(original: Callable[..., Any], streaming: bool) -> Callable[..., Any]:
    """``option`` and the like: what a reader is told is noted, so that it can be compared with what was found."""

    @functools.wraps(original)
    def step(this: Any, *arguments: Any, **named: Any) -> Any:
        if _FRAMES.get() is not None:
            _noted(this, streaming).step(original.__name__, arguments, named)
        return original(this, *arguments, **named)

    return step


def _last_method(original: Callable[..., Any], streaming: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(this: Any, *arguments: Any, **named: Any) -> Any:
        frames = _FRAMES.get()
        if frames is None:
            return original(this, *arguments, **named)
        try:
            found = _noted(this, streaming).read(original.__name__, arguments, named, Place("", 1))
        except TypeError:  # lines in a data frame, which is one of those that were read
            return original(this, *arguments, **named)
        except DeclarationError as error:
            raise refused(str(error)) from None
        return frames.read(found)

    return read


def _context_method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(this: Any, *arguments: Any, **named: Any) -> Any:
        if _FRAMES.get() is not None:
            raise refused(f"{original.__name__} cannot be taken over: use spark.read, so that changes are noticed")
        return original(this, *arguments, **named)

    return read


def _noted(reader: Any, streaming: bool) -> ReaderCalls:
    """What a reader was told, which is kept with it."""
    noted = reader.__dict__.setdefault("_headgate_calls", ReaderCalls(streaming))
    assert isinstance(noted, ReaderCalls)
    return noted
