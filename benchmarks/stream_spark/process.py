"""Parts of a benchmark in processes of their own: options go in as JSON, what was measured comes out as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: what is made or installed once and kept
INSTALLED = ROOT / "benchmarks" / "results" / "environments"


def measured(module: str, *packages: Path, **options: Any) -> Any:
    """What `benchmarks.stream_spark.<module>` measures; `packages` are folders that it may import from.

    Spark's Python workers inherit where this project and those packages are found.
    """
    paths = [str(ROOT), *map(str, packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", f"benchmarks.stream_spark.{module}", json.dumps(options)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return json.loads(told.splitlines()[-1])


def answer(measure: Callable[..., Any]) -> None:
    """The main function of a part: measures what the command line asks for and prints it."""
    print(json.dumps(measure(**json.loads(sys.argv[1]))), flush=True)
