"""The graph: what is scheduled and who feeds whom.

Nodes are known by name outside and by index (0..n-1, in the order given) inside. A graph never changes: adding or
removing nodes makes a new one. It knows nothing of features, queues or time; what it does know is laid out so
that policies can work on all nodes at once: neighbours as flat arrays, nodes grouped by their distance from the
sinks and from the sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import GraphError

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]
Fingerprints = NDArray[np.uint64]

_WORD = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes at one distance, with the neighbours nearer to the end that distances are counted from.

    ``neighbours[starts[k]:starts[k + 1]]`` are those of ``nodes[k]``, so that one ``reduceat`` serves the level.
    In level 0 nobody has neighbours.
    """

    nodes: Ints
    neighbours: Ints
    starts: Ints


class Graph:
    """A directed acyclic graph of named nodes, grouped into queries.

    ``queries`` names the query of each node; left out, every connected group of nodes is one query, named after
    its first node.
    """

    def __init__(
        self,
        names: Iterable[str],
        edges: Iterable[tuple[str, str]] = (),
        queries: Mapping[str, str] | None = None,
    ) -> None:
        self.names: tuple[str, ...] = tuple(names)
        self.edges: tuple[tuple[str, str], ...] = tuple(edges)
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        self._check_names()
        self._declared_queries = dict(queries or {})
        up: list[list[int]] = [[] for _ in self.names]
        down: list[list[int]] = [[] for _ in self.names]
        if len(set(self.edges)) < len(self.edges):
            source, target = next(edge for i, edge in enumerate(self.edges) if edge in self.edges[:i])
            raise GraphError(f"the edge {source!r} -> {target!r} is given twice; a node feeds another once: remove one")
        for source, target in self.edges:
            down[self._known(source, "edge")].append(self._known(target, "edge"))
            up[self.index[target]].append(self.index[source])
        #: upstream[i]: the nodes that feed node i, in the order declared; all and only the direct ones
        self.upstream: tuple[tuple[int, ...], ...] = tuple(map(tuple, up))
        #: downstream[i]: the nodes that node i feeds; j in downstream[i] if and only if i in upstream[j]
        self.downstream: tuple[tuple[int, ...], ...] = tuple(map(tuple, down))
        #: every node after all of its upstream nodes
        self.order: tuple[int, ...] = self._topological_order()
        for name in self._declared_queries:
            self._known(name, "query")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Graph({len(self)} nodes, {len(self.edges)} edges, {len(self.query_names)} queries)"

    # --- neighbourhood --------------------------------------------------------------------------------------

    def ancestors(self, node: int) -> frozenset[int]:
        """The nodes that directly or indirectly feed ``node``, without itself."""
        return self._reach(node, self.upstream)

    def dependents(self, node: int) -> frozenset[int]:
        """The nodes that ``node`` directly or indirectly feeds, without itself."""
        return self._reach(node, self.downstream)

    @cached_property
    def sources(self) -> Ints:
        return np.array([i for i, up in enumerate(self.upstream) if not up], dtype=np.intp)

    @cached_property
    def sinks(self) -> Ints:
        return np.array([i for i, down in enumerate(self.downstream) if not down], dtype=np.intp)

    @cached_property
    def is_sink(self) -> NDArray[np.bool_]:
        mask = np.zeros(len(self), dtype=bool)
        mask[self.sinks] = True
        return mask

    # --- numbers that never change --------------------------------------------------------------------------

    @cached_property
    def depth(self) -> Ints:
        """The longest way from a source, in edges."""
        return _longest(self.order, self.upstream)

    @cached_property
    def height(self) -> Ints:
        """The longest way to a sink, in edges."""
        return _longest(tuple(reversed(self.order)), self.downstream)

    @cached_property
    def from_sinks(self) -> tuple[Level, ...]:
        """Levels by height: each node after all of its downstream nodes."""
        return _levels(self.height, self.downstream)

    @cached_property
    def from_sources(self) -> tuple[Level, ...]:
        """Levels by depth: each node after all of its upstream nodes."""
        return _levels(self.depth, self.upstream)

    @cached_property
    def position(self) -> Ints:
        """The place of each node by depth; between equals, by name."""
        ranked = sorted(range(len(self)), key=lambda i: (self.depth[i], self.tie[i]))
        return _inverse(np.array(ranked, dtype=np.intp))

    @cached_property
    def tie(self) -> Ints:
        """The rank of each name in sorted order: the last word between equals, whatever order nodes came in."""
        return _inverse(np.array(sorted(range(len(self)), key=self.names.__getitem__), dtype=np.intp))

    @cached_property
    def downstream_first(self) -> Ints:
        """The rank of each node by depth, the deepest first; between equals, by name."""
        ranked = np.lexsort((self.tie, -self.depth))
        return _inverse(ranked)

    @cached_property
    def fingerprint(self) -> Fingerprints:
        """A 64-bit hash of each name, so that ``uniform`` can depend on the name and not on the index."""
        digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in self.names)
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The graph cut into paths, each node on exactly one: from a node on to its first downstream node,
        as long as the two are each other's first choice. A chain is one path."""
        return _paths(self)

    @cached_property
    def path_table(self) -> tuple[Ints, NDArray[np.bool_]]:
        """``paths`` as a rectangular table of node indices, padded with 0, and the mask of real entries."""
        width = max((len(path) for path in self.paths), default=0)
        table = np.zeros((len(self.paths), width), dtype=np.intp)
        mask = np.zeros((len(self.paths), width), dtype=bool)
        for row, path in enumerate(self.paths):
            table[row, : len(path)] = path
            mask[row, : len(path)] = True
        return table, mask

    # --- queries --------------------------------------------------------------------------------------------

    @cached_property
    def _queries(self) -> tuple[tuple[str, ...], Ints]:
        label = list(range(len(self)))
        for i in self.order:
            for j in self.downstream[i]:
                _join(label, i, j)
        named = [self._declared_queries.get(name, self.names[_root(label, i)]) for i, name in enumerate(self.names)]
        distinct = tuple(dict.fromkeys(named))
        number = {name: k for k, name in enumerate(distinct)}
        return distinct, np.array([number[name] for name in named], dtype=np.intp)

    @property
    def query_names(self) -> tuple[str, ...]:
        return self._queries[0]

    @property
    def query(self) -> Ints:
        """The number of each node's query, an index into ``query_names``."""
        return self._queries[1]

    # --- change ---------------------------------------------------------------------------------------------

    def adding(
        self,
        names: Iterable[str],
        edges: Iterable[tuple[str, str]] = (),
        queries: Mapping[str, str] | None = None,
    ) -> Graph:
        """A graph with more nodes, those of this one keeping their indices."""
        return Graph((*self.names, *names), (*self.edges, *edges), {**self._declared_queries, **(queries or {})})

    def removing(self, names: Iterable[str]) -> Graph:
        """A graph without ``names`` and their edges; the indices of the others close up."""
        gone = set(names)
        for name in gone:
            self._known(name, "removal")
        return Graph(
            (name for name in self.names if name not in gone),
            ((a, b) for a, b in self.edges if a not in gone and b not in gone),
            {name: query for name, query in self._declared_queries.items() if name not in gone},
        )

    # --- checks ---------------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        if len(self.index) == len(self.names):
            return
        twice = sorted({name for i, name in enumerate(self.names) if self.index[name] != i})
        raise GraphError(f"two nodes are called {twice[0]!r}; every node needs a name of its own: rename one")

    def _known(self, name: str, where: str) -> int:
        if name not in self.index:
            raise GraphError(
                f"the {where} of {name!r} leads nowhere: no node has that name; nodes are: {_some(self.names)}"
            )
        return self.index[name]

    def _topological_order(self) -> tuple[int, ...]:
        waiting = [len(up) for up in self.upstream]
        order = [i for i, count in enumerate(waiting) if count == 0]
        for i in order:  # grows while it is walked
            for j in self.downstream[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    order.append(j)
        if len(order) < len(self.names):
            circle = " -> ".join(self.names[i] for i in self._cycle(waiting))
            raise GraphError(f"the graph has a cycle: {circle}; a node cannot feed itself: remove one of these edges")
        return tuple(order)

    def _cycle(self, waiting: Sequence[int]) -> list[int]:
        node = next(i for i, count in enumerate(waiting) if count > 0)
        seen: list[int] = []
        while node not in seen:
            seen.append(node)
            node = next(j for j in self.upstream[node] if waiting[j] > 0)
        return [node, *reversed(seen[seen.index(node) :])]

    def _reach(self, node: int, neighbours: tuple[tuple[int, ...], ...]) -> frozenset[int]:
        found: set[int] = set()
        frontier = list(neighbours[node])
        while frontier:
            i = frontier.pop()
            if i not in found:
                found.add(i)
                frontier.extend(neighbours[i])
        return frozenset(found)


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _inverse(permutation: Ints) -> Ints:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


def _longest(order: Sequence[int], neighbours: tuple[tuple[int, ...], ...]) -> Ints:
    distance = np.zeros(len(order), dtype=np.intp)
    for i in order:
        distance[i] = max((distance[j] + 1 for j in neighbours[i]), default=0)
    return distance


def _levels(distance: Ints, neighbours: tuple[tuple[int, ...], ...]) -> tuple[Level, ...]:
    levels = []
    for d in range(int(distance.max(initial=-1)) + 1):
        nodes = np.flatnonzero(distance == d)
        flat = [j for i in nodes for j in neighbours[i]]
        counts = [len(neighbours[i]) for i in nodes]
        starts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.intp)
        levels.append(Level(nodes, np.array(flat, dtype=np.intp), starts))
    return tuple(levels)


