"""What the tests of schema changes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.mysql.connection.session import Session
from tests.support.pipelines import admin


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    with admin(target) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute("USE m")
        yield session
