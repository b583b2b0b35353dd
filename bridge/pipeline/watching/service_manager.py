"""Tells systemd, where it has started the bridge, that the bridge is alive (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def tell_alive() -> None:
    """Says that the service has started and works.  Without a service manager that listens, nobody is told."""
    if not (address := os.environ.get("NOTIFY_SOCKET")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(1.0)
        manager.sendto(b"READY=1\nWATCHDOG=1", f"\0{address[1:]}" if address.startswith("@") else address)
