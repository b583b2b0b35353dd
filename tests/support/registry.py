"""A schema registry over HTTP, as Confluent's and Apicurio's answer, with the faults that real ones have."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

from bridge.cache import cache_folder
from bridge.protocols.decoder import SchemaId
from bridge.registry import SchemaRegistry


@dataclass
class Registry:
    """What a registry holds and does.

    schemas: by id.  url: with a path of its own, for Confluent's API.  asked: the paths of its requests, in order.
    status: answered instead of a schema, when it is not 200.
    login: the header Authorization that it wants, "" for none.
    before: called before each answer.
    """

    schemas: dict[int, str]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    status: int = 200
    login: str = ""
    before: Callable[[], object] = bool
    kind: str = ""

    def answer(self, path: str, login: str | None) -> tuple[int, bytes]:
        """The status and content for a request."""
        self.before()
        self.asked.append(path)
        if self.status != 200:
            return self.status, b"{}"
        if self.login and login != self.login:
            return 401, b'{"error_code":401}'
        number = path.rpartition("/")[2]
        schema = self.schemas.get(int(number)) if number.isdecimal() else None
        if schema is None:
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        if "/apis/registry/" in path:
            return 200, schema.encode()
        return 200, json.dumps({"schema": schema} | ({"schemaType": self.kind} if self.kind else {})).encode()

    def register(self, content: bytes) -> bytes:
        """Gives a schema its number, as Apicurio's own interface does (`POST .../artifacts`)."""
        given = json.loads(content)
        text = given["content"] if "content" in given else content.decode()
        numbers = {schema: number for number, schema in self.schemas.items()}
        number = numbers.get(text, len(numbers) + 1)
        self.schemas[number] = text
        return json.dumps(
            {"id": f"a{number}", "version": "1", "type": "AVRO", "globalId": number, "contentId": number}
        ).encode()


def schemas_of(path: Path) -> dict[int, str]:
    """The schemas that stand beside a capture."""
    held: Mapping[str, Mapping[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return {int(number): one["schema"] for number, one in held.items()}


@contextmanager
def serving(schemas: Mapping[int, str], port: int = 0) -> Iterator[Registry]:
    """Serves these schemas in the block."""
    registry = Registry(dict(schemas))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(*registry.answer(self.path, self.headers["Authorization"]))

        def do_POST(self) -> None:
            self.answer(200, registry.register(self.content()))

        def content(self) -> bytes:
            if size := self.headers["Content-Length"]:
                return self.rfile.read(int(size))
            parts = []
            while size := int(self.rfile.readline(), 16):  # chunks
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()  # what is left unread lets the kernel reset the connection, and the answer is lost
            return b"".join(parts)

        def answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            # Java's client takes no answer in HTTP/1.0 for the end of a connection, and loses the next request to it
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    # another path each time: what this machine keeps of one registry is not for the next that gets its port
    registry.url = f"http://127.0.0.1:{server.server_address[1]}/{uuid4().hex}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        name = SchemaRegistry((registry.url,)).folder(SchemaId("contentIds", 1)).name.partition("-contentIds")[0]
        for folder in cache_folder().glob(f"{name}-*"):
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
