"""Tools to test a policy of your own.

``check_policy`` tests a policy on hundreds of random graphs, features and schedules, and reports what is wrong.
``make_view`` and ``ranking`` are for tests of a rule: features in, order out.

>>> from headgate.core.policies import LongestQueue
>>> from headgate.testing import check_policy, make_view, ranking
>>> check_policy(LongestQueue())
>>> ranking(LongestQueue(), make_view({"parse": {"pending": 3}, "store": {"pending": 9}}))
['store', 'parse']

    check      check_policy
    views      make_view, ranking
    toys       small policies and placements, for comparisons and for tests of your own loop
    oracle     the dispatch loop in its simplest and slowest form, to compare the real one with

All random choices come from a seed, so a failure can be repeated.
"""

from headgate.testing.check import check_policy
from headgate.testing.oracle import CheckError, ComparedDispatch, NaiveDispatch
from headgate.testing.toys import (
    Favourites,
    FewestTurns,
    LanesByName,
    Largest,
    LongestWaiting,
    Measuring,
    Noted,
    NotedStart,
    OnWorker,
    RandomLanes,
    Smallest,
    TwoKeys,
    Wandering,
    not_local,
)
from headgate.testing.views import make_view, ranking

__all__ = [
    "CheckError",
    "ComparedDispatch",
    "Favourites",
    "FewestTurns",
    "LanesByName",
    "Largest",
    "LongestWaiting",
    "Measuring",
    "NaiveDispatch",
    "Noted",
    "NotedStart",
    "OnWorker",
    "RandomLanes",
    "Smallest",
    "TwoKeys",
    "Wandering",
    "check_policy",
    "make_view",
    "not_local",
    "ranking",
]
