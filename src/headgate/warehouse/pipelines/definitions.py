"""What a project defines, whichever language it is written in: datasets, and the flows that fill them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headgate.warehouse.declare.spec import Place

#: the format of a table that its log describes; its files alone say nothing
DELTA = "delta"


@dataclass(frozen=True, slots=True)
class FileRead:
    """Files that a query reads: as they arrive if ``streaming``, otherwise as they are."""

    path: str
    format: str
    streaming: bool
    place: Place
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> tuple[str, bool]:
        """What is declared once: a path may be read both ways."""
        return self.path, self.streaming

    @property
    def mark(self) -> str:
        """What stands for the files in the text of a query until they have a name."""
        return f"headgate_files_{hashlib.sha256(repr(self.key).encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Reads:
    """All that a query reads. ``problems`` are what it does that cannot be taken over, each with its place."""

    tables: tuple[str, ...] = ()
    files: tuple[FileRead, ...] = ()
    problems: tuple[tuple[Place, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CapturedFlow:
    """A query that fills a dataset: a Python function without parameters, or SQL with marks in place of files."""

    name: str
    target: str
    place: Place
    reads: Reads
    function: Callable[[], Any] | None = None
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
