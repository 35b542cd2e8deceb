"""Whether Spark, and every executor of a cluster, reaches the store of a warehouse as the driver does.

Where Spark has the file system of an object store, or of HDFS, executors read and write files of tables there by
themselves. One without the keys, the jars or a way to the store would fail the first update that it works for, hours
later perhaps. So at the start the driver writes files with its own client, every executor reads one of them with
Spark's file system and writes another one, and the driver reads those. On one machine Java in the driver does the same.

The states of stream queries are written by Python on the executors, with the driver's client. That is tried, too, if
there are such queries.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.core import HeadgateError
from headgate.places.object_path import NoObjectStoreError, ObjectPath
from headgate.places.place import for_workers, spark_name
from headgate.places.secret_text import SECRET_NAME, without
from headgate.stream.spark.state_files import read_layer
from headgate.warehouse.updates.bad_chunks import reason_of

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, slots=True)
class StoreProbe:
    """A folder in the warehouse with files that only the driver can have written."""

    warehouse: ObjectPath
    folder: ObjectPath
    token: str

    def check_driver(self, context: SparkContext) -> None:
        """Raise NoObjectStoreError if Spark in this process does not read and write what the driver's client does."""
        jvm, hadoop = context._jvm, context._jsc.hadoopConfiguration()
        (self.folder / "driver-0").write_text(self.token)
        path_class = jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        try:
            files = path_class(spark_name(self.folder)).getFileSystem(hadoop)
            read = files.open(path_class(spark_name(self.folder / "driver-0")))
            seen = read.readLine()
            read.close()
            written = files.create(path_class(spark_name(self.folder / "spark")))
            written.writeBytes(self.token)
            written.close()
        except Exception as error:
            raise self._refused("Spark in this process", reason_of(error)) from None
        self._compare("Spark in this process", seen, self.folder / "spark")

    def check_executors(self, context: SparkContext, tasks: int, pause: float) -> set[str]:
        """Let ``tasks`` tasks read and write; returns where they ran. Raises NoObjectStoreError if one of them failed.

        A task that failed on one executor may have succeeded on another, so the failures count, and not the outcome.
        """
        round_ = secrets.token_hex(4)
        for number in range(tasks):
            (self.folder / round_ / f"driver-{number}").write_text(self.token)
        group = f"headgate-probe-{round_}"
        before = context.getLocalProperty("spark.jobGroup.id")
        context.setLocalProperty("spark.jobGroup.id", group)
        try:
            lines = context.textFile(spark_name(self.folder / round_ / "driver-*"), 1)
            lines.mapPartitions(_seen(pause)).saveAsTextFile(spark_name(self.folder / round_ / "executors"))
        except Exception as error:
            for where, why in _failures(context, group):
                raise self._refused(where, why) from None
            raise self._refused("Spark", reason_of(error)) from None
        finally:
            context.setLocalProperty("spark.jobGroup.id", before)  # type: ignore[arg-type] # None removes it
        for where, why in _failures(context, group):
            raise self._refused(where, why)
        parts = [path for path in (self.folder / round_ / "executors").iterdir() if path.name.startswith("part-")]
        found: set[str] = set()
        for part in parts:
            host, place, seen = json.loads(part.read_text())
            self._compare(f"the executor on {host} (in {place})", seen)
            found.add(f"{host} {place}")
        if len(parts) != tasks:
            raise self._refused("Spark", f"{tasks} files were written, and the driver sees {len(parts)} of them")
        return found

    def check_workers(self, context: SparkContext, tasks: int, pause: float) -> set[str]:
        """Let ``tasks`` tasks in Python write a file as they write states, and read it; returns where they ran.

        Raises NoObjectStoreError if one of them cannot.
        """
        place = for_workers(self.folder)
        assert isinstance(place, ObjectPath)
        write = _writing_states(str(place), dict(place.bucket.options), self.token, pause)
        hidden = [value for key, value in place.bucket.options if SECRET_NAME.search(key)]
        found: set[str] = set()
        for host, where, name, problem in context.parallelize(range(tasks), tasks).map(write).collect():
            if why := problem or self._unseen(name):
                raise NoObjectStoreError(
                    f"the Python of the executor on {host} (in {where}) cannot keep the states of stream queries in "
                    f"{self.warehouse}: {without(why, hidden)}. It needs the package of the store and a way to it. It "
                    "gets the options in storage= and those in the driver's environment (AWS_..., AZURE_..., "
                    "GOOGLE_...); roles and files with keys must be there on its machine"
                )
            found.add(f"{host} {where}")
        return found

    def _unseen(self, name: str) -> str:
        """Why the driver does not read the states that a worker has written; empty if it does."""
        try:
            return "" if read_layer(self.folder / name).note["token"] == self.token else "the driver reads others"
        except (OSError, HeadgateError) as error:
            return f"the driver does not see what it has written: {error}"

    def _compare(self, where: str, seen: object, written: ObjectPath | None = None) -> None:
        if seen != self.token:
            raise self._refused(where, "what it reads there is not what the driver has written")
        if written is not None:
            try:
                content = written.read_text()
            except FileNotFoundError:
                content = ""
            if content != self.token:
                raise self._refused(where, "the driver does not see what it has written")

    def _refused(self, where: str, why: str) -> NoObjectStoreError:
        hidden = [value for key, value in self.warehouse.bucket.options if SECRET_NAME.search(key)]
        name = spark_name(self.warehouse)
        return NoObjectStoreError(
            f"{where} cannot use {self.warehouse} as the driver does; for Spark it is {name}: {without(why, hidden)}. "
            f"Every executor needs the jars and the settings of {name.partition(':')[0]}:// and a way to it; on a "
            "session of your own, its settings (spark.hadoop.fs....) are yours to make"
        )


