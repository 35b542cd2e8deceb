"""One Spark session for all tests of a process: starting one takes longer than most of them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a warehouse would open, on two threads."""
    pytest.importorskip("pyspark")
    from headgate.warehouse.session import open_session

    session = open_session("tests", master="local[2]")
    yield session
    session.stop()
