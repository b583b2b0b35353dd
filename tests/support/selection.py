"""Which cases of a table run with all tests; the others are soak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(cases: Iterable[Any], *chosen: Any) -> list[Any]:
    """Marks the cases that are not chosen as soak."""
    return [case if case in chosen else pytest.param(case, marks=pytest.mark.soak) for case in cases]
