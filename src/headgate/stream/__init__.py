"""Continuous queries over Arrow record batches, several in one process, on a few threads, by a policy that you pick.

Write a query with ``Query``, run it with ``run`` or an ``Engine``. The output of a query is the row sequence of a
serial run, for every number of workers, loop, policy and queue scheme.

All that users need is here. The modules below this package are internal and may change.
"""

from headgate.stream.engine import LOOPS, Engine, run
from headgate.stream.errors import (
    BrokerError,
    EngineStoppedError,
    InputError,
    OutputError,
    QueryDeclarationError,
    QueryError,
    Reject,
)
from headgate.stream.kernel import Function, Output, Part, Rejected, Snapshot, State, StateFactory
from headgate.stream.keyed import Aggregate, KeyIndex
from headgate.stream.keyed.arrays import run_starts
from headgate.stream.keyed_stream import KeyedStream
from headgate.stream.packet import Ints
from headgate.stream.partition import ByHash, ByRange, Partitioning
from headgate.stream.query import Query, Stream
from headgate.stream.query_run import Ending, QueryRun, RejectedRow
from headgate.stream.sinks.files import to_files
from headgate.stream.sinks.mqtt import to_mqtt
from headgate.stream.sinks.sink import Collect, Sink, Writer, to_function, to_list
from headgate.stream.sorting import stable_order
from headgate.stream.sources.batches import from_batches, from_rows
from headgate.stream.sources.files import Files, Lines
from headgate.stream.sources.mqtt import Mqtt
from headgate.stream.sources.paced import Paced
from headgate.stream.sources.patterns import Batched, Bursts, Constant, Replay
from headgate.stream.sources.socket_lines import Socket
from headgate.stream.sources.source import Chunk, Reader, Source, Wake
from headgate.stream.spark.hosted_frame import HostedFrame
from headgate.stream.spark.on_spark import on_spark
from headgate.stream.spec import AUTOMATIC_BUCKETS, EventTime, Kind, OperatorSpec, QuerySpec
from headgate.stream.statistics import EngineStatistics, OperatorStatistics, QueryStatistics

__all__ = [
    "AUTOMATIC_BUCKETS",
    "LOOPS",
    "Aggregate",
    "Batched",
    "BrokerError",
    "Bursts",
    "ByHash",
    "ByRange",
    "Chunk",
    "Collect",
    "Constant",
    "Ending",
    "Engine",
    "EngineStatistics",
    "EngineStoppedError",
    "EventTime",
    "Files",
    "Function",
    "HostedFrame",
    "InputError",
    "Ints",
    "KeyIndex",
    "KeyedStream",
    "Kind",
    "Lines",
    "Mqtt",
    "OperatorSpec",
    "OperatorStatistics",
    "Output",
    "OutputError",
    "Paced",
    "Part",
    "Partitioning",
    "Query",
    "QueryDeclarationError",
    "QueryError",
    "QueryRun",
    "QuerySpec",
    "QueryStatistics",
    "Reader",
    "Reject",
    "Rejected",
    "RejectedRow",
    "Replay",
    "Sink",
    "Snapshot",
    "Socket",
    "Source",
    "State",
    "StateFactory",
    "Stream",
    "Wake",
    "Writer",
    "from_batches",
    "from_rows",
    "on_spark",
    "run",
    "run_starts",
    "stable_order",
    "to_files",
    "to_function",
    "to_list",
    "to_mqtt",
]
