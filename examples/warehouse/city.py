"""A city's sensors as a warehouse: three streams of files, and tables over two levels."""

from pyspark.sql import functions as F

import headgate as hg

wh = hg.Warehouse("city")

readings = wh.stream(
    "readings",
    hg.Files("landing/readings", format="json", schema="ts timestamp, sensor string, temp double, humidity double"),
    time="ts",
    period="10 seconds",
    partition="10 minutes",
    comment="one line per sensor and measurement",
)

traffic = wh.stream(
    "traffic",
    hg.Files("landing/traffic", format="csv", schema="ts timestamp, road string, cars int"),
    time="ts",
    period="30 seconds",
    partition="10 minutes",
)


@wh.table(time="minute", partition="1 hour", priority=10)
def minute_temps(readings):
    """The mean temperature of every sensor, by minute."""
    minute = F.date_trunc("minute", "ts").alias("minute")
    return readings.groupBy(minute, "sensor").agg(F.avg("temp").alias("temp"))


wh.sql(
    "alerts",
    "select ts, sensor, temp from readings where temp > 40",
    time="ts",
    priority=100,
    target_lag="15 seconds",
)


@wh.table(time="minute", partition="1 hour", priority=5)
def heat_and_traffic(minute_temps, traffic):
    """How many cars there were at which temperature."""
    cars = traffic.groupBy(F.date_trunc("minute", "ts").alias("minute")).agg(F.sum("cars").alias("cars"))
    temps = minute_temps.groupBy("minute").agg(F.avg("temp").alias("temp"))
    return temps.join(cars, "minute")
