"""The executors of a cluster: how many cores there are, and whether all machines see the place of a warehouse.

Spark does not notice that an executor writes to a disk of its own: it reports no error, and the rows are lost. So
before anything is written, every executor reads a file that the driver has written, and the other way round. On one
machine (``local[...]``) there is nothing to find out about folders. For an object store and HDFS see ``store_probe``.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError, HeadgateError
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath, spark_scheme
from headgate.warehouse.run.store_probe import store_probe
from headgate.warehouse.shipping import is_local
from headgate.warehouse.sources.protocol import ReadsFolders
from headgate.warehouse.updates.bad_chunks import reason_of
from headgate.warehouse.updates.object_copies import has_file_system

if TYPE_CHECKING:
    from pyspark import SparkContext

    from headgate.warehouse.declare.spec import DimensionSpec, StreamSpec, WarehouseSpec

#: how long a cluster may take to give the first executor, in seconds
FIRST_EXECUTOR_SECONDS = 60.0
#: how long the tasks of each look at the executors pause, so that every executor gets one of them
_PAUSES = (0.0, 0.1, 0.3, 1.0, 1.0, 1.0)
_WAREHOUSE = "the path of the warehouse"
_REMEDY = (
    "Put it on a disk that all machines of the cluster mount at the same path, or keep the tables in an object store"
)


class NotSharedError(DeclarationError):
    """A folder of the warehouse is on one machine, and Spark runs on several."""


class NoExecutorError(HeadgateError):
    """A cluster gives no executors, or they cannot run Python for Headgate."""


# --- what a cluster has -----------------------------------------------------------------------------------------


def executor_ids(context: SparkContext) -> frozenset[str]:
    """The executors that are there now."""
    return frozenset(context._jsc.sc().getExecutorIds().mkString("\n").split())


def core_count(context: SparkContext) -> int:
    """How many tasks can run at the same time on the executors that are there now."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def cluster_cores(context: SparkContext) -> int:
    """``core_count`` of a cluster; 0 if there are no other machines."""
    return 0 if is_local(context.master) else core_count(context)


def wait_for_executors(context: SparkContext, seconds: float = FIRST_EXECUTOR_SECONDS) -> None:
    """Wait for the first executor of a cluster; raises NoExecutorError if it does not come.

    With dynamic allocation there may be none until there is work, so nothing is waited for.
    """
    if is_local(context.master) or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    end = time.monotonic() + seconds
    while not executor_ids(context):
        if time.monotonic() > end:
            raise NoExecutorError(
                f"{context.master} has given no executor in {seconds:.0f} s: has it a worker with enough free cores "
                "and memory (spark.executor.cores, spark.executor.memory, spark.cores.max), and can the worker reach "
                f"this machine as {context.getConf().get('spark.driver.host')} (spark.driver.host)?"
            )
        time.sleep(0.1)


# --- whether it is one disk -------------------------------------------------------------------------------------


def refuse_unshared(spec: WarehouseSpec, master: str | None, shared: bool) -> None:
    """Raise NotSharedError if the warehouse has folders on this machine, the master is a cluster, and nobody has said
    that all machines share the folders."""
    on_this_machine = is_local(master) or str(master).startswith("local-cluster")  # its executors are processes here
    if on_this_machine or shared:
        return
    for what, folder in _folders(spec):
        raise NotSharedError(
            f"{what} is {folder}, a folder on this machine, and Spark at {master} computes on others, which would read "
            f"and write their own disks. {_REMEDY}. If all machines share this disk already, say so: "
            "Warehouse(..., shared=True), or --shared"
        )


def check_executors(
    context: SparkContext, spec: WarehouseSpec, on_message: Callable[[str], None], *, with_states: bool = False
) -> frozenset[str]:
    """Raise NotSharedError if an executor does not see the folders of the warehouse as the driver does, and
    NoObjectStoreError if Spark does not reach the store that it is in. ``with_states``: nor if its Python does not,
    which writes the states of stream queries.

    Returns the executors if all of them were looked at, else none: those that are busy with other work all the time get
    no task of ours, and which they are cannot be told.
    """
    place = spec.folder()
    if is_local(context.master):
        if isinstance(place, ObjectPath) and has_file_system(context, spark_scheme(place)):
            with store_probe(context, place) as found:
                found.check_driver(context)
        return frozenset()
    samples = [sample for what, folder in _folders(spec) if what != _WAREHOUSE for sample in _samples(folder)]
    probe = _Probe.made_in(str(place)) if isinstance(place, Path) else None
    try:
        looks: dict[tuple[str, str], _Look] = {}
        known: frozenset[str] = frozenset()
        for pause in _PAUSES:
            known = executor_ids(context)
            for look in _looks(context, probe, samples, pause):
                looks[look.host, look.place] = look
                _refuse_blind(look, probe)
            if len(looks) >= len(known):
                break
        for text in sorted({look.lacks for look in looks.values() if look.lacks}):
            on_message(f"{text}. Tables with Python functions will fail: install it there, or say another interpreter")
        if len(looks) < len(known) or (isinstance(place, ObjectPath) and not _all_reach(context, place)):
            return frozenset()
        if with_states and not all_keep_states(context, place):
            return frozenset()
        return known
    finally:
        if probe is not None:
            shutil.rmtree(probe.folder, ignore_errors=True)


