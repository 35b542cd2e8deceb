"""The protocol of every source, whatever it reads: files in a directory, generated rows, a message queue.

A source is a sequence of *chunks* that arrive over time: a file, a generated batch, a run of messages. An *offset*
says which of them have been loaded; a *range* names some that lie behind an offset. Both are plain values that
become JSON, because they are kept in the commits of the stream's table: that is all a restarted warehouse has. A
source object may cache things to be quick, but nothing that would change a result.

The loop of a warehouse is: poll ``latest``; when an update is due, ``next_range``, ``read``, write, ``verify``, commit
the range; from then on the offset is ``advance(offset, range)``. Every chunk that ever arrives is in exactly one
committed range, in whatever order ranges are taken and however often the process stops in between.

``latest`` may be called from another thread than the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, runtime_checkable

from headgate.core import DeclarationError, InvariantError
from headgate.warehouse.sources.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: columns that ``read`` adds to the declared ones: which chunk a row came from, the row as text, and why it is bad
FILE_COLUMN = "_file"
RAW_COLUMN = "_raw"
ERROR_COLUMN = "_error"


class Stored(ABC):
    """A value that is written into a commit and found again by its ``kind``.

    A subclass that is given a kind (``class FileRange(Range, kind="files")``) says how its content becomes JSON and
    back; ``Range.from_json`` then finds the right class by itself.
    """

    __slots__ = ()

    kind: ClassVar[str] = ""
    _role: ClassVar[type[Stored]]
    _kinds: ClassVar[dict[str, type[Stored]]]

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        if Stored in cls.__bases__:
            cls._role, cls._kinds = cls, {}
        elif kind:
            cls.kind = kind
        if cls.kind:
            # a dataclass with slots is made twice, the second time without the keyword: the later one counts
            cls._kinds[cls.kind] = cls

    @abstractmethod
    def _content(self) -> dict[str, object]:
        """Everything there is to keep, as JSON values."""

    @classmethod
    @abstractmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of ``_content``; may raise KeyError, TypeError or ValueError on anything else."""

    def to_json(self) -> dict[str, object]:
        """This value as a JSON object."""
        return {"kind": self.kind, **self._content()}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The value that ``to_json`` was asked of."""
        noun = cls._role.__name__.lower()
        if not isinstance(value, Mapping) or "kind" not in value:
            raise SourceError(f"a stored {noun} is a JSON object with a 'kind'; got {_short(value)}")
        stored = cls._kinds.get(value["kind"])
        if stored is None or not issubclass(stored, cls):
            known = ", ".join(sorted(cls._kinds))
            raise SourceError(f"there is a stored {noun} of the kind {value['kind']!r}; the kinds known here: {known}")
        try:
            return stored._from_content(value)
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"a stored {noun} of the kind {value['kind']!r} cannot be understood "
                f"({type(error).__name__}: {error}): {_short(value)}. Was it written by a newer version of Headgate?"
            ) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


class Offset(Stored):
    """Which chunks of a source have been loaded."""

    __slots__ = ()


class Range(Stored):
    """Some chunks of a source, named so exactly that the same rows can be read again."""

    __slots__ = ()

    #: when the first and the last of its chunks arrived, in wall-clock seconds since the epoch
    oldest: float
    newest: float

    @property
    @abstractmethod
    def chunks(self) -> int:
        """How many chunks there are in it."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """How large they are together, where they lie."""

    def names_the_same_as(self, other: Range) -> bool:
        """Whether reading either gives the same rows."""
        return self == other


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know about one chunk; the stream goes on."""

    chunk: str
    problem: str


