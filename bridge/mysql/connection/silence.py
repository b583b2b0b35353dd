"""Decides whether a silent server is still working or the connection is lost.

A server may send nothing for hours for a good reason: a schema change or a wait for a lock may take that long.  Or the
network may have failed without telling either end: a proxy has forgotten the connection, or a machine is gone.  So
there is no limit of time.  When nothing has come for a while, the server is asked over another connection whether it is
still working for this one.  As long as it says so, the bridge waits; otherwise the connection is lost.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from typing import Any, Final

import structlog
from pymysql.constants import CR

from bridge.mysql.server_errors import LostConnectionError

WAIT_SECONDS: Final = 60.0
"""How long a server is silent before it is asked."""
LOGIN_SECONDS: Final = 10.0
"""How long it may be silent while a connection is made."""
_LAST_SECONDS: Final = 1.0
"""How long to wait for an answer that was on its way while the server was asked."""

WHICH_SERVER: Final = "CONCAT_WS(' ', @@hostname, @@port, @@server_id)"
"""Identifies the server: one address may lead to several servers, which use the same ids of connections."""
WHAT_IT_DOES: Final = f"SELECT {WHICH_SERVER}, (SELECT MAX(command) FROM information_schema.processlist WHERE id = %s)"
"""Selects the server's identity, and what it does for a connection; NULL when it does not know the connection."""
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""Seconds idle, seconds between probes, number of probes: a target that vanishes is noticed within a minute."""
_IDLE: Final = "Sleep"

log = structlog.get_logger()


def keep_alive(peer: socket.socket) -> None:
    """Has the kernel look for a peer that is gone, where the connection goes over TCP."""
    if peer.family in {socket.AF_INET, socket.AF_INET6}:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            peer.setsockopt(socket.IPPROTO_TCP, option, value)


class PatientReader(io.RawIOBase):
    """Reads from a connection, and waits as long as the server works for it.

    why_lost: is called when nothing has come for the socket's timeout; it tells why the connection is lost, "" when
        the server is still working for it.
    """

    def __init__(self, peer: socket.socket, why_lost: Callable[[], str]) -> None:
        self._peer, self._why_lost = peer, why_lost

    def readable(self) -> bool:
        """Tells that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Waits for bytes.  Raises LostConnectionError when the server does not work for the connection any more."""
        while True:
            try:
                return self._peer.recv_into(buffer)
            except TimeoutError:
                if reason := self._why_lost():
                    return self._last_words(buffer, reason)

    def _last_words(self, buffer: Any, reason: str) -> int:
        usual = self._peer.gettimeout()
        self._peer.settimeout(min(_LAST_SECONDS, usual or _LAST_SECONDS))
        try:
            return self._peer.recv_into(buffer)
        except TimeoutError:
            raise LostConnectionError(CR.CR_SERVER_LOST, reason) from None
        finally:
            self._peer.settimeout(usual)


def reason_lost(server: str, now: str, command: str | None, connection: int, seconds: float) -> str:
    """Tells from its answer why a server does not work for a connection any more; "" when it does.

    server, now: the server that the connection leads to, and the server that has answered.
    command: what the server does for the connection; None when it does not know the connection.
    """
    silent = f"no answer within {seconds:g} s"
    if now != server:
        return f"{silent}, and another server answers at the address"
    if command is None:
        return f"{silent}: the server does not know the connection any more"
    if command == _IDLE:
        return f"{silent}: the server has answered, or was never asked, and the network keeps it back"
    log.info("server_still_working", connection=connection, command=command)
    return ""
