"""Tidy tables: rows of any columns, written as CSV, or averaged over their repetitions."""

import csv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.model import Row


def columns(rows: Sequence[Row]) -> list[str]:
    """All columns of all rows, in order of first appearance."""
    return list(dict.fromkeys(column for row in rows for column in row))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """One line per row; a column that a row does not have stays empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns(rows))
        writer.writeheader()
        writer.writerows(rows)


def average(rows: Sequence[Row], by: Sequence[str], value: str) -> list[Row]:
    """One row per combination of the columns `by`: `mean`, `low`, `high` and `count` of `value`.

    Rows without a `value` are left out; combinations come in order of first appearance.
    """
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in rows:
        if row.get(value) is not None:
            groups.setdefault(tuple(row.get(column) for column in by), []).append(row[value])
    return [dict(zip(by, key, strict=True)) | _summary(values) for key, values in groups.items()]


def _summary(values: Sequence[float]) -> Row:
    low, high = min(values), max(values)
    # Rounding may push the mean of equal values past them, and a negative error bar cannot be drawn.
    mean = min(max(sum(values) / len(values), low), high)
    return {"mean": mean, "low": low, "high": high, "count": len(values)}
