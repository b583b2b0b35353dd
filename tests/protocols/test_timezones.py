"""Local TIMESTAMP text to UTC text."""

from __future__ import annotations

import pytest

from bridge.errors import UsageError
from bridge.protocols import DecodeError
from bridge.protocols.values.timezones import utc_converter


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("UTC", "2024-02-29 12:34:56.789", "2024-02-29 12:34:56.789"),
        ("Etc/UTC", "2024-02-29 12:34:56", "2024-02-29 12:34:56"),
        ("+00:00", "2024-02-29 12:34:56", "2024-02-29 12:34:56"),
        ("+08:00", "2024-03-01 07:34:56.000001", "2024-02-29 23:34:56.000001"),
        ("-03:30", "2023-12-31 22:00:00.10", "2024-01-01 01:30:00.10"),
        ("+08:00", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00.000"),
        ("Asia/Shanghai", "2024-02-29 12:34:56", "2024-02-29 04:34:56"),
        ("Asia/Shanghai", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        # Shanghai had summer time in 1986-1991
        ("Asia/Shanghai", "1986-07-01 12:00:00", "1986-07-01 03:00:00"),
        ("Asia/Shanghai", "1991-09-14 12:00:00.5", "1991-09-14 03:00:00.5"),
        ("Asia/Shanghai", "1991-12-01 12:00:00", "1991-12-01 04:00:00"),
        ("America/New_York", "2024-07-01 00:00:00", "2024-07-01 04:00:00"),
        ("America/New_York", "2024-03-10 03:00:00", "2024-03-10 07:00:00"),
        ("America/New_York", "2024-11-03 00:59:59.999999", "2024-11-03 04:59:59.999999"),
        ("America/New_York", "2024-11-03 02:00:00", "2024-11-03 07:00:00"),
        ("Africa/Monrovia", "1971-01-01 00:00:00", "1971-01-01 00:44:30"),
    ],
)
def test_conversion(zone: str, local: str, utc: str) -> None:
    """The zone's offset of that moment is taken off; fraction digits stay as they are; zero has no zone."""
    assert utc_converter(zone)(local) == utc


@pytest.mark.parametrize(
    ("zone", "local", "why"),
    [
        ("America/New_York", "2024-11-03 01:30:00", "two moments"),
        ("America/New_York", "2024-03-10 02:30:00", "does not exist"),
        ("Asia/Shanghai", "1988-04-17 02:30:00", "does not exist"),
        ("Asia/Shanghai", "1988-09-11 01:30:00.5", "two moments"),
        ("Australia/Lord_Howe", "2024-04-07 01:45:00", "two moments"),
    ],
)
def test_lost_moments(zone: str, local: str, why: str) -> None:
    """A local time that clocks showed twice or never cannot be told; the fix is a changefeed in UTC."""
    with pytest.raises(DecodeError, match=rf"{why}.*in UTC"):
        utc_converter(zone)(local)


@pytest.mark.parametrize("zone", ["+08:00", "Asia/Shanghai"])
@pytest.mark.parametrize("local", ["2024-00-10 00:00:00", "2023-02-29 00:00:00", "0001-01-01 00:00:00"])
def test_no_moment(zone: str, local: str) -> None:
    """A date that no calendar has, or that falls off it in UTC, is refused."""
    with pytest.raises(DecodeError, match="is not a valid time"):
        utc_converter(zone)(local)


def test_unknown_zone() -> None:
    """Without a zone only the zero TIMESTAMP is known; the reason names the flag."""
    assert utc_converter(None)("0000-00-00 00:00:00.00") == "0000-00-00 00:00:00.00"
    with pytest.raises(DecodeError, match="--timezone"):
        utc_converter(None)("2024-01-01 00:00:00")


@pytest.mark.parametrize("zone", ["Asia/Shangai", "", "+25:00", "../../etc/passwd", "/etc/passwd", "America", "8"])
def test_wrong_zone(zone: str) -> None:
    """A zone that is none is a usage error."""
    with pytest.raises(UsageError):
        utc_converter(zone)


def test_wrong_zone_names_the_closest() -> None:
    """A misspelt zone's message names the one that was meant."""
    with pytest.raises(UsageError) as refusal:
        utc_converter("Asia/Shangai")
    assert "Asia/Shanghai" in str(refusal.value)