def _all_reach(context: SparkContext, place: ObjectPath) -> bool:
    """Whether all executors were asked to read and write in the store of a warehouse; raises if one cannot."""
    found: set[str] = set()
    with store_probe(context, place) as probe:
        probe.check_driver(context)
        for pause in _PAUSES:
            found |= probe.check_executors(context, max(1, core_count(context)), pause)
            if len(found) >= len(executor_ids(context)):
                return True
    return False


def all_keep_states(context: SparkContext, place: AnyPath) -> bool:
    """Whether the Python of all executors was asked to write a file as it writes states; raises if one cannot.

    In a folder that all machines share there is nothing more to find out, and on one machine nothing at all.
    """
    if not isinstance(place, ObjectPath) or is_local(context.master):
        return True
    found: set[str] = set()
    with store_probe(context, place) as probe:
        for pause in _PAUSES:
            found |= probe.check_workers(context, max(1, core_count(context)), pause)
            if len(found) >= len(executor_ids(context)):
                return True
    return False


def _folders(spec: WarehouseSpec) -> Iterator[tuple[str, str]]:
    """What it is, and a folder that this machine and all executors must see, perhaps as a pattern; all are absolute."""
    if isinstance(place := spec.folder(), Path):
        yield _WAREHOUSE, str(place)
    loaded: tuple[StreamSpec | DimensionSpec, ...] = (*spec.streams, *spec.dimensions)
    for node in loaded:
        if isinstance(node.source, ReadsFolders):
            yield from ((f"the source of {node.name!r}", folder) for folder in node.source.folders())


def _samples(folder: str) -> list[str]:
    """Files or folders that an executor must see if it sees this folder; none if there is no folder yet."""
    found = []
    for path in glob.glob(folder):
        try:
            with os.scandir(path) as entries:
                found.append(next((entry.path for entry in entries), path))
        except NotADirectoryError:
            found.append(path)
        except OSError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class _Probe:
    """A folder in the warehouse with a file that only its writer can know."""

    folder: Path
    token: str

    @classmethod
    def made_in(cls, warehouse: str) -> _Probe:
        token = secrets.token_hex(16)
        folder = Path(warehouse) / f".headgate-probe-{token[:8]}"
        folder.mkdir(parents=True)
        (folder / "driver").write_text(token)
        return cls(folder, token)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a task on an executor has found.

    ``answer`` is the file that it has written into the probe's folder; ``blind`` why it could not. ``missing`` is what
    it does not see of a source, ``lacks`` which package its Python has not. All are empty if there is nothing to say.
    """

    host: str
    place: str
    answer: str
    blind: str
    missing: str
    lacks: str


def _looks(context: SparkContext, probe: _Probe | None, samples: list[str], pause: float) -> list[_Look]:
    folder, token = ("", "") if probe is None else (str(probe.folder), probe.token)
    look = _looking(folder, token, samples, pause)
    tasks = max(1, core_count(context))
    try:
        found: list[tuple[str, ...]] = context.parallelize(range(tasks), tasks).map(look).collect()
    except Exception as error:
        raise NoExecutorError(
            f"the executors of {context.master} cannot run Python for Headgate: {reason_of(error)}. They need the "
            "driver's version of Python with pyspark, also if all tables are SQL: it looks whether they see the "
            "folders and the store of the warehouse. spark.pyspark.python names the interpreter there"
        ) from error
    return [_Look(*each) for each in found]


def _looking(folder: str, token: str, samples: list[str], pause: float) -> Callable[[int], tuple[str, ...]]:
    """The function that an executor runs. It is sent as it is, and needs nothing that may be missing there."""

    def look(_: int) -> Any:
        import importlib
        import os
        import socket
        import time
        import uuid

        answer, blind, lacks, host = "", "", "", socket.gethostname()
        missing = next((sample for sample in samples if not os.path.lexists(sample)), "")
        try:
            if folder:
                with open(os.path.join(folder, "driver")) as file:
                    if file.read() != token:
                        raise OSError(0, "there is another file")
                answer = f"executor-{uuid.uuid4().hex}"
                with open(os.path.join(folder, answer), "w") as file:
                    file.write(token)
        except OSError as error:
            blind = error.strerror or str(error)
        for name in ("pyarrow", "pandas", "headgate.stream.spark.task"):
            try:
                importlib.import_module(name)
            except ImportError as error:
                lacks = lacks or f"the Python of the executor on {host} cannot import {name}: {error}"
        time.sleep(pause)
        return host, os.getcwd(), answer, blind, missing, lacks

    return look


def _refuse_blind(look: _Look, probe: _Probe | None) -> None:
    where = f"the executor on {look.host} (in {look.place})"
    if look.missing and os.path.lexists(look.missing):  # a file of a source may be gone by now for everybody
        raise NotSharedError(f"{where} does not see {look.missing}, which the driver sees. {_REMEDY}")
    if probe is None:
        return
    path = f"{_WAREHOUSE}, {probe.folder.parent}"
    if look.blind:
        raise NotSharedError(f"{where} does not share {path}: {look.blind}. {_REMEDY}")
    try:
        seen = (probe.folder / look.answer).read_text() == probe.token
    except OSError:
        seen = False
    if not seen:
        raise NotSharedError(f"the driver does not see what {where} has written into {path}. {_REMEDY}")
