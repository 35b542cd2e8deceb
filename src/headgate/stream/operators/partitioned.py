"""Operators with a state for each bucket of keys: at most one worker in a bucket, any number of buckets at once.

A packet is split into parts by bucket when it is sent (``prepare``). The parts are queued by one of three schemes (see
``bucket_queues``). The worker that finishes the last part of a packet puts the outputs together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import InvariantError
from headgate.stream.atomic import AtomicInt
from headgate.stream.kernel import Output, Part, State
from headgate.stream.operators.operator import Answer, Operator, at_packet, send_when_room
from headgate.stream.packet import Ints, Packet
from headgate.stream.partition import Split, combine_flushed, combine_outputs
from headgate.stream.reorder import ReorderBuffer


class Assembly:
    """A packet whose parts are being processed: of each part the bucket, the part itself, and what came of it."""

    __slots__ = ("buckets", "entered", "flushed", "left", "outputs", "packet", "parts", "split", "started", "times")

    def __init__(self, packet: Packet, split: Split, buckets: tuple[int, ...], times: Ints | None, now: float) -> None:
        self.packet = packet
        self.split = split
        self.buckets = buckets
        self.times = times
        self.entered = now
        self.started = AtomicInt()
        self.left = AtomicInt(len(buckets))
        self.outputs: list[Output | None] = [None] * len(buckets)
        self.parts: list[Part | None] = [None] * len(buckets)
        self.flushed: list[Output | None] = [None] * len(buckets)


class PartitionedOperator(Operator):
    """Keeps a state for each bucket and hands it the bucket's parts, in order.

    Invariants, beside those of the queues and of the reordering buffer:
    1. Every packet has at least one part, and its answer is sent by the worker that finishes the last of them.
    2. The state of a bucket is used by the worker that has the bucket, and by nobody else.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.buckets = self.max_workers = self.spec.buckets or self.query.buckets
        self.states: list[State | None] = [None] * self.buckets
        self._queues = self.query.bucket_queues(self.buckets)
        self._outlet: ReorderBuffer[Answer] = self.query.reorder_buffer(self.deliver)
        self._latest: int | None = None
        self._accepted = 0
        #: assemblies that no worker has begun: policies ask when the oldest of them arrived
        self._not_begun: deque[Assembly] = deque()

    # --- coming in ------------------------------------------------------------------------------------------

    def prepare(self, packet: Packet) -> Split:
        assert self.spec.partitioning is not None
        return Split.of(packet.batch, self.spec.partitioning, self.buckets)

    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        split: Split = prepared
        buckets = split.buckets
        times = None
        if self.spec.time is not None and packet.rows:
            before = self._latest
            times, self._latest = self.spec.time.of_rows(packet.batch, before)
            if self._latest is not None and self.spec.time.crosses(before, self._latest):
                buckets = tuple(range(self.buckets))
        if packet.last:
            buckets = tuple(range(self.buckets))
            times = self.query.time_at_end(self.spec, times)
        self._accepted = packet.serial + 1
        assembly = Assembly(packet, split, buckets or (0,), times, now)
        self._count_entered(packet, now)
        self._not_begun.append(assembly)
        for place, bucket in enumerate(assembly.buckets):
            self._queues.add(bucket, (assembly, place))
        # Looked at afterwards: a worker that takes what was there before looks again when it has done with that.
        return len(self._queues) <= len(assembly.buckets)

    def has_input(self) -> bool:
        return self._queues.can_take()

    def has_room(self, port: int) -> bool:
        # All that was accepted and has not left counts, or a worker that is stuck in one bucket would let the others
        # pile up.
        return self._accepted - self._outlet.next < self.capacity

    def head_arrival(self) -> float:
        try:
            return self._not_begun[0].packet.first_arrival
        except IndexError:
            return math.inf

    # --- working --------------------------------------------------------------------------------------------

    def _work(self, most: int) -> tuple[int, int]:
        rows_out = 0

        def operate(bucket: int, item: tuple[Assembly, int]) -> int:
            nonlocal rows_out
            part_rows, part_rows_out = self._operate(bucket, *item)
            rows_out += part_rows_out
            return part_rows

        rows_in = self._queues.consume(operate, most)
        return rows_in, rows_out

    def _operate(self, bucket: int, assembly: Assembly, place: int) -> tuple[int, int]:
        packet = assembly.packet
        if not assembly.started.fetch_add(1):
            self._count_begun(assembly)
        try:
            part = self._part(assembly, bucket)
            state = self.states[bucket]
            if state is None:
                state = self.states[bucket] = self.new_state()
            output = state.process(part)
            assembly.parts[place], assembly.outputs[place] = part, output
            if packet.last and self.query.flushes:
                assembly.flushed[place] = state.flush()
            rows_out = output.batch.num_rows
            if assembly.left.fetch_add(-1) == 1:
                self._finish(assembly)
        except BaseException as error:
            raise at_packet(error, packet.serial) from None
        return max(len(part.rows), 1), rows_out

    def _count_begun(self, assembly: Assembly) -> None:
        self._count_taken(assembly.packet, assembly.entered)
        try:  # assemblies are mostly begun in order; what was begun out of order is dropped when it comes to the head
            while self._not_begun[0].started.value:
                self._not_begun.popleft()
        except IndexError:
            pass

    @staticmethod
    def _part(assembly: Assembly, bucket: int) -> Part:
        split, batch = assembly.split, assembly.packet.batch
        try:
            where = split.buckets.index(bucket)
        except ValueError:
            return Part(batch.slice(0, 0), np.empty(0, dtype=np.int64), assembly.times)
        if len(split.buckets) == 1:
            return Part(batch, split.rows, assembly.times)
        rows = split.rows_of(where)
        return Part(batch.take(pa.array(rows)), rows, assembly.times)

    def _finish(self, assembly: Assembly) -> None:
        packet = assembly.packet
        outputs = [output for output in assembly.outputs if output is not None]
        output = combine_outputs(outputs, [part for part in assembly.parts if part is not None])
        batch = output.batch
        if packet.last and self.query.flushes:
            batch = concatenate(batch, combine_flushed([each for each in assembly.flushed if each is not None]))
        answer_packet = packet.answered(batch, output.parents, self.tracked)
        self.counters.done(answer_packet.rows, self.clock())
        send_when_room(self._outlet, packet.serial, self.answer(answer_packet, output.rejected), self.query)

    # --- for those who keep states from one run to the next -------------------------------------------------

    def new_state(self) -> State:
        assert self.spec.state is not None
        return self.spec.state()

    def take_states(self, states: Sequence[State]) -> None:
        """Go on from these states, one for each bucket; before anything runs."""
        if self.buckets != len(states):
            raise InvariantError(f"operator {self.name} has {self.buckets} buckets; got {len(states)} states")
        self.states = list(states)

    def all_states(self) -> list[State]:
        """The state of every bucket, after the query has ended."""
        return [self.new_state() if state is None else state for state in self.states]


def concatenate(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    """Two batches one after the other, without a copy if one has no rows."""
    if not first.num_rows:
        return second
    return first if not second.num_rows else pa.concat_batches([first, second])
