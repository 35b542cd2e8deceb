"""The features that policies read, computed from what an engine knows about its nodes. All engines use this module.

Engines whose nodes are *operators* (the stream engine, the simulator) define once how each fact is read
(``OperatorFacts``). ``operator_readings`` turns that into a function for every feature, and ``OperatorColumns`` has the
columns to write after each kind of event. Engines whose nodes are *tables* (the warehouse, the simulator) write what
happens to a table with ``TableColumns``.

Every feature has a meaning for operators and for tables, so that every policy works with both. The data of an operator
is what waits in its queue, and an update takes all of it. A tuple of a table is one second of data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from headgate.core.dispatch import LOOP_FEATURES
from headgate.core.errors import MissingFeatureError
from headgate.core.features import FEATURES, ChangedBy, Feature, features_named
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureMatrix
from headgate.core.placement import Placement
from headgate.core.placements import ByNode, LeastLoaded
from headgate.core.policies.classes import LIVE
from headgate.core.policy import Policy, vet

NodeT = TypeVar("NodeT")

#: the features of tables
TABLE_FEATURES = (
    *LOOP_FEATURES,
    *("priority", "class", "layer", "period", "setup_time", "time_per_unit", "cost", "selectivity"),
    *("pending", "head_time", "output_pending", "freshness_delta", "execution_time", "release_time", "next_release"),
    *("target_lag", "kept_target_lag", "waiting_since", "source_records", "part_records"),
)

#: a table that states no patience may wait this many of its periods before the guard strikes
PATIENCE_PERIODS = 20.0

#: costs are measured or learned and can come out as 0; policies divide by them
_LEAST_COST = 1e-9

# --- operators ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OperatorFacts(Generic[NodeT]):
    """How an engine finds the facts about an operator: for each fact a function of the engine's node object.

    Times are seconds by the engine's clock. What waits are tuples (rows).
    """

    # stated by the user
    priority: Callable[[NodeT], float]
    importance_class: Callable[[NodeT], float]
    patience: Callable[[NodeT], float]
    max_workers: Callable[[NodeT], float]
    # measured; an assumption before the first run
    #: seconds for one tuple
    cost: Callable[[NodeT], float]
    #: output tuples for one input tuple
    selectivity: Callable[[NodeT], float]
    #: seconds of work for one second of data
    time_per_unit: Callable[[NodeT], float]
    # about what waits
    pending: Callable[[NodeT], float]
    #: when the oldest waiting tuple came into the system; infinity if none waits
    head_time: Callable[[NodeT], float]
    #: since when something has been waiting without a turn; infinity if nothing waits
    waiting_since: Callable[[NodeT], float]
    #: when the newest waiting tuple came into the system (asked only if one waits), and the newest that was taken
    newest_waiting: Callable[[NodeT], float]
    newest_taken: Callable[[NodeT], float]
    #: what waits in the queues of its readers
    output_pending: Callable[[NodeT], float]
    # about arrivals; 0 and infinity for operators that are no sources
    period: Callable[[NodeT], float]
    next_arrival: Callable[[NodeT], float]


def operator_readings(facts: OperatorFacts[NodeT]) -> Mapping[str, Callable[[NodeT], float]]:
    """{feature: how to read it from a node}, for every feature but those that the loop keeps."""
    pending, cost = facts.pending, facts.cost
    newest_waiting, newest_taken = facts.newest_waiting, facts.newest_taken
    return {
        "priority": facts.priority,
        "class": facts.importance_class,
        "layer": lambda node: LIVE,
        "period": facts.period,
        "patience": facts.patience,
        "max_workers": facts.max_workers,
        # operators have no targets
        "target_lag": lambda node: math.inf,
        "kept_target_lag": lambda node: math.inf,
        "cost": cost,
        "selectivity": facts.selectivity,
        "setup_time": lambda node: 0.0,
        "time_per_unit": facts.time_per_unit,
        "pending": pending,
        "head_time": facts.head_time,
        "waiting_since": facts.head_time,
        # operators have no source
        "source_records": lambda node: 0.0,
        "part_records": lambda node: 0.0,
        "output_pending": facts.output_pending,
        # by how much fresher the operator would be if it took everything that waits
        "freshness_delta": lambda node: max(newest_waiting(node) - newest_taken(node), 0.0) if pending(node) else 0.0,
        "execution_time": lambda node: pending(node) * cost(node),
        "release_time": facts.waiting_since,
        "next_release": facts.next_arrival,
    }


def operator_features(policies: Iterable[Policy], placements: Iterable[Placement]) -> tuple[Feature, ...]:
    """The features that these policies and placements and the loops read, and no other: reading costs."""
    wanted = list(LOOP_FEATURES)
    for policy in policies:
        vet(policy)
        wanted += _checked(policy.requires(), f"policy {policy.name!r}")
    for placement in placements:
        vet(placement)
        wanted += _checked(placement.needs, f"placement {placement.name!r}")
        # these two use the features that exist; for operators these are
        if isinstance(placement, LeastLoaded | ByNode):
            wanted += ["cost", "pending"]
    return features_named(wanted)


def _checked(names: Iterable[str], reader: str) -> list[str]:
    wanted = list(names)
    for name in wanted:
        if name not in FEATURES:
            raise MissingFeatureError(reader, name, FEATURES)
    return wanted


class OperatorColumns(Generic[NodeT]):
    """The columns of a matrix with the functions that fill them, by when they must be written.

    Made anew when the matrix gets other nodes or features. The lists are there to be walked by the engine itself:
    this is done for every turn of every operator.
    """

    __slots__ = ("_columns", "measured", "output", "queue")

    def __init__(self, matrix: FeatureMatrix, readings: Mapping[str, Callable[[NodeT], float]]) -> None:
        features = matrix.features.values()
        self._columns = [(column, readings[name]) for name, column in matrix.columns.items() if name in readings]

        def those(names: Iterable[str]) -> list[tuple[Floats, Callable[[NodeT], float]]]:
            return [(matrix.columns[name], readings[name]) for name in names]

        #: to be written when something came into a node's queue, or was taken
        self.queue = those(f.name for f in features if f.changed_by & (ChangedBy.UPSTREAM | ChangedBy.ARRIVAL))
        #: to be written when a turn has measured a node
        self.measured = those(f.name for f in features if f.intrinsic or f.name == "execution_time")
        #: to be written when the queue of a reader has changed; None if nobody reads it
        self.output: Floats | None = matrix.columns.get("output_pending")

    def write_all(self, nodes: Iterable[NodeT]) -> None:
        """Write everything; ``nodes`` in the order of the graph."""
        known = list(nodes)
        for column, read in self._columns:
            column[:] = [read(node) for node in known]


# --- tables ---------------------------------------------------------------------------------------------------------


class TableColumns:
    """Writes what happens to tables into the columns of a matrix. ``table`` is always the table's number.

    Write the columns first, then tell the loop by ``set_ready`` whether the table can run.
    """

    def __init__(self, matrix: FeatureMatrix) -> None:
        columns = matrix.columns
        self.setup_time, self.time_per_unit, self.cost = (
            columns["setup_time"],
            columns["time_per_unit"],
            columns["cost"],
        )
        self.pending, self.output_pending = columns["pending"], columns["output_pending"]
        self.freshness_delta, self.execution_time = columns["freshness_delta"], columns["execution_time"]
        self.head_time, self.release_time = columns["head_time"], columns["release_time"]
        self.next_release = columns["next_release"]
        self.waiting_since = columns["waiting_since"]
        self.source_records, self.part_records = columns["source_records"], columns["part_records"]

    def set_cost(self, table: int, alpha: float, beta: float) -> None:
        """An update of n seconds of data is expected to take ``alpha + beta n`` seconds."""
        self.setup_time[table] = alpha
        self.time_per_unit[table] = beta
        self.cost[table] = max(beta, _LEAST_COST)

    def set_release(self, table: int, released: float, head_time: float) -> None:
        """An update was released at ``released``; the oldest data in it came at ``head_time``."""
        self.release_time[table] = released
        self.head_time[table] = head_time

    def set_pending(self, table: int, pending: float, gain: float, seconds: float) -> None:
        """``pending`` seconds of data wait; the next update takes in ``gain`` of them and should take ``seconds``."""
        self.pending[table] = pending
        self.freshness_delta[table] = gain
        self.execution_time[table] = seconds

    def set_idle(self, table: int, seconds: float) -> None:
        """Nothing waits. An update of no data would take ``seconds``."""
        # written out: the simulator does this for half of its events
        self.pending[table] = 0.0
        self.freshness_delta[table] = 0.0
        self.execution_time[table] = seconds
        self.release_time[table] = math.inf
        self.head_time[table] = math.inf

    def set_source(self, table: int, waiting: Collection[int]) -> None:
        """So many records are not loaded of each part of a table's source; nothing if it does not count them."""
        self.source_records[table], self.part_records[table] = sum(waiting), max(waiting, default=0)

    def set_next_release(self, table: int, when: float) -> None:
        """The next update is expected to be released at ``when``."""
        self.next_release[table] = when
