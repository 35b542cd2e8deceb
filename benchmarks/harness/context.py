"""What a running benchmark is given: its size, its seed, and processes to run the points of its figure on.

Rows come back in the order of the arguments whatever the number of processes, so tables can be compared.
"""

from __future__ import annotations

import pickle
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.harness.model import Row
from benchmarks.harness.progress import progress

Point = Callable[..., Mapping[str, Any] | Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Context:
    """The size and the seed of one run."""

    smoke: bool
    seed: int
    jobs: int
    reps: int
    #: of the three, None leaves it to the script: which part to run, how often to do a thing, how long to go on
    part: str | None = None
    times: int | None = None
    seconds: float | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """One independent seed per repetition; variants given the same seeds see the same arrivals."""
        children = np.random.SeedSequence(self.seed).spawn(self.reps)
        return tuple(int(child.generate_state(1)[0]) for child in children)

    def points(self, function: Point, arguments: Sequence[Mapping[str, Any]], *, timed: bool = False) -> list[Row]:
        """The rows of `function(**each)` for each of `arguments`, in that order.

        `function` returns a row or a list of rows and stands at the top level of its module, so that other
        processes can find it. Points that measure wall-clock time are `timed`: they run one after another, to
        have the machine to themselves.
        """
        label = getattr(function, "__qualname__", repr(function))
        if not timed:
            _check_picklable(label, function, arguments)
        with progress(label, len(arguments)) as advance:
            if timed or self.jobs == 1:
                results = []
                for each in arguments:
                    results.append(_measure(function, each))
                    advance()
            else:
                results = _run_in_processes(function, arguments, self.jobs, advance)
        return [row for rows in results for row in rows]


def _check_picklable(label: str, function: Point, arguments: Sequence[Mapping[str, Any]]) -> None:
    """Fail in a smoke run, which needs no pickling, rather than in the full run that does."""
    try:
        pickle.dumps((function, arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"points({label}, ...): other processes cannot receive the function or its arguments ({error}); "
            "use a top-level function and plain arguments, or timed=True to stay in this process"
        ) from error


def _run_in_processes(
    function: Point, arguments: Sequence[Mapping[str, Any]], jobs: int, advance: Callable[[], None]
) -> list[list[Row]]:
    # Spawned rather than forked: a fork copies locks that NumPy's threads may hold, and can hang.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_print_on_stderr)
    try:
        futures = [pool.submit(_measure, function, each) for each in arguments]
        for future in as_completed(futures):
            future.result()
            advance()
        return [future.result() for future in futures]
    finally:
        # Not a `with`, which would run all points that still wait before it reports the one that failed.
        pool.shutdown(cancel_futures=True)


def _print_on_stderr() -> None:
    """Standard output belongs to the report; what a point prints must not get into it."""
    sys.stdout = sys.stderr


def _measure(function: Point, arguments: Mapping[str, Any]) -> list[Row]:
    try:
        result = function(**arguments)
        rows = [result] if isinstance(result, Mapping) else result
        return [{column: _plain(column, cell) for column, cell in row.items()} for row in rows]
    except Exception as error:
        point = ", ".join(f"{name}={reprlib.repr(value)}" for name, value in arguments.items())
        error.add_note(f"at the point {point}")
        raise


def _plain(column: str, cell: object) -> str | int | float | bool | None:
    if isinstance(cell, np.generic):
        cell = cell.item()
    if cell is None or isinstance(cell, str | int | float):
        return cell
    raise TypeError(f"column {column!r}: expected str, int, float, bool or None, got {cell!r}; one measurement a row")
