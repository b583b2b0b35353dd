"""When the compiled functions are used."""

from __future__ import annotations

import threading

import pytest

from bridge.protocols.fast import readiness
from bridge.protocols.fast.compiled import native_code
from tests.support.waiting import wait_for


def test_nobody_waits_until_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge on a new machine stood still for minutes at its 500,000th row: it goes on without them meanwhile."""
    may_end = threading.Event()
    monkeypatch.setattr(readiness, "_FUNCTIONS", "of nobody")
    monkeypatch.setattr(native_code, "are_compiled", lambda: False)
    monkeypatch.setattr(native_code, "loaded_functions", lambda: may_end.wait(30))
    readiness._compiling.cache_clear()
    counted = readiness.Readiness()
    try:
        assert [counted.pays(size) for size in (400_000, 200_000, 200_000)] == [False, False, False]
        may_end.set()
        wait_for(lambda: counted.pays(1_000), "they are not used once they are compiled", 10)
    finally:
        may_end.set()
        readiness._compiling.cache_clear()
