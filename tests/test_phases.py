"""Where the time goes: every second is in one phase, and waiting is told from decoding."""

from __future__ import annotations

import pytest

from bridge.errors import UsageError
from bridge.phases import Phase, PhaseClock, shares
from bridge.tso import ms_tso, parse_moment


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_every_second_is_in_one_phase() -> None:
    """Nothing is counted before the first phase and after the last; the present phase counts up to now."""
    clock = Clock()
    phases = PhaseClock(clock)
    clock.now += 5
    phases.enter(Phase.SERVER)
    clock.now += 2
    phases.enter(Phase.COMMIT)
    clock.now += 1
    assert phases.seconds() == {Phase.SERVER: 2, Phase.COMMIT: 1}
    phases.enter(Phase.SERVER)
    clock.now += 4
    phases.enter(None)
    clock.now += 9
    assert phases.seconds() == {Phase.SERVER: 6, Phase.COMMIT: 1}


@pytest.mark.parametrize(
    ("begins", "ends", "waited", "decoded"),
    [(1, 3, 2, 2), (-4, 3, 1, 3), (-4, -2, 4, 0), (2, None, 2, 2), (-1, None, 0, 4)],
)
def test_waiting_while_messages_are_decoded_is_decoding(
    begins: float, ends: float | None, waited: float, decoded: float
) -> None:
    """Of four seconds without anything to apply, those count as decoding in which messages were decoded."""
    clock = Clock()
    phases, start = PhaseClock(clock), clock.now
    phases.enter(Phase.FOLDING)
    moments = [(start + begins, True), *([(start + ends, False)] if ends is not None else [])]
    steps = [(start, None), *moments]
    for moment, is_begin in sorted(steps, key=lambda step: step[0]):
        clock.now = moment
        if is_begin is None:
            phases.enter(Phase.WAITING)
        else:
            phases.decoding(begins=is_begin)
    clock.now = start + 4
    assert {phase: spent for phase, spent in phases.seconds().items() if spent and phase is not Phase.FOLDING} == {
        phase: spent for phase, spent in {Phase.WAITING: waited, Phase.DECODING: decoded}.items() if spent
    }
    phases.enter(Phase.SERVER)
    assert phases.seconds()[Phase.WAITING] == waited


def test_what_is_decoded_while_the_target_works_costs_nothing() -> None:
    """Only the thread that applies is measured."""
    clock = Clock()
    phases = PhaseClock(clock)
    phases.enter(Phase.SERVER)
    phases.decoding(begins=True)
    clock.now += 3
    assert phases.seconds() == {Phase.SERVER: 3}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({"commit": 3.0, "server": 6.0, "waiting": 1.0, "folding": 0.01},
         "the server 60%, commit 30%, waiting for Kafka 10%"),
        ({}, ""),
        ({"server": 0.0}, ""),
        ({"a phase of a later version": 1.0}, "a phase of a later version 100%"),
    ],
)  # fmt: skip
def test_shares_are_told_in_words(seconds: dict[str, float], words: str) -> None:
    """The largest comes first; what took next to nothing is left out."""
    assert shares(seconds) == words


MOMENTS = [
    ("earliest", 0),
    ("0", 0),
    ("470611868434825218", 470611868434825218),
    ("2023-11-14T22:13:20Z", ms_tso(1_700_000_000_000)),
    ("2023-11-14T22:13:20", ms_tso(1_700_000_000_000)),
    ("2023-11-15 06:13:20+08:00", ms_tso(1_700_000_000_000)),
    ("2023-11-14T22:13:20.123Z", ms_tso(1_700_000_000_123)),
]


@pytest.mark.parametrize(("text", "tso"), MOMENTS)
def test_moments(text: str, tso: int) -> None:
    """A TSO, or a time; a time without a zone is UTC."""
    assert parse_moment(text) == tso


@pytest.mark.parametrize("text", ["", "now", "-1", "1e9", "2023-13-01", "²", "99999999999999999999999", "1950-01-01"])
def test_no_moments(text: str) -> None:
    """Anything else is a usage error that shows what was given."""
    with pytest.raises(UsageError) as raised:
        parse_moment(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("text", ["20261121", "1732165807", "20261121051007", "1732165807000", "1732165807000000"])
def test_numbers_of_other_clocks_are_no_moments(text: str) -> None:
    """As a TSO, seconds since 1970 are a moment of 1970: a new pipeline would begin at the earliest without a word."""
    with pytest.raises(UsageError, match=f"'{text}' is no TSO of these decades: as one it is 19[78]"):
        parse_moment(text)


@pytest.mark.parametrize("tso", [7, 100 << 18, 77 << 18, 20261321, 9_000_000_000, 470611868434825218])
def test_small_numbers_are_tsos(tso: int) -> None:
    """Captures that were made by hand have them."""
    assert parse_moment(str(tso)) == tso
