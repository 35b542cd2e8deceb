"""The counter and the flag, and first the tool that shows what threads could do to them."""

from __future__ import annotations

import sys
from itertools import chain

import pytest

from headgate.stream import atomic
from headgate.stream.atomic import AtomicInt, TryFlag
from tests.stream.interleave import (
    Blocks,
    CooperativeLock,
    Ends,
    InterleavingError,
    Randomly,
    Script,
    Until,
    point,
    run,
    run_threads,
    told_by,
)

HERE = sys.modules[__name__]


@pytest.fixture
def cooperative_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "Lock", CooperativeLock)


INTERLEAVED = pytest.mark.usefixtures("cooperative_locks")


class CarelessInt:
    """What AtomicInt would be without its lock."""

    def __init__(self) -> None:
        self.value = 0

    def fetch_add(self, n: int) -> int:
        old = self.value
        self.value = old + n
        return old

    def add_in_one_line(self, n: int) -> None:
        self.value += n


# The tool


def test_a_script_finds_the_race_of_a_counter_without_a_lock() -> None:
    counter = CarelessInt()
    script = Script(Until("A", "self.value = old + n"), Ends("B"), Ends("A"))
    run({"A": lambda: counter.fetch_add(1), "B": lambda: counter.fetch_add(1)}, script, [HERE])
    assert counter.value == 1, "one of the two additions should have been lost"


@pytest.mark.parametrize(
    ("add", "by_opcode", "races"),
    [
        pytest.param(CarelessInt.fetch_add, False, True, id="two lines, steps of a line"),
        pytest.param(CarelessInt.add_in_one_line, False, False, id="one line, steps of a line"),
        pytest.param(CarelessInt.add_in_one_line, True, True, id="one line, steps of a bytecode"),
    ],
)
def test_random_schedules_find_races_between_steps(add: object, by_opcode: bool, races: bool) -> None:
    def value_under(seed: int) -> int:
        counter = CarelessInt()
        assert callable(add)
        run({"A": lambda: add(counter, 1), "B": lambda: add(counter, 1)}, Randomly(seed), [HERE], by_opcode=by_opcode)
        return counter.value

    assert {value_under(seed) for seed in range(30)} == ({1, 2} if races else {2})


def test_the_same_seed_gives_the_same_steps() -> None:
    def steps_under(seed: int) -> list[str]:
        seen: list[str] = []

        def play(name: str) -> None:
            for number in range(5):
                point("before a step")
                seen.append(f"{name}{number}")

        run({"A": lambda: play("A"), "B": lambda: play("B"), "C": lambda: play("C")}, Randomly(seed), [])
        return seen

    assert [steps_under(seed) for seed in range(5)] == [steps_under(seed) for seed in range(5)]
    assert len({tuple(steps_under(seed)) for seed in range(5)}) > 1


def test_a_deadlock_is_told_with_the_places_of_the_threads() -> None:
    one, other = CooperativeLock(), CooperativeLock()

    def take(first: CooperativeLock, second: CooperativeLock) -> None:
        with first:
            point("has its first lock")
            second.acquire()

    script = Script(Until("A", "has its first"), Until("B", "has its first"), Blocks("A"), Blocks("B"))
    with pytest.raises(InterleavingError, match=r"deadlock: .*A \(blocked, before 'has its first lock'\)"):
        run({"A": lambda: take(one, other), "B": lambda: take(other, one)}, script, [])


@pytest.mark.parametrize(
    ("script", "told"),
    [
        pytest.param(Script(Until("A", "no such line")), r"Until\(thread='A'.*A \(ended", id="a line never come to"),
        pytest.param(Script(Blocks("A")), r"Blocks\(thread='A'\).*A \(ended", id="a lock never waited for"),
        pytest.param(Script(Until("A", "inside"), Ends("B")), r"Ends\(thread='B'\).*B \(blocked", id="cannot end"),
    ],
)
def test_a_script_that_does_not_fit_fails(script: Script, told: str) -> None:
    lock = CooperativeLock()

    def play() -> None:
        with lock:
            point("inside")

    with pytest.raises(InterleavingError, match=told):
        run({"A": play, "B": play}, script, [])


