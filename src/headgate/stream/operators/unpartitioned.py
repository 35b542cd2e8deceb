"""Operators that process packets as a whole: without state, by any number of workers, or with one state, by one.

Packets are taken in order. An operator without state answers them in any order; a reordering buffer restores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.stream.kernel import Output, Part, State
from headgate.stream.operators.operator import ANY_NUMBER, Answer, QueueOperator, at_packet, send_when_room
from headgate.stream.operators.partitioned import concatenate
from headgate.stream.packet import Packet
from headgate.stream.partition import combine_flushed
from headgate.stream.reorder import ReorderBuffer


class StatelessOperator(QueueOperator):
    """Calls a function for every packet."""

    max_workers = ANY_NUMBER

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._outlet: ReorderBuffer[Answer] = self.query.reorder_buffer(self.deliver)
        self._ahead = min(self.capacity, self._outlet.size)

    def has_input(self) -> bool:
        # Answers that wait for an earlier one have left this queue and not come into the next: they count here, or a
        # worker that is held up would let the others run ahead without bounds.
        try:
            return self._queue[0][0].serial < self._outlet.next + self._ahead
        except IndexError:
            return False

    def _process(self, packet: Packet) -> int:
        function = self.spec.function
        assert function is not None
        try:
            output = function(packet.batch)
            answer = self.answer(packet.answered(output.batch, output.parents, self.tracked), output.rejected)
        except BaseException as error:
            raise at_packet(error, packet.serial) from None
        rows = answer.packet.rows
        self.counters.done(rows, self.clock())
        send_when_room(self._outlet, packet.serial, answer, self.query)
        return rows


class StatefulOperator(QueueOperator):
    """Hands packet after packet to its only state; one worker runs it at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state = self.new_state()
        self._latest: int | None = None

    def _process(self, packet: Packet) -> int:
        try:
            answer_packet, output = self._answer_packet(packet)
        except BaseException as error:
            raise at_packet(error, packet.serial) from None
        self.counters.done(answer_packet.rows, self.clock())
        self.deliver(self.answer(answer_packet, output.rejected))
        return answer_packet.rows

    def _answer_packet(self, packet: Packet) -> tuple[Packet, Output]:
        times = None
        if self.spec.time is not None and (packet.rows or not packet.last):
            times, self._latest = self.spec.time.of_rows(packet.batch, self._latest)
        if packet.last:
            times = self.query.time_at_end(self.spec, times)
        output = self.state.process(Part.whole(packet.batch, times))
        batch = output.batch
        if packet.last and self.query.flushes:
            batch = concatenate(batch, combine_flushed([self.state.flush()]))
        return packet.answered(batch, output.parents, self.tracked), output

    # --- for those who keep states from one run to the next -------------------------------------------------

    def new_state(self) -> State:
        assert self.spec.state is not None
        return self.spec.state()

    def take_states(self, states: Sequence[State]) -> None:
        """Go on from this state, the only one; before anything runs."""
        (self.state,) = states

    def all_states(self) -> list[State]:
        """The only state, in a list as partitioned operators have it."""
        return [self.state]
