"""Operators without state, which any number of workers may run: plain ones, and those where branches meet again.

Packets are taken in order and answered in any; a reordering buffer puts the answers in order again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from threading import Lock
from typing import Any

from headgate.stream.assemble import merged
from headgate.stream.operators.operator import ANY_NUMBER, Answer, Operator, at_packet
from headgate.stream.operators.queue import QueueOperator
from headgate.stream.packet import Packet
from headgate.stream.reorder import ReorderBuffer

#: seconds until a place in a full buffer is asked for again
_ROOM_SOON = 0.0005


class StatelessOperator(QueueOperator):
    """Calls a function for every packet."""

    max_workers = ANY_NUMBER

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._outlet: ReorderBuffer[Answer] = self.query.reorder_buffer(self.deliver)
        self._ahead = min(self.capacity, self._outlet.size)

    def has_input(self) -> bool:
        # Answers that wait for an earlier one have left this queue and not come into the next: they count here, or a
        # worker that is held up would let the others run ahead of all bounds.
        try:
            return self._queue[0][0].serial < self._outlet.next + self._ahead
        except IndexError:
            return False

    def _work(self, most: int) -> tuple[int, int]:
        rows = made = 0
        while rows < most and self.can_run():
            taken = self.take()
            if taken is None:
                break
            packet = taken[0]
            rows += max(packet.rows, 1)
            answer = self._answer(packet)
            made += answer.packet.rows
            self.books.done(answer.packet.rows, self.clock())
            send_patiently(self._outlet, packet.serial, answer)
        return rows, made

    def _answer(self, packet: Packet) -> Answer:
        function = self.spec.function
        assert function is not None
        try:
            output = function(packet.batch)
            return self.answer(packet.answered(output.batch, output.parents, self.tracked), output.rejected)
        except Exception as error:
            raise at_packet(error, packet.serial) from None


class MergeOperator(Operator):
    """Takes the packets of one serial number from all branches and puts their rows together."""

    max_workers = ANY_NUMBER

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._outlet: ReorderBuffer[Answer] = self.query.reorder_buffer(self.deliver)
        self._ahead = min(self.capacity, self._outlet.size)
        self._branches: tuple[deque[tuple[Packet, float]], ...] = tuple(deque() for _ in self.spec.inputs)
        self._lock = Lock()

    def has_input(self) -> bool:
        try:
            heads = [branch[0][0].serial for branch in self._branches]
        except IndexError:
            return False
        return heads[0] < self._outlet.next + self._ahead

    def has_room(self, port: int) -> bool:
        # Each branch on its own: one that is ahead must not keep out the one that everybody waits for.
        return len(self._branches[port]) < self.capacity

    def head_arrival(self) -> float:
        return min((branch[0][0].first_arrival for branch in self._branches if branch), default=math.inf)

    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        self.newest_waiting = packet.last_arrival
        self.books.entered(packet.rows, packet.batch.nbytes, now)
        self._branches[port].append((packet, now))
        return all(self._branches)

    def _take(self) -> list[Packet] | None:
        with self._lock:
            if not all(self._branches):
                return None
            heads = [branch.popleft() for branch in self._branches]
        now = self.clock()
        for packet, entered in heads:
            self.books.taken(packet.rows, packet.batch.nbytes, entered, now)
        self.newest_taken = heads[0][0].last_arrival
        return [packet for packet, _ in heads]

    def _work(self, most: int) -> tuple[int, int]:
        rows = made = 0
        while rows < most and self.can_run():
            packets = self._take()
            if packets is None:
                break
            rows += max(sum(packet.rows for packet in packets), 1)
            answer = self.answer(self._merged(packets))
            made += answer.packet.rows
            now = self.clock()
            for _ in packets:
                self.books.done(0, now)
            send_patiently(self._outlet, packets[0].serial, answer)
        return rows, made

    @staticmethod
    def _merged(packets: list[Packet]) -> Packet:
        first = packets[0]
        if first.last:  # what is left at the end comes branch by branch
            return first.answered(
                merged([p.batch for p in packets], [p.origins() * 0 for p in packets])[0], None, False
            )
        try:
            batch, origin = merged([p.batch for p in packets], [p.origins() for p in packets])
        except Exception as error:
            raise at_packet(error, first.serial) from None
        return Packet(
            first.serial, batch, first.first_arrival, first.last_arrival, origin, source_rows=first.source_rows
        )


def send_patiently(outlet: ReorderBuffer[Answer], serial: int, answer: Answer) -> None:
    """Put an answer into the buffer. It has room: nobody takes a packet that is beyond the buffer's window, except by
    a race of two workers for the last place in it; then the one that is behind is about to make room."""
    while not outlet.send(serial, answer):
        time.sleep(_ROOM_SOON)
