"""Both reordering buffers: every output delivered once and in serial order, whatever the threads do.

Sections: one thread; orders of threads that matter, forced by scripts; any order, drawn from seeds; real threads.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations

import pytest

from headgate.core.errors import InvariantError, ParameterError
from headgate.stream import atomic, reorder
from headgate.stream.reorder import LockedBuffer, NonBlockingBuffer, ReorderBuffer
from tests.stream.interleave import (
    Blocks,
    CooperativeLock,
    Ends,
    Randomly,
    Script,
    Until,
    point,
    run,
    run_threads,
    told_by,
)

Buffers = type[NonBlockingBuffer[int]] | type[LockedBuffer[int]]
BOTH = pytest.mark.parametrize(
    "buffers", [pytest.param(NonBlockingBuffer, id="non-blocking"), pytest.param(LockedBuffer, id="locked")]
)


@pytest.fixture
def cooperative_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (atomic, reorder):
        monkeypatch.setattr(module, "Lock", CooperativeLock)


INTERLEAVED = pytest.mark.usefixtures("cooperative_locks")


class Downstream:
    """Keeps what is delivered to it; refuses the outputs it is told to refuse, as often as it is told."""

    def __init__(self, refused: dict[int, int] | None = None) -> None:
        self.outputs: list[int] = []
        self._refused = dict(refused or {})
        self._inside = False

    def deliver(self, output: int) -> None:
        assert not self._inside, f"output {output} is delivered while another one is"
        self._inside = True
        try:
            point(f"delivering {output}")
            if self._refused.get(output, 0):
                self._refused[output] -= 1
                raise OSError(f"no place for output {output}")
            self.outputs.append(output)
        finally:
            self._inside = False


# One thread


@BOTH
def test_outputs_sent_in_any_order_are_delivered_in_serial_order(buffers: Buffers) -> None:
    for order in permutations(range(5)):
        downstream = Downstream()
        buffer = buffers(downstream.deliver, size=5)
        for serial in order:
            assert buffer.send(serial, serial)
            buffer.validate()
        assert downstream.outputs == [0, 1, 2, 3, 4], order
        assert (buffer.next, buffer.waiting()) == (5, 0)


@BOTH
def test_an_output_is_delivered_by_the_call_that_makes_it_its_turn(buffers: Buffers) -> None:
    downstream = Downstream()
    buffer = buffers(downstream.deliver, size=8)
    story = []
    for serial in (2, 0, 3, 1, 5, 4):
        buffer.send(serial, serial)
        story.append((serial, list(downstream.outputs), buffer.next, buffer.waiting()))
    assert story == [
        (2, [], 0, 1),
        (0, [0], 1, 1),
        (3, [0], 1, 2),
        (1, [0, 1, 2, 3], 4, 0),
        (5, [0, 1, 2, 3], 4, 1),
        (4, [0, 1, 2, 3, 4, 5], 6, 0),
    ]


@BOTH
@pytest.mark.parametrize(
    ("size", "first", "serial", "taken"),
    [
        pytest.param(4, 0, 0, True, id="the next one"),
        pytest.param(4, 0, 3, True, id="the last there is room for"),
        pytest.param(4, 0, 4, False, id="the first beyond"),
        pytest.param(4, 0, 400, False, id="far beyond"),
        pytest.param(4, 10, 13, True, id="the last, not from 0"),
        pytest.param(4, 10, 14, False, id="beyond, not from 0"),
        pytest.param(1, 7, 7, True, id="room for one only"),
        pytest.param(1, 7, 8, False, id="room for one only, the second"),
    ],
)
def test_only_numbers_of_the_window_are_taken(
    buffers: Buffers, size: int, first: int, serial: int, taken: bool
) -> None:
    buffer = buffers(Downstream().deliver, size=size, first=first)
    assert (buffer.next, buffer.size) == (first, size)
    assert buffer.send(serial, serial) is taken


@BOTH
def test_an_output_beyond_the_window_is_refused_and_taken_when_the_window_has_moved(buffers: Buffers) -> None:
    downstream = Downstream()
    buffer = buffers(downstream.deliver, size=2)
    assert not buffer.send(2, 2)
    assert buffer.send(1, 1)
    assert not buffer.send(2, 2)
    assert buffer.waiting() == 1
    assert buffer.send(0, 0)
    assert downstream.outputs == [0, 1]
    assert buffer.send(2, 2)
    assert downstream.outputs == [0, 1, 2]
    buffer.validate()


@BOTH
@pytest.mark.parametrize("output", [None, False, 0, "", ()], ids=repr)
def test_an_output_that_looks_like_nothing_is_one(buffers: type[NonBlockingBuffer[object]], output: object) -> None:
    delivered: list[object] = []
    buffer = buffers(delivered.append, size=2)
    buffer.send(1, output)
    assert buffer.waiting() == 1
    buffer.send(0, output)
    assert delivered == [output, output]


@BOTH
def test_a_number_that_has_been_delivered_is_not_taken_for_a_later_one(buffers: Buffers) -> None:
    buffer = buffers(Downstream().deliver, size=4)
    buffer.send(0, 0)
    with pytest.raises(InvariantError, match="output 0 was sent again"):
        buffer.send(0, 0)
    buffer.validate()


@BOTH
@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_without_room_cannot_be_made(buffers: Buffers, size: int) -> None:
    with pytest.raises(ParameterError, match=f"size={size}"):
        buffers(Downstream().deliver, size=size)


@BOTH
def test_after_a_failed_delivery_the_next_send_begins_with_the_output_that_failed(buffers: Buffers) -> None:
    downstream = Downstream(refused={1: 2})
    buffer = buffers(downstream.deliver, size=4)
    buffer.send(1, 1)
    buffer.send(2, 2)
    with pytest.raises(OSError, match="output 1"):
        buffer.send(0, 0)
    assert (downstream.outputs, buffer.next, buffer.waiting()) == ([0], 1, 2)
    buffer.validate()
    with pytest.raises(OSError, match="output 1"):
        buffer.send(3, 3)
    assert (downstream.outputs, buffer.next, buffer.waiting()) == ([0], 1, 3)
    buffer.validate()
    assert buffer.send(4, 4)
    assert (downstream.outputs, buffer.next, buffer.waiting()) == ([0, 1, 2, 3, 4], 5, 0)
    buffer.validate()


@BOTH
def test_after_a_failed_delivery_also_a_refused_send_tries_again(buffers: Buffers) -> None:
    downstream = Downstream(refused={0: 1})
    buffer = buffers(downstream.deliver, size=1)
    with pytest.raises(OSError, match="output 0"):
        buffer.send(0, 0)
    assert not buffer.send(1, 1)
    assert downstream.outputs == [0]
    assert buffer.send(1, 1)
    assert downstream.outputs == [0, 1]


def test_deliver_may_send_to_the_non_blocking_buffer_it_is_called_by() -> None:
    delivered: list[int] = []

    def deliver(output: int) -> None:
        delivered.append(output)
        if output < 3:
            assert buffer.send(output + 1, output + 1)
            assert delivered[-1] == output, "delivered inside of the delivery of the one before"

    buffer = NonBlockingBuffer(deliver, size=2)
    buffer.send(0, 0)
    assert delivered == [0, 1, 2, 3]


@BOTH
def test_the_representation_tells_where_it_stands(buffers: Buffers) -> None:
    buffer = buffers(Downstream().deliver, size=4, first=3)
    buffer.send(5, 5)
    assert repr(buffer) == f"{buffers.__name__}(next=3, size=4, waiting=1)"


def break_inv1(buffer: NonBlockingBuffer[int]) -> None:
    buffer._next = -1


def break_inv2(buffer: NonBlockingBuffer[int]) -> None:
    buffer._slots.append(7)


def break_inv3(buffer: NonBlockingBuffer[int]) -> None:
    buffer._slots[buffer._next % buffer._size] = 7


def break_inv4(buffer: NonBlockingBuffer[int]) -> None:
    buffer._delivering.test_and_set()


def break_inv4_of_the_lock(buffer: LockedBuffer[int]) -> None:
    buffer._lock.acquire()


@pytest.mark.parametrize(
    ("buffers", "break_it", "told"),
    [
        pytest.param(NonBlockingBuffer, break_inv1, "inv1", id="inv1"),
        pytest.param(NonBlockingBuffer, break_inv2, "inv2", id="inv2"),
        pytest.param(NonBlockingBuffer, break_inv3, "inv3", id="inv3"),
        pytest.param(NonBlockingBuffer, break_inv4, "inv4", id="inv4 of the non-blocking one"),
        pytest.param(LockedBuffer, break_inv4_of_the_lock, "inv4", id="inv4 of the locked one"),
    ],
)
def test_validate_finds_what_is_broken(buffers: Buffers, break_it: Callable[..., None], told: str) -> None:
    buffer = buffers(Downstream().deliver, size=4)
    buffer.send(0, 0)
    buffer.send(2, 2)
    buffer.validate()
    break_it(buffer)
    with pytest.raises(InvariantError, match=told):
        buffer.validate()


# Orders that matter: `modules` is reorder alone, so what the flag and the locks do is one step


def sender(buffer: ReorderBuffer[int], *serials: int) -> Callable[[], None]:
    """A worker that sends these outputs, each until it is taken."""

    def send() -> None:
        for serial in serials:
            while not buffer.send(serial, serial):
                point(f"no room for {serial}")

    return send


CLEARS = "self._delivering.clear()"
LOOKS_AGAIN = "if self._slots[place] is _EMPTY"
HAS_ADDED = "while not self._delivering.test_and_set()"
ADDS = "self._slots[serial % self._size] = output"


@INTERLEAVED
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            Script(Until("A", CLEARS), Ends("B"), Ends("A")),
            id="B adds 1 after A saw its place empty, and finds A's flag: A must look again",
        ),
        pytest.param(
            Script(Until("A", LOOKS_AGAIN), Ends("B"), Ends("A")),
            id="B adds and delivers 1 after A cleared the flag: A finds nothing to do",
        ),
        pytest.param(
            Script(Until("A", LOOKS_AGAIN), Until("B", HAS_ADDED), Ends("A"), Ends("B")),
            id="B has added 1 and not looked at the flag: A delivers it, B finds nothing to do",
        ),
        pytest.param(
            Script(Until("A", LOOKS_AGAIN), Until("B", "delivering 1"), Ends("A"), Ends("B")),
            id="A looks again while B delivers what A sees: A finds B's flag",
        ),
        pytest.param(
            Script(Until("A", CLEARS), Until("B", HAS_ADDED), Until("A", LOOKS_AGAIN), Ends("B"), Ends("A")),
            id="B has added 1 before A clears the flag, and looks at the flag after",
        ),
        pytest.param(
            Script(Until("B", ADDS), Ends("A"), Ends("B")),
            id="B was let in before A began, and adds 1 after A has ended",
        ),
        pytest.param(
            Script(Until("A", "delivering 0"), Ends("B"), Ends("A")),
            id="B adds 1 while A delivers 0",
        ),
    ],
)
def test_the_output_after_the_last_one_delivered_is_never_left_behind(script: Script) -> None:
    downstream = Downstream()
    buffer = NonBlockingBuffer(downstream.deliver, size=2)
    run({"A": sender(buffer, 0), "B": sender(buffer, 1)}, script, [reorder])
    assert downstream.outputs == [0, 1]
    buffer.validate()


@INTERLEAVED
def test_what_is_seen_on_the_second_look_may_be_a_later_output_of_the_same_place() -> None:
    downstream = Downstream()
    buffer = NonBlockingBuffer(downstream.deliver, size=2)
    # A has seen that place 1 has no output 1. Then B delivers 1, and 3 comes into the place, before its turn.
    script = Script(Until("A", LOOKS_AGAIN), Ends("B"), Ends("A"), Ends("C"))
    run({"A": sender(buffer, 0), "B": sender(buffer, 1, 3), "C": sender(buffer, 2)}, script, [reorder])
    assert downstream.outputs == [0, 1, 2, 3]
    buffer.validate()


@INTERLEAVED
def test_figure_3_the_locked_buffer_makes_workers_wait_while_another_delivers() -> None:
    downstream = Downstream()
    buffer = LockedBuffer(downstream.deliver, size=16, first=1)
    for serial in (2, 3):
        buffer.send(serial, serial)
    workers = {"T1": sender(buffer, 8), "T2": sender(buffer, 6), "T3": sender(buffer, 4), "T4": sender(buffer, 1)}
    run(workers, Script(Until("T4", "delivering 2"), Blocks("T1"), Blocks("T2"), Blocks("T3"), Ends("T4")), [reorder])
    assert downstream.outputs == [1, 2, 3, 4]
    assert buffer.waiting() == 2


@INTERLEAVED
def test_figure_3_the_non_blocking_buffer_lets_them_go_on() -> None:
    downstream = Downstream()
    buffer = NonBlockingBuffer(downstream.deliver, size=16, first=1)
    for serial in (2, 3):
        buffer.send(serial, serial)
    workers = {"T1": sender(buffer, 8), "T2": sender(buffer, 6), "T3": sender(buffer, 4), "T4": sender(buffer, 1)}
    run(workers, Script(Until("T4", "delivering 2"), Ends("T1"), Ends("T2"), Ends("T3"), Ends("T4")), [reorder])
    assert downstream.outputs == [1, 2, 3, 4]
    assert buffer.waiting() == 2


@INTERLEAVED
def test_a_worker_too_far_ahead_gets_on_when_the_slow_one_has_delivered() -> None:
    downstream = Downstream()
    buffer = NonBlockingBuffer(downstream.deliver, size=2)
    script = Script(
        Until("B", "no room for 2"), Until("A", "delivering 0"), Until("B", "no room for 2"), Ends("A"), Ends("B")
    )
    run({"A": sender(buffer, 0), "B": sender(buffer, 1, 2)}, script, [reorder])
    assert downstream.outputs == [0, 1, 2]


@INTERLEAVED
def test_a_place_is_given_to_a_later_output_only_after_it_was_emptied() -> None:
    downstream = Downstream()
    buffer = NonBlockingBuffer(downstream.deliver, size=1)
    # B tries while A has delivered output 0 but has not emptied its place, and again when the place is empty but the
    # number has not moved.
    script = Script(
        Until("A", "slots[place] = _EMPTY"),
        Until("B", "no room for 1"),
        Until("A", "self._next = serial"),
        Until("B", "no room for 1"),
        Ends("A"),
        Ends("B"),
    )
    run({"A": sender(buffer, 0), "B": sender(buffer, 1)}, script, [reorder])
    assert downstream.outputs == [0, 1]


@INTERLEAVED
def test_what_was_added_while_a_delivery_failed_waits_for_the_next_send() -> None:
    downstream = Downstream(refused={0: 1})
    buffer = NonBlockingBuffer(downstream.deliver, size=4)

    def fail() -> None:
        with pytest.raises(OSError, match="output 0"):
            buffer.send(0, 0)

    run({"A": fail, "B": sender(buffer, 1)}, Script(Until("A", "delivering 0"), Ends("B"), Ends("A")), [reorder])
    assert (downstream.outputs, buffer.waiting()) == ([], 2)
    buffer.validate()
    buffer.send(2, 2)
    assert downstream.outputs == [0, 1, 2]


# Any order


def send_under(seed: int, buffers: Buffers, by_opcode: bool) -> None:
    """Random numbers of workers and places, random shares of the outputs, a random order of steps."""
    generator = random.Random(seed)
    outputs, workers = generator.randint(3, 6), generator.randint(2, 3)
    first = generator.choice([0, 1, 17])
    downstream = Downstream()
    buffer = buffers(downstream.deliver, size=generator.choice([1, 2, 3, 8]), first=first)
    shares: list[list[int]] = [[] for _ in range(workers)]
    for serial in range(first, first + outputs):
        generator.choice(shares).append(serial)
    functions = {f"worker {number}": sender(buffer, *share) for number, share in enumerate(shares)}
    run(functions, Randomly(seed, stay=0.9 if by_opcode else 0.6), [atomic, reorder], by_opcode=by_opcode)
    assert downstream.outputs == list(range(first, first + outputs))
    assert buffer.waiting() == 0
    buffer.validate()


@BOTH
@pytest.mark.slow
@INTERLEAVED
@pytest.mark.parametrize(
    ("seeds", "by_opcode"),
    [
        pytest.param(range(1500), False, id="steps of a line"),
        pytest.param(range(2000, 2300), True, id="steps of a bytecode"),
    ],
)
def test_in_any_interleaving_every_output_is_delivered_once_in_serial_order(
    buffers: Buffers, seeds: range, by_opcode: bool
) -> None:
    for seed in seeds:
        with told_by(f"send_under({seed}, {buffers.__name__}, by_opcode={by_opcode})"):
            send_under(seed, buffers, by_opcode)


@BOTH
@pytest.mark.slow
@INTERLEAVED
def test_in_any_interleaving_deliveries_may_fail(buffers: Buffers) -> None:
    def send_and_fail_under(seed: int) -> None:
        downstream = Downstream(refused={1: 1, 3: 1})
        buffer = buffers(downstream.deliver, size=8)
        failures: list[str] = []

        def send(*serials: int) -> None:
            for serial in serials:
                try:
                    buffer.send(serial, serial)
                except OSError as error:
                    failures.append(str(error))

        run({"A": lambda: send(0, 3), "B": lambda: send(1, 4), "C": lambda: send(2, 5)}, Randomly(seed), [reorder])
        buffer.validate()
        # A failure can leave outputs behind that nobody came back to: two more sends deliver them, failures or not.
        send(6)
        send(7)
        assert downstream.outputs == list(range(8))
        assert failures == ["no place for output 1", "no place for output 3"]

    for seed in range(200):
        with told_by(f"seed {seed}"):
            send_and_fail_under(seed)


# Real threads


@BOTH
@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 64])
def test_real_threads_deliver_every_output_once_in_serial_order(buffers: Buffers, size: int) -> None:
    outputs = 200
    downstream = Downstream()
    buffer = buffers(downstream.deliver, size=size)
    serials = atomic.AtomicInt()

    def work() -> None:
        while (serial := serials.fetch_add(1)) < outputs:
            while not buffer.send(serial, serial):
                pass

    run_threads([work, work, work, work])
    assert downstream.outputs == list(range(outputs))
    buffer.validate()
