"""Settings for all tests: how Hypothesis looks for counter-examples, and one Spark session for all of a process.

``ci``, the default, tries the same examples on every run, so a red test is red for everybody. Look further
with ``HEADGATE_HYPOTHESIS=explore``, and turn what it finds into an ``@example``.

Every Spark of the tests, in this process or in one that a test starts, lives for seconds or minutes and computes
little: Java's second compiler and its parallel garbage collector would take more time than they save.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.monitor.screenshots import FOLDER as SCREENSHOTS
from tests.services.java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.azure_store import AzureStoreServer
    from tests.services.google_store import GoogleStoreServer
    from tests.services.hdfs import HdfsServer
    from tests.services.kafka import KafkaBroker
    from tests.services.object_store import ObjectStoreServer
    from tests.services.postgres import PostgresServer

CLUSTER = Path(__file__).with_name("cluster")

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HEADGATE_HYPOTHESIS", "ci"))

for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(variable, QUICK_JAVA)
# Containers often tell Python to keep no compiled modules: each of the many processes that tests start would compile
# the package again, and each process of the tests all of the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first, so that none of them is left when all else is done; then those that need Spark.

    With ``--dist worksteal`` each process gets a piece of the list, and takes from others when it is done. So each
    piece begins with some of the longest tests, rather than the first piece with all of them.
    """
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("long", "spark")])
    items[:] = dealt(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def dealt(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests in the order of so many pieces of equal size, each with its share of every kind of test.

    Long tests of one file stay together, and so do those of one cluster, as they share what takes long to start.
    """
    together: dict[Path, list[pytest.Item]] = {}
    others: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("long") is None:
            others.append(item)
        else:
            together.setdefault(CLUSTER if CLUSTER in item.path.parents else item.path, []).append(item)
    pieces: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for group in sorted(together.values(), key=len, reverse=True):
        min(pieces, key=len).extend(group)
    on_spark = [item for item in others if item.get_closest_marker("spark") is not None]
    rest = [item for item in others if item.get_closest_marker("spark") is None]
    left = len(items)
    for number, piece in enumerate(pieces):
        piece.extend(on_spark[len(on_spark) * number // processes : len(on_spark) * (number + 1) // processes])
        size = left // (processes - number)
        left -= size
        filling = rest[: max(0, size - len(piece))] if number < processes - 1 else rest
        piece.extend(filling)
        rest = rest[len(filling) :]
    return [item for piece in pieces for item in piece]


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors, as tests wait for Spark, brokers and browsers; each may have a Spark."""
    return min(4, (os.cpu_count() or 1) + 1)


def pytest_report_header() -> str:
    return f"screenshots of the page go to {SCREENSHOTS}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests of a process, each of which takes a database of its own."""
    from tests.services.postgres import PostgresServer, why_not

    if reason := why_not():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    # Not a folder of pytest: those are for their owner only, and the server may run as another user.
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-") as folder:
        os.chmod(folder, 0o755)
        with PostgresServer(Path(folder) / "server") as server:
            yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a warehouse would open, on two threads: starting one takes longer than most tests together."""
    pytest.importorskip("pyspark")
    from headgate.warehouse.session import open_session

    session = open_session("tests", master="local[2]")
    yield session
    with suppress(ConnectionError):  # a test has killed its Java
        session.stop()


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    """An S3 server; every test makes a bucket of its own in it."""
    from tests.services.object_store import ObjectStoreServer

    if why := ObjectStoreServer.missing():
        pytest.skip(why)
    with ObjectStoreServer(tmp_path_factory.mktemp("object-store")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStoreServer]:
    """Azure's object store, emulated."""
    from tests.services.azure_store import AzureStoreServer

    if why := AzureStoreServer.missing():
        pytest.skip(why)
    with AzureStoreServer(tmp_path_factory.mktemp("azure-store")) as server:
        yield server


@pytest.fixture(scope="session")
def google_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleStoreServer]:
    """Google's object store, emulated."""
    from tests.services.google_store import GoogleStoreServer

    if why := GoogleStoreServer.missing():
        pytest.skip(why)
    with GoogleStoreServer(tmp_path_factory.mktemp("google-store")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """HDFS for all tests of a process; every test uses a folder of its own in it."""
    from tests.services.hdfs import HdfsServer, why_not

    if reason := why_not():
        pytest.skip(reason)
    with HdfsServer(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A Kafka broker for all tests of a process; each uses topics of its own."""
    from tests.services.kafka import KafkaBroker, why_not

    if reason := why_not():
        pytest.skip(reason)
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
