"""Serves what is shown over HTTP.  Nothing can be changed through it."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.errors import UsageError

LOOPBACK: Final = "127.0.0.1"
_MOST: Final = 65535
_TIMEOUT_SECONDS: Final = 10.0
"""How long a client may take to send its request, or to read the answer."""
_MOST_CONNECTIONS: Final = 32
_LOOK_SECONDS: Final = 0.1

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The page loads nothing from elsewhere and runs no script that stands in a text, whatever a table is called."""


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


class Answer(NamedTuple):
    """What a path answers."""

    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK


Answers = Mapping[str, Callable[[Mapping[str, str]], Answer]]
"""What makes the answer of each path, from the headers of the request."""


class Server:
    """Listens from the start, and answers from `serve` on, in threads of its own.

    Raises UsageError when it cannot listen there.
    """

    def __init__(self, address: Address, answers: Answers) -> None:
        self._http = _HttpServer(address, answers)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(_LOOK_SECONDS,), name="watch-http", daemon=True
        )

    @property
    def address(self) -> Address:
        """Where it listens; with the port that the system has chosen."""
        host, port = self._http.server_address[:2]
        return Address(str(host), int(port))

    def serve(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def close(self) -> None:
        """Ends listening; whoever is being answered is not waited for."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # in which callers wait to be taken; 5, the default, has some of them wait for a second

    def __init__(self, address: Address, answers: Answers) -> None:
        self.answers, self.listens = answers, address
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            super().__init__((address.host, address.port), _Handler)
        except OSError as error:
            raise UsageError(
                f"the bridge cannot listen on {address}: {error.strerror or error}",
                fix="give --listen an address of this machine and a port that is free",
            ) from error

    def server_bind(self) -> None:
        """Binds, without asking for the name of this machine as HTTPServer does, which may take long."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread; beyond the most connections at once, not at all."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    timeout = _TIMEOUT_SECONDS
    server_version, sys_version = "bridge", ""

    def _get(self) -> None:
        if not may_ask(self.server.listens, self.headers.get("Host")):
            self._say(HTTPStatus.MISDIRECTED_REQUEST, "the bridge is not called so; ask for localhost or a number\n")
            return
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            self._say(HTTPStatus.NOT_FOUND, "there are /, /status, /history, /metrics, /healthz and /readyz\n")
            return
        self._send(answer(dict(self.headers.items())))

    def _refuse(self) -> None:
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "nothing can be changed here\n")

    do_GET = do_HEAD = _get  # noqa: N815  # as the base class calls them
    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _say(self, status: HTTPStatus, words: str) -> None:
        self._send(Answer(words.encode(), "text/plain; charset=utf-8", status))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**_HEADERS, "Content-Type": answer.kind, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs no request."""
