"""Shared by the tests of verify: a source (MariaDB 10.11) beside the target (11.4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.verify_servers import Pair


@pytest.fixture
def pair(old_target: str, target: str, tmp_path: Path) -> Pair:
    """An empty source and an empty target."""
    return Pair(old_target, target, tmp_path)
