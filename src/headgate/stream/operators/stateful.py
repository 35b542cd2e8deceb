"""The operator with a state that sees everything: one worker runs it at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.stream.assemble import flushed
from headgate.stream.kernel import Output, Part, State
from headgate.stream.operators.operator import at_packet
from headgate.stream.operators.partitioned import concatenated, event_times
from headgate.stream.operators.queue import QueueOperator
from headgate.stream.packet import Packet


class StatefulOperator(QueueOperator):
    """Hands packet after packet to its only state."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.spec.state is not None
        self.state: State = self.spec.state()
        self._latest: int | None = None

    def _work(self, most: int) -> tuple[int, int]:
        rows = made = 0
        while rows < most and self.can_run():
            taken = self.take()
            if taken is None:
                break
            packet = taken[0]
            rows += max(packet.rows, 1)
            try:
                answered, output = self._process(packet)
            except Exception as error:
                raise at_packet(error, packet.serial) from None
            made += answered.rows
            self.books.done(answered.rows, self.clock())
            self.deliver(self.answer(answered, output.rejected))
        return rows, made

    def _process(self, packet: Packet) -> tuple[Packet, Output]:
        times = None
        if packet.last:
            times = self.query.time_at_end(self.spec, None)
        elif self.spec.time is not None:
            times, self._latest = event_times(packet.batch, self.spec.time.column, self._latest)
        output = self.state.process(Part.whole(packet.batch, times))
        batch = output.batch
        if packet.last and self.query.flushes:
            batch = concatenated(batch, flushed([self.state.flush()]))
        return packet.answered(batch, output.parents, self.tracked), output

    # --- for those who keep states from one run to the next -------------------------------------------------

    def new_state(self) -> State:
        assert self.spec.state is not None
        return self.spec.state()

    def take_states(self, states: Sequence[State]) -> None:
        """Go on from this state, the only one; before anything runs."""
        (self.state,) = states

    def all_states(self) -> list[State]:
        """The only state, in a list as operators with buckets have it."""
        return [self.state]
