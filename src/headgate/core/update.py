"""One update of a table, from plan to commit.

One ``Update`` object is passed on all the way: a node plans it, the scheduler releases it, a track runs it, the trace
writes it and the live table shows it. ``headgate.warehouse.updates`` describes the path.

Moments are wall-clock seconds since the epoch and durations are seconds; event times are whole microseconds since the
epoch, as in the commits of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from traceback import format_exception
from typing import Any, Literal

from headgate.core.errors import HeadgateError, InvariantError, said_by

#: how many characters are kept of what an error says: it goes to every trace, status and log
LONGEST_LINE, LONGEST_TRACEBACK = 2_000, 50_000

Layer = Literal["live", "backfill", "maintenance", "publish"]
Status = Literal["planned", "running", "committed", "failed"]


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """The figures of one operator of one query, over one or several tasks.

    ``processor`` is processor time in seconds. ``peak_rows_waiting`` is the most rows in its queue in any one task.
    ``utilisation`` is the share of the tasks' time in which rows waited for it or were being processed (EdgeWise,
    equation 11). ``seconds`` is the time of all tasks together. ``in_queue``, ``for_a_turn`` and ``computing`` are the
    mean seconds that a row spent in the middle of the queue, at its head, and with a worker (EdgeWise's T_Q, T_S and
    T_C). ``inputs`` are the operators that feed it.
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
    in_queue: float = 0.0
    for_a_turn: float = 0.0
    computing: float = 0.0
    inputs: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """Seconds of a processor per row."""
        return self.processor / self.rows_in if self.rows_in else 0.0

    @property
    def selectivity(self) -> float:
        """Rows out per row in."""
        return self.rows_out / self.rows_in if self.rows_in else 0.0


def node_name(table: str, layer: Layer) -> str:
    """The name of a scheduler's node: the work of one layer on a table. No table can have the name of a backfill."""
    return table if layer == "live" else f"{table} ({layer})"


