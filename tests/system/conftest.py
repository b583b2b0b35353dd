"""Shared by the tests of the whole bridge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bridge.stream.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of this process, which every command that runs in it shares."""
    session = start_session({}, with_kafka=True)
    yield session
    session.stop()
