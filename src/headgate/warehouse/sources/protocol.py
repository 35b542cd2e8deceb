"""The protocol of every source, whatever it reads: files in a directory, generated rows, a message queue.

A source is a sequence of *chunks* that arrive over time: a file, a generated batch, some messages. An *offset* says
which chunks have been loaded. A *range* names chunks that are not in an offset yet. Both are plain values that become
JSON, because they are kept in the commits of the stream's table: a restarted warehouse has nothing else. A source
object may cache to be fast, but its results must not depend on the cache.

A warehouse uses a source like this:

1. It polls ``latest`` on the scheduler thread.
2. When an update begins, it calls ``next_range``, also on the scheduler thread.
3. A track calls ``read``, writes the rows, calls ``verify`` and commits the range.
4. From then on the offset is ``advance(offset, range)``.

Every chunk that arrives is in exactly one committed range, in whatever order ranges are loaded and however often the
process stops in between. Methods may be called on different threads at the same time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, runtime_checkable

from headgate.core import DeclarationError, InvariantError
from headgate.warehouse.sources.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

#: columns that ``read`` adds to the declared ones: the chunk of a row, the row as text, and why it is bad
FILE_COLUMN = "_file"
RAW_COLUMN = "_raw"
ERROR_COLUMN = "_error"


class Stored(ABC):
    """A value that is written into a commit and found again by its ``kind``.

    A subclass with a kind (``class FileRange(Range, kind="files")``) defines how its content becomes JSON and back;
    ``Range.from_json`` finds the class by the kind.
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
            # A dataclass with slots is created twice, the second time without the keyword: keep the second.
            cls._kinds[cls.kind] = cls

    @abstractmethod
    def _content(self) -> dict[str, object]:
        """All fields to store, as JSON values."""

    @classmethod
    @abstractmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of ``_content``; may raise KeyError, TypeError or ValueError on anything else."""

    def to_json(self) -> dict[str, object]:
        """This value as a JSON object."""
        return {"kind": self.kind, **self._content()}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The inverse of ``to_json``."""
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
        """The number of chunks."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """The size of all chunks together, as stored in the source."""

    def names_the_same_as(self, other: Range) -> bool:
        """Whether reading either gives the same rows."""
        return self == other


@dataclass(frozen=True, slots=True)
class Notice:
    """A problem with one chunk that a user should know; the stream continues."""

    chunk: str
    problem: str


@dataclass(frozen=True, slots=True)
class Pending:
    """The chunks that are not in an offset and can be loaded now.

    ``oldest`` and ``newest`` are the arrival times of the first and the last chunk, in wall-clock seconds since the
    epoch; None if there are no chunks. ``note`` says what the source is waiting for, if anything in particular.
    ``missing``: the source itself is not there, such as the directory of files. Each notice is returned once.
    ``looked_at`` is when the source was last looked at, for one that is looked at in the background; None is now.
    ``behind`` are the records that are not loaded of each part of a source that has parts, such as partitions.
    ``earliest`` is a moment before which none of the chunks was there, if ``oldest`` is only about right.
    """

    chunks: int = 0
    bytes: int = 0
    oldest: float | None = None
    newest: float | None = None
    note: str = ""
    missing: bool = False
    notices: tuple[Notice, ...] = ()
    looked_at: float | None = None
    behind: Mapping[str, int] = field(default_factory=dict)
    earliest: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """How much to load at most; None is no limit. At least one chunk is loaded, however large it is.

    ``seconds`` limits the time between the arrivals of the first and the last chunk. ``first`` is the end to start at.
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
    """What ``within`` needs to know about a chunk."""

    @property
    def size(self) -> int: ...

    @property
    def arrived(self) -> float: ...


SizedChunk = TypeVar("SizedChunk", bound=Sized)


