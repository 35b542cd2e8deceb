"""What a run of tables records about itself, and what can be worked out from that.

    operators  what operators of stream queries inside tables did, and how that adds up
    records    the header, updates and changes of a run: plain frozen data
    lines      records as lines of JSON, and back
    freshness  how fresh each table was at every moment, when data arrived, how long it waited
    measures   the figures of a whole run, in the units of the simulator's results

Pure: who writes lines and who reads them is in other layers. The engine of the warehouse records, the simulator
replays and reports are written, all from the same records.
"""

from headgate.core.trace.freshness import (
    FreshnessHistory,
    Staleness,
    StreamArrival,
    Waiting,
    arrivals,
    on_time,
    waiting,
)
from headgate.core.trace.lines import TraceError, trace_from
from headgate.core.trace.measures import Measured, MeasuredTable, measured, track_use
from headgate.core.trace.operators import OperatorFigures, added_up
from headgate.core.trace.records import Change, Layer, TableKind, Trace, TraceHeader, TraceTable, UpdateRecord

__all__ = [
    "Change",
    "FreshnessHistory",
    "Layer",
    "Measured",
    "MeasuredTable",
    "OperatorFigures",
    "Staleness",
    "StreamArrival",
    "TableKind",
    "Trace",
    "TraceError",
    "TraceHeader",
    "TraceTable",
    "UpdateRecord",
    "Waiting",
    "added_up",
    "arrivals",
    "measured",
    "on_time",
    "trace_from",
    "track_use",
    "waiting",
]
