"""Spark Structured Streaming: `python -m benchmarks.peers.spark`, options as in `protocol`.

`local[2]`, Parquet files in the order of time, windows in *append* mode: like Headgate, Spark gives a window out once,
when the watermark has passed it. Files are written without Hadoop's processes, see `benchmarks.spark.localfs`. Time is
from the beginning of the first micro-batch to the end of the last, in a process that has run the chain before.

Micro-batches are of all files at once, or of one file each; both are timed, and the faster counts. All files at once is
hardly streaming any more, but nobody shall say that the peer was held back.

Where it differs: Q1 gathers the different items of a ticket by the hour and makes pairs when it is over; the ranking,
which Spark does not do on streams, is made of what each micro-batch gives out, and that is whole windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.peers.protocol import CLICKS, Q1, SLICES, TOP, WORKERS, Answer, Task, this_task
from benchmarks.spark import localfs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS: Mapping[str, str] = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": str(WORKERS),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.locality.wait": "0",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
COLUMNS = {CLICKS: "ts LONG, user INT, item INT", Q1: "ts LONG, ticket LONG, item INT, store SHORT"}
HOUR = "1 hour"
#: {name of a setting: files in a micro-batch}
AT_ONCE = {"all files in one micro-batch": 1_000, "a file in each micro-batch": 1}


def clicks_counts(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    known = clicks.where("user >= 0 AND item >= 0").withColumn("at", F.timestamp_seconds("ts"))
    counted = known.withWatermark("at", "0 seconds").groupBy(F.window("at", HOUR), "item").agg(F.count("*").alias("n"))
    return counted.select(_hour(), "item", "n")


def q1_counts(lines: DataFrame) -> DataFrame:
    """Of all pairs."""
    from pyspark.sql import functions as F

    timed = lines.withColumn("at", F.timestamp_seconds("ts")).withWatermark("at", "0 seconds")
    tickets = timed.groupBy(F.window("at", HOUR), "ticket").agg(F.collect_set("item").alias("items"))
    left = tickets.select(F.window_time("window").alias("at"), "items", F.explode("items").alias("a"))
    pairs = left.select("at", "a", F.explode("items").alias("b")).where("a < b")
    counted = pairs.groupBy(F.window("at", HOUR), "a", "b").agg(F.count("*").alias("n"))
    return counted.select(_hour(), "a", "b", "n")


def q1_ranking(counts: DataFrame) -> DataFrame:
    """Of whole windows."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("hour").orderBy(F.desc("n"), "a", "b")
    ranked = counts.withColumn("place", F.row_number().over(order)).where(f"place <= {TOP}")
    return ranked.select("hour", "place", "a", "b", "n")


def _hour() -> Column:
    from pyspark.sql import functions as F

    return F.expr("unix_seconds(window.start) DIV 3600").alias("hour")


Step = Callable[["DataFrame"], "DataFrame"]
#: {chain: what is done on the stream, and with what each micro-batch gives out}
CHAINS: Mapping[str, tuple[Step, Step | None]] = {CLICKS: (clicks_counts, None), Q1: (q1_counts, q1_ranking)}


def run_once(spark: SparkSession, task: Task, files: int, number: int, format: str) -> float:
    """Seconds of one run that writes in this format: csv, or noop for nowhere."""
    reader = spark.readStream.schema(COLUMNS[task.chain]).option("maxFilesPerTrigger", files)
    on_stream, on_batch = CHAINS[task.chain]
    frame = on_stream(reader.parquet(str(task.inputs / SLICES)))
    writer = frame.writeStream.outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(task.out / f"checkpoint-{number}"))
    if on_batch is None:
        query = writer.format(format).option("path", str(task.rows)).start()
    else:

        def write(counts: DataFrame, batch: int) -> None:
            on_batch(counts).write.format(format).mode("append").save(str(task.rows))

        query = writer.foreachBatch(write).start()
    query.awaitTermination()
    return _seconds(query)


def _seconds(query: StreamingQuery) -> float:
    progress = query.recentProgress
    begins = [datetime.fromisoformat(each.timestamp) for each in progress]
    ends = [
        begin + timedelta(milliseconds=each.durationMs["triggerExecution"])
        for begin, each in zip(begins, progress, strict=True)
    ]
    return (max(ends) - min(begins)).total_seconds()


def main() -> None:
    from pyspark.sql import SparkSession

    task = this_task()
    builder = SparkSession.builder.appName("stream_peers").master(f"local[{WORKERS}]")
    for key, value in {**SETTINGS, **localfs.settings(task.out)}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    run_once(spark, task, AT_ONCE["all files in one micro-batch"], 0, "csv")
    seconds: dict[str, list[float]] = {name: [] for name in AT_ONCE}
    for repetition in range(task.reps):
        for place, (name, files) in enumerate(AT_ONCE.items(), start=1):
            seconds[name].append(run_once(spark, task, files, repetition * len(AT_ONCE) + place, "noop"))
    spark.stop()
    best = min(seconds, key=lambda name: median(seconds[name]))
    listed = "; ".join(f"{name}: {median(each):.2f} s" for name, each in seconds.items())
    Answer(seconds[best], "parquet", f"first to last micro-batch after a first run; {listed}").write(task)


if __name__ == "__main__":
    main()
