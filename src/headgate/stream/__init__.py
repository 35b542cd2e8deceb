"""Continuous queries over Arrow packets, several in one process, on a few threads, by a policy that the user picks.

Write a query with ``Query``, run it with ``run`` or an ``Engine``. The output of a query is the sequence of rows that
a serial run would give, for every number of workers, loop, policy and queue scheme.
"""

from headgate.stream.engine import LOOPS, Engine, run
from headgate.stream.errors import QueryDeclarationError, QueryError, Reject
from headgate.stream.kernel import Output, Part, Rejected, Snapshot, State
from headgate.stream.keyed import Aggregate
from headgate.stream.keyed_stream import KeyedStream
from headgate.stream.query import Query, Stream
from headgate.stream.query_run import Ending, QueryRun, RejectedRow
from headgate.stream.sinks import Collect, to_files, to_function, to_list, to_mqtt
from headgate.stream.sources import (
    Batched,
    Bursts,
    Constant,
    Files,
    Lines,
    Mqtt,
    Paced,
    Replay,
    Socket,
    from_batches,
    from_rows,
)
from headgate.stream.spark.on_spark import on_spark
from headgate.stream.spec import EventTime, Kind, OperatorSpec, QuerySpec
from headgate.stream.statistics import EngineStatistics, OperatorStatistics, QueryStatistics

__all__ = [
    "LOOPS",
    "Aggregate",
    "Batched",
    "Bursts",
    "Collect",
    "Constant",
    "Ending",
    "Engine",
    "EngineStatistics",
    "EventTime",
    "Files",
    "KeyedStream",
    "Kind",
    "Lines",
    "Mqtt",
    "OperatorSpec",
    "OperatorStatistics",
    "Output",
    "Paced",
    "Part",
    "Query",
    "QueryDeclarationError",
    "QueryError",
    "QueryRun",
    "QuerySpec",
    "QueryStatistics",
    "Reject",
    "Rejected",
    "RejectedRow",
    "Replay",
    "Snapshot",
    "Socket",
    "State",
    "Stream",
    "from_batches",
    "from_rows",
    "on_spark",
    "run",
    "to_files",
    "to_function",
    "to_list",
    "to_mqtt",
]
