"""A failing table backs off, is held, and comes back."""

from __future__ import annotations

import math

from headgate.warehouse.schedule.trouble import LONGEST_WAIT, MOST_FAILURES, Failure, Trouble


def fail(trouble: Trouble, at: float) -> None:
    trouble.failed(Failure(at, "ValueError: no", "Traceback ..."))


def test_each_failure_in_a_row_waits_twice_as_long_as_the_one_before() -> None:
    trouble = Trouble()
    waits = []
    for _ in range(MOST_FAILURES - 1):
        fail(trouble, 100.0)
        waits.append(trouble.next_try() - 100.0)
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) <= LONGEST_WAIT


def test_a_table_that_goes_on_failing_is_held_and_never_tried_again_by_itself() -> None:
    trouble = Trouble()
    for at in range(MOST_FAILURES):
        fail(trouble, float(at))
    assert trouble.held
    assert not trouble.due(1e12)
    assert trouble.next_try() == math.inf


def test_a_success_or_a_command_makes_a_clean_slate() -> None:
    for mend in (Trouble.succeeded, Trouble.resumed):
        trouble = Trouble()
        for at in range(MOST_FAILURES):
            fail(trouble, float(at))
        mend(trouble)
        assert trouble.due(0.0)
        assert trouble.last is not None  # what went wrong can still be read