def _paths(graph: Graph) -> tuple[tuple[int, ...], ...]:
    following: dict[int, int] = {}
    preceded: set[int] = set()
    for i in graph.order:
        for j in graph.downstream[i][:1]:
            if graph.upstream[j][0] == i:
                following[i] = j
                preceded.add(j)
    paths = []
    for start in graph.order:
        if start in preceded:
            continue
        path = [start]
        while path[-1] in following:
            path.append(following[path[-1]])
        paths.append(tuple(path))
    return tuple(paths)


def _root(label: list[int], i: int) -> int:
    while label[i] != i:
        label[i] = label[label[i]]
        i = label[i]
    return i


def _join(label: list[int], i: int, j: int) -> None:
    a, b = _root(label, i), _root(label, j)
    label[max(a, b)] = min(a, b)


def uniform(seed: int, turn: int, fingerprint: Fingerprints) -> Floats:
    """Chance as a pure function: one number in [0, 1) per fingerprint, different for every seed and turn.

    It does not depend on how many numbers were drawn before, so the order of the nodes makes no difference and a run
    can be repeated. The mixing is SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014): good enough for
    scheduling, useless for secrets.
    """
    drawn = _mix(_mix(_mix(_word(seed)) ^ _word(turn)) ^ fingerprint)
    # a float has 53 bits: taking more would round some numbers up to 1
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _word(number: int) -> Fingerprints:
    # an array, because NumPy warns when scalars wrap around and arrays wrap silently
    return np.array([number & _WORD], dtype=np.uint64)


def _mix(words: Fingerprints) -> Fingerprints:
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
