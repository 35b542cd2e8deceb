"""A virtual environment with what Spark Declarative Pipelines needs beyond this project's own requirements.

It sees the packages of the environment that runs this, so pyspark is the same and only the few packages of its extra
`pipelines` are installed.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path


def python_with_pipelines(folder: Path) -> Path:
    """The Python of the environment in `folder`, which is made unless it is there."""
    python = folder / "bin" / "python"
    finished = folder / "finished"
    if not finished.exists():
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        query = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = Path(_run(str(python), "-c", query).strip())
        (packages / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        _run(str(python), "-m", "pip", "install", "--quiet", f"pyspark[pipelines]=={version('pyspark')}")
        finished.touch()
    return python


def _run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed; what it said:\n{ran.stdout}{ran.stderr}")
    return ran.stdout
