"""Shared by the tests of the target side."""

from __future__ import annotations

import pytest

SERVERS = {"target": "11.4", "old_target": "10.11", "mysql_target": "8.0", "old_mysql_target": "5.7"}
"""Fixtures of every kind of server that a test can have, and their versions."""


@pytest.fixture(params=SERVERS, ids=SERVERS.get)
def url(request: pytest.FixtureRequest) -> str:
    """Each server."""
    return str(request.getfixturevalue(request.param))
