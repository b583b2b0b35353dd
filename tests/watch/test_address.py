"""Where the port listens, and under which names it answers."""

from __future__ import annotations

import pytest

from bridge.errors import UsageError
from bridge.watch.server import Address, may_ask, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        *(("9464", "127.0.0.1", 9464, True), ("0", "127.0.0.1", 0, True), ("localhost:9464", "localhost", 9464, True)),
        *(("127.0.0.9:1", "127.0.0.9", 1, True), ("[::1]:9464", "::1", 9464, True)),
        *(("0.0.0.0:9464", "0.0.0.0", 9464, False), ("[::]:9464", "::", 9464, False)),
        ("10.0.0.5:65535", "10.0.0.5", 65535, False),
        ("db-1.example:9464", "db-1.example", 9464, False),
    ],
)
def test_a_port_alone_is_for_this_machine(text: str, host: str, port: int, is_loopback: bool) -> None:
    """Anything else than the loopback has to be written."""
    address = parse_address(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, is_loopback)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", ":9464", "host:", "host", "::1:9464", "[::1", "[x]:1", "65536", "-1", "٣", "1:2:3"]
)
def test_no_address(text: str) -> None:
    """`:9464` is every address elsewhere, and would be open by mistake."""
    with pytest.raises(UsageError, match="no address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "loopback", "everywhere"),
    [
        *(("localhost:9464", True, True), ("LOCALHOST", True, True), ("127.0.0.1:9464", True, True)),
        *(("[::1]:9464", True, True), ("evil.example:9464", False, True), ("localhost.evil.example", False, True)),
        *(("127.0.0.1.evil.example:9464", False, True), ("", False, True), (None, True, True)),
    ],
)
def test_a_name_that_somebody_else_gives_away_is_not_answered(
    host: str | None, loopback: bool, everywhere: bool
) -> None:
    """Against DNS rebinding: a browser asks under the name of the page that it shows."""
    assert may_ask(Address("127.0.0.1", 9464), host) == loopback
    assert may_ask(Address("0.0.0.0", 9464), host) == everywhere
