"""Tells systemd, where it has started the bridge, that the bridge is alive (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Final

TOLD_SECONDS: Final = 5.0


def tell_while_alive() -> None:
    """Says that the service has started, and every five seconds that it is alive: as long as this process can run a
    thread, also while it waits for an end that is away.  Without a service manager that listens, nobody is told."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        place = f"\0{address[1:]}" if address.startswith("@") else address
        threading.Thread(target=_tell, args=(place,), name="service-manager", daemon=True).start()


def _tell(place: str) -> None:
    while True:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(TOLD_SECONDS)
            manager.sendto(b"READY=1\nWATCHDOG=1", place)
        time.sleep(TOLD_SECONDS)
