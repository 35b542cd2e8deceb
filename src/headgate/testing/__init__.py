"""Tools to test a policy of your own.

``check_policy`` tries a policy on hundreds of random graphs, features and schedules, and says what is wrong with it.
``make_view`` and ``ranking`` are for tests of a rule: features in, order out.

>>> from headgate.core.policies import LongestQueue
>>> from headgate.testing import check_policy, make_view, ranking
>>> check_policy(LongestQueue())
>>> ranking(LongestQueue(), make_view({"parse": {"pending": 3}, "store": {"pending": 9}}))
['store', 'parse']

    check      check_policy, make_view, ranking
    toys       small policies and placements: to compare with, or to run a loop of your own by
    oracle     the dispatch loop in its slowest and most obvious form, told the same facts as the real one

Everything is drawn from a seed, so a failure happens again.
"""

from headgate.testing.check import check_policy, make_view, ranking
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
