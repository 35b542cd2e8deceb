"""The *rounds* loop: workers run their own sorted lists for a period, then reschedule (Haren, sections 5 and 6).

At a rescheduling the features that can have changed are read again, one worker deals the nodes out by the placement
(Haren's ``f``), and each worker sorts what it got by the policy (``g``). Between two reschedulings no worker looks at
another, so a step costs no lock. What a worker does in between is in ``worklist``.

The logic is pure: threads, barriers and clocks belong to the engine around it, in which every worker does

    while True:
        match rounds.next_step(worker, now(), can_run):
            case Start(node, batch=batch):
                run the node on up to that many tuples
                rounds.finished(worker, now())
            case Wait(seconds):
                sleep
            case Reschedule():
                rounds.refresh_own(worker, read)
                with the engine's lock: last = rounds.arrive(worker)
                if last: rounds.coordinate(now(), read), then let the others go on
                else: wait for that (a barrier)
                if worker >= len(rounds.workers): stop, because there are fewer workers now
                rounds.sort_own(worker)

Indices of nodes change when nodes are added or removed. That happens inside ``coordinate`` and nowhere else; ``read``
and ``can_run`` are always asked in terms of ``rounds.graph`` as it is at that moment.

``headgate.stream.loops.handover`` has the version for threads that needs no barrier in most rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import USER_ERRORS, HeadgateError, InvariantError, UserCodeError, let_pass, said_by
from headgate.core.explain import RoundsExplanation
from headgate.core.graph import Floats, Graph, Ints, uniform
from headgate.core.loop import LoopStatistics
from headgate.core.matrix import FeatureMatrix, FeatureView, Reader
from headgate.core.placement import Placement, Workers, lanes_of, one_worker_each
from headgate.core.policy import Policy, as_table, portions_of, priorities_of, text_of, ties, vet
from headgate.core.worklist import CanRun, Counts, NodeRecords, Phase, RoundsConfig, Step, Worklist

Answer = TypeVar("Answer")
Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True)
class NewRound:
    """What a rescheduling changed: the number of the round it opened, and who came and went.

    A name that was removed and added again since the last one is in both: the new node shares nothing with the old.
    """

    round: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    workers: int


@dataclass(frozen=True, slots=True)
class RoundsStatistics(LoopStatistics):
    """``values_read`` are the feature values that were asked for, ``values_full`` those that reading everything at
    every rescheduling would have asked for."""

    backoffs: int
    values_read: int
    values_full: int


class Rounds:
    """The state of the rounds loop.

    Which calls may overlap: ``next_step``, ``finished``, ``refresh_own`` and ``sort_own`` of *different* workers. The
    engine makes all others one at a time, and ``coordinate`` alone, after every worker has arrived. ``explain`` and
    ``statistics`` may be called at any time but during a rescheduling; beside running workers they are a moment's
    picture.

    Changes (policy, placement, configuration, nodes, workers) are checked at once and take effect at the next
    rescheduling. Nothing runs while nodes come and go, so one that is removed while it runs finishes first. If
    ``coordinate`` raises because a policy or placement failed, replace the culprit and call it again.

    Invariants, between two reschedulings:
    1. Every node of the graph has been dealt to exactly one worker.
    2. Every list keeps the invariants of ``Worklist``. With 1, no node is run by two workers at once.
    3. There is one list per worker, and one record per node.
    4. ``_arrived`` counts the workers in phase ARRIVED.
    """

    def __init__(
        self,
        matrix: FeatureMatrix,
        policy: Policy,
        placement: Placement,
        workers: Workers,
        config: RoundsConfig | None = None,
        *,
        now: float = 0.0,
    ) -> None:
        self.matrix = matrix
        self.workers = workers
        self.config = config or RoundsConfig()
        #: number of the round under way; 0 before the first rescheduling
        self.round = 0
        self._require(policy, placement)
        self.policy = policy
        self.placement = placement
        self._memory: object = None
        self._view = matrix.view(now, seed=self.config.seed)
        #: priorities of all nodes; None if the policy is local, because then each worker ranks its own nodes
        self._table: Floats | None = np.zeros((len(matrix.graph), 1))
        self._records = NodeRecords(len(matrix.graph), now)
        self._lists = [Worklist(w, self._records, self.config) for w in range(len(workers))]
        self._arrived = 0
        #: of a policy that ranks a worker's own nodes; told at the next rescheduling, when nobody is in a run
        self._failure: HeadgateError | None = None
        #: nodes whose independent features a worker has read since they ran
        self._fresh: NDArray[np.bool_] = np.zeros(len(matrix.graph), dtype=bool)
        self._values_read = 0
        self._values_full = 0
        #: counts of workers that have left
        self._past = Counts()
        self._next_policy: Policy | None = None
        self._next_placement: Placement | None = None
        self._next_config: RoundsConfig | None = None
        self._next_workers: Workers | None = None
        #: one graph per change, applied in turn: a name removed and added again is a new node
        self._next_graphs: list[Graph] = []
        #: the graph whose nodes were last dealt out, and the index there of each node of the present one, -1 if new
        self._dealt_graph = matrix.graph
        self._dealt_index: Ints = np.arange(len(matrix.graph))
        # Before the first rescheduling all nodes are equal, and chance deals them out (Haren, section 5).
        chance = uniform(self.config.seed, 0, self.graph.fingerprint)
        self._deal((chance * len(workers)).astype(np.intp))
        for worker in range(len(workers)):
            self.sort_own(worker)

    @property
    def graph(self) -> Graph:
        return self.matrix.graph

    # --- in a round -----------------------------------------------------------------------------------------

    def next_step(self, worker: int, now: float, can_run: CanRun) -> Step:
        """What ``worker`` does now; ``can_run`` says whether a node has input, and room for its output."""
        return self._lists[worker].next_step(now, can_run)

    def finished(self, worker: int, now: float) -> None:
        """The run that ``worker`` was told to start has ended."""
        self._lists[worker].finished(now)

    # --- the rescheduling -----------------------------------------------------------------------------------

    def refresh_own(self, worker: int, read: Reader) -> None:
        """The part done in parallel: read the independent features of the nodes this worker ran.

        May be left out; the worker that coordinates reads them then (Haren, algorithm 2, lines 1-2).
        """
        own = self._lists[worker]
        rows = np.array(sorted(own.executed), dtype=np.intp)
        for name, feature in self.matrix.features.items():
            if feature.independent and len(rows):
                self.matrix.columns[name][rows] = np.fromiter(read(name, rows), dtype=np.float64, count=len(rows))
                own.counts.values_read += len(rows)
        own.refreshed = True

    def arrive(self, worker: int) -> bool:
        """The worker is at the barrier; True if it is the last one, which then has to ``coordinate``."""
        self._lists[worker].arrive()
        self._arrived += 1
        return self._arrived == len(self._lists)

    def coordinate(self, now: float, read: Reader, fed: Iterable[int] = ()) -> NewRound:
        """The part done by one worker (Haren, algorithm 3).

        Applies what was asked for since the last rescheduling, reads what can have changed and has not been read by
        ``refresh_own``, deals out the nodes and opens the next round. ``fed`` are nodes that data came to from
        outside the graph.
        """
        if self._arrived < len(self._lists):
            raise InvariantError(f"only {self._arrived} of {len(self._lists)} workers have arrived at the barrier")
        worker_of = self._decide(now, read, fed)
        added, removed = self._came_and_went()
        self._deal(worker_of)
        return NewRound(self.round, added, removed, len(self.workers))

    def sort_own(self, worker: int) -> None:
        """The last part, again in parallel: rank and sort the nodes this worker was dealt (algorithm 2, lines 7-9)."""
        if worker >= len(self._lists):
            raise InvariantError(f"worker {worker} has left: there are {len(self._lists)} now, counted from 0")
        own = self._lists[worker]
        if own.phase is not Phase.DEALT:
            raise InvariantError(f"worker {worker} cannot sort its nodes: it {own.phase.value}")
        try:
            self._sort(own)
        except HeadgateError as error:
            self._failure = error
            rows = np.array(own.nodes, dtype=np.intp)
            own.sort(np.zeros((len(rows), 1)), (self.graph.tie[rows],), self._patience()[rows], forces=False)

    def _sort(self, own: Worklist) -> None:
        rows = np.array(own.nodes, dtype=np.intp)
        then = self._view
        view = FeatureView(self.matrix.shown, self.graph, then.now, then.turn, then.seed, then.memory, rows)
        table = self._priorities(view) if self._table is None else self._table[rows]
        portions = self._portions(view) if self.policy.cuts else None
        own.sort(table, ties(view), self._patience()[rows], forces=self._forces(), portions=portions)

    # --- change while running -------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        """Rank by another policy from the next rescheduling on."""
        self._require(policy, None)
        self._next_policy = policy

    def replace_placement(self, placement: Placement) -> None:
        """Place by another rule from the next rescheduling on."""
        self._require(None, placement)
        self._next_placement = placement

    def replace_config(self, config: RoundsConfig) -> None:
        """Another period, batch, delay, back-off or seed from the next rescheduling on."""
        self._next_config = config

    def set_workers(self, workers: Workers) -> None:
        """More or fewer workers from the next rescheduling on; workers are counted from 0, so the last ones go."""
        self._next_workers = workers

    def regraph(self, graph: Graph) -> None:
        """Other nodes and edges from the next rescheduling on, which already reads the features of the new nodes.

        To add to what was asked for before, make ``graph`` from ``next_graph``.
        """
        self._next_graphs.append(graph)

    @property
    def next_graph(self) -> Graph:
        """The graph as it will be after the next rescheduling."""
        return self._next_graphs[-1] if self._next_graphs else self.graph

    # --- reports --------------------------------------------------------------------------------------------

    def explain(self, node: int, now: float) -> RoundsExplanation:
        """The position of a node in its worker's list, and what could bring it forward."""
        names = self.graph.names
        own = next(own for own in map(self._dealt_list, self._lists) if node in own.nodes)
        place = own.nodes.index(node)
        group = own.groups[place]
        since = self._records.runnable_since[node]
        last_run = self._records.last_run[node]
        return RoundsExplanation(
            node=names[node],
            now=now,
            policy=text_of(self.policy),
            running_on=tuple(each.worker for each in self._lists if each.running == node),
            place=place + 1,
            priority=tuple(own.table[place].tolist()),
            guard_deadline=since + float(self._patience()[node]),
            worker=own.worker,
            of=len(own.nodes),
            ahead=tuple(names[i] for i, g in zip(own.nodes, own.groups, strict=False) if g < group),
            equal=tuple(names[i] for i, g in zip(own.nodes, own.groups, strict=False) if g == group and i != node),
            last_run=last_run,
            forced_after=last_run + own.config.longest_delay if self._forces() else math.inf,
            runnable_since=since,
        )

    def _dealt_list(self, own: Worklist) -> Worklist:
        """The list with the nodes that were last dealt to a worker: with barriers, the one it has."""
        return own

    def statistics(self) -> RoundsStatistics:
        total = self._past.plus(own.counts for own in self._lists)
        return RoundsStatistics(
            decisions=self.round,
            starts=total.starts,
            nodes=len(self.graph),
            workers=len(self.workers),
            backoffs=total.backoffs,
            values_read=self._values_read + total.values_read,
            values_full=self._values_full,
        )

    def validate(self) -> None:
        """Check the invariants in the docstring of the class."""
        listed = sorted(node for own in self._lists for node in self._dealt_list(own).nodes)
        if listed != list(range(len(self.graph))):
            raise InvariantError(f"inv1: {len(self.graph)} nodes, but the workers' lists together hold {listed}")
        for own in self._lists:
            own.validate()
        records = {len(self._records.last_run), len(self._records.runnable_since), len(self._fresh)}
        if len(self._lists) != len(self.workers) or records != {len(self.graph)}:
            raise InvariantError(
                f"inv3: {len(self.workers)} workers with {len(self._lists)} lists, "
                f"{len(self.graph)} nodes with records of lengths {sorted(records)}"
            )
        arrived = sum(own.phase is Phase.ARRIVED for own in self._lists)
        if arrived != self._arrived:
            raise InvariantError(f"inv4: {arrived} workers have arrived, counted {self._arrived}")

    # --- steps of a rescheduling ----------------------------------------------------------------------------

    def _decide(self, now: float, read: Reader, fed: Iterable[int]) -> Ints:
        """Collect, read, place and, if the policy ranks all nodes in one go, rank; returns the worker of each node.

        Nothing but what was asked for has changed if this fails, so it can be done again.
        """
        self._collect(fed)
        self._apply_changes(now)
        if self._failure is not None:
            raise self._failure
        self._refresh(read)
        turn = self.round + 1
        self._view = self.matrix.view(now, turn, seed=self.config.seed, memory=self._memory)
        worker_of = self._place()
        # A policy that is not local ranks all nodes in one go; asking it once per worker would be that many times
        # the work.
        self._table = None if self.policy.local else self._priorities(self._view)
        self.round = turn
        return worker_of

    def _collect(self, fed: Iterable[int]) -> None:
        """Take from the workers what they ran: to the matrix, the policy's memory and the loop's own features."""
        columns = self.matrix.columns
        # No node runs now; a node is ranked for the case that it can run.
        for name, value in (("ready", 1.0), ("workers", 0.0), ("window_time", 0.0)):
            if name in columns:
                columns[name][:] = value
        for executed, refreshed in self._reports():
            ran = list(executed)
            self.matrix.note_ran(ran)
            self._fresh[ran] |= refreshed
            if "last_turn" in columns:
                columns["last_turn"][ran] = self.round
            if "window_time" in columns:
                columns["window_time"][ran] += list(executed.values())
            self._remember(ran)
        self.matrix.note_arrival(fed)

    def _reports(self) -> list[tuple[dict[int, float], bool]]:
        """({node that ran: seconds}, whether its independent features were read since) of every worker."""
        return [(own.report(), own.refreshed) for own in self._lists]

    def _remember(self, ran: list[int]) -> None:
        """Show the policy each node that ran, once a round."""
        if self._next_policy is not None or type(self.policy).remember is Policy.remember:
            return
        for node in ran:
            view = self.matrix.view(self._view.now, self.round, seed=self.config.seed, memory=self._memory)
            self._memory = self._ask(self.policy, self.policy.remember, view, node)

    def _apply_changes(self, now: float) -> None:
        for graph in self._next_graphs:
            self._move_to(graph, now)
            self._memory = None  # it may refer to nodes by their old numbers
        self._next_graphs.clear()
        if self._next_policy is not None:
            self.policy, self._memory, self._failure = self._next_policy, None, None
        self.placement = self._next_placement or self.placement
        self.config = self._next_config or self.config
        if self._next_workers is not None:
            self._employ(self._next_workers)
        self._next_policy = self._next_placement = self._next_config = self._next_workers = None

    def _move_to(self, graph: Graph, now: float) -> None:
        changed_edges = set(self.graph.edges) ^ set(graph.edges)
        old = self.matrix.regraph(graph)
        self._records.follow(old, now)
        self._fresh = _following(old, self._fresh, False)
        self._dealt_index = _following(old, self._dealt_index, -1)
        # A node that gains or loses a neighbour gains or loses a queue: its features are read again, as if it had run.
        touched = [graph.index[name] for edge in changed_edges for name in edge if name in graph.index]
        self.matrix.note_ran(touched)

    def _came_and_went(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self.graph is self._dealt_graph:
            return (), ()
        before = self._dealt_index.tolist()
        stayed = set(before)
        return (
            tuple(name for name, i in zip(self.graph.names, before, strict=True) if i < 0),
            tuple(name for i, name in enumerate(self._dealt_graph.names) if i not in stayed),
        )

    def _employ(self, workers: Workers) -> None:
        self._past = self._past.plus(own.counts for own in self._lists[len(workers) :])
        kept = self._lists[: len(workers)]
        hired = [Worklist(w, self._records, self.config) for w in range(len(kept), len(workers))]
        self._lists = kept + hired
        self._arrived = len(self._lists)
        for own in hired:
            own.phase = Phase.ARRIVED
        self.workers = workers

    def _refresh(self, read: Reader) -> None:
        """Selective update: what the workers have read in parallel is answered from the matrix."""
        some_fresh = bool(self._fresh.any())

        def read_the_rest(name: str, rows: Ints) -> Floats | Iterable[float]:
            if not (some_fresh and self.matrix.features[name].independent):
                self._values_read += len(rows)
                return read(name, rows)
            values = self.matrix.columns[name][rows]
            unread = ~self._fresh[rows]
            wanted = rows[unread]
            if len(wanted):
                values[unread] = np.fromiter(read(name, wanted), dtype=np.float64, count=len(wanted))
                self._values_read += len(wanted)
            return values

        self._values_full += self.matrix.refresh(read_the_rest).full
        self._fresh[:] = False

    def _place(self) -> Ints:
        if not len(self.graph):
            return np.empty(0, dtype=np.intp)
        return one_worker_each(self._ask(self.placement, lanes_of, self.placement, self._view, self.workers))

    def _priorities(self, view: FeatureView) -> Floats:
        if not len(view):
            return np.empty((0, 1))
        return as_table(self._ask(self.policy, priorities_of, self.policy, view))

    def _portions(self, view: FeatureView) -> Floats:
        return self._ask(self.policy, portions_of, self.policy, view)

    def _deal(self, worker_of: Ints) -> None:
        for own in self._lists:
            own.deal(np.flatnonzero(worker_of == own.worker), self.config)
        self._arrived = 0
        self._dealt_graph = self.graph
        self._dealt_index = np.arange(len(self.graph))

    # --- small questions ------------------------------------------------------------------------------------

    def _require(self, policy: Policy | None, placement: Placement | None) -> None:
        if policy is not None:
            vet(policy)
            self.matrix.require(policy.requires(), f"policy {policy.name!r}")
        if placement is not None:
            vet(placement)
            self.matrix.require(placement.needs, f"placement {placement.name!r}")

    def _forces(self) -> bool:
        """Delayed nodes are run so that execution-intrinsic features stay up to date: only if somebody reads any."""
        used = (*self.policy.requires(), *self.placement.needs)
        return any(self.matrix.features[name].intrinsic for name in used)

    def _patience(self) -> Floats:
        patience = self.matrix.columns.get("patience")
        return np.full(len(self.graph), math.inf) if patience is None else patience

    def _ask(self, whom: Policy | Placement, question: Callable[..., Answer], *about: object) -> Answer:
        try:
            return question(*about)
        except HeadgateError:
            raise
        except USER_ERRORS as error:
            let_pass(error)
            kind = "policy" if isinstance(whom, Policy) else "placement"
            raise UserCodeError(
                f"{kind} {whom.name!r} failed at the rescheduling after round {self.round}: "
                f"{type(error).__name__}: {said_by(error)}; correct it or replace it"
            ) from error


def _following(old: Ints, values: NDArray[Value], default: object) -> NDArray[Value]:
    """``values`` by former index, rearranged to the present one; ``default`` for new nodes."""
    rearranged = np.full(len(old), default, dtype=values.dtype)
    kept = old >= 0
    rearranged[kept] = values[old[kept]]
    return rearranged
