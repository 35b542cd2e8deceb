"""A first pipeline: one stream, three tables. Check it, draw it, run it:

    headgate check {name}.py
    headgate graph {name}.py
    headgate run {name}.py

You can change it while it runs: when the file is saved, the run continues with the new declarations.
"""

from pyspark.sql import functions as F

import headgate as hg

wh = hg.Warehouse("{name}")

# A stream is loaded from a source. This one generates rows; to load your own files instead, use
#   hg.Files("landing/readings", format="json", schema="ts timestamp, sensor string, temp double")
wh.stream(
    "readings",
    hg.Generator("ts timestamp, sensor string, temp double", every="2 seconds", rows_per_chunk=200),
    time="ts",
    partition="10 minutes",
)


# A table is a function of data frames: its parameters name the tables that it reads.
@wh.table(time="minute", partition="10 minutes", priority=10)
def minute_temps(readings):
    """Mean and highest temperature of each sensor, by minute."""
    minute = F.date_trunc("minute", "ts").alias("minute")
    return readings.groupBy(minute, "sensor").agg(F.avg("temp").alias("temp"), F.max("temp").alias("hottest"))


# The same in SQL. It has the highest priority, so it is usually updated first when there are too few resources.
wh.sql(
    "alarms",
    "select ts, sensor, temp from readings where temp > 27",
    time="ts",
    partition="10 minutes",
    priority=100,
    target_lag="5 seconds",
)

# Tables can be built on tables.
wh.sql(
    "city_temps",
    "select minute, avg(temp) as temp, max(hottest) as hottest from minute_temps group by minute",
    time="minute",
    partition="10 minutes",
)
