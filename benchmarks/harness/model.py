"""The nouns of a benchmark: what a script declares and what its run hands back. Plain data, no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.harness.context import Context

#: One measurement: column name -> str, int, float, bool or None. `Context.points` refuses other cells.
Row = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper beside what we measured; `holds` is None if this run was too small to tell."""

    claim: str
    paper: str
    measured: str | float
    holds: bool | None

    def __post_init__(self) -> None:
        # Comparisons of NumPy numbers give numpy.bool, which is neither True nor False nor JSON.
        if self.holds is not None:
            object.__setattr__(self, "holds", bool(self.holds))


@dataclass(frozen=True)
class Results:
    """Everything a run measured, as a tidy table, and the claims checked against it."""

    rows: Sequence[Row]
    claims: Sequence[Claim]


@dataclass(frozen=True)
class Pivot:
    """How the printed table folds the rows: a line per `index`, a column per `columns`, means of `value`."""

    index: str
    columns: str
    value: str


@dataclass(frozen=True)
class Benchmark:
    """A figure of a paper that can be run again. `name` is the name of the script's module."""

    name: str
    figure: str
    claim: str
    takes: str
    run: Callable[[Context], Results]
    draw: Callable[[Figure, Sequence[Row]], None]
    pivot: Pivot | None = None
    #: Repetitions of a full run unless --reps says otherwise.
    reps: int = 5
    #: What `python -m benchmarks NAME PART` may name, for a benchmark that consists of experiments of their own.
    parts: Sequence[str] = ()
