"""What is sent between the driver and the tasks of a stream query on Spark: queries and options, and reports back.

Everything here is plain data that can be pickled. The functions in it are the user's, sent by the user's driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.places.place import AnyPath
from headgate.stream.bucket_queues import Scheme
from headgate.stream.engine import LoopName
from headgate.stream.query import Stream
from headgate.stream.spark.state_files import Chain

Build = Callable[[Stream], Stream]
#: the loops of an engine; *serial* is none: the task's thread runs all operators in turn, whatever their tables are
TaskLoop = LoopName | Literal["serial"]


@dataclass(frozen=True)
class EngineOptions:
    """How an engine runs in a task. If nothing of it is stated, the task's thread runs a single query serially, and an
    engine runs several, those of the most important tables first.

    ``time_limit`` is in seconds per packet and operator, ``memory_limit`` in bytes for the whole process. The others
    are those of ``Engine``.
    """

    workers: int | None = None
    loop: TaskLoop | None = None
    policy: str | None = None
    packet_rows: int | None = None
    time_limit: float | None = None
    memory_limit: int | None = None
    placement: str | None = None
    consumption: str | None = None
    scheme: Scheme | None = None
    period: float | None = None
    batch: int | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """The arguments of ``Engine`` that the user has stated, without the number of workers."""
        names = ("loop", "policy", "placement", "consumption", "scheme", "period", "batch")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def is_serial(self, queries: int) -> bool:
        """Whether the task's thread runs so many queries itself, without an engine."""
        return self.loop == "serial" or (queries == 1 and self.workers is None and not self.stated)


@dataclass(frozen=True)
class HostedQuery:
    """A stream query that runs inside Spark tasks.

    ``folder`` is where states and rejected rows are written, None outside of any table. ``previous`` are the files with
    the states of each bucket to start from. ``ends_at`` is the time column and the event time that the stream has
    reached after the update; it closes windows. ``priority`` and ``importance_class`` are those of the table.
    """

    table: str
    name: str
    build: Build
    output: pa.Schema
    stateful: bool
    folder: AnyPath | None = None
    update: int = 0
    previous: Mapping[int, Chain] = field(default_factory=dict)
    ends_at: tuple[str, int] | None = None
    priority: float = 1.0
    importance_class: int = 0

    @property
    def label(self) -> str:
        """The name of the query in an engine that it may share with queries of other tables."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def keeps_states(self) -> bool:
        return self.stateful and self.folder is not None


@dataclass(frozen=True)
class TaskFailure:
    """A query that failed in a task: a message that names the operator, and the traceback of the user's code.

    ``damaged_states``: the query could not start, because the files with its states are not what was written.
    """

    message: str
    traceback: str
    damaged_states: bool = False


@dataclass
class TaskReport:
    """What a task reports about one query. ``states`` are the new state files; ``rejected`` is a file of rows."""

    query: str
    bucket: int
    states: Chain | None = None
    rejected: str | None = None
    rejected_rows: int = 0
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    operators: list[dict[str, Any]] = field(default_factory=list)
    failure: TaskFailure | None = None
