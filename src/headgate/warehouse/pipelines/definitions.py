"""What a project defines, whichever language it is written in: datasets, and the flows that fill them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.warehouse.declare.spec import Place

if TYPE_CHECKING:
    from headgate.warehouse.pipelines.queries import PlainQuery

#: the format of a table that its log describes; its files alone say nothing
DELTA = "delta"
#: the format of a stream of records, whose path is the topic
KAFKA = "kafka"
#: formats of files that both Spark and Headgate read
FILE_FORMATS = ("json", "csv", "parquet", "orc", "text")


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table that a query reads by name: of the project, or from elsewhere."""

    name: str
    place: Place
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class FileRead:
    """Files that a query reads: as they arrive if ``streaming``, otherwise as they are.

    ``table`` is the name of the table from elsewhere whose files these are, if they are read by it.
    """

    path: str
    format: str
    streaming: bool
    place: Place
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict, compare=False)
    table: str = ""

    @property
    def key(self) -> tuple[str, bool]:
        """What is declared once: a path may be read both ways."""
        return self.path, self.streaming

    @property
    def way(self) -> tuple[str, str, dict[str, str]]:
        """How the files are read: the same for two reads that give the same rows."""
        return self.format, self.schema, {key.lower(): value for key, value in self.options.items()}

    @property
    def mark(self) -> str:
        """What stands for the files in the text of a query until they have a name."""
        return f"headgate_files_{hashlib.sha256(repr(self.key).encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Reads:
    """All that a query reads. ``problems`` are what it does that cannot be taken over, each with its place."""

    tables: tuple[TableRead, ...] = ()
    files: tuple[FileRead, ...] = ()
    problems: tuple[tuple[Place, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CapturedFlow:
    """A query that fills a dataset: a Python function without parameters, or SQL.

    ``query`` is the SQL as it is run, which is made of ``sql`` when all that it reads has a name.
    """

    name: str
    target: str
    place: Place
    reads: Reads
    function: Callable[[], Any] | None = None
    sql: PlainQuery | None = None
    query: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table, or a temporary view, which is computed inside of the queries that read it."""

    name: str
    place: Place
    is_view: bool = False
    comment: str = ""
    schema: Any = None


@dataclass(slots=True)
class Definitions:
    """Everything that the files of a project define, and what of it cannot be taken over."""

    datasets: list[Dataset] = field(default_factory=list)
    flows: list[CapturedFlow] = field(default_factory=list)
    problems: list[tuple[Place, str]] = field(default_factory=list)
    #: what is not used, and where
    warnings: list[tuple[Place, str]] = field(default_factory=list)
