"""The Spark session of a warehouse, set up for many small jobs from a few threads.

Every setting that differs from Spark's default has its reason beside it; measurements are in ``docs/warehouse.md``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate.core import DeclarationError
from headgate.places.secret_text import SECRET_NAME
from headgate.warehouse.shipping import is_installed, is_local, ship_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: The largest size of a packet of rows for Python. Spark checks the size after every row, which takes as long as the
#: rest of the transfer. A limit that cannot be reached avoids the check; the number of rows is limited anyway.
_PACKET_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ANY_SIZE, _SPARKS_OWN_SIZE = str(2**31 - 1), str(64 << 20)

_SETTINGS: Mapping[str, str] = {
    # Tasks of a long job must not keep those of a short one waiting.
    "spark.scheduler.mode": "FAIR",
    # Small updates: 200 reduce tasks would be 199 too many, and adaptive execution re-plans what is known already.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # Updates of a few files in one task: on two cores 48 ms instead of 65 (see `tune` for large ones).
    "spark.sql.optimizer.singleTaskExecution.enabled": "true",
    "spark.sql.optimizer.singleTaskExecution.maxNumFiles": "1000",
    # Hundreds of tables have thousands of generated classes; with the default of 100 they are compiled again and again.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Files are named one by one; listing them must not become a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.locality.wait": "0",
    # Event times are UTC with microseconds everywhere; Spark's default, INT96, is not read by others.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A flipped bit in a data file becomes an error instead of a wrong number, for no time that could be measured.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    _PACKET_BYTES: _ANY_SIZE,
    # A driver that runs for weeks must not keep the history of all jobs.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "25",
    "spark.scheduler.listenerbus.eventqueue.capacity": "50000",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.sql.maxPlanStringLength": "1000",
}

#: for jobs that read little: no shuffle where one task can do everything, and no planning again half-way
_SMALL: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.singleTaskExecution.maxNumFiles": "1000",
}
#: for jobs that read much
_LARGE: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.optimizer.singleTaskExecution.maxNumFiles": "1",
}
#: up to this size one task is as fast as many
SMALL_BYTES = 8 << 20
#: up to this size no packet of a job can be too large
MODEST_BYTES = 64 << 20


class ConnectSessionError(DeclarationError):
    """A warehouse was to run on Spark Connect, which is not supported."""


#: settings of Spark with this beginning are those of Hadoop
_HADOOP = "spark.hadoop."
#: settings with this beginning name catalogs and say how to reach them
_CATALOGS = "spark.sql.catalog."


def tune(session: SparkSession, bytes_to_read: int) -> None:
    """Set ``session`` for a job that reads this much. The session must run one job at a time."""
    wanted = _SMALL if bytes_to_read <= SMALL_BYTES else _LARGE
    if session.conf.get("spark.sql.adaptive.enabled") != wanted["spark.sql.adaptive.enabled"]:
        for key, value in wanted.items():
            session.conf.set(key, value)
    packet = _ANY_SIZE if bytes_to_read <= MODEST_BYTES else _SPARKS_OWN_SIZE
    if session.conf.get(_PACKET_BYTES) != packet:
        session.conf.set(_PACKET_BYTES, packet)


def own_session(spark: SparkSession, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A new session on the Spark of a user's session, with our settings and ``conf``; the user's stays as it is.

    It has the catalogs of the user's session. What holds for all of a running Spark, such as its memory, cannot be
    changed and is skipped. If it is a cluster, this package is sent to its executors.
    """
    ship_package(spark.sparkContext)
    catalogs = {key: value for key, value in spark.conf.getAll.items() if key.startswith(_CATALOGS)}
    return _with_settings(spark.newSession(), {**catalogs, **_SETTINGS, **(conf or {})})


def refuse_connect(spark: object, master: str) -> None:
    """Raise ConnectSessionError for a session of Spark Connect, or the address of one: it has no Java of its own."""
    is_session = type(spark).__module__.startswith("pyspark.sql.connect.")
    if not is_session and not master.startswith("sc://"):
        return
    got = "this session is one of Spark Connect" if is_session else f"{master.partition(';')[0]} is Spark Connect"
    raise ConnectSessionError(
        f"{got}, which cannot run a warehouse: updates are cancelled, shipped and reported through sparkContext, which "
        "it has not. Run the driver where Spark runs, with a classic session (SparkSession.builder.master(...), and no "
        "SPARK_REMOTE in the environment), or with --master spark://..., yarn or k8s://.... Tables can be read "
        "without Spark (Warehouse.read, headgate query); see docs/cluster.md"
    )


def another_session(session: SparkSession) -> SparkSession:
    """A new session with the settings of ``session``. Spark itself would begin with those of its start."""
    return _with_settings(session.newSession(), session.conf.getAll)


def running_session() -> SparkSession | None:
    """The session of a Spark that runs in this process already; there can be one only."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _with_settings(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    now = session.conf.getAll
    for key, value in settings.items():
        # Spark says of settings that it does not know by name, as those of catalogs, that they cannot be changed.
        if now.get(key) != value and (session.conf.isModifiable(key) or key.startswith(_CATALOGS)):
            session.conf.set(key, value)
    return session


def open_session(
    name: str,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    hadoop: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session for the warehouse ``name``; ``conf`` overrides every other setting.

    ``hadoop`` are settings of Hadoop, such as the keys of an object store. Settings are passed to Java on its command
    line, which every user of the machine can see. So these are set when Java runs, and so are settings of Hadoop in
    ``conf`` that look like secrets.

    On a cluster, ``spark.pyspark.python`` names the interpreter of the executors; this package is sent to them.
    """
    from pyspark.sql import SparkSession

    files = resources.files("headgate.warehouse")
    settings = {
        **_SETTINGS,
        "spark.scheduler.allocation.file": f"file://{files.joinpath('pools.xml')}",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{files.joinpath('log4j2.properties')}",
    }
    if is_local(master):
        # Spark starts Python processes for the functions of queries. They use this interpreter, which has the packages
        # that the user's functions import, and find modules where this process finds them.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(_folders_added())
    elif _is_loopback(master):
        # Executors connect to the driver, by default at the name of this machine, which may be an outer address.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not is_local(master) and (user := os.environ.get("HADOOP_USER_NAME")):
        # Python workers write the states of stream queries to HDFS as the driver does.
        settings["spark.executorEnv.HADOOP_USER_NAME"] = user
    late = {f"{_HADOOP}{key}": value for key, value in (hadoop or {}).items() if f"{_HADOOP}{key}" not in (conf or {})}
    for key, value in (conf or {}).items():
        is_secret = key.startswith(_HADOOP) and SECRET_NAME.search(key)
        (late if is_secret else settings)[key] = value
    if not is_local(master) and "spark.pyspark.python" in settings:
        # A setting of `spark-submit`. Where a session is opened by a Python process, only this variable counts.
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    builder = SparkSession.builder.appName(f"headgate {name}").master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    of_hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for key, value in late.items():
        of_hadoop.set(key.removeprefix(_HADOOP), value)
    session.sparkContext.setLogLevel("ERROR")
    ship_package(session.sparkContext)
    return session


def _is_loopback(master: str) -> bool:
    return urlsplit(master).hostname in ("127.0.0.1", "localhost")


def _folders_added() -> list[str]:
    """The folders of ``sys.path`` without those of the interpreter."""
    folders = map(os.path.abspath, sys.path)
    return [folder for folder in folders if os.path.exists(folder) and not is_installed(folder)]
