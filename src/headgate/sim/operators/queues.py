"""The plumbing: nodes, the queues between them, and how tuples move.

A queue holds *runs* of tuples, (count, stimulus): so many tuples that go back to what came into the system at that
time. A thousand tuples that came together are one run, so the cost of moving tuples does not grow with their number.

What a node makes of its input is exact: after n inputs it has made ``floor(n * selectivity)`` outputs, whatever the
batches were. So the room that a batch will need downstream is known when it starts, is taken from the queues then,
and no queue ever exceeds its capacity.

Nothing here decides who runs, and nothing knows workers: executors ``take`` and ``deliver``. They learn through
``changed`` of every node whose queue or whose right to run may have changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random

from headgate.core import InvariantError
from headgate.sim.operators.node import QueryTally, Run, SimulatedNode, Tally
from headgate.sim.operators.scenario import QueryModel

#: keeps a product such as 100 * 0.29 = 28.999999999999996 from losing a tuple
_ROUNDING = 1e-9


class TupleBatch:
    """Input that a worker has taken from a node, ``input_count`` tuples, and the ``outputs`` that they become,
    ``output_count`` tuples in all."""

    __slots__ = ("input_count", "node", "output_count", "outputs")

    def __init__(self, node: SimulatedNode, input_count: int, outputs: list[Run], output_count: int) -> None:
        self.node = node
        self.input_count = input_count
        self.outputs = outputs
        self.output_count = output_count


class Network:
    """All nodes, and the tuples on their way through them.

    Invariants, besides those of every ``SimulatedNode``:
    6. ``present`` counts all tuples: outside, in queues, and taken but not delivered.
    7. ``total`` and the tallies of queries and classes count all and only the tuples in queues.
    """

    def __init__(self, changed: Callable[[SimulatedNode], None]) -> None:
        self._changed = changed
        #: {name: node}; all and only the nodes of queries that are there
        self.nodes: dict[str, SimulatedNode] = {}
        #: {query name: tally}, also of queries that have gone
        self.queries: dict[str, QueryTally] = {}
        self.classes: dict[int, Tally] = {}
        self.total = Tally()
        self.present = 0
        self.arrived = 0
        self.discarded = 0
        #: finished runs of nodes, from the very beginning, also of queries that have gone
        self.runs = 0

    # --- queries come and go --------------------------------------------------------------------------------

    def add(self, query: QueryModel, seed: int, now: float) -> list[SimulatedNode]:
        """The new nodes of a query, joined to each other."""
        tally = self.queries.setdefault(query.name, QueryTally(query))
        tally.describe(query)
        tallies = (tally, self.classes.setdefault(query.importance_class, Tally()), self.total)
        nodes: dict[str, SimulatedNode] = {}
        for operator, rate, period in zip(query.operators, query.rates(), query.periods(), strict=True):
            name = query.node_name(operator.name)
            # seeded by name, so that a query draws the same numbers whichever other queries there are
            node = SimulatedNode(operator, name, tally, tallies, Random(f"{seed} work {name}"))
            node.declared_rate, node.period = rate, period
            node.forget(now)
            nodes[operator.name] = node
        for operator in query.operators:
            reader = nodes[operator.name]
            reader.upstream = tuple(nodes[name] for name in operator.inputs)
            reader.need = max((math.ceil(node.selectivity) for node in reader.upstream), default=1) or 1
            for node in reader.upstream:
                node.downstream = (*node.downstream, reader)
        self.nodes.update((node.name, node) for node in nodes.values())
        return list(nodes.values())

    def remove(self, nodes: Iterable[SimulatedNode], now: float) -> None:
        """Take nodes out; what waits for them is discarded now, what is being processed when that ends."""
        for node in nodes:
            lost = node.length + node.outside_length
            self.discarded += lost
            self.present -= lost
            self._shrink(node, node.length, now)
            node.queue.clear()
            node.outside.clear()
            node.outside_length = 0
            node.removed = True
            del self.nodes[node.name]

    # --- tuples move ----------------------------------------------------------------------------------------

    def arrive(self, node: SimulatedNode, count: int, now: float) -> None:
        """Tuples come to a source from outside."""
        self.arrived += count
        self.present += count
        node.last_arrival = now
        if node.outside_length or count > node.room:
            node.outside_area += node.outside_length * (now - node.outside_since)
            node.outside_since = now
            node.outside.append((count, now))
            node.outside_length += count
            if node.room:
                self._let_in(node, now)
                self._changed(node)
            return
        self._enqueue(node, ((count, now),), count, now)
        node.room -= count
        self._changed(node)

    def take(self, node: SimulatedNode, wanted: int, now: float) -> TupleBatch:
        """Begin a batch of up to ``wanted`` tuples; room for its outputs is kept free until it is delivered.

        The node must have input and must not be blocked.
        """
        taken, output_count = self._fitting(node, min(wanted, node.length))
        self._shrink(node, taken, now)
        outputs = self._consume(node, taken)
        node.running += 1
        node.room += taken
        node.waiting_since = now if node.length else math.inf
        if node.outside_length:
            self._let_in(node, now)
        if output_count:
            for reader in node.downstream:
                reader.room -= output_count
                if not reader.tight and reader.room < reader.need:
                    self._tighten(reader)
        if node.tight and node.room >= node.need:
            self._loosen(node)
        self._changed(node)
        return TupleBatch(node, taken, outputs, output_count)

    def deliver(self, batch: TupleBatch, now: float) -> None:
        """End a batch: its outputs go to the queues downstream, or out of the system."""
        node = batch.node
        output_count = batch.output_count
        node.running -= 1
        node.completed += batch.input_count
        node.delivered += output_count
        self.present -= batch.input_count
        if node.removed:
            self.discarded += batch.input_count
            return
        if not (node.length or node.running):
            node.empty_since = now
        if not node.upstream:
            node.tally.ingested += batch.input_count
        if not output_count:
            return
        if not node.downstream:
            self._record(node.tally, batch, now)
            return
        for reader in node.downstream:
            self._enqueue(reader, batch.outputs, output_count, now)
            self.present += output_count
            self._changed(reader)

    def count_run(self, node: SimulatedNode) -> None:
        """A worker is done with a node for this time."""
        node.runs += 1
        self.runs += 1

    def _record(self, tally: QueryTally, batch: TupleBatch, now: float) -> None:
        tally.results += batch.output_count
        add = tally.latency.add
        for count, stimulus in batch.outputs:
            add(now - stimulus, count)
        # a batch comes from the head of a queue, but where streams meet the head need not be the oldest
        oldest = min(stimulus for _, stimulus in batch.outputs)
        tally.recent_max = max(tally.recent_max, now - oldest)

    def _fitting(self, node: SimulatedNode, wanted: int) -> tuple[int, int]:
        """How many of ``wanted`` inputs can be taken so that their outputs fit, and how many outputs that makes."""
        before = node.produced
        output_count = math.floor((node.consumed + wanted) * node.selectivity + _ROUNDING) - before
        if not node.downstream:
            return wanted, output_count
        room = min(reader.room for reader in node.downstream)
        if output_count <= room:
            return wanted, output_count
        taken = math.floor((before + room + 1) / node.selectivity) - node.consumed + 1
        taken = max(min(taken, wanted), 1)
        while (output_count := math.floor((node.consumed + taken) * node.selectivity + _ROUNDING) - before) > room:
            taken -= 1
        if taken < 1:
            raise InvariantError(f"inv3: node {node.name} was run without room for its outputs")
        return taken, output_count

    def _consume(self, node: SimulatedNode, count: int) -> list[Run]:
        """Take ``count`` tuples off the head; an output has the stimulus of the input that completed it."""
        queue, selectivity, floor = node.queue, node.selectivity, math.floor
        consumed, produced = node.consumed, node.produced
        outputs: list[Run] = []
        stimulus = 0.0
        while count:
            length, stimulus = queue[0]
            if length <= count:
                queue.popleft()
            else:
                queue[0] = (length - count, stimulus)
                length = count
            count -= length
            consumed += length
            output_count = floor(consumed * selectivity + _ROUNDING) - produced
            if output_count:
                outputs.append((output_count, stimulus))
                produced += output_count
        node.consumed, node.produced = consumed, produced
        node.newest_taken = max(node.newest_taken, stimulus)
        return outputs

    def _enqueue(self, node: SimulatedNode, runs: Sequence[Run], count: int, now: float) -> None:
        self._grow(node, count, now)
        queue = node.queue
        if queue and queue[-1][1] == runs[0][1]:
            queue[-1] = (queue[-1][0] + runs[0][0], runs[0][1])
            queue.extend(runs[1:])
        else:
            queue.extend(runs)

    def _let_in(self, node: SimulatedNode, now: float) -> None:
        """Fill a source's queue from outside, as far as there is room."""
        node.outside_area += node.outside_length * (now - node.outside_since)
        node.outside_since = now
        let_in = min(node.room, node.outside_length)
        node.outside_length -= let_in
        node.room -= let_in
        left = let_in
        runs: list[Run] = []
        while left:
            count, stimulus = node.outside[0]
            if count <= left:
                node.outside.popleft()
            else:
                node.outside[0] = (count - left, stimulus)
                count = left
            left -= count
            runs.append((count, stimulus))
        self._enqueue(node, runs, let_in, now)

    def _grow(self, node: SimulatedNode, count: int, now: float) -> None:
        """Count tuples into a queue."""
        length = node.length
        if length:
            node.area += length * (now - node.since)
        else:
            node.waiting_since = now
            if node.empty_since <= now:
                node.empty_time += now - node.empty_since
                node.empty_since = math.inf
        node.since = now
        node.length = length = length + count
        node.peak = max(node.peak, length)
        for tally in node.tallies:
            tally.queued = queued = tally.queued + count
            tally.peak = max(tally.peak, queued)

    def _shrink(self, node: SimulatedNode, count: int, now: float) -> None:
        """Count tuples out of a queue."""
        node.area += node.length * (now - node.since)
        node.since = now
        node.length -= count
        for tally in node.tallies:
            tally.queued -= count

    def _tighten(self, reader: SimulatedNode) -> None:
        reader.tight = True
        for node in reader.upstream:
            node.blocked += 1
            if node.blocked == 1:
                self._changed(node)

    def _loosen(self, reader: SimulatedNode) -> None:
        reader.tight = False
        for node in reader.upstream:
            node.blocked -= 1
            if not node.blocked:
                self._changed(node)

    # --- measuring ------------------------------------------------------------------------------------------

    def forget(self, now: float) -> None:
        """Measuring begins now."""
        for tally in (self.total, *self.classes.values(), *self.queries.values()):
            tally.peak = tally.queued
        for query in self.queries.values():
            query.forget()
        for node in self.nodes.values():
            node.forget(now)

    def settle(self, now: float) -> None:
        """Bring all running sums up to ``now``."""
        for node in self.nodes.values():
            self._count_up(node, now)

    def _count_up(self, node: SimulatedNode, now: float) -> None:
        node.area += node.length * (now - node.since)
        node.since = now
        node.outside_area += node.outside_length * (now - node.outside_since)
        node.outside_since = now
        if node.empty_since <= now:
            node.empty_time += now - node.empty_since
            node.empty_since = now
