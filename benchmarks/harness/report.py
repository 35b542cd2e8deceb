"""What a person reads on standard output: the table of a run, then each claim beside what was measured."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.harness import table
from benchmarks.harness.model import Benchmark, Pivot, Results, Row

LINES = 40
HOLDS = {True: "yes", False: "no", None: "not checked"}


def print_report(benchmark: Benchmark, results: Results) -> None:
    """Title, table, claims."""
    console = _console()
    console.print(f"{benchmark.figure}: {benchmark.claim}\n", style="bold")
    _print_rows(console, _pivoted(results.rows, benchmark.pivot) if benchmark.pivot else results.rows)
    for claim in results.claims:
        console.print(f"\nclaim:      {claim.claim}")
        console.print(f"paper says: {claim.paper}")
        console.print(f"measured:   {_text(claim.measured)}")
        console.print(f"holds:      {HOLDS[claim.holds]}")


def print_list(benchmarks: Sequence[Benchmark]) -> None:
    """What `--list` shows."""
    rows = [{"name": b.name, "figure": b.figure, "claim": b.claim, "takes": b.takes} for b in benchmarks]
    _print_rows(_console(), rows, limit=len(rows))


def _console() -> Console:
    # Into a file or a pipe rich assumes 80 columns and would cut names short.
    return Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False, emoji=False)


def _print_rows(console: Console, rows: Sequence[Row], limit: int = LINES) -> None:
    shown = Table(*table.columns(rows))
    for row in rows[:limit]:
        shown.add_row(*(_text(row.get(column)) for column in table.columns(rows)))
    console.print(shown)
    if len(rows) > limit:
        console.print(f"... {len(rows) - limit} more lines; rows.csv has all")


def _pivoted(rows: Sequence[Row], pivot: Pivot) -> list[Row]:
    lines: dict[object, Row] = {}
    for cell in table.average(rows, (pivot.index, pivot.columns), pivot.value):
        line = lines.setdefault(cell[pivot.index], {pivot.index: cell[pivot.index]})
        line[str(cell[pivot.columns])] = cell["mean"]
    return list(lines.values())


def _text(cell: object) -> str:
    return "" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)
