"""Reads the address on which the port listens."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Final, NamedTuple

from bridge.errors import UsageError

LOOPBACK: Final = "127.0.0.1"
_MOST: Final = 65535


class Address(NamedTuple):
    """Where the port listens.  port: 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or (is_ip(self.host) and ipaddress.ip_address(self.host).is_loopback)


def parse_address(text: str) -> Address:
    """Reads `host:port`, or a port alone, which listens for this machine only; UsageError for anything else."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    is_host = bool(host) == bool(colon) and (is_ip(bare) if host != bare else ":" not in host)
    if not is_host or not (port.isascii() and port.isdigit()) or int(port) > _MOST:
        raise UsageError(
            f"{text!r} is no address to listen on",
            fix="give --listen a port, such as 9464, for this machine only, or a host and a port, such as"
            " 10.0.0.5:9464; 0.0.0.0:9464 is every address of this machine",
        )
    return Address(bare or LOOPBACK, int(port))


def write_address(path: Path, address: Address) -> None:
    """Writes to a file where a bridge listens; UsageError when it cannot be written."""
    try:
        path.write_text(f"{address}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the file {path} cannot be written: {error.strerror}", fix="see watch.address_file"
        ) from error


def is_ip(host: str) -> bool:
    """Tells whether a host is written as a number."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def may_ask(address: Address, host: str | None) -> bool:
    """Tells whether a request with this Host header is answered.

    A page of any site can have a browser send requests here under a name of its own that it lets point to this machine
    (DNS rebinding).  So a port of the loopback is answered only under a name that nobody else can give away.
    """
    if not address.is_loopback:
        return True
    if host is None:  # HTTP/1.0 without a Host comes from no browser
        return True
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or is_ip(name)
