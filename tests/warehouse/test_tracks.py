"""Tracks: every job that was handed over is reported, whatever goes wrong around it."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING

import pytest

from headgate.warehouse.run.session import LIVE_POOL
from headgate.warehouse.run.tracks import Done, Task, Tracks
from headgate.warehouse.updates.nodes.node import Job, Outcome
from headgate.warehouse.updates.reads import Reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import Update

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE = 60.0


class Unplannable(Job):
    """Fails before it is run, when it is asked what it has in common with others."""

    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        raise AssertionError("never comes to this")

    def hosted(self, spark: SparkSession, reads: Reads) -> Update | None:
        raise OSError("no space left")


class Failing(Job):
    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        raise ValueError("my own mistake")


def test_jobs_whose_common_part_fails_are_reported_and_the_track_goes_on(spark: SparkSession) -> None:
    reported: queue.SimpleQueue[Done] = queue.SimpleQueue()
    tracks = Tracks(spark, reported.put, time.time)
    tracks.resize(1)
    try:
        tracks.submit(0, Task({"a": Unplannable(), "b": Unplannable()}, LIVE_POOL))
        tracks.submit(0, Task({"c": Failing()}, LIVE_POOL))
        found = [reported.get(timeout=PATIENCE) for _ in range(3)]
    finally:
        tracks.resize(0)
    told = [(done.name, done.left, str(done.failure)) for done in found]
    assert [(name, left) for name, left, _ in told] == [("a", 1), ("b", 0), ("c", 0)]
    assert ["no space left" in reason for _, _, reason in told] == [True, True, False]
    assert "my own mistake" in told[2][2]
