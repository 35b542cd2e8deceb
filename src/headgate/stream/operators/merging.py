"""Operators with several inputs: branches of one source that meet again, and streams of different sources."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.operators.operator import ANY_NUMBER, Answer, PacketOperator, at_packet, send_when_room
from headgate.stream.packet import Ints, Packet, empty_batch
from headgate.stream.reorder import ReorderBuffer
from headgate.stream.spec import EventTime


class _InputsOperator(PacketOperator):
    """An operator with a queue for each input."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: by input: packets, and when they came
        self._queues: tuple[deque[tuple[Packet, float]], ...] = tuple(deque() for _ in self.spec.inputs)

    def has_room(self, port: int) -> bool:
        # Each input by itself: one that is ahead must not keep out the one that everybody waits for.
        return len(self._queues[port]) < self.capacity

    def head_arrival(self) -> float:
        return min((queue[0][0].first_arrival for queue in self._queues if queue), default=math.inf)

    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        self._count_entered(packet, now)
        self._queues[port].append((packet, now))
        return self._may_run()

    @abstractmethod
    def _may_run(self) -> bool:
        """Whether the packet that has just come may be what the operator was waiting for."""


class MergeOperator(_InputsOperator):
    """Takes the packets of one serial number from all branches and puts their rows together, by any worker."""

    max_workers = ANY_NUMBER

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._outlet: ReorderBuffer[Answer] = self.query.reorder_buffer(self.deliver)
        self._ahead = min(self.capacity, self._outlet.size)
        self._lock = Lock()

    def has_input(self) -> bool:
        try:
            heads = [queue[0][0].serial for queue in self._queues]
        except IndexError:
            return False
        return heads[0] < self._outlet.next + self._ahead

    def _may_run(self) -> bool:
        return all(self._queues)

    def _take(self) -> list[Packet] | None:
        with self._lock:
            if not all(self._queues):
                return None
            heads = [queue.popleft() for queue in self._queues]
        for packet, entered in heads:
            self._count_taken(packet, entered)
        return [packet for packet, _ in heads]

    def _step(self) -> tuple[int, int] | None:
        packets = self._take()
        if packets is None:
            return None
        answer = self.answer(self._merge(packets))
        now = self.clock()
        for _ in packets:
            self.counters.done(0, now)
        send_when_room(self._outlet, packets[0].serial, answer, self.query)
        return max(sum(packet.rows for packet in packets), 1), answer.packet.rows

    @staticmethod
    def _merge(packets: list[Packet]) -> Packet:
        first, batches = packets[0], [packet.batch for packet in packets]
        if first.last:  # what is left at the end comes branch by branch
            return first.answered(pa.concat_batches(batches), None, False)
        try:
            batch, origin = _by_origin(batches, [packet.origins() for packet in packets])
        except BaseException as error:
            raise at_packet(error, first.serial) from None
        return Packet(
            first.serial, batch, first.first_arrival, first.last_arrival, origin, source_rows=first.source_rows
        )


def _by_origin(batches: Sequence[pa.RecordBatch], origins: Sequence[Ints]) -> tuple[pa.RecordBatch, Ints]:
    """Rows of several branches by the row they come from, those of an earlier branch first."""
    origin = np.concatenate(origins)
    order = np.argsort(origin, kind="stable")
    return pa.concat_batches(batches).take(pa.array(order)), origin[order]


class _UnionInput:
    """Rows of one input that have come and cannot go on yet."""

    __slots__ = ("batches", "ended", "latest", "times")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.times: list[Ints] = []
        self.latest: int | None = None
        self.ended = False

    def bound(self) -> float:
        """No earlier time can come from here."""
        if self.ended:
            return math.inf
        return -math.inf if self.latest is None else self.latest

    def release(self, bound: float, inclusive: bool) -> tuple[list[pa.RecordBatch], list[Ints]]:
        """Rows with a time below ``bound``, or equal to it if ``inclusive``."""
        batches: list[pa.RecordBatch] = []
        all_times: list[Ints] = []
        while self.batches:
            batch, times = self.batches[0], self.times[0]
            count = (
                len(times)
                if bound == math.inf
                else int(np.searchsorted(times, bound, "right" if inclusive else "left"))
            )
            batches.append(batch.slice(0, count))
            all_times.append(times[:count])
            if count < len(times):
                self.batches[0], self.times[0] = batch.slice(count), times[count:]
                break
            del self.batches[0], self.times[0]
        return batches, all_times