@dataclass(frozen=True, slots=True)
class Pending:
    """What lies behind an offset and can be loaded now.

    ``oldest`` and ``newest`` say when the first and the last of it arrived, in wall-clock seconds since the epoch;
    None when there is nothing. ``note`` says what the source is waiting for, if it waits for something in
    particular. Each notice is given once, to the first who asks.
    """

    chunks: int = 0
    bytes: int = 0
    oldest: float | None = None
    newest: float | None = None
    note: str = ""
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Limit:
    """How much to take at most; None is no limit. One chunk is always taken, however large it is.

    ``seconds`` limits the time between the arrivals of the first and the last chunk. ``first`` is the end to begin at.
    """

    chunks: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    first: Literal["oldest", "newest"] = "oldest"

    def __post_init__(self) -> None:
        for name, value, least in (("chunks", self.chunks, 1), ("bytes", self.bytes, 0), ("seconds", self.seconds, 0)):
            if value is not None and not value >= least:
                raise DeclarationError(f"a limit of {name} is at least {least}; got {value!r}")
        if self.first not in ("oldest", "newest"):
            raise DeclarationError(f"a limit takes first 'oldest' or 'newest'; got {self.first!r}")


class Sized(Protocol):
    """A chunk as far as limits are concerned."""

    @property
    def size(self) -> int: ...

    @property
    def arrived(self) -> float: ...


SizedChunk = TypeVar("SizedChunk", bound=Sized)


def within(limit: Limit, chunks: Iterable[SizedChunk]) -> list[SizedChunk]:
    """As many of ``chunks`` from the front as ``limit`` allows, and one at least if there is one."""
    taken: list[SizedChunk] = []
    size, oldest, newest = 0, float("inf"), float("-inf")
    for chunk in chunks:
        size += chunk.size
        oldest, newest = min(oldest, chunk.arrived), max(newest, chunk.arrived)
        if taken and (
            (limit.chunks is not None and len(taken) >= limit.chunks)
            or (limit.bytes is not None and size > limit.bytes)
            or (limit.seconds is not None and newest - oldest > limit.seconds)
        ):
            break
        taken.append(chunk)
    return taken


StoredValue = TypeVar("StoredValue", bound=Stored)


def expect_kind(value: Stored, expected: type[StoredValue], source: object) -> StoredValue:
    """``value``, checked to be of the class that ``source`` makes: a table must not go on from another source."""
    if isinstance(value, expected):
        return value
    if not isinstance(value, Stored):
        raise InvariantError(f"{source!r} was given {value!r} in place of a {expected.__name__}")
    raise SourceError(
        f"the stream has been loaded from a source of the kind {value.kind!r} and is now declared as {source!r}, "
        f"of the kind {expected.kind!r}. Declare it under a new name, or as it was"
    )


@runtime_checkable
class DataSource(Protocol):
    """Where a stream comes from. See the module for the rules that every source keeps."""

    @property
    def schema(self) -> str:
        """The declared columns as Spark writes them: ``'ts timestamp, sensor string'``."""

    def resolve(self, base: Path) -> DataSource:
        """The same source, its relative paths taken from ``base``."""

    def start(self) -> Offset:
        """The offset before anything has been loaded."""

    def latest(self, offset: Offset) -> Pending:
        """What lies behind ``offset``. Cheap: it is asked about every 100 ms."""

    def next_range(self, offset: Offset, limit: Limit) -> Range | None:
        """Some of what lies behind ``offset``, or None if nothing does."""

    def advance(self, offset: Offset, loaded: Range) -> Offset:
        """``offset`` with ``loaded`` behind it. A pure function, and advancing twice is advancing once."""

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        """The rows of ``wanted``: the declared columns, then ``_file``, ``_raw`` and ``_error`` (null in a good row).

        Which rows are good does not depend on which columns are used; a bad row has in its columns what could be made
        out. Raises SourceChanged if the rows are no longer those that the range was made of.
        """

    def verify(self, loaded: Range) -> None:
        """Raise SourceChanged if what ``loaded`` names has changed since: ask after reading, before committing.

        A data frame is read only when its result is asked for, so ``read`` cannot know about changes meanwhile.
        """
