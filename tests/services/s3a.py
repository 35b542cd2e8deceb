"""The file system by which Spark reads and writes S3 itself; ``scripts/ensure_s3a.sh`` gets it."""

from __future__ import annotations

import os
from pathlib import Path

VERSION = "3.5.0"


def why_not() -> str:
    """Why Spark cannot have it here; empty if it can."""
    return "" if jars() else "Spark has no s3a; get it with scripts/ensure_s3a.sh"


def jars() -> list[str]:
    cache = os.environ.get("HEADGATE_CACHE") or Path.home() / ".cache" / "headgate"
    return sorted(str(path) for path in (Path(cache) / f"s3a-{VERSION}" / "libs").glob("*.jar"))
