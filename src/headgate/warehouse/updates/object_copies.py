"""How Spark reads and writes the files of tables in an object store.

If Spark has the file system of the store, it does so itself. If it has not, and runs on this machine, it reads copies
in a folder of this machine, and what it writes there is then put into the store. Files of tables never change, so a
copy serves all updates that read the file. A Spark on other machines needs the file system: a folder here is of no use
to it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.places.object_path import NoObjectStoreError, ObjectPath
from headgate.places.place import SPARK_PACKAGES, AnyPath, spark_name, spark_scheme

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: copies that no update reads are deleted, the oldest first, when all together have more bytes than this
MOST_BYTES = 4 << 30

#: several requests at once take little longer than one
_requests = ThreadPoolExecutor(8, thread_name_prefix="object-copies")


class ObjectCopies:
    """Copies of objects in a folder of this machine, for all updates of this process. Thread-safe.

    Invariant: a copy that is in use is there, whole. A copy is made under another name and renamed when it is complete.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._guard = threading.Lock()
        self._folder: Path | None = None
        #: {object: (its copy, its size)}, the one that was used last at the end
        self._copies: dict[ObjectPath, tuple[Path, int]] = {}
        #: {object: how many use its copy}
        self._used: dict[ObjectPath, int] = {}
        self._made = 0
        self._bytes = 0

    def use(self, objects: Sequence[ObjectPath]) -> list[Path]:
        """The copies of ``objects``, made where there are none; they stay until each is released as often."""
        with self._guard:
            for path in objects:
                self._used[path] = self._used.get(path, 0) + 1
            missing = [path for path in dict.fromkeys(objects) if path not in self._copies]
        fetching = [_requests.submit(self._fetch, path) for path in missing]
        try:
            wait(fetching)
        except BaseException:  # the update was cancelled
            self.release(objects)
            raise
        failed = next((error for each in fetching if (error := each.exception()) is not None), None)
        with self._guard:
            fetched = [
                (path, each.result()) for path, each in zip(missing, fetching, strict=True) if not each.exception()
            ]
            for path, (copy, size) in fetched:
                if path in self._copies:  # another update has fetched it at the same time
                    copy.unlink()
                    continue
                self._copies[path] = (copy, size)
                self._bytes += size
            for path in objects:
                if path in self._copies:
                    self._copies[path] = self._copies.pop(path)
            if failed is None:
                return [self._copies[path][0] for path in objects]
        self.release(objects)  # those that were fetched stay for the next try, as copies that nobody uses
        raise failed

    def release(self, objects: Iterable[ObjectPath]) -> None:
        with self._guard:
            for path in objects:
                self._used[path] -= 1
                if not self._used[path]:
                    del self._used[path]
            for path in [path for path in self._copies if path not in self._used]:
                if self._bytes <= self._most_bytes:
                    break
                copy, size = self._copies.pop(path)
                self._bytes -= size
                copy.unlink(missing_ok=True)

    def folder(self) -> Path:
        """The folder of this process, which is deleted when it ends."""
        with self._guard:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="headgate-copies-"))
                atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
            return self._folder

    def new_path(self, suffix: str = "") -> Path:
        folder = self.folder()
        with self._guard:
            self._made += 1
            return folder / f"{self._made}{suffix}"

    def _fetch(self, path: ObjectPath) -> tuple[Path, int]:
        copy = self.new_path(path.suffix)
        part = copy.with_name(f".{copy.name}")
        content = memoryview(path.read_buffer())
        try:
            part.write_bytes(content)
            part.rename(copy)
        except BaseException:  # as on a full disk
            part.unlink(missing_ok=True)
            raise
        return copy, content.nbytes


COPIES = ObjectCopies()
#: {(id of a Spark, scheme): whether it has the file system}
_has_file_system: dict[tuple[str, str], bool] = {}


@contextmanager
def spark_folder(spark: SparkSession, directory: AnyPath) -> Iterator[str]:
    """What Spark writes the files of ``directory`` to; they are in it when the context ends."""
    if isinstance(directory, Path) or reads_itself(spark, directory):
        yield spark_name(directory)
        return
    here = COPIES.new_path()
    try:
        yield str(here)
        files = [path for path in here.rglob("*.parquet") if path.is_file()]
        for _ in _requests.map(lambda path: _put(path, directory / path.relative_to(here).as_posix()), files):
            pass
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _put(file: Path, target: ObjectPath) -> None:
    target.write_bytes(file.read_bytes())


def reads_itself(spark: SparkSession, path: ObjectPath) -> bool:
    """Whether Spark has the file system of an object store."""
    return has_file_system(spark.sparkContext, spark_scheme(path))


def has_file_system(context: SparkContext, scheme: str) -> bool:
    """Whether a Spark has the file system of URLs with this scheme."""
    key = (context.applicationId, scheme)
    if key not in _has_file_system:  # asked once for each Spark: what it has does not change while it runs
        _has_file_system[key] = _finds_file_system(context, scheme)
    return _has_file_system[key]


def check_access(spark: SparkSession, warehouse: AnyPath) -> None:
    """Raise if this Spark cannot read and write the tables of a warehouse."""
    if isinstance(warehouse, Path) or str(spark.sparkContext.master).startswith("local"):
        return
    if not reads_itself(spark, warehouse):
        scheme = spark_scheme(warehouse)
        raise NoObjectStoreError(
            f"the Spark at {spark.sparkContext.master} cannot read {warehouse}: it has no file system for {scheme}://. "
            f"Add the package {SPARK_PACKAGES[scheme]} (here {_hadoop_version(spark.sparkContext)}), with "
            "--conf spark.jars.packages=... or in its folder of jars"
        )


def _hadoop_version(context: SparkContext) -> str:
    return str(context._jvm.org.apache.hadoop.util.VersionInfo.getVersion())  # type: ignore[union-attr]


def _finds_file_system(context: SparkContext, scheme: str) -> bool:
    try:
        hadoop = context._jsc.hadoopConfiguration()
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)  # type: ignore[union-attr]
    except Exception:
        return False
    return True
