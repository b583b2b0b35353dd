"""Shared by the tests of generated runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.generated.bench import Bench
from tests.support.pipelines import admin, drop_all


@contextmanager
def bench_on(url: str, folder: Path) -> Iterator[Bench]:
    """A server for one run after the other, and a folder for what verify writes."""
    with admin(url) as session:
        drop_all(session)
        yield Bench(url, session, fixes=folder / "fixes.sql")
        drop_all(session)


@pytest.fixture(scope="module")
def bench(mariadb: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A MariaDB."""
    with bench_on(mariadb.url, tmp_path_factory.mktemp("state")) as bench:
        yield bench


@pytest.fixture(scope="module")
def mysql_bench(mysql: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A MySQL 8.0."""
    with bench_on(mysql.url, tmp_path_factory.mktemp("state")) as bench:
        yield bench


@pytest.fixture
def chosen_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """The server that is to be had under a name."""
    server = request.getfixturevalue(os.environ.get("GENERATED_ON", "mariadb"))
    with bench_on(server.url, tmp_path) as bench:
        yield bench
