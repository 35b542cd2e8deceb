"""The operator at which rows come into a query: it cuts them into packets and numbers these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.counters import LEARNING
from headgate.stream.operators.operator import PacketOperator, at_packet
from headgate.stream.packet import Packet, PacketTuner, empty_batch, rows_per_packet

Answer = TypeVar("Answer", int, float)


class SourceOperator(PacketOperator):
    """Asks its reader for rows. A packet is sent when it is full, or when the reader has no more for now and the packet
    before was sent some milliseconds ago. So a slow stream has low latency, and a fast one has large packets."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.spec.source is not None
        source = self.spec.source
        self._schema: pa.Schema = source.schema
        self.packet_rows = self.query.packet_rows or rows_per_packet(self._schema)
        self._tuner = None if self.query.packet_rows else PacketTuner(self.packet_rows)
        self._reader = source.open(lambda: self.query.on_input(self), self.clock())
        self._serial = 0
        self._last_sent = -math.inf
        #: the reader had no more after the last packet
        self._paused = False
        self._ended = False
        self._draining = False
        #: what the reader raised when it was asked between two turns
        self._failure: BaseException | None = None
        #: seconds between packets, as an exponential mean, and when the last one came
        self.period = 0.0
        self.last_arrival = -math.inf

    def _ask(self, question: Callable[[float], Answer], now: float, otherwise: Answer) -> Answer:
        """What the reader answers. Loops ask between two turns, with their lock: if it raises, the next turn does."""
        if self._failure is None:
            try:
                return question(now)
            except BaseException as error:
                self._failure = error
        return otherwise

    def ready_at(self, now: float) -> float:
        """When it can run next, as far as the source goes."""
        return math.inf if self._ended else self._ask(self._ready_at, now, now)

    def _ready_at(self, now: float) -> float:
        if self._draining or self._reader.ended:
            return now
        ready = self._reader.ready_at(now)
        next_send = self._last_sent + self.query.linger
        # A slow stream would be cut into packets of a few rows, which cost as much as full ones. A reader that has a
        # full packet is never waited for.
        if self._paused and ready <= now < next_send and self._reader.waiting(now) < self.packet_rows:
            return next_send
        return ready

    def has_input(self) -> bool:
        now = self.clock()
        return self.ready_at(now) <= now

    def has_room(self, port: int) -> bool:
        return True

    @property
    def pending(self) -> int:
        return 0 if self._ended else max(self._ask(self._reader.waiting, self.clock(), 1), 1)

    def head_arrival(self) -> float:
        now = self.clock()
        return min(now, self.ready_at(now))

    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        raise AssertionError("a source has no input")

    def drain(self) -> None:
        """Read no more: what was read is processed, then the query ends."""
        self._draining = True

    def _step(self) -> tuple[int, int] | None:
        """Read one packet and send it."""
        now = self.clock()
        try:
            if self._failure is not None:
                raise self._failure
            chunk = None if self._draining else self._reader.read(self.packet_rows, now)
            at_end = chunk is None and (self._draining or self._reader.ended)
        except BaseException as error:
            raise at_packet(error, self._serial) from None
        if chunk is None:
            if at_end:
                self._send_last(now)
            return None
        packet = Packet(
            self._serial,
            chunk.batch,
            chunk.first_arrival,
            chunk.last_arrival,
            source_rows=chunk.batch.num_rows,
        )
        self._learn_period(chunk.last_arrival)
        self._serial += 1
        self._last_sent = now
        self._paused = self._ask(self._reader.ready_at, now, now) > now
        with self.counters.lock:
            self.counters.rows_in += packet.rows
            self.counters.rows_out += packet.rows
            self.counters.packets += 1
        self.deliver(self.answer(packet, chunk.rejected))
        if self._tuner is not None:
            self.packet_rows = self._tuner.sent(packet.rows, self.counters.rows_in, self.query.worker_seconds())
        rows = max(packet.rows, 1)
        return rows, rows

    def _send_last(self, now: float) -> None:
        self._ended = True
        empty = empty_batch(self._schema)
        self.deliver(self.answer(Packet(self._serial, empty, now, now, last=True)))

    def _learn_period(self, arrival: float) -> None:
        if self.last_arrival > -math.inf:
            gap = max(arrival - self.last_arrival, 0.0)
            self.period += LEARNING * (gap - self.period) if self.period else gap
        self.last_arrival = arrival

    def close(self) -> None:
        self._reader.close()
