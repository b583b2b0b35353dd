"""Shared by the tests of the target side."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["target", "old_target"], ids=["11.4", "10.11"])
def url(request: pytest.FixtureRequest) -> str:
    """Either server."""
    return str(request.getfixturevalue(request.param))
