"""A virtual environment for each peer, below the results: none of them is a dependency of this project.

Made with venv and pip the first time, which takes minutes and needs a package index; versions are pinned.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

#: seconds after which an installation is given up
PATIENCE = 900


class NotInstalledError(Exception):
    """Says why a peer cannot be had here."""


def python_with(folder: Path, requirements: tuple[str, ...], finish: Callable[[Path], None] | None = None) -> Path:
    """The Python of the environment in `folder`, which is made unless it is there with these very requirements."""
    python = folder / "bin" / "python"
    finished = folder / "finished"
    wanted = "\n".join(requirements)
    if not finished.exists() or finished.read_text(encoding="utf-8") != wanted:
        run(sys.executable, "-m", "venv", "--clear", str(folder))
        run(str(python), "-m", "pip", "install", "--quiet", *requirements)
        if finish is not None:
            finish(python)
        finished.write_text(wanted, encoding="utf-8")
    return python


def run(*command: str) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"{' '.join(command[:4])}: {error}") from error
    if ran.returncode != 0:
        said = (ran.stderr or ran.stdout).strip().splitlines()
        raise NotInstalledError(f"{' '.join(command[:4])} failed: {said[-1] if said else 'it said nothing'}")
    return ran.stdout


def add_parquet_to_flink(python: Path, version: str) -> None:
    """Flink reads Parquet with a library of its own, which Maven has, and Hadoop's, which Spark brings along.

    Without them the peer reads text; that must not keep it from running.
    """
    import pyspark

    query = "import pyflink; print(pyflink.__path__[0])"
    libraries = Path(run(str(python), "-c", query).strip()) / "lib"
    artifact = f"-Dartifact=org.apache.flink:flink-sql-parquet:{version}"
    try:
        run("mvn", "--batch-mode", "--quiet", "dependency:copy", artifact, f"-DoutputDirectory={libraries}")
    except NotInstalledError as error:
        print(f"Flink will read text instead of Parquet: {error}", file=sys.stderr)
        return
    for library in (Path(pyspark.__path__[0]) / "jars").glob("hadoop-client-*.jar"):
        shutil.copy(library, libraries)
