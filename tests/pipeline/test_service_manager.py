"""What systemd is told of a bridge that it has started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bridge.pipeline.watching.service_manager import tell_alive


@pytest.mark.parametrize("is_abstract", [False, True])
def test_it_is_told_that_the_bridge_is_alive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_abstract: bool
) -> None:
    """By a datagram to the socket that it names, a file or a name that is no file."""
    name = f"{'@' if is_abstract else ''}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        manager.settimeout(20)
        tell_alive()
        assert manager.recv(100) == b"READY=1\nWATCHDOG=1"


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_nobody_has_to_listen(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """A bridge that something else has started goes on."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    tell_alive()
