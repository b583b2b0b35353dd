"""The fast path in tests: few messages are enough for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def few_are_many() -> Iterator[None]:
    """Each message of a test is shown to the templates, however few come together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bridge.protocols.fast.decoder._MANY", 1)
        yield
