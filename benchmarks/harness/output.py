"""The files of a run, in a folder of its own: `rows.csv`, `result.json`, `figure.png`.

Measurements are written before the picture is drawn: a mistake in drawing must not cost the run.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import machine, style, table
from benchmarks.harness.context import Context
from benchmarks.harness.model import Benchmark, Results


def as_object(benchmark: Benchmark, context: Context, results: Results) -> dict[str, Any]:
    """The whole run as one object of JSON types. JSON has no NaN and no infinity: they become null."""
    whole = {
        "benchmark": benchmark.name,
        "figure": benchmark.figure,
        "smoke": context.smoke,
        "seed": context.seed,
        "reps": context.reps,
        "machine": machine.describe(),
        "rows": list(results.rows),
        "claims": [asdict(claim) for claim in results.claims],
    }
    return {key: _json_value(value) for key, value in whole.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _json_value(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json_value(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(benchmark: Benchmark, results: Results, whole: dict[str, Any], folder: Path) -> None:
    """Writes the three files of one run into `folder`, replacing those of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    table.write_csv(results.rows, folder / "rows.csv")
    without_rows = {key: value for key, value in whole.items() if key != "rows"}
    (folder / "result.json").write_text(json.dumps(without_rows, indent=2) + "\n", encoding="utf-8")
    style.save_figure(benchmark, results.rows, folder / "figure.png")
