"""Keyed operators: what a query computes key by key. Each class is the state of one bucket of keys.

They take first the schema of the rows that come, then what describes the operator; ``plan`` finds out what a query
needs to know before it runs one. Whatever the packets and the buckets, the sequence of rows given out is the same.

States that hold something of every key they have seen can tell what has changed (``kernel.IncrementalState``). Windows
and joins do not: what they hold, open windows and rows that may still find a partner, comes and goes with time, so that
after a while nearly all of it is new.
"""

from headgate.stream.keyed.aggregate import FUNCTIONS, Aggregate
from headgate.stream.keyed.dedupe import Dedupe
from headgate.stream.keyed.fold import Fold
from headgate.stream.keyed.in_order import InOrder
from headgate.stream.keyed.index import KeyIndex
from headgate.stream.keyed.join import IntervalJoin
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.plan import KeyedState, Plan, plan
from headgate.stream.keyed.running import RunningAggregate
from headgate.stream.keyed.sessions import SessionAggregate
from headgate.stream.keyed.top import TopK
from headgate.stream.keyed.windows import SlidingAggregate, TumblingAggregate

__all__ = [
    "FUNCTIONS",
    "Aggregate",
    "Dedupe",
    "Fold",
    "InOrder",
    "IntervalJoin",
    "KeyIndex",
    "KeyedState",
    "Plan",
    "RowKeys",
    "RunningAggregate",
    "SessionAggregate",
    "SlidingAggregate",
    "TopK",
    "TumblingAggregate",
    "plan",
]
