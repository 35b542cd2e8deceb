"""The trace of a run of tables, and measures computed from it.

    records    the header and the changes of a run, and all of a run with its updates
    lines      records as lines of JSON, and back
    values     single values in those lines, each with its range
    tables     whether tables that are read can be those of a run
    measures   how fresh each table was at every moment, how long data waited, and the figures of a whole run

Pure: files are read and written in other layers. The warehouse writes traces, the simulator replays them, and reports
are made from them.
"""

from headgate.core.trace.lines import TraceError, trace_from
from headgate.core.trace.measures import (
    FreshnessHistory,
    Measured,
    MeasuredTable,
    RunBound,
    Staleness,
    StreamArrival,
    Waiting,
    arrivals,
    lag_of,
    measured,
    never_loaded,
    on_time,
    track_use,
    waiting,
)
from headgate.core.trace.records import (
    Change,
    NotLoaded,
    Redeclared,
    RunNotice,
    TableKind,
    Trace,
    TraceHeader,
    TraceTable,
)

__all__ = [
    "Change",
    "FreshnessHistory",
    "Measured",
    "MeasuredTable",
    "NotLoaded",
    "Redeclared",
    "RunBound",
    "RunNotice",
    "Staleness",
    "StreamArrival",
    "TableKind",
    "Trace",
    "TraceError",
    "TraceHeader",
    "TraceTable",
    "Waiting",
    "arrivals",
    "lag_of",
    "measured",
    "never_loaded",
    "on_time",
    "trace_from",
    "track_use",
    "waiting",
]
