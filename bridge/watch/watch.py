"""Watches one pipeline: looks at it once a second, and serves what it finds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Final

import orjson
import structlog
from prometheus_client.exposition import choose_encoder

from bridge.ends import Ends
from bridge.pipeline.heartbeat import StatusReporter
from bridge.watch.document import History, Lookups, Recent, View, history_document, registry_of, status_document
from bridge.watch.server import Address, Answer, Answers, Server

LOOK_SECONDS: Final = 1.0
_STUCK_SECONDS: Final = 60.0
_END_SECONDS: Final = 2.0
_PLAIN: Final = "text/plain; charset=utf-8"
_PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

log = structlog.get_logger()


class Watch:
    """Serves metrics, health, status and page of one pipeline, from its start to `close`.

    name: the pipeline.  ends: its ends, which may be away already while it starts.
    Raises UsageError when it cannot listen there.
    """

    def __init__(self, address: Address, name: str, ends: Ends, lookups: Lookups) -> None:
        self._ends, self._lookups = ends, lookups
        self._info = {"pipeline": name, "version": version("bridge")}
        self._reporter: StatusReporter | None = None
        self._history, self._recent = History(), Recent()
        self._started_at, self._looked_at = time.time(), time.monotonic()
        self._is_over = threading.Event()
        self._view = self._starting()
        self._registry = registry_of(lambda: self._view, self._info)
        self._server = Server(address, self._answers())
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)
        for part in (self._server.serve, self._lookups.start, self._thread.start):
            part()
        log.info("page_served", url=f"http://{self._server.address}/")

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._server.address

    def starting(self, ends: Ends) -> None:
        self._ends = ends

    def report_on(self, reporter: StatusReporter) -> None:
        self._reporter = reporter

    def close(self) -> None:
        self._is_over.set()
        self._server.close()
        self._thread.join(_END_SECONDS)
        self._lookups.close(_END_SECONDS)

    def _work(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  # the pipeline goes on; /healthz tells that this does not
                log.error("page_failed", error=repr(error), fix="please report it")
                return
            self._looked_at = time.monotonic()

    def look(self) -> None:
        """Looks at the pipeline; what is found is shown from now on."""
        self._view = self._starting() if self._reporter is None else self._looked(self._reporter)

    def _looked(self, reporter: StatusReporter) -> View:
        status, now = reporter.status(), time.time()
        self._history.add(now, status)
        self._recent.add(time.monotonic(), status)
        self._lookups.partitions = tuple(status.positions)
        return View(
            at=now,
            started_at=self._started_at,
            reason=status.away or status.held,
            status=status,
            ends=self._lookups.ends,
            rate=self._recent.rate(),
            table_rates=self._recent.table_rates(),
            phases=self._recent.phases(),
            target=self._lookups.target,
        )

    def _starting(self) -> View:
        return View(time.time(), self._started_at, self._ends.waiting_for or "the bridge is starting")

    # --- what each path answers

    def _answers(self) -> Answers:
        pages = {path: _file(name, kind) for path, (name, kind) in _PAGE.items()}
        return {
            **pages,
            "/status": self._status,
            "/history": lambda _: _json(history_document(self._history.points())),
            "/metrics": self._metrics,
            "/healthz": self._health,
            "/readyz": self._readiness,
        }

    def _status(self, _: Mapping[str, str]) -> Answer:
        return _json(status_document(self._view, self._info))

    def _metrics(self, headers: Mapping[str, str]) -> Answer:
        encode, kind = choose_encoder(headers.get("Accept", ""))
        return Answer(encode(self._registry), kind)

    def _health(self, _: Mapping[str, str]) -> Answer:
        seconds = time.monotonic() - self._looked_at
        if seconds > _STUCK_SECONDS:
            words = f"the pipeline was last looked at {seconds:.0f} s ago\n"
            return Answer(words.encode(), _PLAIN, HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ok\n", _PLAIN)

    def _readiness(self, _: Mapping[str, str]) -> Answer:
        reason = self._view.reason
        if reason:
            return Answer(f"{reason}\n".encode(), _PLAIN, HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ok\n", _PLAIN)


def _json(document: object) -> Answer:
    return Answer(orjson.dumps(document), "application/json")


def _file(name: str, kind: str) -> Callable[[Mapping[str, str]], Answer]:
    answer = Answer((files("bridge.watch") / "page" / name).read_bytes(), kind)
    return lambda _: answer
