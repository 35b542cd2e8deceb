"""What a placement is: which workers a node may run on (Haren's ``f``, Golab's tracks).

A placement sorts nodes into *lanes*. All nodes of a lane may use the same workers in the same order of preference,
so a loop can decide lane by lane instead of node by node. A placement is asked again when the set of nodes or
workers changes, at every rescheduling of the *rounds* loop, and when an engine says that costs have moved.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.core.errors import ParameterError, UserCodeError
from headgate.core.graph import Ints
from headgate.core.matrix import FeatureView
from headgate.core.policy import Choosable

#: the most updates of tables at the same time that may be asked for; each has a thread and a Spark session
MOST_TRACKS = 1000


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers there are: ``group[w]`` is the NUMA node or executor of worker w."""

    group: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.group:
            raise ParameterError("there must be at least one worker; got none")

    @classmethod
    def of(cls, count: int) -> Workers:
        """``count`` workers of one group."""
        return cls((0,) * count)

    def __len__(self) -> int:
        return len(self.group)


@dataclass(frozen=True, slots=True)
class Lane:
    """Where the nodes of one lane may run.

    A node takes the first free worker of ``home``; failing that, the first free one of ``spare``, which belongs to
    others: at once if ``aggressive``, otherwise only if no runnable node has that worker as its home.
    """

    home: tuple[int, ...]
    spare: tuple[int, ...] = ()
    aggressive: bool = False


@dataclass(frozen=True, slots=True)
class Lanes:
    """The outcome of a placement: lane number ``of[i]`` for node i."""

    lanes: tuple[Lane, ...]
    of: Ints

    @classmethod
    def single(cls, nodes: int, lane: Lane) -> Lanes:
        return cls((lane,), np.zeros(nodes, dtype=np.intp))

    @classmethod
    def of_nodes(cls, per_node: Iterable[Lane]) -> Lanes:
        """Lanes from one lane per node, equal ones joined."""
        number: dict[Lane, int] = {}
        of = np.array([number.setdefault(lane, len(number)) for lane in per_node], dtype=np.intp)
        return cls(tuple(number), of)

    @classmethod
    def of_workers(cls, worker: Sequence[int] | Ints) -> Lanes:
        """Each node at home on exactly one worker."""
        named = np.asarray(worker, dtype=np.intp)
        in_turn = list(dict.fromkeys(named.tolist()))
        if not in_turn or min(in_turn) < 0:  # numbers that are none of a worker are refused when they are checked
            return cls.of_nodes(Lane((w,)) for w in named.tolist())
        number = np.empty(max(in_turn) + 1, dtype=np.intp)
        number[in_turn] = np.arange(len(in_turn))
        return cls(tuple(Lane((w,)) for w in in_turn), number[named])

    def renumbered(self, old: Ints) -> Lanes:
        """As a memory of nodes that are numbered anew: ``old`` has their numbers until now, -1 for a new one, which has
        lane -1."""
        of = np.full(len(old), -1, dtype=np.intp)
        of[old >= 0] = self.of[old[old >= 0]]
        return Lanes(self.lanes, of)


class Placement(Choosable, ABC):
    """Sorts nodes into lanes. Subclasses are frozen dataclasses whose fields are the placement's parameters."""

    @abstractmethod
    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        """Where each node in ``view`` may run."""


def lanes_of(placement: Placement, view: FeatureView, workers: Workers) -> Lanes:
    """Where ``placement`` puts the nodes in view; anything but lanes of these workers is the placement's mistake."""
    return checked_lanes(placement, placement.lanes(view, workers), len(view), len(workers))


def checked_lanes(placement: Placement, placed: object, nodes: int, workers: int) -> Lanes:
    """What a placement has returned, in which every node has a lane, every lane a home, and every worker exists."""
    if not isinstance(placed, Lanes):
        raise _wrong(placement, "return Lanes", type(placed).__name__)
    lanes, of = placed.lanes, placed.of
    if not isinstance(lanes, (tuple, list)) or not all(isinstance(lane, Lane) for lane in lanes):
        raise _wrong(placement, "return Lanes whose lanes are a tuple of Lane", reprlib.repr(lanes))
    if not isinstance(of, np.ndarray) or of.dtype.kind not in "iu" or of.shape != (nodes,):
        got = f"an array of {of.dtype} of shape {of.shape}" if isinstance(of, np.ndarray) else type(of).__name__
        raise _wrong(placement, f"give each of {nodes} nodes the number of its lane, as an array of integers", got)
    if nodes and not 0 <= int(of.min()) <= int(of.max()) < len(lanes):
        numbers = f"numbers from {of.min()} to {of.max()}, with lanes: {len(lanes)}"
        raise _wrong(placement, "give every node a lane, counted from 0, that is among its lanes", numbers)
    for lane in lanes:
        if not _names_workers(lane.home, workers) or not lane.home or not _names_workers(lane.spare, workers):
            what = f"give every lane a home, and name workers as integers between 0 and {workers - 1}"
            raise _wrong(placement, what, f"home={reprlib.repr(lane.home)}, spare={reprlib.repr(lane.spare)}")
    return placed


def _names_workers(named: object, workers: int) -> bool:
    if not isinstance(named, (tuple, list, range)):
        return False
    return all(isinstance(worker, (int, np.integer)) and 0 <= worker < workers for worker in named)


def _wrong(placement: Placement, expected: str, got: str) -> UserCodeError:
    return UserCodeError(
        f"placement {placement.name!r} must {expected}; got {got}: correct the placement or choose another"
    )


def one_worker_each(lanes: Lanes) -> Ints:
    """A single worker for every node, nodes of a lane dealt in turn over the lane's homes.

    The *rounds* loop gives each node to exactly one worker; a lane with several homes leaves open which.
    """
    if all(len(lane.home) == 1 for lane in lanes.lanes):
        return np.array([lane.home[0] for lane in lanes.lanes], dtype=np.intp)[lanes.of]
    worker = np.empty(len(lanes.of), dtype=np.intp)
    for number, lane in enumerate(lanes.lanes):
        members = np.flatnonzero(lanes.of == number)
        homes = np.array(lane.home, dtype=np.intp)
        worker[members] = homes[np.arange(len(members)) % len(homes)]
    return worker


def check_choice(placement: str, parameter: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that is not among the choices."""
    known = tuple(choices)
    if value not in known:
        raise ParameterError(f"placement {placement!r}: {parameter} must be one of {', '.join(known)}; got {value!r}")


def check_positive(placement: str, parameter: str, value: float) -> None:
    """Refuse zero, negative numbers and NaN."""
    if not value > 0:
        raise ParameterError(f"placement {placement!r}: {parameter} must be greater than 0; got {value}")
