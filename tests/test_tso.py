"""TSOs, and the moments that users give."""

from __future__ import annotations

import pytest

from bridge.errors import UsageError
from bridge.tso import ms_tso, parse_moment

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
