"""Features: the numbers about a node that policies and placements read.

Haren (section 3.1) sorts features by what can change them, because reading a feature costs and most of them have not
changed since they were last read: a *static* one never changes, an *independent* one only when its own node runs,
a *dependent* one also when a neighbour runs, and an *execution-intrinsic* one cannot be refreshed at all unless its
node runs. Here a feature says who can change it, and ``FeatureMatrix.refresh`` reads again just what can have
changed.

Time is a number of seconds since any fixed moment; an engine picks the moment, the core only subtracts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from types import MappingProxyType

from headgate.core.errors import DeclarationError, UnknownNameError

#: the largest importance class: a feature is a floating-point number, which has no further whole numbers exactly
MOST_CLASS = 2**53


class ChangedBy(Flag):
    """Whose running (or what else) can change a feature of a node. A sibling feeds the same node as it does."""

    NOTHING = 0
    ITSELF = auto()
    UPSTREAM = auto()
    DOWNSTREAM = auto()
    SIBLING = auto()
    ARRIVAL = auto()
    LOOP = auto()


_OTHERS = ChangedBy.UPSTREAM | ChangedBy.DOWNSTREAM | ChangedBy.SIBLING | ChangedBy.ARRIVAL
_QUEUE = ChangedBy.ITSELF | ChangedBy.UPSTREAM | ChangedBy.ARRIVAL
_OUTPUT = ChangedBy.ITSELF | ChangedBy.DOWNSTREAM | ChangedBy.SIBLING


@dataclass(frozen=True, slots=True)
class Feature:
    """A named number per node: what it means, who can change it, what it is before it was ever measured."""

    name: str
    about: str
    changed_by: ChangedBy = ChangedBy.NOTHING
    intrinsic: bool = False
    default: float = 0.0

    def __post_init__(self) -> None:
        if self.intrinsic and self.changed_by != ChangedBy.ITSELF:
            raise DeclarationError(
                f"the feature {self.name!r} is execution-intrinsic, so only running its own node can change it; "
                f"got changed_by={self.changed_by}: say ChangedBy.ITSELF"
            )

    @property
    def static(self) -> bool:
        """Never changes by itself; whoever sets it (a user changing a priority) says so to the matrix."""
        return self.changed_by == ChangedBy.NOTHING

    @property
    def dependent(self) -> bool:
        """Somebody else can change it: another node that runs (Haren, definition 3.3), or the world outside."""
        return bool(self.changed_by & _OTHERS)

    @property
    def independent(self) -> bool:
        """Only running its own node can change it (Haren, definition 3.1)."""
        return self.changed_by == ChangedBy.ITSELF

    @property
    def kind(self) -> str:
        """The kind in Haren's words, for listings."""
        if self.static:
            return "static"
        if self.changed_by == ChangedBy.LOOP:
            return "kept by the loop"
        words = ["dynamic", "dependent" if self.dependent else "independent"]
        return ", ".join([*words, "execution-intrinsic"] if self.intrinsic else words)


def _catalogue(*features: Feature) -> Mapping[str, Feature]:
    return MappingProxyType({feature.name: feature for feature in features})


#: Every feature that the shipped policies and placements read. An engine may add its own.
FEATURES: Mapping[str, Feature] = _catalogue(
    # stated by the user
    Feature("priority", "how much staleness or delay of this node matters, after inheritance", default=1.0),
    Feature("class", "importance class of the node's query; a larger class goes first", default=0.0),
    Feature("layer", "work of a lower layer stands behind that of a higher one, whatever the policy", default=0.0),
    Feature("period", "seconds between two arrivals of data; of a derived table, estimated from its sources"),
    Feature("patience", "seconds a node may stay runnable before the guard puts it in front", default=float("inf")),
    Feature("target_lag", "lag within which its own target and those of its dependents hold", default=float("inf")),
    Feature("kept_target_lag", "the same for the targets that can be kept together", default=float("inf")),
    Feature("max_workers", "how many workers may run the node at once", default=1.0),
    # measured by running the node
    Feature("cost", "seconds to process one input tuple", ChangedBy.ITSELF, intrinsic=True),
    Feature("selectivity", "output tuples per input tuple", ChangedBy.ITSELF, intrinsic=True, default=1.0),
    Feature("setup_time", "alpha of E(n) = alpha + beta n, seconds", ChangedBy.ITSELF, intrinsic=True),
    Feature("time_per_unit", "beta of E(n) = alpha + beta n, per second of data", ChangedBy.ITSELF, intrinsic=True),
    # about what waits
    Feature("pending", "tuples (of a table: seconds of data) waiting to be processed", _QUEUE),
    Feature("head_time", "when the oldest waiting tuple came into the system", _QUEUE, default=float("inf")),
    Feature("waiting_since", "when the oldest data that it could take in arrived", _QUEUE, default=float("inf")),
    Feature("source_records", "records of its source that are not loaded, if it counts them, as a topic does", _QUEUE),
    Feature("part_records", "the most of them in one part of the source, such as a partition of a topic", _QUEUE),
    Feature("output_pending", "tuples waiting in the node's output queues", _OUTPUT),
    Feature("freshness_delta", "dF: how much fresher the table would become, seconds", _QUEUE),
    Feature("execution_time", "E: expected seconds to process what waits", _QUEUE),
    Feature("release_time", "when the pending update was released", _QUEUE, default=float("inf")),
    Feature("next_release", "when the next update is expected to be released", _QUEUE, default=float("inf")),
    # kept by the loop
    Feature("ready", "1 if the node can run now", ChangedBy.LOOP),
    Feature("workers", "workers that run the node now", ChangedBy.LOOP),
    Feature("last_turn", "number of the last decision that chose the node, -1 if none", ChangedBy.LOOP, default=-1.0),
    Feature("window_time", "worker seconds spent on the node in the current window", ChangedBy.LOOP),
)


def features_named(names: Iterable[str], more: Mapping[str, Feature] = MappingProxyType({})) -> tuple[Feature, ...]:
    """The features called ``names``, from the catalogue and ``more``; an unknown name is refused."""
    known = {**FEATURES, **more}
    for name in names:
        if name not in known:
            raise UnknownNameError("feature", name, known)
    return tuple(known[name] for name in dict.fromkeys(names))
