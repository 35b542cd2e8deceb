"""What a run of tables records about itself, and what can be worked out from that.

    records    the header and the changes of a run, and all of a run with its updates
    lines      records as lines of JSON, and back
    freshness  how fresh each table was at every moment, when data arrived, how long it waited
    measures   the figures of a whole run, in the units of the simulator's results

Pure: who writes lines and who reads them is in other layers. The engine of the warehouse records, the simulator
replays and reports are written, all from the same records.
"""

from headgate.core.trace.freshness import Arrival, FreshnessHistory, Staleness, Waiting, arrivals, on_time, waiting
from headgate.core.trace.lines import TraceError, trace_from
from headgate.core.trace.measures import Measured, MeasuredTable, measured, track_use
from headgate.core.trace.records import Change, TableKind, Trace, TraceHeader, TraceTable

__all__ = [
    "Arrival",
    "Change",
    "FreshnessHistory",
    "Measured",
    "MeasuredTable",
    "Staleness",
    "TableKind",
    "Trace",
    "TraceError",
    "TraceHeader",
    "TraceTable",
    "Waiting",
    "arrivals",
    "measured",
    "on_time",
    "trace_from",
    "track_use",
    "waiting",
]
