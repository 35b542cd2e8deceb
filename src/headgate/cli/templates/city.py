"""A city's sensors, with generated data: the pipeline of `headgate demo`.

Four streams with periods from 2 to 30 seconds, and twelve tables over three levels with priorities from 1 to 100: more
than a small machine can keep fresh at the same time. The tables go to `city.warehouse` beside this file.
"""

from pyspark.sql import functions as F

import headgate as hg

wh = hg.Warehouse("city")

SENSORS = "ts timestamp, sensor string, temp double"


def sensors(every, seed, rows=400):
    """A stream in which some rows are late and some malformed."""
    return hg.Generator(
        SENSORS, every=every, seed=seed, rows_per_chunk=rows, late=0.01, late_by="1 min", malformed=0.002
    )


wh.stream("air", sensors("2 seconds", 1), time="ts", period="2 seconds", partition="1 min")
wh.stream("traffic", sensors("5 seconds", 2), time="ts", period="5 seconds", partition="1 min")
wh.stream("weather", sensors("10 seconds", 3), time="ts", period="10 seconds", partition="1 min")
wh.stream("meters", sensors("30 seconds", 4, rows=2_000), time="ts", period="30 seconds", partition="1 min")

# Level 1: alarms only append new rows; the other tables merge them into their groups.
for stream, limit in (("air", 28), ("traffic", 27)):
    wh.sql(
        f"{stream}_alarm",
        f"select ts, sensor, temp from {stream} where temp > {limit}",
        time="ts",
        partition="1 min",
        priority=100,
        target_lag="10 seconds",
    )

BY_MINUTE = """
    select date_trunc('minute', ts) as minute, sensor, avg(temp) as temp, max(temp) as hottest, count(*) as n
    from {stream} group by 1, 2
"""
for stream, priority in (("air", 20), ("traffic", 10), ("weather", 5), ("meters", 1)):
    wh.sql(f"{stream}_by_minute", BY_MINUTE.format(stream=stream), time="minute", partition="1 min", priority=priority)


# Level 2: across sensors and across streams.
@wh.table(time="minute", partition="1 min", priority=20)
def air_now(air_by_minute):
    """The mean over all sensors, by minute."""
    return air_by_minute.groupBy("minute").agg(F.avg("temp").alias("temp"), F.sum("n").alias("n"))


@wh.table(time="minute", partition="1 min", priority=10)
def exposure(air_by_minute, traffic_by_minute):
    """Air where there is traffic: a join of two tables that are not equally fresh."""
    cars = traffic_by_minute.groupBy("minute").agg(F.sum("n").alias("cars"))
    air = air_by_minute.groupBy("minute").agg(F.max("hottest").alias("hottest"))
    return air.join(cars, "minute")


@wh.table(time="minute", partition="1 min", priority=5)
def weather_and_air(weather_by_minute, air_by_minute):
    """What the weather does to the air."""
    weather = weather_by_minute.groupBy("minute").agg(F.avg("temp").alias("outside"))
    air = air_by_minute.groupBy("minute").agg(F.avg("temp").alias("air"))
    return weather.join(air, "minute")


# Level 3: a daily roll-up and a dashboard.
@wh.table(time="day", partition="1 day", priority=1)
def air_by_day(air_now):
    """One row a day."""
    return air_now.groupBy(F.date_trunc("day", "minute").alias("day")).agg(
        F.avg("temp").alias("temp"), F.sum("n").alias("n")
    )


@wh.table(time="minute", partition="1 min", priority=50)
def dashboard(exposure, weather_and_air):
    """Everything of a minute in one row."""
    return exposure.join(weather_and_air, "minute")


wh.sql(
    "meter_total", "select minute, sum(n) as n from meters_by_minute group by minute", time="minute", partition="1 min"
)
