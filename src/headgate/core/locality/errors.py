"""How a scheduler refuses a call. Its own broken promises are :class:`headgate.core.errors.InvariantError`."""

from __future__ import annotations

from headgate.core.errors import HeadgateError, InvariantError


class SchedulerMisuseError(HeadgateError):
    """The caller broke the contract: unknown id, wrong thread, wrong order of calls. The scheduler is unchanged."""


def broken_invariant(number: int, detail: str) -> InvariantError:
    """The error for a numbered invariant that does not hold: nothing the scheduler says can be trusted any more."""
    return InvariantError(f"inv{number}: {detail}; this is a bug in the scheduler, not in its caller")
