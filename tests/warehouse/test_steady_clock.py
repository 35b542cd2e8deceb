"""Time goes on in a run, whatever is done to the clock of the machine."""

from __future__ import annotations

import random

from headgate.warehouse.run.steady_clock import SteadyClock


class Machine:
    """A machine whose clock can be set; ``passed`` is the time that really went by."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_by = 0.0

    def steady_clock(self) -> SteadyClock:
        return SteadyClock(lambda: 1_790_000_000.0 + self.passed + self.set_by, lambda: self.passed)


def test_it_is_the_wall_clock_as_long_as_nobody_sets_that() -> None:
    machine = Machine()
    clock = machine.steady_clock()
    machine.passed = 12.5
    assert clock() == 1_790_000_012.5


def test_after_the_clock_was_set_back_an_hour_a_wait_of_a_second_takes_two() -> None:
    machine = Machine()
    clock = machine.steady_clock()
    before = clock()
    machine.set_by = -3600.0
    machine.passed = 2.0
    assert clock() == before + 1.0


def test_it_meets_the_wall_clock_again() -> None:
    machine = Machine()
    clock = machine.steady_clock()
    machine.set_by = -3600.0
    for _ in range(100):
        machine.passed += 73.0
        clock()
    assert clock() == 1_790_000_000.0 + machine.passed - 3600.0


def test_a_clock_that_is_set_forward_is_followed() -> None:
    machine = Machine()
    clock = machine.steady_clock()
    machine.set_by = 3600.0
    assert clock() == 1_790_003_600.0


def test_it_never_goes_back_nor_stands_still_however_the_clock_jumps() -> None:
    for seed in range(50):
        chance, machine = random.Random(seed), Machine()
        clock = machine.steady_clock()
        last = clock()
        for _ in range(200):
            step = chance.uniform(0.001, 10.0)
            machine.passed += step
            if chance.random() < 0.2:
                machine.set_by = chance.uniform(-1e5, 1e5)
            now = clock()
            assert now >= last + 0.49 * step, f"seed {seed}"
            last = now
