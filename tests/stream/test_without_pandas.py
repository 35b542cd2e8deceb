"""The stream engine needs no pandas: only Spark does, and queries run without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

#: windows over small integers and keys with nulls, and a function over rows, on a Python without pandas
PROBE = """
import json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
import pyarrow as pa
from headgate import stream as hs

readings = pa.table({
    "ts": pa.array([0, 10, 20, 3600, 3610, 7200], pa.timestamp("s")),
    "item": ["pen", None, "pen", "pen", "ink", "pen"],
    "price": pa.array([1, 4, None, 3, 2, 5], pa.int16()),
})
windows, doubled = hs.Collect(), hs.Collect()
query = hs.Query("hourly")
source = query.source(hs.from_batches(readings))
source.key_by("item").tumbling("ts", 3600).aggregate(n="count", most=("max", "price")).to(windows)
twice = pa.schema([("twice", pa.int32())])
source.map(lambda row: {"twice": 2 * (row["price"] or 0)}, over="row", schema=twice).to(doubled)
hs.run(query, workers=2)
json.dump({
    "windows": [[row["item"], row["n"], row["most"]] for row in windows.rows()],
    "doubled": [row["twice"] for row in doubled.rows()],
    "pandas": "pandas" in sys.modules,
}, sys.stdout)
"""


def test_a_query_with_windows_and_functions_runs_where_pandas_cannot_be_imported() -> None:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr
    assert json.loads(probe.stdout) == {
        "windows": [[None, 1, 4], ["pen", 2, 1], ["ink", 1, 2], ["pen", 1, 3], ["pen", 1, 5]],
        "doubled": [2, 8, 0, 6, 4, 10],
        "pandas": False,
    }
