"""Shared by the tests of the stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stream.victims import Victims


@pytest.fixture(autouse=True, scope="session")
def _no_certificates() -> Iterator[None]:
    """PyMySQL reads the machine's certificates for every connection, 30 ms each; these tests open thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", "/dev/null")
        yield


@pytest.fixture(scope="package")
def victims(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Victims]:
    """Processes that die on request."""
    victims = Victims(tmp_path_factory.mktemp("victims"), pytestconfig.rootpath)
    yield victims
    victims.close()
