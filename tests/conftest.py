"""Settings for all tests: how Hypothesis looks for counter-examples, and one Spark session for all of a process.

``ci``, the default, tries the same examples on every run, so a red test is red for everybody. Look further
with ``HEADGATE_HYPOTHESIS=explore``, and turn what it finds into an ``@example``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaBroker
    from tests.services.object_store import ObjectStoreServer
    from tests.services.postgres import PostgresServer

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HEADGATE_HYPOTHESIS", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first, so that none of them is left when all else is done; then those that need Spark."""
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("long", "spark")])


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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A Kafka broker for all tests of a process; each uses topics of its own."""
    from tests.services.kafka import KafkaBroker, why_not

    if reason := why_not():
        pytest.skip(reason)
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
