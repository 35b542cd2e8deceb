"""The operator where streams of different sources become one, in the order of event time.

Serial numbers of different sources have nothing to do with each other, so event time decides: rows with equal times
come in the order of inputs, and rows of one input stay as they are. A row can go on as soon as no earlier one can come
from any input; so an input that is silent holds up the others, and the sequence of rows does not depend on who came
first.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.operators.operator import Operator, at_packet
from headgate.stream.operators.partitioned import event_times
from headgate.stream.packet import Ints, Packet


class _Input:
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


class UnionOperator(Operator):
    """Keeps what came too early, and sends packets under serial numbers of its own.

    It takes a packet only from the input that holds the others up, so what is kept stays small however far one input is
    ahead of another. Inputs that come from one operator are the exception: holding back the one that is ahead would
    hold back that operator, and with it the one that is behind; so they are not bounded here.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inputs = [_Input() for _ in self.spec.inputs]
        self._queues: tuple[deque[tuple[Packet, float]], ...] = tuple(deque() for _ in self.spec.inputs)
        self._serial = 0
        self._oldest = math.inf
        self.bounded = True

    def _holder(self) -> int:
        """The input that holds the others up: one that has brought nothing yet, else the one that is behind."""
        return min(range(len(self._inputs)), key=lambda port: (self._inputs[port].bound(), port))

    def has_input(self) -> bool:
        return bool(self._queues[self._holder()])

    def has_room(self, port: int) -> bool:
        return not self.bounded or len(self._queues[port]) < self.capacity

    def head_arrival(self) -> float:
        return min((queue[0][0].first_arrival for queue in self._queues if queue), default=math.inf)

    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        self.newest_waiting = packet.last_arrival
        self.books.entered(packet.rows, packet.batch.nbytes, now)
        self._queues[port].append((packet, now))
        return True

    def _take(self) -> tuple[Packet, int] | None:
        port = self._holder()
        try:
            packet, entered = self._queues[port].popleft()
        except IndexError:
            return None
        self.newest_taken = packet.last_arrival
        self.books.taken(packet.rows, packet.batch.nbytes, entered, self.clock())
        return packet, port

    def _work(self, most: int) -> tuple[int, int]:
        rows = made = 0
        while rows < most and self.can_run():
            taken = self._take()
            if taken is None:
                break
            packet, port = taken
            rows += max(packet.rows, 1)
            try:
                sent = self._take_in(packet, port)
            except Exception as error:
                raise at_packet(error, packet.serial) from None
            made += sent
            self.books.done(sent, self.clock())
        return rows, made

    def _take_in(self, packet: Packet, port: int) -> int:
        own = self._inputs[port]
        if packet.rows:
            assert self.spec.by is not None
            times, own.latest = event_times(packet.batch, self.spec.by, own.latest)
            own.batches.append(packet.batch)
            own.times.append(times)
            self._oldest = min(self._oldest, packet.first_arrival)
        own.ended = own.ended or packet.last
        batch = self._released(packet.batch.schema)
        last = all(each.ended for each in self._inputs)
        if not batch.num_rows and not last:
            return 0
        first = min(self._oldest, packet.first_arrival)
        if not any(each.batches for each in self._inputs):
            self._oldest = math.inf
        sent = Packet(self._serial, batch, first, packet.last_arrival, last=False, source_rows=batch.num_rows)
        self._send(sent)
        if last:
            self._send(Packet(self._serial, batch.slice(0, 0), packet.first_arrival, packet.last_arrival, last=True))
        return int(batch.num_rows)

    def _send(self, packet: Packet) -> None:
        self._serial += 1
        self.deliver(self.answer(packet))

    def _released(self, schema: pa.Schema) -> pa.RecordBatch:
        holder = self._holder()
        bound = self._inputs[holder].bound()
        if bound == -math.inf:
            return pa.RecordBatch.from_pylist([], schema=schema)
        batches: list[pa.RecordBatch] = []
        times: list[Ints] = []
        for port, each in enumerate(self._inputs):
            released, released_times = each.release(bound, port <= holder)
            batches += released
            times += released_times
        if not batches:
            return pa.RecordBatch.from_pylist([], schema=schema)
        # Inputs stand one after the other, so a stable sort by time leaves ties in the order of inputs.
        order = np.argsort(np.concatenate(times), kind="stable")
        return pa.concat_batches(batches).take(pa.array(order))
