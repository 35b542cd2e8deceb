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
│   ├── PlaceError                 the path of a warehouse is no place where tables can be kept
│   ├── NoObjectStoreError         an object store cannot be used: wrong options, or Spark cannot reach it
│   ├── NotAWarehouseError         the directory does not exist or holds no warehouse
│   ├── BeyondTheEdgeError         a table was asked for at a time up to which it is not complete yet
│   ├── SqlError                   a question in SQL about the tables cannot be answered
│   ├── ConnectSessionError        a warehouse was to run on Spark Connect, which is not supported
│   ├── NotSharedError             a folder of the warehouse is on one machine, and Spark runs on several
│   └── RequestError               a request to a running warehouse that is not one of its protocol
├── UserCodeError                  a policy or function of the user failed; ``__cause__`` is the user's own exception
│   ├── LargeResultError           a result is larger than the driver may have, and cannot do without it
│   ├── QueryError                 an operator of a stream query raised; other queries go on
│   └── HostedQueryError           a query of ``on_spark`` failed outside of any table
├── EngineStoppedError             the stream engine was asked for something after it had stopped
├── InputError                     a source of the stream engine cannot give its rows
├── OutputError                    a sink of the stream engine cannot take rows
├── BrokerError                    an MQTT broker cannot be reached, does not answer, or refuses
├── LimitError                     a query inside a table took more than it may
│   ├── TimeLimitError             one packet took too long
│   └── MemoryLimitError           the worker process has become too large
├── SnapshotError                  a file of states is missing, damaged or of another kind
├── UnseenStatesError              an executor and the driver do not see the same files of states
├── SourceError                    a source of a warehouse cannot give what it is asked for; it may later
│   ├── SourceChanged              data that was planned or loaded is no longer what it was
│   ├── SourceUnreadable           a file is there and may not be read
│   ├── SourceBroken               a file can never be read as it is
│   ├── ServerUnreachable          a server that is read from does not answer now; it is asked again
│   └── PackageMissing             a package that a source needs cannot be imported
├── AlertError                     an alert could not be delivered; it is tried again
├── CatalogError                   a table has no right entry in a catalog; the table itself goes on
├── PublishError                   a table cannot be published as declared; the table itself goes on
├── StorageError                   a table or its files on disk are not as they must be; nothing was committed
│   ├── SchemaError                a column was lost, changed its type, or has one that Delta readers do not share
│   ├── AlreadyCommittedError      the log has this update already
│   ├── HistoryLostError           a log entry, or a file of an old version, was cleaned up
│   │   ├── TableRecreatedError    the table was deleted and made anew
│   │   └── ForeignHistoryError    another program changed rows of the table
│   ├── ForeignCommitError         another process committed to the table
│   ├── LeaseLostError             another process has taken the warehouse over, or may have
│   ├── TableVanishedError         the folder of the table was deleted during a run
│   ├── LostRowsError              files have not the rows that Spark's tasks wrote: executors on other disks?
│   └── DamagedFileError           a data file is not what was written
├── StateError                     a commit carries something that this version of Headgate does not understand
├── MisplacedRowsError             a query made rows of event times that were not being computed
├── NotFreshError                  tables have not taken in all that had arrived, and will not, or not in time
├── NoCommonEdgeError              of tables to be read together, one has not taken in anything yet
├── CannotOpenError                a table cannot be opened, so it is not updated; the others are
├── NoExecutorError                a cluster gives no executors, or they cannot run Python for Headgate
├── SparkLostError                 Spark, which somebody else had started, has stopped, and the run with it
├── SparkAwayError                 something waits until Spark, which was lost, is there again
├── RunFailedError                 the scheduler of a run has failed: nothing is updated any more
├── WarehouseInUseError            another process runs this warehouse
├── ControlError                   the process that runs the warehouse does not answer
│   └── NotRunningError            no process runs the warehouse
├── StillRunningError              the process was asked to stop, and has not within its time
├── RefusedError                   the process that runs the warehouse could not do what it was asked
├── CannotListenError              a run could not make the socket on which it takes commands
├── MonitorError                   the page of a run cannot be shown
├── UnreachableError               the page of a run does not answer, or not as one
├── RunOverError                   a run that is over cannot be changed
├── BusyError                      another what-if is being computed
├── ReplayError                    a run cannot be replayed, or not in the time there is
├── ApartError                     a process that was to answer beside a run gave no answer
├── UnreadableRunError             a recorded run cannot be read
├── NoNotebookError                there is no notebook to show something in
├── CheckError                     a policy of the user's own does not keep its promises (``headgate.testing``)
├── SchedulerMisuseError           an engine broke the protocol of a loop
└── InvariantError                 a rule that Headgate keeps by itself was broken: our bug, please report it

