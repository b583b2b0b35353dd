"""Shared by the tests of the target side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_certificates() -> Iterator[None]:
    """PyMySQL reads the machine's certificates for every connection, 30 ms each; these tests open many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", "/dev/null")
        yield