class UnionOperator(_InputsOperator):
    """Makes one stream of several, in the order of event time.

    Serial numbers of different sources have nothing to do with each other, so event time decides: rows with equal times
    come in the order of inputs, and rows of one input stay as they are. A row can go on as soon as no earlier one can
    come from any input. So an input that is silent holds up the others, and the sequence of rows does not depend on
    which input came first. Packets leave under serial numbers of their own.

    It takes a packet only from the input that holds the others up, so what is kept stays small however far one input is
    ahead of another. Inputs that come from one operator are the exception: holding back the one that is ahead would
    hold back that operator, and with it the one that is behind; so they are not bounded here.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inputs = [_UnionInput() for _ in self.spec.inputs]
        self._serial = 0
        self._oldest = math.inf
        self.bounded = True

    def _holder(self) -> int:
        """The input that holds the others up: one that has brought nothing yet, else the one that is behind."""
        return min(range(len(self._inputs)), key=lambda port: (self._inputs[port].bound(), port))

    def has_input(self) -> bool:
        return bool(self._queues[self._holder()])

    def has_room(self, port: int) -> bool:
        return not self.bounded or super().has_room(port)

    def _may_run(self) -> bool:
        return True

    def _step(self) -> tuple[int, int] | None:
        port = self._holder()
        try:
            packet, entered = self._queues[port].popleft()
        except IndexError:
            return None
        self._count_taken(packet, entered)
        try:
            rows = self._process(packet, self._inputs[port])
        except BaseException as error:
            raise at_packet(error, packet.serial) from None
        self.counters.done(rows, self.clock())
        return max(packet.rows, 1), rows

    def _process(self, packet: Packet, source: _UnionInput) -> int:
        """Take in a packet and send all rows that can go on; their number."""
        if packet.rows:
            assert self.spec.by is not None
            times, source.latest = EventTime(self.spec.by).of_rows(packet.batch, source.latest)
            source.batches.append(packet.batch)
            source.times.append(times)
            self._oldest = min(self._oldest, packet.first_arrival)
        source.ended = source.ended or packet.last
        batch = self._release(packet.batch.schema)
        last = all(each.ended for each in self._inputs)
        if not batch.num_rows and not last:
            return 0
        first = min(self._oldest, packet.first_arrival)
        if not any(each.batches for each in self._inputs):
            self._oldest = math.inf
        self._send(Packet(self._serial, batch, first, packet.last_arrival, last=False, source_rows=batch.num_rows))
        if last:
            self._send(Packet(self._serial, batch.slice(0, 0), packet.first_arrival, packet.last_arrival, last=True))
        return int(batch.num_rows)

    def _send(self, packet: Packet) -> None:
        self._serial += 1
        self.deliver(self.answer(packet))

    def _release(self, schema: pa.Schema) -> pa.RecordBatch:
        """All rows that no earlier row can come before."""
        holder = self._holder()
        bound = self._inputs[holder].bound()
        batches: list[pa.RecordBatch] = []
        times: list[Ints] = []
        if bound != -math.inf:
            for port, each in enumerate(self._inputs):
                input_batches, input_times = each.release(bound, port <= holder)
                batches += input_batches
                times += input_times
        if not batches:
            return empty_batch(schema)
        # Inputs stand one after the other, so a stable sort by time leaves ties in the order of inputs.
        order = np.argsort(np.concatenate(times), kind="stable")
        return pa.concat_batches(batches).take(pa.array(order))