@contextmanager
def store_probe(context: SparkContext, warehouse: ObjectPath) -> Iterator[StoreProbe]:
    """A probe in ``warehouse``, which is removed at the end."""
    token = secrets.token_hex(16)
    probe = StoreProbe(warehouse, warehouse / f".headgate-probe-{token[:8]}", token)
    try:
        yield probe
    finally:
        with suppress(Exception):  # Spark's s3a leaves folders, which only it knows; and it may be what is wrong
            folder = context._jvm.org.apache.hadoop.fs.Path(spark_name(probe.folder))  # type: ignore[union-attr]
            folder.getFileSystem(context._jsc.hadoopConfiguration()).delete(folder, True)
        with suppress(OSError):
            probe.folder.delete_below()


def _seen(pause: float) -> Callable[[Iterable[str]], Iterable[str]]:
    """What an executor runs. It is sent as it is, and needs nothing that may be missing there."""

    def seen(lines: Iterable[str]) -> Iterable[str]:
        import json
        import os
        import socket
        import time

        content = list(lines)
        time.sleep(pause)
        yield json.dumps([socket.gethostname(), os.getcwd(), "".join(content)])

    return seen


def _writing_states(
    address: str, options: dict[str, str], token: str, pause: float
) -> Callable[[int], tuple[str, str, str, str]]:
    """What the Python of an executor runs: it writes and reads a file of states, with nothing in them."""

    def write(_: int) -> tuple[str, str, str, str]:
        import os
        import socket
        import time

        name, why = "", ""
        try:
            from headgate.places.place import path_from
            from headgate.stream.spark.state_files import Layer, read_layer, write_layer

            folder = path_from(address, options)
            # Not for as long as an update would try: somebody waits for the run to begin.
            path = write_layer(folder.with_patience(30.0), "probe", Layer({}, {"token": token}))  # type: ignore[union-attr]
            name = path.name
            if read_layer(path).note["token"] != token:
                why = "it reads something else than it has written"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        time.sleep(pause)
        return socket.gethostname(), os.getcwd(), name, why

    return write


def _failures(context: SparkContext, group: str) -> Iterator[tuple[str, str]]:
    """(which executor, why) of the tasks of a group of jobs that failed, whether they were repeated or not."""
    spark = context._jsc.sc()
    spark.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(group):
        info: Any = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            tasks = spark.statusStore().taskList(stage, 0, 1000).iterator()
            while tasks.hasNext():
                task = tasks.next()
                if task.status() == "FAILED":
                    why = task.errorMessage().get() if task.errorMessage().isDefined() else "no reason given"
                    yield f"the executor {task.executorId()} on {task.host()}", reason_of(Exception(os.fsdecode(why)))
