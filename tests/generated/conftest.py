"""Shared by the tests of generated runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.generated.runs import Bench
from tests.generated.servers import SERVER
from tests.support.pipelines import admin, drop_all


def _on_mariadb(mariadb: Any) -> Any:
    return mariadb


def _on_mysql(mysql: Any) -> Any:
    return mysql


def _on_tidb(tidb: Any) -> Any:
    return tidb


_SERVERS = {"mariadb": _on_mariadb, "mysql": _on_mysql, "tidb": _on_tidb}
server = pytest.fixture(scope="module", name="server")(_SERVERS[SERVER])


@pytest.fixture(scope="module")
def bench(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A server for one run after the other, and a folder for what verify keeps."""
    with admin(server.url) as session, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        drop_all(session)
        yield Bench(server.url, session)
        drop_all(session)
