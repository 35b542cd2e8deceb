"""The feature matrix: the last known value of every feature of every node, and the views policies get of it.

An engine fills it in one of two ways. It *writes* a value when it changes (cheap if one thread owns the numbers, as in
the simulator). Or it says which nodes ran, and ``refresh`` *reads* again what can have changed (Haren, section 6), for
each feature only of the nodes concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import DeclarationError, MissingFeatureError, UnknownNameError
from headgate.core.features import ChangedBy, Feature
from headgate.core.graph import Floats, Graph, Ints

#: reads one feature of several nodes: (feature name, node indices) -> values
Reader = Callable[[str, Ints], "Floats | Iterable[float]"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


class FeatureView:
    """What a policy sees: feature columns, the graph, the time and the number of the decision. Read only: what a loop
    shows cannot be written, and a policy or placement that tries gets a ValueError.

    ``view["cost"]`` is one number per node in view. ``rows`` is None when all nodes are in view; a policy that is
    ``local`` may be shown just the nodes that changed.
    """

    __slots__ = ("_columns", "graph", "memory", "now", "rows", "seed", "turn")

    def __init__(
        self,
        columns: Mapping[str, Floats],
        graph: Graph,
        now: float = 0.0,
        turn: int = 0,
        seed: int = 0,
        memory: object = None,
        rows: Ints | None = None,
    ) -> None:
        self._columns = columns
        self.graph = graph
        self.now = now
        self.turn = turn
        self.seed = seed
        self.memory = memory
        self.rows = rows

    def __getitem__(self, name: str) -> Floats:
        try:
            column = self._columns[name]
        except KeyError:
            hint = "A policy is shown the features that it names in 'needs'."
            raise UnknownNameError("feature", name, self._columns, hint=hint) from None
        return column if self.rows is None else column[self.rows]

    def __len__(self) -> int:
        return len(self.graph) if self.rows is None else len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def only(self, rows: Ints | None) -> FeatureView:
        """The same view of just these nodes of the graph; None for all of them."""
        return FeatureView(self._columns, self.graph, self.now, self.turn, self.seed, self.memory, rows)


def in_view(view: FeatureView, per_node: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The entries of an array over the whole graph that belong to the nodes in view."""
    return per_node if view.rows is None else per_node[view.rows]


@dataclass(frozen=True, slots=True)
class RefreshCount:
    """How many values ``refresh`` read, and how many a full reading would have been."""

    read: int
    full: int


