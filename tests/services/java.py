"""Options of Java for processes that live for seconds or minutes. As a program, it prints them."""

from __future__ import annotations

import sys
from pathlib import Path

#: the classes that Spark loads when it starts, by scripts/ensure_spark_archive.sh
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: no time for the better compiler, nor threads of the collector that take the processors from others
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: an archive that does not fit is ignored, and need not be told of
_ARCHIVED = f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"

QUICK_JAVA = _QUICK + _ARCHIVED * ARCHIVE.exists()

if __name__ == "__main__":
    print(QUICK_JAVA)
