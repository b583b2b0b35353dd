"""The target hashes its rows while executors compute what they should be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from bridge.errors import StoppedError
from bridge.verify.compare.checksums import Fingerprint
from bridge.verify.log.expected_tables import WHOLE, KeyNumbers
from bridge.verify.log.hash_comparison import HashComparison, HashedRange, Recomputed
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.snapshot_reader import SnapshotReader, Throttle

SECONDS = 60
"""Longer than any step of these tests takes, so that none of them hangs."""
EXPECTED = {0: [Fingerprint(5, 5, 5)] * 3}
Compute = Callable[[], Mapping[int, Sequence[Fingerprint]]]


def a_range(numbers: KeyNumbers, place: int, recomputed: Recomputed, *, is_whole: bool = True) -> HashedRange:
    """A range of a table with one key column."""
    table = SimpleNamespace(number=0, key=("id",), is_whole=is_whole)
    return HashedRange(cast(LoggedTable, table), numbers, place, recomputed)


def compared(
    monkeypatch: pytest.MonkeyPatch, ranges: Sequence[HashedRange], compute: Compute, on_range: Callable[[], None]
) -> list[KeyNumbers]:
    """The ranges in the order in which two workers have begun them.  on_range: is called before the worker waits for
    what the range should hold."""
    begun: list[KeyNumbers] = []

    def compare_range(_: HashComparison, one: HashedRange, __: SnapshotReader) -> None:
        begun.append(one.numbers)
        on_range()
        one.recomputed.exception(SECONDS)  # waits, but not for ever
        assert one.expected == Fingerprint(5, 5, 5)

    monkeypatch.setattr(HashComparison, "compare_range", compare_range)
    comparison = HashComparison(Throttle({}, {}, print), lambda *_: None)
    readers = [cast(SnapshotReader, None)] * 2
    comparison.compare(ranges, readers, ranges[0].recomputed, compute)
    assert len(begun) == len(ranges)
    return begun


def test_the_target_hashes_while_executors_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of tables that the log holds wholly come first, as no count of their rows has to be known."""
    recomputed, hashing = Recomputed(), threading.Event()

    def compute() -> dict[int, list[Fingerprint]]:
        assert hashing.wait(SECONDS), "nothing is hashed meanwhile"
        return EXPECTED

    ranges = [
        a_range(WHOLE, 0, recomputed, is_whole=False),
        a_range((1, 9), 1, recomputed, is_whole=False),
        a_range((1, 2), 2, recomputed),
    ]
    begun = compared(monkeypatch, ranges, compute, hashing.set)
    assert begun[0] == (1, 2)


@pytest.mark.parametrize("error", [StoppedError("Spark has failed"), KeyboardInterrupt()])
def test_what_ends_the_computation_ends_all(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Workers that wait for it would wait for ever."""
    recomputed, waiting = Recomputed(), threading.Event()

    def compute() -> dict[int, list[Fingerprint]]:
        assert waiting.wait(SECONDS)
        raise error

    with pytest.raises(type(error)) as raised:
        compared(monkeypatch, [a_range((1, 2), n, recomputed) for n in range(3)], compute, waiting.set)
    assert raised.value is error


def test_a_server_that_fails_meanwhile_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the server's words, once the computation has ended."""
    recomputed, failed = Recomputed(), threading.Event()

    def fail() -> None:
        failed.set()
        raise StoppedError("the server was lost")

    def compute() -> dict[int, list[Fingerprint]]:
        assert failed.wait(SECONDS)
        return EXPECTED

    with pytest.raises(StoppedError, match="the server was lost"):
        compared(monkeypatch, [a_range((1, 2), n, recomputed) for n in range(3)], compute, fail)
