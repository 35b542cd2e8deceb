"""Every error that Headgate raises on purpose, in one place to catch it by.

HeadgateError
├── DeclarationError               what was asked for cannot be done as written; exit status 2 on the command line
│   ├── GraphError                 two nodes of one name, an edge to nowhere, a cycle
│   ├── UnknownNameError           something was asked for by a name that does not exist
│   ├── ParameterError             a policy or placement was given a parameter it does not take, or a bad value
│   ├── MissingFeatureError        a policy reads a feature that this engine does not have
│   ├── ScenarioError              a scenario file with an unknown key or an impossible value
│   ├── TraceError                 a file that is no trace, or one of an unknown version
│   ├── QueryDeclarationError      a stream query cannot be run as it is written
│   │   └── StatesDoNotFitError    a query was changed so that it cannot go on from its states
│   ├── DeclarationErrors          all mistakes of a pipeline file together, one line for each
│   ├── NotAWarehouseError         the directory does not exist or holds no warehouse
│   ├── BeyondTheEdgeError         a table was asked for at a time up to which it is not complete yet
│   └── RequestError               a request to a running warehouse that is not one of its protocol
├── UserCodeError                  a policy or function of the user failed; ``__cause__`` is the user's own exception
│   └── QueryError                 an operator of a stream query raised; other queries go on
├── EngineStoppedError             the stream engine was asked for something after it had stopped
├── InputError                     a source of the stream engine cannot give its rows
├── OutputError                    a sink of the stream engine cannot take rows
├── BrokerError                    an MQTT broker cannot be reached, does not answer, or refuses
├── LimitError                     a query inside a table took more than it may
│   ├── TimeLimitError             one packet took too long
│   └── MemoryLimitError           the worker process has become too large
├── SnapshotError                  a file of states is missing, damaged or of another kind
├── SourceError                    a source of a warehouse cannot give what it is asked for; it may later
│   ├── SourceChanged              data that was planned or loaded is no longer what it was
│   └── SourceUnreadable           a file is there and may not be read
├── StorageError                   a table or its files on disk are not as they must be; nothing was committed
│   ├── SchemaError                a column was lost, changed its type, or has one that Delta readers do not share
│   ├── AlreadyCommittedError      the log has this update already
│   ├── HistoryLostError           a log entry, or a file of an old version, was cleaned up
│   └── ForeignCommitError         another process committed to the table
├── StateError                     a commit carries something that this version of Headgate does not understand
├── MisplacedRowsError             a query made rows of event times that were not being computed
├── NoCommonEdgeError              of tables to be read together, one has not taken in anything yet
├── WarehouseInUseError            another process runs this warehouse
├── ControlError                   the process that runs the warehouse does not answer
│   └── NotRunningError            no process runs the warehouse
├── RefusedError                   the process that runs the warehouse could not do what it was asked
├── CannotListenError              a run could not make the socket on which it takes commands
├── BusyError                      more clients at once than a run serves
├── SchedulerMisuseError           an engine broke the protocol of the locality scheduler
└── InvariantError                 a rule that Headgate keeps by itself was broken: our bug, please report it

The classes are defined beside the code that raises them. They are looked up when they are first used, so importing this
module imports neither Spark nor Arrow. ``headgate.stream.Reject`` is not among them: with it a user's function answers
that a row is to be rejected.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.core.errors import (
        DeclarationError,
        GraphError,
        HeadgateError,
        InvariantError,
        MissingFeatureError,
        ParameterError,
        ScenarioError,
        UnknownNameError,
        UserCodeError,
    )
    from headgate.core.locality.errors import SchedulerMisuseError
    from headgate.core.trace.lines import TraceError
    from headgate.stream.errors import EngineStoppedError, QueryDeclarationError, QueryError
    from headgate.stream.sinks.errors import OutputError
    from headgate.stream.sources.errors import InputError
    from headgate.stream.sources.mqtt_client import BrokerError
    from headgate.stream.spark.fingerprint import StatesDoNotFitError
    from headgate.stream.spark.limits import LimitError, MemoryLimitError, TimeLimitError
    from headgate.stream.spark.state_files import SnapshotError
    from headgate.warehouse.declare.checks import DeclarationErrors
    from headgate.warehouse.reading import BeyondTheEdgeError, NoCommonEdgeError, NotAWarehouseError
    from headgate.warehouse.run.control import BusyError, CannotListenError
    from headgate.warehouse.run.control_client import ControlError, NotRunningError, RefusedError
    from headgate.warehouse.run.control_commands import RequestError
    from headgate.warehouse.run.lock import WarehouseInUseError
    from headgate.warehouse.sources.errors import SourceChanged, SourceError, SourceUnreadable
    from headgate.warehouse.storage.errors import (
        AlreadyCommittedError,
        ForeignCommitError,
        HistoryLostError,
        SchemaError,
        StorageError,
    )
    from headgate.warehouse.updates.commit_state import StateError
    from headgate.warehouse.updates.derive import MisplacedRowsError

__all__ = [
    "AlreadyCommittedError",
    "BeyondTheEdgeError",
    "BrokerError",
    "BusyError",
    "CannotListenError",
    "ControlError",
    "DeclarationError",
    "DeclarationErrors",
    "EngineStoppedError",
    "ForeignCommitError",
    "GraphError",
    "HeadgateError",
    "HistoryLostError",
    "InputError",
    "InvariantError",
    "LimitError",
    "MemoryLimitError",
    "MisplacedRowsError",
    "MissingFeatureError",
    "NoCommonEdgeError",
    "NotAWarehouseError",
    "NotRunningError",
    "OutputError",
    "ParameterError",
    "QueryDeclarationError",
    "QueryError",
    "RefusedError",
    "RequestError",
    "ScenarioError",
    "SchedulerMisuseError",
    "SchemaError",
    "SnapshotError",
    "SourceChanged",
    "SourceError",
    "SourceUnreadable",
    "StateError",
    "StatesDoNotFitError",
    "StorageError",
    "TimeLimitError",
    "TraceError",
    "UnknownNameError",
    "UserCodeError",
    "WarehouseInUseError",
]

_LOOKED_UP = {
    "AlreadyCommittedError": "headgate.warehouse.storage.errors",
    "BeyondTheEdgeError": "headgate.warehouse.reading",
    "BrokerError": "headgate.stream.sources.mqtt_client",
    "BusyError": "headgate.warehouse.run.control",
    "CannotListenError": "headgate.warehouse.run.control",
    "ControlError": "headgate.warehouse.run.control_client",
    "DeclarationError": "headgate.core.errors",
    "DeclarationErrors": "headgate.warehouse.declare.checks",
    "EngineStoppedError": "headgate.stream.errors",
    "ForeignCommitError": "headgate.warehouse.storage.errors",
    "GraphError": "headgate.core.errors",
    "HeadgateError": "headgate.core.errors",
    "HistoryLostError": "headgate.warehouse.storage.errors",
    "InputError": "headgate.stream.sources.errors",
    "InvariantError": "headgate.core.errors",
    "LimitError": "headgate.stream.spark.limits",
    "MemoryLimitError": "headgate.stream.spark.limits",
    "MisplacedRowsError": "headgate.warehouse.updates.derive",
    "MissingFeatureError": "headgate.core.errors",
    "NoCommonEdgeError": "headgate.warehouse.reading",
    "NotAWarehouseError": "headgate.warehouse.reading",
    "NotRunningError": "headgate.warehouse.run.control_client",
    "OutputError": "headgate.stream.sinks.errors",
    "ParameterError": "headgate.core.errors",
    "QueryDeclarationError": "headgate.stream.errors",
    "QueryError": "headgate.stream.errors",
    "RefusedError": "headgate.warehouse.run.control_client",
    "RequestError": "headgate.warehouse.run.control_commands",
    "ScenarioError": "headgate.core.errors",
    "SchedulerMisuseError": "headgate.core.locality.errors",
    "SchemaError": "headgate.warehouse.storage.errors",
    "SnapshotError": "headgate.stream.spark.state_files",
    "SourceChanged": "headgate.warehouse.sources.errors",
    "SourceError": "headgate.warehouse.sources.errors",
    "SourceUnreadable": "headgate.warehouse.sources.errors",
    "StateError": "headgate.warehouse.updates.state",
    "StatesDoNotFitError": "headgate.stream.spark.fingerprint",
    "StorageError": "headgate.warehouse.storage.errors",
    "TimeLimitError": "headgate.stream.spark.limits",
    "TraceError": "headgate.core.trace.lines",
    "UnknownNameError": "headgate.core.errors",
    "UserCodeError": "headgate.core.errors",
    "WarehouseInUseError": "headgate.warehouse.run.lock",
}


def __getattr__(name: str) -> object:
    if name not in _LOOKED_UP:
        raise AttributeError(f"module 'headgate.errors' has no attribute {name!r}")
    return getattr(import_module(_LOOKED_UP[name]), name)
