"""Starts Spark, lets it do what warehouses do, and stops it: what it loads then is what tests wait for.

``scripts/ensure_spark_archive.sh`` archives these classes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import functions as F

import headgate as hg
from headgate.warehouse.session import open_session

LINES = "\n".join(f'{{"ts": "2026-01-01T00:00:{i:02d}Z", "sensor": "s{i % 3}", "temp": {i}}}' for i in range(60))
SCHEMA = "ts timestamp, sensor string, temp double"


def main(folder: Path) -> None:
    """A stream and tables of all modes, updated twice; ``folder`` must not exist."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    warehouse = hg.Warehouse("small", folder / "warehouse")
    warehouse.stream("readings", hg.Files(landing, format="json", schema=SCHEMA), time="ts")
    warehouse.sql("hot", "select ts, sensor, temp from readings where temp > 40", time="ts")
    latest = "select sensor, max(ts) as at, count(distinct temp) as temps from readings group by sensor"
    warehouse.sql("latest", latest, time=None)

    @warehouse.table(time="minute")
    def minutes(readings):  # type: ignore[no-untyped-def]
        minute = F.date_trunc("minute", "ts").alias("minute")
        return readings.groupBy(minute, "sensor").agg(F.avg("temp").alias("temp"))

    spark = open_session("small", master="local[2]")
    with warehouse.start(spark=spark) as run:
        for name in ("first.json", "second.json"):
            (landing / name).write_text(LINES, encoding="utf-8")
            run.wait_until_fresh()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()
    java.wait()  # it writes the archive at its end


if __name__ == "__main__":
    main(Path(sys.argv[1]))
