"""What `transformWithStateInPandas` needs beyond this project's own requirements, in a folder of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.environment import run
from benchmarks.stream_spark.process import INSTALLED

#: the version that Spark 4.3's messages are made for
REQUIREMENT = "protobuf==6.33.5"


def protobuf_folder() -> Path:
    """Installs it the first time, which needs a package index; raises `NotInstalledError` if there is none."""
    folder = INSTALLED / REQUIREMENT
    if not (folder / "finished").exists():
        run(sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(folder), REQUIREMENT)
        (folder / "finished").touch()
    return folder
