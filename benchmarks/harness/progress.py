"""Progress on standard error: a bar on a terminal, otherwise a line for each tenth of the way."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[], None]]:
    """Gives the function to call after each of `total` steps."""
    console = Console(stderr=True)
    if not console.is_terminal:
        steps = iter(range(1, total + 1))
        yield lambda: _print_tenths(label, next(steps), total)
        return
    # No refreshing thread: it would steal time from a timed point in this process.
    with Progress(console=console, auto_refresh=False, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.update(task, advance=1, refresh=True)


def _print_tenths(label: str, done: int, total: int) -> None:
    if done * 10 // total > (done - 1) * 10 // total:
        print(f"{label}: {done} of {total} points", file=sys.stderr, flush=True)
