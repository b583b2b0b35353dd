"""The gate: how row changes are limited, and what is said of what holds the applier back."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from bridge.pipeline.steering import Gate, Limits
from bridge.rows.gathering import Amount
from tests.support.waiting import at_work, wait_for
from tests.test_ends import Clock, NoPause


def written(rate: int, sizes: list[int]) -> list[float]:
    """When each transaction went, in seconds from the first."""
    clock = Clock()
    gate, times = Gate(Limits(rate=rate, rate_reason="limited"), clock), []
    for rows in sizes:
        gate.wait(NoPause(clock))
        gate.take(rows)
        times.append(clock.now - 100)
    return times


def test_row_changes_come_evenly() -> None:
    """After ten seconds, ten seconds' worth has gone, and no second has had more than two."""
    times = written(100, [10] * 200)
    assert times[100] == pytest.approx(10, abs=0.3)
    assert all(sum(start <= at < start + 1 for at in times) * 10 <= 200 for start in times)


def test_a_transaction_larger_than_the_rate_goes_whole_and_is_paid_afterwards() -> None:
    """It is not divided; the one after it waits as long as it takes to pay."""
    assert [later - earlier for earlier, later in pairwise(written(100, [5000, 1, 1]))] == [
        pytest.approx(50, abs=0.01),
        pytest.approx(0.01, abs=0.01),
    ]


@pytest.mark.parametrize(("rate", "seconds"), [(10, 100), (1000, 1), (0, 0)])
def test_what_is_owed_is_paid_by_the_rate_that_holds_now(rate: int, seconds: float) -> None:
    """A higher rate pays sooner; no rate at all forgets it."""
    clock = Clock()
    gate = Gate(Limits(rate=10, rate_reason="limited"), clock)
    gate.wait(NoPause(clock))
    gate.take(1000)
    gate.limits = Limits(rate=rate, rate_reason="limited")
    gate.wait(NoPause(clock))
    assert clock.now - 100 == pytest.approx(seconds, abs=0.01)


def test_transactions_are_as_large_as_a_second_allows() -> None:
    """So that a low rate does not come as one large transaction a minute."""
    gate, most = Gate(), Amount(50_000, 1 << 27)
    assert gate.portion(most) == most
    gate.limits = Limits(rate=300)
    assert gate.portion(most) == Amount(300, 1 << 27)


def test_what_holds_it_back_is_told() -> None:
    """A pause before a busy server, that before the rate; nothing once it is open."""
    gate, stop = Gate(Limits(paused="paused by a@b")), threading.Event()
    gate.busy = "Threads_running of the target is 50, above 40"
    assert (gate.waiting_for, gate.is_paused) == ("paused by a@b", True)
    with at_work(lambda: gate.wait(stop)):
        gate.limits = Limits()
        wait_for(lambda: gate.waiting_for == gate.busy, "it does not wait")
        gate.busy = ""
    assert gate.waiting_for == ""


def test_a_stop_opens_a_closed_gate_at_once() -> None:
    """Whoever waits there is woken; it looks at the stop itself."""
    gate, stop = Gate(Limits(paused="paused")), threading.Event()
    with at_work(lambda: gate.wait(stop)):
        stop.set()
