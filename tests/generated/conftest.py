"""Shared by the tests of generated runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.generated.runs import Bench
from tests.support.pipelines import admin, drop_all


@pytest.fixture(scope="module")
def bench(mariadb: Any) -> Iterator[Bench]:
    """A server for one run after the other."""
    with admin(mariadb.url) as session:
        drop_all(session)
        yield Bench(mariadb.url, session)
        drop_all(session)
