"""Fixtures that tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bridge.local import MariaDB
from tests.support.pipelines import decoded
from tests.support.victims import Victims


@pytest.fixture(scope="session")
def victims(
    mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Victims]:
    """Processes that die on request."""
    victims = Victims(tmp_path_factory.mktemp("victims"), pytestconfig.rootpath, mariadb.url)
    yield victims
    victims.close()


@pytest.fixture(scope="session")
def bank(golden: Path) -> pa.Table:
    """The first messages of a genuine capture of transfers between accounts, spread over four partitions."""
    events = decoded(golden / "canal-ext" / "bank.jsonl", "canal-json")
    return events.filter(pc.less(events["offset"], 120))


SERVERS = {"target": "11.4", "old_target": "10.11", "mysql_target": "8.0", "old_mysql_target": "5.7"}
"""Fixtures of every kind of server that a test can have, and their versions."""


@pytest.fixture(params=SERVERS, ids=SERVERS.get)
def url(request: pytest.FixtureRequest) -> str:
    """Each server."""
    return str(request.getfixturevalue(request.param))
