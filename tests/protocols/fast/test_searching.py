"""What the compiled functions find in texts, beside Python's own search."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocols.fast import readiness
from bridge.protocols.fast.compiled import native_code
from bridge.protocols.fast.compiled.functions import sum_kinds
from bridge.protocols.fast.texts import Texts
from tests.support.waiting import wait_for

MARKS = (b'{"v', b'"a":', b",", b'"op":"', b'"')
PIECES = st.sampled_from([*MARKS, b'"a', b'":', b"x", b"0", b"12", b"", b'"op":', b"{", b"}", b"\xff\x00"])
TEXTS = st.lists(st.one_of(st.none(), st.lists(PIECES, max_size=9).map(b"".join)), max_size=8)


def _sums(messages: list[bytes | None]) -> list[int]:
    texts, sums = Texts.of(messages), np.full(len(messages), -1, np.int64)
    words = np.array([int.from_bytes(mark, "little") for mark in MARKS])
    sizes = np.array([len(mark) for mark in MARKS])
    sum_kinds(texts.numbers(), texts.starts, texts.ends, len(messages), words, sizes, len(words), sums)
    return [int(one) for one in sums]


def _kind(message: bytes | None) -> tuple[bytes, bytes] | None:
    _, first, rest = (message or b"").rpartition(MARKS[0])
    start, end, operation, mark = map(re.escape, MARKS[1:])
    pattern = start + b"(.*?" + end + b").*?" + operation + b"(.*?" + mark + b")"
    found = re.search(pattern, rest, re.DOTALL) if first else None
    return None if found is None else (found[1], found[2])


@given(TEXTS)
def test_messages_of_one_kind_have_one_sum(messages: list[bytes | None]) -> None:
    """Others have another one, and messages without a kind 0."""
    pairs = set(zip(map(_kind, messages), _sums(messages), strict=True))
    assert {one for kind, one in pairs if kind is None} <= {0}
    assert len({one for _, one in pairs}) == len({kind for kind, _ in pairs}) == len(pairs)


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
