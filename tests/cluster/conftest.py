"""One cluster for all tests of this package: a master and two workers of one core each, on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.cluster import SparkCluster, why_not


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    if reason := why_not():
        pytest.skip(f"no Spark cluster can be started: {reason}")
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        running.add_worker()
        running.add_worker()
        yield running
