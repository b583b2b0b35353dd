"""Reads the address of a server from a URL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bridge.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL

_IN_URL: Final = frozenset({"unix_socket", "bind_address"})
_USUAL: Final = re.compile(
    r"(mysql|mariadb)://([A-Za-z0-9_.-]+@)?[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?/?"
)
"""A URL in which nothing can be wrong: user, host and port, without password, query and escapes."""


def check_url(url: str, flag: str) -> None:
    """Raises UsageError, as `parse_url` does; for a URL of the usual form, or what is none at all, without loading
    SQLAlchemy, which takes 0.15 s."""
    if not _USUAL.fullmatch(url):
        parse_url(url, flag)


def parse_url(url: str, flag: str) -> URL:
    """Reads the address of a server.  Raises UsageError, which names the flag, for one that cannot be used."""
    no_url = UsageError(f"{flag} is not a URL", fix="write it as mysql://user@host:port/")
    if "://" not in url:
        raise no_url
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise no_url from error
    if parsed.get_backend_name() not in {"mysql", "mariadb"} or not parsed.host:
        raise UsageError(
            f"{flag} {shown_url(parsed)} is not a MySQL address", fix="write it as mysql://user@host:port/"
        )
    _check_place(parsed, flag)
    _check_query(parsed, flag)
    return parsed


def _check_place(parsed: URL, flag: str) -> None:
    if "@" in str(parsed.host):
        raise UsageError(
            f"{flag} has more than one @", fix="write an @ in the password as %40, or set it in the environment"
        )
    try:
        str(parsed.host).encode("idna")
    except UnicodeError as error:
        raise UsageError(f"{flag} {shown_url(parsed)} names no host: {error}", fix="check the host's name") from error
    if parsed.port is not None and not 0 < parsed.port < 1 << 16:
        raise UsageError(f"{flag} has the port {parsed.port}", fix="give one of 1 to 65535; 3306 is the usual one")


def _check_query(parsed: URL, flag: str) -> None:
    """Refuses options that the driver does not need to find the server: all others have a setting, or the bridge
    chooses them."""
    for name in parsed.query.keys() - _IN_URL:
        section = "target" if flag == "--target" else "upstream"
        fix = f"leave it out; a URL may hold {' and '.join(sorted(_IN_URL))}"
        if name.startswith(("ssl", "tls")):
            fix = f'set {section}.tls = "verify-identity" (or off, preferred, required, verify-ca) and {section}.tls_ca'
        elif "pass" in name:
            fix = f"set the password in BRIDGE_{flag.removeprefix('--').upper()}_PASSWORD"
        raise UsageError(f"{flag} holds {name}, which the bridge does not read from a URL", fix=fix)


def shown_url(url: URL) -> str:
    """Gives the URL without password and query."""
    return str(url.set(query={}).render_as_string(hide_password=True))
