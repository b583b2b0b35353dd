"""Shared by the tests of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bridge.local import MariaDB
from tests.stream.pipelines import decoded
from tests.stream.victims import Victims


@pytest.fixture(scope="package")
def victims(
    mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Victims]:
    """Processes that die on request."""
    victims = Victims(tmp_path_factory.mktemp("victims"), pytestconfig.rootpath, mariadb.url)
    yield victims
    victims.close()


@pytest.fixture(scope="package")
def bank(golden: Path) -> pa.Table:
    """The first messages of a genuine capture of transfers between accounts, spread over four partitions."""
    events = decoded(golden / "canal-ext" / "bank.jsonl", "canal-json")
    return events.filter(pc.less(events["offset"], 120))