def test_what_a_thread_raises_is_raised_by_the_run() -> None:
    def fail() -> None:
        raise ValueError("as it must")

    with pytest.raises(ValueError, match="as it must") as caught:
        run({"A": lambda: point("here"), "B": fail}, Script(), [])
    assert caught.value.__notes__ == ["in thread B"]


# AtomicInt


@pytest.mark.parametrize(
    ("first", "added", "returned", "value"),
    [
        pytest.param(0, [], [], 0, id="nothing added"),
        pytest.param(0, [1, 1, 1], [0, 1, 2], 3, id="counting up"),
        pytest.param(2, [-1, -1], [2, 1], 0, id="counting down"),
        pytest.param(5, [10, 0, -20], [5, 15, 15], -5, id="other steps"),
    ],
)
def test_fetch_add_returns_the_value_before(first: int, added: list[int], returned: list[int], value: int) -> None:
    counter = AtomicInt(first)
    assert [counter.fetch_add(n) for n in added] == returned
    assert counter.value == value
    assert repr(counter) == f"AtomicInt({value})"


@INTERLEAVED
def test_an_addition_waits_for_the_one_under_way() -> None:
    counter = AtomicInt()
    olds: dict[str, int] = {}
    functions = {name: lambda name=name: olds.update({name: counter.fetch_add(1)}) for name in "AB"}
    run(functions, Script(Until("A", "self._value = old + n"), Blocks("B"), Ends("A"), Ends("B")), [atomic])
    assert olds == {"A": 0, "B": 1}
    assert counter.value == 2


@INTERLEAVED
@pytest.mark.slow
def test_no_addition_is_lost_in_any_interleaving_of_bytecodes() -> None:
    def add_under(seed: int) -> None:
        counter = AtomicInt()
        olds: list[int] = []

        def play() -> None:
            olds.append(counter.fetch_add(1))
            olds.append(counter.fetch_add(1))

        run(dict.fromkeys("ABC", play), Randomly(seed, stay=0.8), [atomic], by_opcode=True)
        assert sorted(olds) == list(range(6))
        assert counter.value == 6

    for seed in range(100):
        with told_by(f"seed {seed}"):
            add_under(seed)


def test_no_addition_is_lost_by_real_threads() -> None:
    counter = AtomicInt()
    olds: list[list[int]] = [[], [], []]
    run_threads([lambda mine=mine: mine.extend(counter.fetch_add(1) for _ in range(2_000)) for mine in olds])
    assert sorted(chain.from_iterable(olds)) == list(range(6_000))
    assert all(mine == sorted(mine) for mine in olds)


# TryFlag


def test_the_first_to_set_a_flag_has_it_until_it_is_cleared() -> None:
    flag = TryFlag()
    assert not flag.is_set
    assert [flag.test_and_set() for _ in range(3)] == [False, True, True]
    assert flag.is_set
    flag.clear()
    assert not flag.is_set
    assert [flag.test_and_set() for _ in range(2)] == [False, True]
    assert repr(flag) == "TryFlag(set)"


@INTERLEAVED
@pytest.mark.slow
def test_one_thread_at_a_time_has_a_flag_in_any_interleaving_of_bytecodes() -> None:
    def set_under(seed: int) -> None:
        flag = TryFlag()
        inside = 0

        def play() -> None:
            nonlocal inside
            for _ in range(2):
                if flag.test_and_set():
                    continue
                inside += 1
                assert inside == 1
                point("has the flag")
                inside -= 1
                flag.clear()

        run(dict.fromkeys("ABC", play), Randomly(seed, stay=0.8), [atomic], by_opcode=True)
        assert not flag.is_set

    for seed in range(100):
        with told_by(f"seed {seed}"):
            set_under(seed)


def test_one_real_thread_at_a_time_has_a_flag() -> None:
    flag = TryFlag()
    unguarded = [0]
    had = AtomicInt()

    def play() -> None:
        for _ in range(2_000):
            if not flag.test_and_set():
                unguarded[0] += 1
                had.fetch_add(1)
                flag.clear()

    run_threads([play, play, play])
    assert unguarded[0] == had.value > 0