The classes are defined beside the code that raises them. They are looked up when they are first used, so importing this
module imports neither Spark nor Arrow. ``headgate.stream.Reject`` is not among them: with it a user's function answers
that a row is to be rejected.
"""

from importlib import import_module

#: {module: its errors}
_ERRORS = {
    "headgate.core.errors": (
        *("HeadgateError", "DeclarationError", "GraphError", "UnknownNameError", "ParameterError"),
        *("MissingFeatureError", "ScenarioError", "SchedulerMisuseError", "UserCodeError", "InvariantError"),
    ),
    "headgate.core.trace.lines": ("TraceError",),
    "headgate.apart": ("ApartError",),
    "headgate.monitor.reading": ("UnreadableRunError",),
    "headgate.monitor.recorded": ("RunOverError",),
    "headgate.monitor.remote": ("UnreachableError",),
    "headgate.monitor.server": ("MonitorError",),
    "headgate.monitor.what_if": ("BusyError", "ReplayError"),
    "headgate.places.object_path": ("NoObjectStoreError",),
    "headgate.places.place": ("PlaceError",),
    "headgate.stream.errors": (
        *("BrokerError", "EngineStoppedError", "InputError", "OutputError", "QueryDeclarationError", "QueryError"),
    ),
    "headgate.stream.spark.fingerprint": ("StatesDoNotFitError",),
    "headgate.stream.spark.limits": ("LimitError", "MemoryLimitError", "TimeLimitError"),
    "headgate.stream.spark.passes": ("HostedQueryError",),
    "headgate.stream.spark.state_files": ("SnapshotError", "UnseenStatesError"),
    "headgate.testing.oracle": ("CheckError",),
    "headgate.warehouse.declare.checks": ("DeclarationErrors",),
    "headgate.warehouse.reading": ("BeyondTheEdgeError", "NoCommonEdgeError", "NotAWarehouseError", "SqlError"),
    "headgate.warehouse.report.notebook": ("NoNotebookError",),
    "headgate.warehouse.run.control": ("CannotListenError",),
    "headgate.warehouse.run.control_client": ("ControlError", "NotRunningError", "RefusedError", "StillRunningError"),
    "headgate.warehouse.run.control_commands": ("RequestError",),
    "headgate.warehouse.run.run": ("SparkAwayError",),
    "headgate.warehouse.run.executors": ("NoExecutorError", "NotSharedError"),
    "headgate.warehouse.run.lock": ("WarehouseInUseError",),
    "headgate.warehouse.schedule.catching_up": ("NotFreshError",),
    "headgate.warehouse.run.scheduler_thread": ("RunFailedError", "SparkLostError"),
    "headgate.warehouse.alerts.delivery": ("AlertError",),
    "headgate.warehouse.publish.catalog": ("CatalogError",),
    "headgate.warehouse.publish.errors": ("PublishError",),
    "headgate.warehouse.session": ("ConnectSessionError",),
    "headgate.warehouse.updates.table_writer": ("LargeResultError",),
    "headgate.warehouse.sources.errors": (
        *("PackageMissing", "ServerUnreachable", "SourceBroken", "SourceChanged", "SourceError", "SourceUnreadable"),
    ),
    "headgate.warehouse.storage.errors": (
        *("AlreadyCommittedError", "DamagedFileError", "ForeignCommitError", "ForeignHistoryError"),
        *("HistoryLostError", "LostRowsError", "SchemaError", "StorageError", "TableRecreatedError"),
        *("TableVanishedError",),
    ),
    "headgate.warehouse.storage.fence": ("LeaseLostError",),
    "headgate.warehouse.updates.commit_state": ("StateError",),
    "headgate.warehouse.updates.recomputed_blocks": ("MisplacedRowsError",),
    "headgate.warehouse.updates.unopened": ("CannotOpenError",),
}
_MODULE_OF = {name: module for module, names in _ERRORS.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - made from the list above, so that they cannot differ


def __getattr__(name: str) -> type[Exception]:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'headgate.errors' has no attribute {name!r}")
    error: type[Exception] = getattr(import_module(_MODULE_OF[name]), name)
    return error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
