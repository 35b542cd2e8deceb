"""The operator at which rows leave a query.

A sink that may block, because it writes to a network or calls a slow function, says so (``blocking``) and gets a thread
of its own. No worker waits for it; the queue before it fills up and slows the query's source.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from headgate.stream.errors import QueryError
from headgate.stream.operators.operator import Operator, QueueOperator, at_packet
from headgate.stream.packet import Packet


class SinkOperator(QueueOperator):
    """Hands rows to a sink and records their latency."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.spec.sink is not None
        self._writer = self.spec.sink.open()
        blocking = getattr(self.spec.sink, "blocking", False)
        self._sink_thread = _SinkThread(self, self.capacity) if blocking else None

    def has_input(self) -> bool:
        return super().has_input() and (self._sink_thread is None or self._sink_thread.has_room())

    def _process(self, packet: Packet) -> int:
        if self._sink_thread is None:
            self.put(packet)
        else:
            self._sink_thread.add(packet)
        return 0

    def put(self, packet: Packet) -> None:
        """Hand a packet to the sink; by one thread at a time, in order."""
        try:
            if packet.rows:
                self._writer.write(packet.batch)
            if packet.last:
                self._writer.close()
        except BaseException as error:
            raise at_packet(error, packet.serial) from None
        now = self.clock()
        self.counters.done(0, now)
        self.query.delivered(self.spec.name, packet, now)
        if packet.last:
            self.query.sink_ended(self.spec.name)

    def close(self) -> None:
        if self._sink_thread is not None:
            self._sink_thread.stop()
        self._writer.close()


class _SinkThread:
    """The thread that hands packets to a sink that may block.

    Invariants:
    1. At most ``capacity`` packets wait in ``_waiting``, in order, and one is being written.
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

    def add(self, packet: Packet) -> None:
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
            except BaseException as error:
                sink.query.fail(QueryError(sink.query.name, sink.spec.name, packet.serial, error))
                return
            if was_full:
                sink.query.on_input(sink)
