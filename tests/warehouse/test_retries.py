"""A failing table backs off, is held, and comes back."""

from __future__ import annotations

import math

from headgate.core.update import Update
from headgate.warehouse.schedule.retries import LONGEST_WAIT, MOST_FAILURES, Retries


def fail(retries: Retries, at: float) -> None:
    retries.failed(Update("t", error="ValueError: no", traceback="Traceback ..."), at)


def test_each_failure_in_a_row_waits_twice_as_long_as_the_one_before() -> None:
    retries = Retries()
    waits = []
    for _ in range(MOST_FAILURES - 1):
        fail(retries, 100.0)
        waits.append(retries.next_try() - 100.0)
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) <= LONGEST_WAIT


def test_a_table_that_goes_on_failing_is_held_and_never_tried_again_by_itself() -> None:
    retries = Retries()
    for at in range(MOST_FAILURES):
        fail(retries, float(at))
    assert retries.held
    assert not retries.due(1e12)
    assert retries.next_try() == math.inf


def test_a_success_or_a_command_makes_a_clean_slate() -> None:
    retries = Retries()
    for at in range(MOST_FAILURES):
        fail(retries, float(at))
    retries.reset()
    assert retries.due(0.0)
    assert retries.last is not None  # what went wrong can still be read
