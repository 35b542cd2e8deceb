"""The *dispatch* loop: whenever a worker is free or work appears, hand out the best node that placement allows.

This is how EdgeWise, the ordered paper and Golab et al. schedule. The logic is pure: an engine tells it facts
(``set_ready``, ``note_change``, ``finished``) and asks ``decide`` for instructions; clocks, threads and the work
itself are the engine's. Each pick goes to

1. the most overdue node of a lane with a free worker, if the guard strikes (at most once per ``decide``);
2. the best node by the policy among lanes with a free home worker, or a free spare one if the lane is aggressive;
3. the best node among the other lanes with a free spare worker: no node of that worker's home lanes can run now.

Between equals it is the turn of downstream nodes, then of the most pending, then of the name that sorts first. A start
carries the portion that the policy allows, also if it is the guard's: a whole backlog would keep everybody waiting.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

import numpy as np

from headgate.core.errors import USER_ERRORS, InvariantError, UserCodeError, let_pass, raise_users
from headgate.core.explain import Decision, DispatchExplanation, Ranked, ranked
from headgate.core.graph import Graph, Ints
from headgate.core.guard import Guard
from headgate.core.lane_workers import LaneWorkers
from headgate.core.loop import LoopStatistics, Reason, Start
from headgate.core.matrix import FeatureMatrix, FeatureView
from headgate.core.placement import Lane, Lanes, Placement, Workers, lanes_of
from headgate.core.policy import Policy, PolicyAnswers, answers_of, notes_of, portion_of, vet
from headgate.core.ranking import Key, ranking_for

#: the features that the loop itself keeps or reads; an engine's matrix must have them
LOOP_FEATURES = ("ready", "workers", "last_turn", "window_time", "max_workers", "patience")
#: what a policy is doing most of the time
_RANKING = "while ranking"
#: what a placement is shown that has placed none of these nodes yet
_NOTHING_PLACED = Lanes((), np.empty(0, dtype=np.intp))


@dataclass(frozen=True, slots=True)
class DispatchStatistics(LoopStatistics):
    """Counts, and the current state."""

    runnable: int
    free_workers: int


class Dispatch:
    """The state of the dispatch loop.

    A node is *runnable* if it is ready and fewer workers run it than ``max_workers`` allows.

    Invariants:
    1. ``_runnable`` holds all and only the runnable nodes; every one of them is watched by the guard if its patience
       is finite.
    2. A worker is free or has exactly one node in ``_node_on``, never both.
    3. ``columns["workers"][i]`` is the number of workers that have node i.
    4. Nothing but the methods of this class changes any of these.
    """

    def __init__(
        self,
        matrix: FeatureMatrix,
        policy: Policy,
        placement: Placement,
        workers: Workers,
        *,
        seed: int = 0,
        window: float = math.inf,
        history: int = 0,
        answers: PolicyAnswers | None = None,
        before: Dispatch | None = None,
    ) -> None:
        """``answers`` are those of the policy, if it was asked already. ``before`` has placed nodes of the same names
        until now, with the same placement."""
        matrix.require(LOOP_FEATURES, "the dispatch loop")
        self.matrix = matrix
        #: what the policy says of itself
        self.answers = self._answers_of(policy, answers)
        self.policy = policy
        self.placement = placement
        self.workers = workers
        self.turn = 0
        self.history: deque[Decision] = deque(maxlen=history)
        self._keeps_history = history > 0
        self._seed = seed
        self._window = window
        self._window_start = 0.0
        self._memory: object = None
        self._strikes = 0
        self._free: dict[int, None] = dict.fromkeys(range(len(workers)))
        self._node_on: dict[int, tuple[str, float]] = {}
        self._now = 0.0
        self._placed = _NOTHING_PLACED if before is None else before._placed_in(matrix.graph)
        self._adopt_graph()
        self._adopt_lanes(self._placed_by(placement))

    @property
    def graph(self) -> Graph:
        return self.matrix.graph

    # --- facts ----------------------------------------------------------------------------------------------

    def set_ready(self, node: int, ready: bool, now: float) -> None:
        """Say that a node can run now, or that it no longer can. Its features must be up to date."""
        self._now = now
        self._ready[node] = ready
        self._column_ready[node] = ready
        if ready and self._workers_on[node] < self._most[node]:
            if node not in self._runnable:
                self._runnable[node] = now
                self.guard.watch(node, now + self._patience[node])
            self._ranking.changed(node)
        elif not ready and node in self._runnable:
            self._drop(node)

    def note_change(self, node: int) -> None:
        """Say that features of a runnable node changed, so that it must be ranked again."""
        if node in self._runnable:
            self._ranking.changed(node)

    def finished(self, worker: int, now: float) -> None:
        """Say that the run of a worker's node has ended. ``set_ready`` says whether the node can run again."""
        self._now = now
        if worker not in self._node_on:
            raise InvariantError(f"worker {worker} is said to be done, but was given nothing to do")
        name, started = self._node_on.pop(worker)
        node = self.graph.index.get(name)
        if worker < len(self.workers):
            self._free[worker] = None
        if node is None:  # it was removed from the graph while it ran
            return
        self._roll_window(now)
        self._column_window[node] += now - max(started, self._window_start)
        self._workers_on[node] -= 1
        self._column_workers[node] = self._workers_on[node]
        if self._ready[node]:
            self.set_ready(node, True, now)

    # --- decisions ------------------------------------------------------------------------------------------

    def decide(self, now: float) -> list[Start]:
        """Assign nodes to free workers, best first; they count as running from now on."""
        self._now = now
        starts: list[Start] = []
        if not self._free or not self._runnable:
            return starts
        self._roll_window(now)
        guard_may_strike = True
        while self._free and self._runnable:
            view = self._view(now)
            pick = self._overdue_pick(now) if guard_may_strike and self.guard.watches else None
            reason: Reason = "guard" if pick else "policy"
            doing = _RANKING
            try:
                if pick is None:
                    self._ranking.prepare(view, self._runnable)
                    pick = self._best_pick()
                if pick is None:
                    break
                doing = "in portion"
                portion = portion_of(self.policy, view, pick[0]) if self.answers.cuts else math.inf
                start = Start(pick[0], self._lane_workers.worker_for(pick[1], self._free), reason, portion=portion)
                doing = "in remember"
                memory = self.policy.remember(view, start.node) if self.answers.remembers else self._memory
                doing = _RANKING
                if self._keeps_history:
                    self.history.append(self._record(start, view))
            except USER_ERRORS as error:
                let_pass(error)
                if starts:  # starts decided before must be returned; the policy fails again at the next decision
                    break
                self._policy_failed(error, doing)
            guard_may_strike = guard_may_strike and reason == "policy"
            self._take(start, view, memory)
            starts.append(start)
        return starts

    def allows(self, node: int, worker: int) -> bool:
        """Whether the placement lets a worker run a node, at home or as a spare one."""
        return self._lane_workers.may_serve(worker, self._lane_of[node])

    def joining(self, first: int, offered: Sequence[int], now: float) -> list[int]:
        """Of ``offered``, which wait and could share the job of ``first``, those that may by the policy."""
        if not offered:
            return []
        view = self._view(now)
        others = np.array([node for node in self._runnable if node != first], dtype=np.intp)
        try:
            said: object = self.policy.joining(view, np.array(offered, dtype=np.intp), others)
            # One more than it may name shows that it is wrong; an answer may never end.
            answer = [*islice(said, len(offered) + 1)] if isinstance(said, Iterable) else [said]
        except USER_ERRORS as error:
            self._policy_failed(error, "in joining")
        joining = [int(node) for node in answer if isinstance(node, (int, np.integer)) and node in offered]
        if len({*joining}) < len(answer):
            returned = f"more, from {answer} on" if len(answer) > len(offered) else answer
            raise UserCodeError(
                f"policy {self.answers.text!r}: joining must return some of the nodes that it is offered, each once; "
                f"it was offered {[*offered]} and returned {returned}: correct the policy or replace it"
            )
        return joining

    def _view(self, now: float) -> FeatureView:
        """What the policy is shown."""
        return FeatureView(self.matrix.shown, self.matrix.graph, now, self.turn, self._seed, self._memory)

    def _policy_failed(self, error: BaseException, doing: str = _RANKING) -> NoReturn:
        """Raise the error by the name that the user knows: a policy inside another one gives its own as its text."""
        raise_users(f"policy {self.answers.text!r} failed {doing}", error)

    def _overdue_pick(self, now: float) -> tuple[int, int] | None:
        best: tuple[float, int, int] | None = None
        best_lane = -1
        for lane in self._lane_workers.open_lanes(self._free, spare=True):
            overdue = self.guard.most_overdue(lane, now)
            if overdue is not None and (best is None or overdue < best):
                best, best_lane = overdue, lane
        return None if best is None else (best[2], best_lane)

    def _best_pick(self) -> tuple[int, int] | None:
        serving = self._lane_workers
        if serving.one_for_all:
            head = self._ranking.head(0)
            return None if head is None else (head[1], 0)
        first = self._best_of(serving.open_lanes(self._free, spare=False))
        return first or self._best_of(serving.open_lanes(self._free, spare=True))

    def _best_of(self, lanes: Iterable[int]) -> tuple[int, int] | None:
        best: tuple[Key, int] | None = None
        best_lane = -1
        for lane in lanes:
            head = self._ranking.head(lane)
            if head is not None and (best is None or head < best):
                best, best_lane = head, lane
        return None if best is None else (best[1], best_lane)

    def _take(self, start: Start, view: FeatureView, memory: object) -> None:
        node, worker = start.node, start.worker
        del self._free[worker]
        self._node_on[worker] = (self.matrix.graph.names[node], view.now)
        self._workers_on[node] += 1
        self._column_workers[node] = self._workers_on[node]
        self._column_turn[node] = self.turn
        self._memory = memory
        self.turn += 1
        self._strikes += start.reason == "guard"
        self._drop(node)
        if self._ready[node] and self._workers_on[node] < self._most[node]:
            self.set_ready(node, True, view.now)

    def _drop(self, node: int) -> None:
        del self._runnable[node]
        self.guard.release(node)
        self._ranking.drop(node)

    def _roll_window(self, now: float) -> None:
        if now >= self._window_start + self._window:
            self._column_window[:] = 0.0
            self._window_start = now
            for node in self._runnable:
                self._ranking.changed(node)

    # --- change while running -------------------------------------------------------------------------------

    def check(
        self, policy: Policy | None = None, placement: Placement | None = None, workers: Workers | None = None
    ) -> None:
        """Refuse what would be refused if it were asked for; nothing changes."""
        if policy is not None:
            self._answers_of(policy)
        if placement is not None:
            self._placed_by(placement)
        if workers is not None:
            self._lanes_from(placement or self.placement, workers)

    def replace_policy(self, policy: Policy) -> None:
        """Rank by another policy from the next decision on; one that cannot be used is refused, and nothing changes."""
        self.answers = self._answers_of(policy)
        self.policy = policy
        self._memory = None
        self._adopt_lanes(self._placed)

    def replace_placement(self, placement: Placement) -> None:
        """Place by another rule from the next decision on."""
        placed = self._placed_by(placement)
        self.placement = placement
        self._adopt_lanes(placed)

    def place_again(self) -> None:
        """Call the placement again, because the costs that it uses have changed."""
        self._adopt_lanes(self._lanes_from(self.placement, self.workers))

    def set_workers(self, workers: Workers) -> None:
        """Change the workers; one that is removed while it is busy finishes its run."""
        placed = self._lanes_from(self.placement, workers)
        self.workers = workers
        self._free = {w: None for w in range(len(workers)) if w not in self._node_on}
        self._adopt_lanes(placed)

    def regraph(self, graph: Graph) -> Ints:
        """Add or remove nodes; returns the old index of each node, -1 for a new one. New nodes are not ready."""
        ready = {self.matrix.graph.names[i] for i, is_ready in enumerate(self._ready) if is_ready}
        since = {self.matrix.graph.names[i]: when for i, when in self._runnable.items()}
        self._placed = self._placed_in(graph)
        old = self.matrix.regraph(graph)
        self._memory = None  # it may refer to nodes by their old numbers
        self._adopt_graph(ready, since)
        self.place_again()
        return old

    def refresh_patience(self) -> None:
        """Take over changed values of the columns ``patience`` and ``max_workers``."""
        self._patience[:] = self.matrix.columns["patience"].tolist()
        self._most[:] = [int(m) for m in self.matrix.columns["max_workers"]]
        for node, since in self._runnable.items():
            self.guard.watch(node, since + self._patience[node])
        for node, is_ready in enumerate(self._ready):
            allowed = is_ready and self._workers_on[node] < self._most[node]
            if allowed and node not in self._runnable:
                self.set_ready(node, True, self._now)
            elif not allowed and node in self._runnable:
                self._drop(node)

    def _adopt_graph(self, ready: Iterable[str] = (), since: dict[str, float] | None = None) -> None:
        columns, graph = self.matrix.columns, self.matrix.graph
        self._column_ready = columns["ready"]
        self._column_workers = columns["workers"]
        self._column_turn = columns["last_turn"]
        self._column_window = columns["window_time"]
        self._patience: list[float] = columns["patience"].tolist()
        self._most = [int(m) for m in columns["max_workers"]]
        self._tie: list[int] = graph.downstream_first.tolist()
        self._ready = [False] * len(graph)
        for name in ready:
            if name in graph.index:
                self._ready[graph.index[name]] = True
        self._workers_on = self._count_workers()
        self._column_workers[:] = self._workers_on
        #: {runnable node: since when}
        self._runnable: dict[int, float] = {
            graph.index[name]: when for name, when in (since or {}).items() if name in graph.index
        }

    def _count_workers(self) -> list[int]:
        """How many workers run each node; those that run a node that was removed count for none."""
        index = self.graph.index
        count = [0] * len(index)
        for name, _ in self._node_on.values():
            if name in index:
                count[index[name]] += 1
        return count

    def _answers_of(self, policy: Policy, answers: PolicyAnswers | None = None) -> PolicyAnswers:
        answers = answers or answers_of(policy)
        self.matrix.require(answers.requires, f"policy {policy.name!r}")
        return answers

    def _placed_in(self, graph: Graph) -> Lanes:
        """What is placed, for the nodes of another graph: those of the same names stay where they are."""
        index = self.graph.index
        return self._placed.renumbered(np.array([index.get(name, -1) for name in graph.names], dtype=np.intp))

    def _placed_by(self, placement: Placement) -> Lanes:
        vet(placement)
        self.matrix.require(placement.needs, f"placement {placement.name!r}")
        return self._lanes_from(placement, self.workers)

    def _lanes_from(self, placement: Placement, workers: Workers) -> Lanes:
        try:
            # What it has placed before lets a placement avoid changing its mind at every small change of costs.
            own = placement is self.placement or placement == self.placement
            view = self.matrix.view(self._now, self.turn, seed=self._seed, memory=self._placed if own else None)
            return lanes_of(placement, view, workers)
        except USER_ERRORS as error:
            raise_users(f"placement {placement.name!r} failed", error)

    def _adopt_lanes(self, placed: Lanes) -> None:
        self._placed = placed
        self._lanes: tuple[Lane, ...] = placed.lanes
        self._lane_of: list[int] = placed.of.tolist()
        count = len(self._lanes)
        self._lane_workers = LaneWorkers(self._lanes, len(self.workers))
        graph = self.matrix.graph
        self.guard = Guard(self._lane_of, count, self._tie)
        is_local, runs = self.answers.local, self._runnable.__contains__
        self._ranking = ranking_for(self.policy, is_local, placed.of, count, graph, runs)
        for node, since in self._runnable.items():
            self.guard.watch(node, since + self._patience[node])
            self._ranking.changed(node)

    # --- reports --------------------------------------------------------------------------------------------

    def queue(self, now: float) -> tuple[Ranked, ...]:
        """All nodes that could run at this moment, best first by the policy."""
        view = self._view(now)
        try:
            return ranked(view, self.policy, self._runnable) if self._runnable else ()
        except USER_ERRORS as error:
            self._policy_failed(error)

    def explain(self, node: int, now: float) -> DispatchExplanation:
        """Why this node runs or does not run at this moment."""
        name = self.graph.names[node]
        waits = node in self._runnable
        ranking = self.queue(now) if waits else ()
        view = self._view(now)
        doing = "in portion"
        try:
            portion = portion_of(self.policy, view, node) if waits and self.answers.cuts else math.inf
            doing = "in notes"
            notes = notes_of(self.policy, view, node) if waits else ()
        except USER_ERRORS as error:
            self._policy_failed(error, doing)
        place = next((i for i, entry in enumerate(ranking) if entry.name == name), None)
        return DispatchExplanation(
            node=name,
            now=now,
            policy=self.answers.text,
            running_on=tuple(sorted(w for w, (busy_with, _) in self._node_on.items() if busy_with == name)),
            place=None if place is None else place + 1,
            priority=() if place is None else ranking[place].priority,
            ahead=ranking[: place or 0],
            lane=self._lanes[self._lane_of[node]],
            busy={w: busy_with for w, (busy_with, _) in self._node_on.items()},
            guard_deadline=self.guard.deadline(node),
            notes=notes,
            portion=portion,
        )

    def _record(self, start: Start, view: FeatureView) -> Decision:
        ranking = ranked(view, self.policy, self._runnable)
        name = view.graph.names[start.node]
        return Decision(view.turn, view.now, name, start.worker, start.reason, self.answers.text, ranking)

    def statistics(self) -> DispatchStatistics:
        return DispatchStatistics(
            decisions=self.turn,
            starts={"policy": self.turn - self._strikes, "tie": 0, "forced": 0, "guard": self._strikes},
            nodes=len(self.graph),
            workers=len(self.workers),
            runnable=len(self._runnable),
            free_workers=len(self._free),
        )

    def validate(self) -> None:
        """Check the invariants in the docstring of the class."""
        for node in range(len(self.matrix.graph)):
            should = self._ready[node] and self._workers_on[node] < self._most[node]
            if should != (node in self._runnable):
                raise InvariantError(f"inv1: node {node} runnable={should}, but listed={node in self._runnable}")
            if should and self._patience[node] < math.inf and self.guard.deadline(node) == math.inf:
                raise InvariantError(f"inv1: node {node} is runnable but not watched by the guard")
        if set(self._free) & set(self._node_on):
            raise InvariantError(f"inv2: workers free and busy: {sorted(set(self._free) & set(self._node_on))}")
        if not np.array_equal(self._count_workers(), self._column_workers):
            raise InvariantError("inv3: the column 'workers' does not count the workers on each node")
