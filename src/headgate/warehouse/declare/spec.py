"""What a warehouse consists of, as declared: plain frozen data.

Three kinds of node, all of which become Delta tables of the same name: a *stream* is loaded from a source, a
*dimension* is read whole from a source whenever it changes and has no event time, a *table* is computed from others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headgate.core import Graph
from headgate.places.place import AnyPath, path_from

if TYPE_CHECKING:
    from headgate.warehouse.declare.alert import Alert
    from headgate.warehouse.publish.protocol import Publisher
    from headgate.warehouse.sources import DataSource

#: how a table is kept up to date (``modes``); "recompute" is an older name of "blocks"
Mode = Literal["auto", "append", "merge", "blocks", "keys", "whole", "recompute"]
CatchUp = Literal["oldest", "newest"]

#: suffix of the table that holds the rejected rows of a stream, or of a table with stream queries
REJECTED_SUFFIX = "__rejected"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the user's file something was declared."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def base_folder(place: Place) -> Path:
    """The folder that relative paths count from in what was declared at ``place``."""
    return Path(place.file).parent if os.path.isabs(place.file) else Path.cwd()


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A base table and the source it is loaded from. Lengths of time are seconds.

    ``period`` None means learned from arrivals. ``partition`` is the length of event time in one partition.
    ``catch_up`` is what an update loads first if it cannot load everything. Rows with event times more than
    ``max_future`` ahead of the clock are rejected; None accepts all.
    """

    name: str
    source: DataSource
    time: str
    partition: float
    place: Place
    period: float | None = None
    priority: float = 1.0
    target_lag: float | None = None
    importance_class: int = 0
    patience: float | None = None
    catch_up: CatchUp = "oldest"
    max_future: float | None = 3600.0
    comment: str = ""


@dataclass(frozen=True, slots=True)
class DimensionSpec:
    """A table without event time, replaced as a whole when its source changes."""

    name: str
    source: DataSource
    place: Place
    priority: float = 1.0
    comment: str = ""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A derived table: ``function`` of its sources' data frames, or ``query`` in SQL over their names; never both.

    ``time`` is the event-time column of the result; None if it has none. ``key`` are the columns that tell the rows
    of such a table apart; in mode "keys", rows of its sources matter only to rows of the result with the same key.
    ``lookback`` is how far before a partition its sources' rows still matter to it. ``catch_up`` is what an update
    takes first if it cannot take everything. Tables of one ``group`` with the same sources are updated one after the
    other by one track, which reads the sources once.
    """

    name: str
    sources: tuple[str, ...]
    time: str | None
    partition: float
    place: Place
    function: Callable[..., Any] | None = None
    query: str | None = None
    priority: float = 1.0
    target_lag: float | None = None
    importance_class: int = 0
    patience: float | None = None
    lookback: float = 0.0
    mode: Mode = "auto"
    key: tuple[str, ...] = ()
    catch_up: CatchUp = "oldest"
    group: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class PublicationSpec:
    """A table that is published to a place outside of the warehouse, version by version."""

    table: str
    to: Publisher
    place: Place


NodeSpec = StreamSpec | DimensionSpec | TableSpec


@dataclass(frozen=True, slots=True)
class WarehouseSpec:
    """Everything declared in one warehouse, in the order declared.

    ``path`` is a folder or the URL of one in an object store, which is reached with the options ``storage``. ``lock``
    is the URI of a database that decides between two processes where the store cannot. ``sync``: commits wait until
    they are on disk. ``shared``: all machines of a cluster see its folders. ``catalog`` is the
    schema of Spark's catalog in which tables have entries; empty if they have none. ``inheritance`` is what sources
    inherit from the tables built on them; "default" leaves that to the policy. ``together`` is which tables share jobs;
    "default" is "declared".
    """

    name: str
    path: str
    streams: tuple[StreamSpec, ...]
    dimensions: tuple[DimensionSpec, ...]
    tables: tuple[TableSpec, ...]
    place: Place
    sync: bool = True
    shared: bool = False
    publications: tuple[PublicationSpec, ...] = ()
    catalog: str = ""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    lock: str = field(default="", repr=False)
    alerts: tuple[Alert, ...] = ()
    inheritance: str = "default"
    together: str = "default"

    def folder(self) -> AnyPath:
        """Where the warehouse is."""
        return path_from(self.path, self.storage)

    def nodes(self) -> tuple[NodeSpec, ...]:
        """All that becomes a Delta table, in the order of ``names``."""
        return (*self.streams, *self.dimensions, *self.tables)

    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes())

    def graph(self) -> Graph:
        """What was declared, in the order of ``names``; every source feeds the tables computed from it."""
        return Graph(self.names(), ((source, table.name) for table in self.tables for source in table.sources))
