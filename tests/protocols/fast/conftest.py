"""The fast path in tests: few messages are enough for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.oracles import always_tried


@pytest.fixture(autouse=True, scope="module")
def few_are_many() -> Iterator[None]:
    """Each message of a test is shown to the templates."""
    with always_tried():
        yield
