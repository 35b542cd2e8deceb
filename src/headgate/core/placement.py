"""What a placement is: which workers a node may run on (Haren's ``f``, Golab's tracks).

A placement sorts nodes into *lanes*. All nodes of a lane may use the same workers in the same order of preference,
so a loop can decide lane by lane instead of node by node. A placement is asked again when the set of nodes or
workers changes, at every rescheduling of the *rounds* loop, and when an engine says that costs have moved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.core.errors import InvariantError, ParameterError
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
        if not in_turn or min(in_turn) < 0:  # numbers that are none of a worker are refused by ``validate``
            return cls.of_nodes(Lane((w,)) for w in named.tolist())
        number = np.empty(max(in_turn) + 1, dtype=np.intp)
        number[in_turn] = np.arange(len(in_turn))
        return cls(tuple(Lane((w,)) for w in in_turn), number[named])

    def validate(self, nodes: int, workers: int) -> None:
        """Every node has a lane, every lane a home, and no lane names a worker that does not exist."""
        if len(self.of) != nodes:
            raise InvariantError(f"a placement must give every node a lane: {nodes} nodes, got {len(self.of)}")
        if nodes and not 0 <= int(self.of.min()) <= int(self.of.max()) < len(self.lanes):
            raise InvariantError(f"a placement named a lane that is not among its {len(self.lanes)} lanes")
        for lane in self.lanes:
            if not lane.home or not all(0 <= w < workers for w in (*lane.home, *lane.spare)):
                raise InvariantError(f"a lane must name workers between 0 and {workers - 1}; got {lane}")


class Placement(Choosable, ABC):
    """Sorts nodes into lanes. Subclasses are frozen dataclasses whose fields are the placement's parameters."""

    @abstractmethod
    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        """Where each node in ``view`` may run."""


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
