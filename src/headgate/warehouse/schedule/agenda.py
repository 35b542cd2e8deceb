"""The agenda of a running warehouse: what each table could do next, as the dispatch loop sees it.

Turns what nodes say is pending into features, and updates that have ended into the next things to do. Knows neither
threads nor Spark, and the time only as it is told. For one thread.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.core.dispatch import Dispatch
from headgate.core.errors import ParameterError
from headgate.core.explain import Explanation
from headgate.core.observe import TableColumns
from headgate.core.placement import Workers
from headgate.core.policies.classes import LIVE, URGENT, Layered
from headgate.core.policy import Policy
from headgate.core.trace import Layer
from headgate.warehouse.schedule.book import Book, Entry, NodeStatistics
from headgate.warehouse.schedule.cast import Cast
from headgate.warehouse.schedule.lag import ArrivalLog, waiting_since
from headgate.warehouse.schedule.trouble import Failure
from headgate.warehouse.updates.nodes import BackfillNode, DimensionNode, Job, Outcome, StreamNode, TableNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

if TYPE_CHECKING:
    from headgate.warehouse.run.runtime import RunOptions

#: sources are looked at so many times in a period, at least once a second
LOOKS_PER_PERIOD = 40
LONGEST_BETWEEN_LOOKS = 1.0
#: a table that wants the newest first takes so many periods at once, unless updates are chopped anyway
NEWEST_PERIODS = 10.0
#: placements go by costs, which are learned: tables are placed again after so many updates
PLACE_AGAIN_AFTER = 100
#: about how long a chunk of a backfill should take, in seconds: as long as a live update may have to wait for it
CHUNK_SECONDS = 1.0


@dataclass(slots=True)
class Release:
    """An update that is being made. ``planning`` are the seconds that went into choosing what it does."""

    index: int
    name: str
    table: str
    layer: Layer
    job: Job
    released: float
    gained: float
    planning: float = 0.0


class Agenda:
    """The nodes of one warehouse on one dispatch loop.

    Invariant: a node is ready in ``loop`` if and only if, when last looked at, it had something pending, was allowed to
    run, and no other node of its table was running (``_busy``).
    """

    def __init__(self, warehouse: OpenWarehouse, options: RunOptions, now: float, before: Agenda | None = None) -> None:
        """``before`` is the agenda of the same warehouse as it was declared until now: what it learned is kept."""
        self.warehouse = warehouse
        self._options = options
        self._cast = Cast(warehouse)
        self._names = self._cast.names
        self.graph = self._cast.graph
        self._columns = self._cast.matrix.columns
        self._table_columns = TableColumns(self._cast.matrix)
        self._book: Book = Book(self._cast.nodes, warehouse.spec, now, None if before is None else before._book)
        self._cast.fill(self._book, options.inheritance)
        policy, placement, workers = Layered(options.policy), options.placement, Workers.of(options.tracks)
        if before is not None:
            policy, placement, workers = before.policy, before.loop.placement, before.loop.workers
        self.policy: Layered = policy
        self.loop: Dispatch = Dispatch(self._cast.matrix, policy, placement, workers, history=64)
        self._busy: set[str] = set()
        self._released: dict[int, float] = {}
        #: {table somebody wants now: all nodes that it takes}
        self._urgent: dict[str, frozenset[int]] = {}
        self._updates = 0
        self._chunks: dict[str, float] = {}
        self._groups = self._cast.groups()
        self._logs = {n.name: ArrivalLog(n.freshness) for n in warehouse.nodes.values() if isinstance(n, StreamNode)}
        self._streams_above = {name: self._streams_of(index) for index, name in enumerate(warehouse.graph.names)}
        #: (when, node): sources to look at, and tables to try again
        self._wakes: list[tuple[float, int]] = []
        for index in range(len(self._names)):
            if isinstance(self._cast.node(index), StreamNode | DimensionNode):
                self._wake(index, now)
            else:
                self._refresh(index, now)

    def _streams_of(self, index: int) -> tuple[str, ...]:
        names = [self.graph.names[i] for i in sorted({index, *self.graph.ancestors(index)})]
        return tuple(name for name in names if name in self._logs)

    # --- looking --------------------------------------------------------------------------------------------

    def _wake(self, index: int, at: float) -> None:
        heapq.heappush(self._wakes, (at, index))

    def look(self, now: float) -> float:
        """Look at all that is due to be looked at; when to look again."""
        while self._wakes and self._wakes[0][0] <= now:
            _, index = heapq.heappop(self._wakes)
            self._refresh(index, now)
            node = self._cast.node(index)
            if isinstance(node, StreamNode | DimensionNode):
                between = self._cast.period(index) / LOOKS_PER_PERIOD
                self._wake(index, now + min(max(between, self._options.poll), LONGEST_BETWEEN_LOOKS))
        return self._wakes[0][0] if self._wakes else now + LONGEST_BETWEEN_LOOKS

    def _refresh(self, index: int, now: float) -> None:
        """Look at a node and write down what the policies should know of it."""
        name = self._names[index]
        entry = self._book.of(name)
        table = self._cast.table_of[name]
        allowed = table not in self._busy and entry.due(now) and not self._book.of(table).paused
        try:
            pending = self._cast.nodes[name].pending() if allowed else None
            entry.note = ""
        except Exception as error:  # a source that cannot be looked at; asked again at its next turn
            pending, entry.note = None, str(error)
        if name in self._logs and allowed:
            self._arrived(name, None if pending is None else pending.arrived, now)
        if pending is None:
            self._released.pop(index, None)
            self.loop.set_ready(index, False, now)
            return
        columns = self._table_columns
        gain = min(pending.seconds, self._most(index))
        released = self._released.setdefault(index, now)
        columns.set_cost(index, entry.cost.alpha, entry.cost.beta)
        columns.set_pending(index, pending.seconds, gain, max(1e-3, entry.cost.predict(gain)))
        columns.set_release(index, released, released if pending.arrived is None else pending.arrived)
        columns.set_next_release(index, released + self._cast.period(index))
        self.loop.set_ready(index, True, now)

    def _arrived(self, stream: str, since: float | None, now: float) -> None:
        log = self._logs[stream]
        if (log.pending_since is None) != (since is None):
            log.pending_since = since
            index = self.graph.index[stream]
            self._note_waiting([index, *self.graph.dependents(index)], now)
        log.pending_since = since

    def _note_waiting(self, nodes: Iterable[int], now: float) -> None:
        for index in nodes:
            name = self._names[index]
            streams = self._streams_above.get(name)
            if streams:
                since = waiting_since(self._cast.nodes[name].freshness, streams, self._logs)
                self._book.of(name).waiting(since, now)

    def _most(self, index: int) -> float:
        """How much event time an update of a node may take in."""
        name = self._names[index]
        node, period = self._cast.nodes[name], self._cast.period(index)
        if isinstance(node, BackfillNode):
            return self._chunks.get(node.of.name) or self._chunk(self._book.of(name), node.of.block_seconds)
        if self._options.chop < math.inf:
            return self._options.chop * period
        declared = node.spec if isinstance(node, TableNode | StreamNode) else None
        return NEWEST_PERIODS * period if declared is not None and declared.catch_up == "newest" else math.inf

    @staticmethod
    def _chunk(entry: Entry, block: float) -> float:
        if entry.cost.beta <= 0:
            return block
        return max(block, (CHUNK_SECONDS - entry.cost.alpha) / entry.cost.beta)

    # --- beginning and ending -------------------------------------------------------------------------------

    def begin(self, index: int, now: float) -> Release | None:
        """Make an update out of what a node has pending; None if there is nothing after all."""
        name = self._names[index]
        table = self._cast.table_of[name]
        released = self._released.pop(index, now)
        job = self._cast.nodes[name].begin(self._most(index))
        self.loop.set_ready(index, False, now)
        if job is None:
            return None
        entry = self._book.of(name)
        entry.longest_wait = max(entry.longest_wait, now - released)
        self._busy.add(table)
        for part in self._cast.parts[table]:
            self.loop.set_ready(part, False, now)
        gained = float(self._columns["freshness_delta"][index])
        return Release(index, name, table, self._cast.layer_of[name], job, released, gained)

    def companions(self, release: Release) -> list[int]:
        """Who could be updated along with a table: those of its group with the same sources that are ready."""
        if release.layer != "live":
            return []
        mates = self._groups.get(release.name, ())
        return [index for index in mates if index != release.index and index in self._released]

    def failed_to_begin(self, index: int, failure: Failure, now: float) -> tuple[str, str, Layer]:
        """An update could not be begun; its name, its table and its layer."""
        name = self._names[index]
        self._failed(index, failure)
        self.loop.set_ready(index, False, now)
        return name, self._cast.table_of[name], self._cast.layer_of[name]

    def _failed(self, index: int, failure: Failure) -> None:
        trouble = self._book.of(self._names[index]).trouble
        trouble.failed(failure)
        if not trouble.held:
            self._wake(index, trouble.next_try())

    def ended(
        self, release: Release, outcome: Outcome | None, failure: Failure | None, seconds: float, now: float
    ) -> None:
        """An update is done or has failed: look at what that makes possible."""
        node = self._cast.nodes[release.name]
        node.end(release.job, outcome)
        self._busy.discard(release.table)
        index = self.graph.index[release.table]
        if outcome is not None:
            self._book.of(release.name).made(outcome, release.gained, seconds, now)
            if isinstance(node, StreamNode) and outcome.arrived is not None:
                self._logs[release.name].loaded(outcome.arrived[0], outcome.freshness)
                if self._cast.has_learned(index):
                    self._cast.fill_periods()
                    self.loop.refresh_patience()
                    self._note_change_everywhere()
            if release.layer != "maintenance":
                self.warehouse.updated(release.table)
            if isinstance(node, BackfillNode) and node.of.rebuilds:
                self._book.of(release.table).trouble.resumed()  # it was built anew: what failed before is behind it
            self._updates += 1
            if not self._updates % PLACE_AGAIN_AFTER:
                self.loop.place_again()
        elif failure is not None:
            self._failed(release.index, failure)
        for part in self._cast.parts[release.table]:
            self._refresh(part, now)
        for dependent in self.graph.downstream[index]:
            for part in self._cast.parts[self._names[dependent]]:
                self._refresh(part, now)
        self._note_waiting([index, *self.graph.dependents(index)], now)
        self._settle_urgent(now)

    # --- what people change ---------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        self.policy = Layered(policy)
        self.loop.replace_policy(self.policy)

    def pause(self, table: str, now: float) -> None:
        self._book.of(table).paused = True
        self._refresh_parts(table, now)

    def resume(self, table: str, now: float) -> None:
        self._book.of(table).paused = False
        for part in self._cast.parts[table]:
            self._book.of(self._names[part]).trouble.resumed()
        self._refresh_parts(table, now)

    def set_priority(self, table: str, priority: float) -> None:
        self._book.of(table).priority = priority
        self._cast.fill_priorities(self._book, self._options.inheritance)
        self._note_change_everywhere()

    def _note_change_everywhere(self) -> None:
        for index in range(len(self._names)):
            self.loop.note_change(index)

    def backfill(self, table: str, first: int, last: int, chunk: float | None, now: float) -> None:
        node = self._cast.nodes[table]
        if not isinstance(node, TableNode):
            raise ParameterError(
                f"{table!r} is loaded from a source and cannot be computed again; backfill the tables built on it"
            )
        if chunk is not None:
            self._chunks[table] = chunk
        node.backfill(first, last)
        self._refresh_parts(table, now)

    def refresh_now(self, table: str, now: float) -> None:
        if self._book.of(table).paused:
            raise ParameterError(f"table {table!r} is paused; resume it first")
        index = self.graph.index[table]
        nodes = frozenset((index, *self.graph.ancestors(index)))
        for node in nodes:
            self._book.of(self._names[node]).trouble.resumed()
            self._columns["layer"][node] = URGENT
            self._refresh(node, now)
            self.loop.note_change(node)
        self._urgent[table] = nodes
        self._settle_urgent(now)

    def _settle_urgent(self, now: float) -> None:
        """Let go of what was wanted now and is done: nothing of it is ready or running."""
        for table, nodes in list(self._urgent.items()):
            if not any(n in self._released or self._names[n] in self._busy for n in nodes):
                del self._urgent[table]
                wanted = frozenset().union(*self._urgent.values())
                for node in nodes - wanted:
                    self._columns["layer"][node] = LIVE
                    self.loop.note_change(node)

    def _refresh_parts(self, table: str, now: float) -> None:
        for part in self._cast.parts[table]:
            self._refresh(part, now)

    # --- reports --------------------------------------------------------------------------------------------

    def statistics(self, now: float, running: Iterable[str]) -> tuple[NodeStatistics, ...]:
        periods = dict(zip(self._names, self._columns["period"].tolist(), strict=True))
        return self._book.statistics(now, running, periods)

    def explain(self, table: str, now: float) -> Explanation:
        return self.loop.explain(self.graph.index[table], now)
