"""What a running benchmark is given: its size, its seed, and processes to run the points of its figure on.

Rows come back in the order of the arguments whatever the number of processes, so tables can be compared.
"""

from __future__ import annotations

import pickle
import reprlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.harness.kept import Kept
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
    #: where points are kept as soon as they are measured; None if they are not
    kept: Kept | None = field(default=None, repr=False, compare=False)

    @property
    def seeds(self) -> tuple[int, ...]:
        """One independent seed per repetition; variants given the same seeds see the same arrivals."""
        children = np.random.SeedSequence(self.seed).spawn(self.reps)
        return tuple(int(child.generate_state(1)[0]) for child in children)

    def points(
        self,
        function: Point,
        arguments: Sequence[Mapping[str, Any]],
        *,
        timed: bool = False,
        within: float | None = None,
    ) -> list[Row]:
        """The rows of `function(**each)` for each of `arguments`, in that order.

        `function` returns a row or a list of rows and stands at the top level of its module, so that other
        processes can find it. Points that measure wall-clock time are `timed`: they run one after another, to
        have the machine to themselves. After `within` seconds no further point is begun, and the rows are of those
        that were measured. Points that were kept are not measured again.
        """
        label = getattr(function, "__qualname__", repr(function))
        if not timed:
            _check_picklable(label, function, arguments)
        ends = None if within is None else time.monotonic() + within
        results: dict[int, list[Row]] = {}
        for i, each in enumerate(arguments):
            if self.kept is not None and (rows := self.kept.get(function, each)) is not None:
                results[i] = rows
        left = [i for i in range(len(arguments)) if i not in results]
        with progress(label, len(left)) as advance:

            def done(i: int, rows: list[Row]) -> bool:
                """Note a point; whether there is time for more."""
                results[i] = rows
                if self.kept is not None:
                    self.kept.add(function, arguments[i], rows)
                advance()
                return ends is None or time.monotonic() < ends

            if timed or self.jobs == 1:
                for i in left:
                    if not done(i, _measure(function, arguments[i])):
                        break
            else:
                _run_in_processes(function, {i: arguments[i] for i in left}, self.jobs, done)
        return [row for i in sorted(results) for row in results[i]]


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
    function: Point, arguments: Mapping[int, Mapping[str, Any]], jobs: int, done: Callable[[int, list[Row]], bool]
) -> None:
    # Spawned rather than forked: a fork copies locks that NumPy's threads may hold, and can hang.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_print_on_stderr)
    try:
        futures = {pool.submit(_measure, function, each): i for i, each in arguments.items()}
        for future in as_completed(futures):
            if not future.cancelled() and not done(futures[future], future.result()):
                for other in futures:  # those that have begun still end
                    other.cancel()
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