class FeatureMatrix:
    """One column of numbers per feature, one row per node.

    Invariants:
    1. ``columns`` holds all and only the features given, each of length ``len(graph)``.
    2. ``shown`` holds the same memory as ``columns``, and cannot be written.
    3. After ``refresh`` no dynamic value that can have changed since the refresh before is left unread.
    """

    def __init__(self, graph: Graph, features: Iterable[Feature]) -> None:
        self.graph = graph
        self.features: dict[str, Feature] = {feature.name: feature for feature in features}
        self.columns: dict[str, Floats] = {}
        #: the columns as policies and placements get them
        self.shown: dict[str, Floats] = {}
        for name, feature in self.features.items():
            self._set_column(name, np.full(len(graph), feature.default))
        #: nodes not read since they were added: all their features are unknown, also static ones
        self._unread: set[int] = set(range(len(graph)))
        self._ran: set[int] = set()
        self._arrived: set[int] = set()
        #: below and above a node that ran and was then removed: who was fed, and who was made room for
        self._below: set[int] = set()
        self._above: set[int] = set()

    def require(self, names: Iterable[str], reader: str) -> None:
        """Refuse a policy or placement that reads a feature nobody provides."""
        for name in names:
            if name not in self.features:
                raise MissingFeatureError(reader, name, self.features)

    def extend(self, features: Iterable[Feature]) -> None:
        """Add the features that are not there yet, for a policy that comes later; the next refresh reads everything."""
        new = [feature for feature in features if feature.name not in self.features]
        for feature in new:
            self.features[feature.name] = feature
            self._set_column(feature.name, np.full(len(self.graph), feature.default))
        if new:
            self._unread = set(range(len(self.graph)))

    def fill(self, name: str, values: Floats | Iterable[float]) -> None:
        """Set a whole column, for example the priorities after inheritance."""
        self.columns[name][:] = _values(values, len(self.graph), name)

    def _set_column(self, name: str, column: Floats) -> None:
        """Put an array in the place of a column; policies are shown the same memory, which they cannot write."""
        self.columns[name] = column
        self.shown[name] = np.asarray(column.data.toreadonly())

    # --- selective update -----------------------------------------------------------------------------------

    def note_ran(self, nodes: Iterable[int]) -> None:
        """These nodes ran since the last refresh (Haren's set E)."""
        self._ran.update(nodes)

    def note_arrival(self, nodes: Iterable[int]) -> None:
        """Data came to these nodes from outside the graph since the last refresh."""
        self._arrived.update(nodes)

    def refresh(self, read: Reader) -> RefreshCount:
        """Read again every value that can have changed since the last refresh, and no other."""
        readable = {n: f for n, f in self.features.items() if f.changed_by != ChangedBy.LOOP}
        wanted = {change: self._rows(change) for change in {f.changed_by for f in readable.values()}}
        count = 0
        for name, feature in readable.items():
            rows = wanted[feature.changed_by]
            if len(rows):
                self.columns[name][rows] = _values(read(name, rows), len(rows), name)
                count += len(rows)
        for noted in (self._unread, self._ran, self._arrived, self._below, self._above):
            noted.clear()
        return RefreshCount(read=count, full=len(readable) * len(self.graph))

    def _rows(self, change: ChangedBy) -> Ints:
        """The nodes whose features with this ``changed_by`` can differ now: Haren's bitmaps D and U, kept sparse."""
        rows = set(self._unread)
        if ChangedBy.ITSELF in change:
            rows |= self._ran
        if ChangedBy.ARRIVAL in change:
            rows |= self._arrived
        if ChangedBy.UPSTREAM in change:
            rows |= self._below | _neighbours(self._ran, self.graph.downstream)
        if ChangedBy.SIBLING in change:
            fed = self._below | _neighbours(self._ran, self.graph.downstream)
            rows |= _neighbours(fed, self.graph.upstream)
        if ChangedBy.DOWNSTREAM in change:
            rows |= self._above | _neighbours(self._ran, self.graph.upstream)
        return np.array(sorted(rows), dtype=np.intp)

    # --- views and change -----------------------------------------------------------------------------------

    def view(self, now: float = 0.0, turn: int = 0, *, seed: int = 0, memory: object = None) -> FeatureView:
        return FeatureView(self.shown, self.graph, now, turn, seed, memory)

    def regraph(self, graph: Graph) -> NDArray[np.intp]:
        """Move to another graph, keeping the rows of nodes known by name; returns the old index of each, -1 if new."""
        old = np.array([self.graph.index.get(name, -1) for name in graph.names], dtype=np.intp)
        kept = old >= 0
        for name, feature in self.features.items():
            column = np.full(len(graph), feature.default)
            column[kept] = self.columns[name][old[kept]]
            self._set_column(name, column)
        new_of_old = {int(o): i for i, o in enumerate(old) if o >= 0}

        def renumbered(noted: set[int]) -> set[int]:
            return {new_of_old[i] for i in noted if i in new_of_old}

        gone = {i for i in self._ran if i not in new_of_old}
        self._below = renumbered(self._below | _neighbours(gone, self.graph.downstream))
        self._above = renumbered(self._above | _neighbours(gone, self.graph.upstream))
        self._ran = renumbered(self._ran)
        self._arrived = renumbered(self._arrived)
        self._unread = renumbered(self._unread) | set(np.flatnonzero(~kept).tolist())
        self.graph = graph
        return old


def _neighbours(nodes: set[int], of: tuple[tuple[int, ...], ...]) -> set[int]:
    return {j for i in nodes for j in of[i]}


def _values(given: Floats | Iterable[float], count: int, feature: str) -> Floats:
    values = np.array(given if isinstance(given, Sized) else list(given), dtype=np.float64)
    if values.shape != (count,):
        raise DeclarationError(f"the feature {feature!r} takes one number for each of {count} nodes; got {len(values)}")
    return values