def within(limit: Limit, chunks: Iterable[SizedChunk]) -> list[SizedChunk]:
    """As many of ``chunks`` from the front as ``limit`` allows; at least one if there is one."""
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
    """``value``, checked to be of the class that ``source`` uses: a table must not continue with another source."""
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
    """A source of a stream. The module's docstring has the rules for every source."""

    @property
    def schema(self) -> str:
        """The declared columns in Spark's notation: ``'ts timestamp, sensor string'``."""

    def resolve(self, base: Path) -> DataSource:
        """The same source with its relative paths resolved against ``base``."""

    def start(self) -> Offset:
        """The offset before anything has been loaded."""

    def latest(self, offset: Offset) -> Pending:
        """The chunks after ``offset``. Must be cheap: it is called up to 20 times a second."""

    def next_range(self, offset: Offset, limit: Limit) -> Range | None:
        """The next chunks after ``offset`` to load, or None if there are none."""

    def advance(self, offset: Offset, loaded: Range) -> Offset:
        """``offset`` with ``loaded`` added. A pure function; adding the same range twice changes nothing."""

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        """The rows of ``wanted``: the declared columns, then ``_file``, ``_raw`` and ``_error`` (null in a good row).

        Whether a row is good must not depend on which columns are used. A bad row has the values that could be parsed.
        Raises SourceChanged if the chunks have changed since the range was planned.
        """

    def verify(self, loaded: Range) -> None:
        """Raise SourceChanged if the chunks of ``loaded`` have changed; called after reading and before the commit.

        Spark reads a data frame only when its result is needed, so ``read`` cannot notice changes after it returned.
        """


@runtime_checkable
class SetsAside(Protocol):
    """A source whose chunks can be read one by one, and left out for good if one of them cannot be read.

    A chunk that is set aside is not pending until it changes; what ``latest`` returns has its name and the reason.
    """

    def chunks_of(self, wanted: Range) -> Mapping[str, Range]:
        """The chunks of a range by name, each as a range of its own."""

    def without(self, wanted: Range, left_out: Collection[str]) -> Range:
        """A range without some of its chunks, which stay pending."""

    def set_aside(self, wanted: Range, reasons: Mapping[str, str]) -> Range:
        """A range whose commit also sets chunks aside, each for a reason; they are no longer among its chunks."""


@runtime_checkable
class ReadsArrow(Protocol):
    """A source that can read rows without Spark, or most of them."""

    def read_arrow(self, spark: SparkSession, wanted: Range) -> pa.Table | None:
        """The same rows as ``read`` has, in memory; None if it is better to let Spark read them."""


@runtime_checkable
class ReadsOnExecutors(Protocol):
    """A source whose ``read`` lets executors read a large range, without a row in the driver."""

    def is_spread(self, wanted: Range) -> bool:
        """Whether a range is read so; then its rows are also written by executors, whatever its size."""

    def release(self) -> None:
        """The rows that ``read`` has given last are written, or not needed any more."""


@runtime_checkable
class ReadsFolders(Protocol):
    """A source whose files Spark reads from folders of this machine: all machines of a cluster must see them."""

    def folders(self) -> Collection[str]:
        """The files and folders that Spark reads, as absolute paths; they may be patterns, and need not be there."""


@runtime_checkable
class MovingStart(Protocol):
    """A source whose ``start`` may be another place the next time, as what comes from now on."""

    def fixed_start(self, offset: Offset) -> Offset | None:
        """Where a stream begins that has loaded nothing: ``offset``, from ``start``, with what it leaves open.

        It is committed before there are rows, so that a restart goes on there. None if the beginning does not move, or
        is not known yet. Must be as cheap as ``latest``.
        """


@runtime_checkable
class HasParts(Protocol):
    """A source of parts that grow side by side, such as the partitions of a topic: each has an order of its own.

    The column ``_file`` of a row is the name of its part, ``@``, and where in the part it lies; no name has an ``@``.
    """

    def parts_left(self, loaded: Range) -> Collection[str]:
        """The parts of which more was waiting than ``loaded`` takes, when it was planned.

        None if the range is of the newest chunks: those that it leaves are loaded as late data.
        """


@runtime_checkable
class HasContents(Protocol):
    """A source with contents that change as a whole, for dimensions: files that are replaced, added and removed."""

    def contents(self, loaded: Range | None) -> tuple[Range | None, Pending]:
        """All chunks that are there now, to replace ``loaded``, and what the source has to say.

        None if there is nothing, or if the contents are just being changed. A range without chunks says that all that
        was loaded has been removed for good.
        """
