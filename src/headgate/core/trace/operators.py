"""What the operators of the stream queries inside a table did: in a task, in an update, in a run.

All of these are the same figures, since those of several updates add up to those of a run. Who measures them, and who
shows them, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """One operator of one query, in one or several tasks.

    ``processor`` are seconds on processors. ``peak_rows_waiting`` is the most that stood in front of it in any one
    task. ``utilisation`` is the share of the tasks' time in which rows waited for it or were at work in it (EdgeWise,
    equation 11). ``seconds`` is that time, of all tasks together.
    """

    query: str
    name: str
    kind: str
    rows_in: int
    rows_out: int
    rejected: int
    processor: float
    peak_rows_waiting: int
    utilisation: float
    seconds: float

    @property
    def cost(self) -> float:
        """Seconds of a processor per row."""
        return self.processor / self.rows_in if self.rows_in else 0.0

    @property
    def selectivity(self) -> float:
        """Rows out per row in."""
        return self.rows_out / self.rows_in if self.rows_in else 0.0


def added_up(many: Iterable[OperatorFigures]) -> tuple[OperatorFigures, ...]:
    """What each operator did in all of these together, in the order in which operators first appear.

    Sums of sums are the sum of all, so figures can be added to a total as they come.
    """
    by_operator: dict[tuple[str, str, str], list[OperatorFigures]] = {}
    for each in many:
        by_operator.setdefault((each.query, each.name, each.kind), []).append(each)
    return tuple(each[0] if len(each) == 1 else _sum(each) for each in by_operator.values())


def _sum(same: Sequence[OperatorFigures]) -> OperatorFigures:
    # A share counts by what it is a share of.
    seconds = sum(each.seconds for each in same)
    busy = sum(each.seconds * each.utilisation for each in same)
    return OperatorFigures(
        query=same[0].query,
        name=same[0].name,
        kind=same[0].kind,
        rows_in=sum(each.rows_in for each in same),
        rows_out=sum(each.rows_out for each in same),
        rejected=sum(each.rejected for each in same),
        processor=sum(each.processor for each in same),
        peak_rows_waiting=max(each.peak_rows_waiting for each in same),
        utilisation=busy / seconds if seconds else 0.0,
        seconds=seconds,
    )
