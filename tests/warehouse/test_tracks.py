"""Tracks: every update that was handed over is reported, whatever goes wrong around it."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.core.update import Update
from headgate.warehouse.run.tracks import Tracks
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.spark_files import FileReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE = 300.0


class Failing(Node):
    """Fails when it is run, and when it is prepared to run together with others."""

    def __init__(self, folder: Path) -> None:
        self.table = "failing"
        self.store = TableStore(folder)

    def plan(self) -> Update | None:
        return self._planned(1.0)

    def begin(self, update: Update, most_seconds: float = 0.0) -> bool:
        return True

    def prepare(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        raise OSError("no space left")

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        raise ValueError("my own mistake")


class SpeechlessError(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("details")


class Wordless(Failing):
    """Fails with an error that cannot say what it is."""

    def run(self, *_: object, **__: object) -> None:
        raise SpeechlessError


def test_an_error_that_cannot_be_told_is_reported_and_the_track_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    reported: queue.SimpleQueue[Update] = queue.SimpleQueue()
    node = Wordless(tmp_path)
    tracks = Tracks(spark, lambda update: node, reported.put, time.time)
    tracks.resize(1)
    try:
        for table in "ab":
            tracks.submit(0, [Update(table)])
            assert "SpeechlessError" in str(reported.get(timeout=PATIENCE).error)
    finally:
        tracks.resize(0)


def test_updates_whose_common_part_fails_are_reported_and_the_track_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: queue.SimpleQueue[Update] = queue.SimpleQueue()
    node = Failing(tmp_path)
    tracks = Tracks(spark, lambda update: node, reported.put, time.time)
    tracks.resize(1)
    try:
        tracks.submit(0, [Update("a"), Update("b")])
        tracks.submit(0, [Update("c")])
        found = [reported.get(timeout=PATIENCE) for _ in range(3)]

        def cannot_share(updates: object) -> None:
            raise RuntimeError("no plan for all of them")

        monkeypatch.setattr("headgate.warehouse.run.tracks.share_passes", cannot_share)
        tracks.submit(0, [Update("d"), Update("e")])
        found += [reported.get(timeout=PATIENCE) for _ in range(2)]
    finally:
        tracks.resize(0)
    assert [(update.table, update.status) for update in found] == [(name, "failed") for name in "abcde"]
    reasons = ["no space left"] * 2 + ["my own mistake"] + ["no plan for all of them"] * 2
    assert [update.error for update in found] == reasons
    assert all(reason in update.traceback for reason, update in zip(reasons, found, strict=True))


class Waiting(Failing):
    """Waits for ``go_on``, as a function that does not return."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.entered, self.go_on = threading.Event(), threading.Event()

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        self.entered.set()
        self.go_on.wait()


@pytest.mark.parametrize("tracks_then", [1, 2])
def test_an_update_that_does_not_end_is_given_up_even_if_its_track_was_removed_meanwhile(
    spark: SparkSession, tmp_path: Path, tracks_then: int
) -> None:
    reported: queue.SimpleQueue[Update] = queue.SimpleQueue()
    nodes = {"waiting": Waiting(tmp_path / "waiting"), "failing": Failing(tmp_path / "failing")}
    tracks = Tracks(spark, lambda update: nodes[update.table], reported.put, time.time)
    tracks.resize(2)
    waiting = nodes["waiting"]
    assert isinstance(waiting, Waiting)
    try:
        tracks.submit(1, [Update("waiting")])
        assert waiting.entered.wait(PATIENCE)
        tracks.resize(1)
        tracks.resize(tracks_then)
        tracks.replace(1)
        tracks.submit(tracks_then - 1, [Update("failing")])
        assert reported.get(timeout=PATIENCE).table == "failing"
        waiting.go_on.set()
        assert reported.get(timeout=PATIENCE).table == "waiting"
    finally:
        waiting.go_on.set()
        tracks.resize(0)


class Sharing(Waiting):
    """The same in a job that it shares with others."""

    def prepare(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        return None


def test_updates_behind_one_that_does_not_end_are_withdrawn_and_never_begin(
    spark: SparkSession, tmp_path: Path
) -> None:
    reported: queue.SimpleQueue[Update] = queue.SimpleQueue()
    nodes = {name: Sharing(tmp_path / name) for name in ("waiting", "behind")}
    tracks = Tracks(spark, lambda update: nodes[update.table], reported.put, time.time)
    tracks.resize(1)
    waiting, behind = Update("waiting", track=0), Update("behind", track=0)
    try:
        tracks.submit(0, [waiting, behind])
        assert nodes["waiting"].entered.wait(PATIENCE)
        assert not behind.began, "its time begins with its turn"
        assert tracks.withdraw([waiting, behind]) == [behind]
        nodes["waiting"].go_on.set()
        assert reported.get(timeout=PATIENCE).table == "waiting"
    finally:
        for node in nodes.values():
            node.go_on.set()
        tracks.close(PATIENCE)
    assert reported.empty()
    assert behind.status == "planned"
    assert not nodes["behind"].entered.is_set()


class Preparing(Sharing):
    """Waits when it is prepared."""

    def prepare(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        self.entered.set()
        self.go_on.wait()
        raise ValueError("my own mistake")


def test_one_that_is_being_prepared_cannot_be_withdrawn_and_is_reported_when_that_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    reported: queue.SimpleQueue[Update] = queue.SimpleQueue()
    nodes = {name: Preparing(tmp_path / name) for name in ("first", "preparing", "behind")}
    tracks = Tracks(spark, lambda update: nodes[update.table], reported.put, time.time)
    tracks.resize(1)
    nodes["first"].go_on.set()
    job = [Update(name, track=0) for name in nodes]
    try:
        tracks.submit(0, job)
        assert nodes["preparing"].entered.wait(PATIENCE)
        assert [update.table for update in tracks.withdraw(job)] == ["first", "behind"]
        nodes["preparing"].go_on.set()
        found = reported.get(timeout=PATIENCE)
        assert (found.table, found.error) == ("preparing", "my own mistake")
    finally:
        for node in nodes.values():
            node.go_on.set()
        tracks.close(PATIENCE)
    assert reported.empty()
    assert not nodes["behind"].entered.is_set(), "it was withdrawn, so nothing of it is prepared either"
