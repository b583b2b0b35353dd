"""A TCP proxy that cuts, delays, stalls and truncates, at a stated place of MySQL's protocol where it is told one.

Each connection (`Link`) has two threads.  What a client sends is looked at packet by packet (MySQL) or chunk by chunk
(anything else); a `Fault` that waits for such a packet happens once, on the link where it comes.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from bridge.local.server import HOST

CHUNK: Final = 1 << 16
_HEADER: Final = 4
_QUERY: Final = 3
ANSWER_SECONDS: Final = 1.0


class Cut(Exception):  # noqa: N818  # not an error: it is what the proxy is for
    """Raised by a fault to end its link."""


@dataclass
class Fault:
    """What happens to a packet.

    at: which one; given its bytes, from the command on.
    act: what is done with it instead of passing it on; given the link and the whole packet.
    """

    name: str
    at: Callable[[bytes], bool]
    act: Callable[[Link, bytes], None]
    happened: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class Link:
    """A client's connection, and that to the server behind it."""

    client: socket.socket
    server: socket.socket
    is_silent: bool = False
    """Nothing is passed on to the client any more."""
    keeps_server: bool = False
    """The server is not told of the client's end."""
    answered: threading.Event = field(default_factory=threading.Event)
    """The server has sent something since it was last cleared."""

    def close(self) -> None:
        """Ends both connections."""
        self.close_client()
        _end(self.server)

    def close_client(self) -> None:
        """Ends the client's connection; that to the server stays as it is, as where a router has lost its memory."""
        _end(self.client)

    def pass_on(self, packet: bytes) -> None:
        """Sends to the server."""
        self.server.sendall(packet)

    def have_answered(self, packet: bytes) -> None:
        """Sends to the server, and waits for the answer, which is kept back.  A server that wants more packets gives
        none."""
        self.is_silent = True
        self.answered.clear()
        self.pass_on(packet)
        self.answered.wait(ANSWER_SECONDS)


class Proxy:
    """Listens on 127.0.0.1 in front of a server, from `start` to `stop`.

    server: its port.  packets: how what a client sends is cut.
    """

    def __init__(self, server: int = 0, packets: Callable[[socket.socket], Iterator[bytes]] | None = None) -> None:
        self.server = server
        self._packets = packets or chunks
        self._faults: list[Fault] = []
        self._links: list[Link] = []
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self._is_refusing = False
        self._greeting: Callable[[Link], None] | None = None
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._listen, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._open.set()
        _end(self._listener)
        self._listener.close()

    def arm(self, fault: Fault) -> Fault:
        """Has a fault happen once."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def greet_by(self, act: Callable[[Link], None]) -> None:
        """Has the next connection that is made end in its handshake."""
        self._greeting = act

    def stall(self) -> None:
        """From now on connections are accepted, and nothing is passed on."""
        self._open.clear()

    def refuse(self) -> None:
        """From now on connections are accepted and ended at once; those that there are end."""
        self._is_refusing = True
        self.cut()

    def go_on(self) -> None:
        """Passes everything on again, what was kept back too."""
        self._is_refusing = False
        self._open.set()

    def cut(self) -> None:
        """Ends all connections."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close()

    def lead_to(self, server: int) -> None:
        """Leads new connections to another server, and ends the others."""
        self.server = server
        self.cut()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), name="proxy link", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            if self._is_refusing:
                raise Cut
            server = socket.create_connection((HOST, self.server), timeout=10)
        except (OSError, Cut):
            _end(client)
            return
        server.settimeout(None)
        link = Link(client, server)
        with self._lock:
            self._links.append(link)
        greeting, self._greeting = self._greeting, None
        if greeting is not None:
            greeting(link)
        threading.Thread(target=self._answer, args=(link,), name="proxy answers", daemon=True).start()
        try:
            for packet in self._packets(client):
                self._open.wait()
                self._handle(link, packet)
        except (OSError, Cut):
            if not link.keeps_server:
                link.close()
        else:
            if not link.keeps_server:
                _half_end(link.server)

    def _handle(self, link: Link, packet: bytes) -> None:
        fault = self._due(packet)
        if fault is None:
            link.pass_on(packet)
            return
        fault.happened.set()
        fault.act(link, packet)

    def _due(self, packet: bytes) -> Fault | None:
        with self._lock:
            found = next((fault for fault in self._faults if fault.at(packet[_HEADER:])), None)
            if found is not None:
                self._faults.remove(found)
        return found

    def _answer(self, link: Link) -> None:
        with suppress(OSError):
            while data := link.server.recv(CHUNK):
                link.answered.set()
                self._open.wait()
                if not link.is_silent:
                    link.client.sendall(data)
        if not link.is_silent:
            link.close_client()


def port_of(url: str) -> int:
    """The port of a server's URL."""
    return urlsplit(url).port or 3306


def chunks(client: socket.socket) -> Iterator[bytes]:
    """What a client sends, as it comes."""
    while data := client.recv(CHUNK):
        yield data


def mysql_packets(client: socket.socket) -> Iterator[bytes]:
    """What a client of MySQL sends, packet by packet with their headers (MySQL Internals, "Basic Types: Packets")."""
    stream = client.makefile("rb")
    while header := stream.read(_HEADER):
        yield header + stream.read(int.from_bytes(header[:3], "little"))


# --- places


def query(text: str) -> Callable[[bytes], bool]:
    """A statement that contains this text."""
    return lambda payload: payload[:1] == bytes([_QUERY]) and text.encode() in payload


def rows_of_load(payload: bytes) -> bool:
    """The rows of LOAD DATA LOCAL: a packet that is no command."""
    return len(payload) > CHUNK and payload[0] != _QUERY


def commit(payload: bytes) -> bool:
    """A COMMIT."""
    return payload == bytes([_QUERY]) + b"COMMIT"


# --- what happens there


def cut_before(_link: Link, _packet: bytes) -> None:
    """The connection ends, and the server never gets the packet."""
    raise Cut


def cut_within(link: Link, packet: bytes) -> None:
    """The server gets half of the packet, and the connection ends."""
    link.pass_on(packet[: len(packet) // 2])
    raise Cut


def cut_after(link: Link, packet: bytes) -> None:
    """The server does what the packet says, and the connection ends before its answer."""
    link.have_answered(packet)
    raise Cut


def stall_before(link: Link, _: bytes) -> None:
    """The server never gets the packet, and neither side learns of it."""
    link.is_silent = True


def stall_after(link: Link, packet: bytes) -> None:
    """The server does what the packet says, and its answer never comes."""
    link.have_answered(packet)


def keep_at_server(link: Link, _: bytes) -> None:
    """The client's connection ends; the server never gets the packet, and does not learn that nobody is there."""
    link.is_silent = link.keeps_server = True
    link.close_client()


def late(seconds: float) -> Callable[[Link, bytes], None]:
    """The client's connection ends; the server gets the packet so much later."""

    def act(link: Link, packet: bytes) -> None:
        keep_at_server(link, packet)
        time.sleep(seconds)
        with suppress(OSError):
            link.pass_on(packet)

    return act


def truncate(link: Link, packet: bytes) -> None:
    """The first bytes of the answer come, and then the end."""
    link.have_answered(packet)
    with suppress(OSError):
        link.client.sendall(b"\x07\x00\x00")
    raise Cut


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _half_end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_WR)
