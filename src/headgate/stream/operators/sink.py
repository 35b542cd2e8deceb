"""The operator at which rows leave a query.

A sink that may block, because it writes to a network or calls somebody who waits, says so (``blocking``) and gets a
thread of its own: no worker is kept waiting, and what the thread has not taken fills the queue and slows the query's
source.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from headgate.stream.errors import QueryError
from headgate.stream.operators.operator import Operator, at_packet
from headgate.stream.operators.queue import QueueOperator
from headgate.stream.packet import Packet


class SinkOperator(QueueOperator):
    """Hands rows to a sink and notes how old they are by then."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.spec.sink is not None
        self._writer = self.spec.sink.open()
        blocking = getattr(self.spec.sink, "blocking", False)
        self._porter = _Porter(self, self.capacity) if blocking else None

    def has_input(self) -> bool:
        return super().has_input() and (self._porter is None or self._porter.has_room())

    def _work(self, most: int) -> tuple[int, int]:
        rows = 0
        while rows < most and self.can_run():
            taken = self.take()
            if taken is None:
                break
            packet = taken[0]
            rows += max(packet.rows, 1)
            if self._porter is None:
                self.put(packet)
            else:
                self._porter.take_over(packet)
        return rows, 0

    def put(self, packet: Packet) -> None:
        """Hand a packet to the sink; by one thread at a time, in order."""
        try:
            if packet.rows:
                self._writer.write(packet.batch)
            if packet.last:
                self._writer.close()
        except Exception as error:
            raise at_packet(error, packet.serial) from None
        now = self.clock()
        self.books.done(0, now)
        self.query.delivered(self.spec.name, packet, now)
        if packet.last:
            self.query.sink_ended(self.spec.name)

    def close(self) -> None:
        if self._porter is not None:
            self._porter.stop()
        self._writer.close()


class _Porter:
    """The thread that carries packets to a sink that may block.

    Invariants:
    1. At most ``capacity`` packets, and one in hand, were taken over and not put; ``_waiting`` holds them in order.
    2. After ``stop`` no packet is begun.
    """

    def __init__(self, sink: SinkOperator, capacity: int) -> None:
        self._sink = sink
        self._capacity = capacity
        self._waiting: deque[Packet] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"headgate-sink-{sink.name}", daemon=True)
        self._thread.start()

    def has_room(self) -> bool:
        return len(self._waiting) < self._capacity

    def take_over(self, packet: Packet) -> None:
        with self._changed:
            self._waiting.append(packet)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        sink: Operator = self._sink
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                packet = self._waiting.popleft()
                was_full = len(self._waiting) == self._capacity - 1
            try:
                self._sink.put(packet)
            except Exception as error:
                sink.query.fail(QueryError(sink.query.name, sink.spec.name, packet.serial, error))
                return
            if was_full:
                sink.query.on_input(sink)