@dataclass(slots=True)
class Update:
    """One update. Its status goes *planned -> running -> committed or failed*.

    Planned: ``gained`` is how much fresher the table should become, in seconds of event time; an update that only
    recomputes the past gains nothing. ``gap`` is the part of it in which no data came, before the data that waits: any
    part of that data gains all of it, and it is no work. ``size`` is how much data it reads, in ``unit``, if its
    duration depends on that rather than on ``gained``. These are about all that is waiting, and, from when the update
    begins, about what it takes in. ``most`` is the largest ``size`` that it may have. ``arrived`` is, for data from a
    source, when the first and the last chunk arrived and the number of chunks. ``released`` is since when the update
    could have run. ``plan`` is what the update reads; only the node that planned it uses it.

    Running: it began on ``track`` at ``began``. The rest of what was waiting needs about ``left`` more updates.
    ``together`` are the tables whose updates share its job, in the order in which they run; none if it has its own.

    Ended: it took ``seconds``, of which ``work`` were reading, computing and writing data. ``overhead`` is the time
    spent in Headgate, including planning. ``rows`` were written and ``rejected`` were rejected. ``freshness`` is the
    event time that the table has reached, ``repairs`` how many seconds of event time before it are still to be
    recomputed. ``operators`` are those of the stream queries inside the table. ``error`` is
    None if it was committed, ``transient`` whether it may pass by itself; ``traceback`` is for the owner of the code
    that failed. ``was_passed_over`` is whether its job ended before its turn: it failed for no fault of its own.
    """

    table: str
    layer: Layer = "live"
    track: int = -1
    released: float = 0.0
    began: float = 0.0
    seconds: float = 0.0
    gained: float = 0.0
    rows: int = 0
    rejected: int = 0
    freshness: int | None = None
    arrived: tuple[float, float, int] | None = None
    overhead: float = 0.0
    error: str | None = None
    operators: tuple[OperatorFigures, ...] = ()
    repairs: float = 0.0
    together: tuple[str, ...] = ()
    # The fields below, but for ``work``, are not in the trace of a run, so they do not count when updates are compared.
    status: Status = field(default="planned", compare=False)
    gap: float = field(default=0.0, compare=False)
    size: float = field(default=0.0, compare=False)
    unit: str = field(default="", compare=False)
    most: float = field(default=math.inf, compare=False)
    left: int = field(default=0, compare=False)
    work: float = field(default=0.0, compare=False)
    transient: bool = field(default=False, compare=False)
    was_passed_over: bool = field(default=False, compare=False)
    traceback: str = field(default="", compare=False, repr=False)
    plan: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of its node: the table, its backfill or its maintenance."""
        return node_name(self.table, self.layer)

    @property
    def amount(self) -> float:
        """How much data it takes in, in the unit that its duration depends on."""
        return self.size if self.unit else self.gained

    @property
    def seconds_of_data(self) -> float:
        """The seconds of event time in which the data came that it takes in."""
        return self.gained - self.gap

    def gain_of(self, part: float) -> float:
        """How much fresher the table becomes if it takes in only a part of the data, the oldest."""
        return self.gap + part * self.seconds_of_data

    @property
    def has_joined(self) -> bool:
        """Whether it runs in a job that another update has set up."""
        return bool(self.together) and self.together[0] != self.table

    @property
    def ended(self) -> float:
        return self.began + self.seconds

    @property
    def committing(self) -> float:
        """The part of ``seconds`` that is no work: the commit, and what leads to it."""
        return max(0.0, self.seconds - self.work)

    @property
    def planning(self) -> float:
        """The part of ``overhead`` that was spent before it began."""
        return max(0.0, self.overhead - self.committing)

    @property
    def committed(self) -> bool:
        return self.status == "committed"

    def commits(self, seconds: float) -> None:
        """Note that it was committed, ``seconds`` after it began."""
        self.status = "committed"
        self.seconds = seconds
        self.overhead += seconds - self.work

    def fails(self, error: BaseException, seconds: float = 0.0, *, transient: bool = False) -> None:
        """Note that it failed, ``seconds`` after it began; all of that time counts as work, and brought nothing.

        If the error was raised from another one, the traceback is that of the other one. An error of Headgate's own
        that says everything in a line has none, because nobody has to look for it in the code.
        """
        self.status, self.transient = "failed", transient
        self.rows, self.rejected, self.freshness, self.arrived, self.operators = 0, 0, None, None, ()
        self.seconds = self.work = seconds
        self.error = first_line(error)
        expected = isinstance(error, HeadgateError) and not isinstance(error, InvariantError)
        says_all = expected and error.__cause__ is None and "\n" not in said_by(error)
        self.traceback = "" if says_all else _traceback(error.__cause__ or error)


_TRACEBACK = "Traceback (most recent call last):"


def first_line(error: BaseException) -> str:
    """What an error says, in a line: some go on with a trace of where they come from, or with all of the data.

    An error that has the traceback of another one in its text, as those of functions that Spark's workers run, says
    what that one said.
    """
    lines = said_by(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    said = lines[0]
    at = next((number for number, line in enumerate(lines[:3]) if line.endswith(_TRACEBACK)), None)
    if at is not None:
        raised = next((line for line in lines[at + 1 :] if line and not line[0].isspace()), "")
        said = f"{said.removesuffix(_TRACEBACK).rstrip()} {raised}".strip()
    return _shortened(said, LONGEST_LINE)


def _traceback(error: BaseException) -> str:
    try:
        return _shortened("".join(format_exception(error)), LONGEST_TRACEBACK)
    except Exception:  # an error of a user's own class may have anything in the fields that are shown
        return f"{type(error).__name__}: {said_by(error)}"


def _shortened(text: str, most: int) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} [... {len(text) - most:,} characters ...] {text[-(most // 2) :]}"


def added_up(many: Iterable[OperatorFigures]) -> tuple[OperatorFigures, ...]:
    """The figures added up for each operator, in the order in which operators first appear.

    The result can be added up again with further figures.
    """
    by_operator: dict[tuple[str, str, str], list[OperatorFigures]] = {}
    for each in many:
        by_operator.setdefault((each.query, each.name, each.kind), []).append(each)
    return tuple(each[0] if len(each) == 1 else _sum(each) for each in by_operator.values())


def _sum(same: Sequence[OperatorFigures]) -> OperatorFigures:
    # Shares are weighted by the time that they are a share of.
    seconds = sum(each.seconds for each in same)
    busy = sum(each.seconds * each.utilisation for each in same)
    rows = sum(each.rows_in for each in same)

    def per_row(of: Callable[[OperatorFigures], float]) -> float:
        return sum(each.rows_in * of(each) for each in same) / rows if rows else 0.0

    return replace(
        same[0],
        rows_in=rows,
        rows_out=sum(each.rows_out for each in same),
        rejected=sum(each.rejected for each in same),
        processor=sum(each.processor for each in same),
        peak_rows_waiting=max(each.peak_rows_waiting for each in same),
        utilisation=busy / seconds if seconds else 0.0,
        seconds=seconds,
        in_queue=per_row(lambda each: each.in_queue),
        for_a_turn=per_row(lambda each: each.for_a_turn),
        computing=per_row(lambda each: each.computing),
    )
