"""Shared by the tests of generated runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.generated.runs import Bench
from tests.support.pipelines import admin, drop_all


@pytest.fixture(scope="module")
def bench(mariadb: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A server for one run after the other, and a folder for what verify keeps."""
    with admin(mariadb.url) as session, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        drop_all(session)
        yield Bench(mariadb.url, session)
        drop_all(session)
