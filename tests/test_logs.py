"""The log: its events, which the manual explains, and its forms."""

from __future__ import annotations

import ast
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

import bridge
from bridge import console
from bridge.cli import progress_bars
from bridge.cli.logs import configure_logs
from bridge.cli.progress_bars import ProgressBar, VerifyBar
from bridge.model import TableName
from tests.support import command
from tests.support.waiting import wait_for

PACKAGE = Path(bridge.__file__).parent
PAGE = (PACKAGE / "manual" / "logs.md").read_text(encoding="utf-8")
LEVELS = {"debug", "info", "warning", "error"}
OF_THE_CONSOLE = {("note", "info"), ("failed", "error"), ("detail", "error")}


def logged() -> Iterator[tuple[str, str]]:
    """Every event that the code logs, with its level; fails for a name that is not a constant."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "structlog" not in text or path.name == "logs.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                name = node.args[0]
                if "log" in ast.unparse(node.func.value) and ast.unparse(name) != "self._event":
                    assert isinstance(name, ast.Constant), f"{path.name}: {ast.unparse(name)}"
                    yield name.value, node.func.attr
    yield from re.findall(r'ProgressLines\("(\w+)"\)()', (PACKAGE / "cli" / "progress_bars.py").read_text("utf-8"))


def test_the_manual_explains_every_event() -> None:
    """Its level too, and no event that does not exist."""
    explained = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE))
    assert explained == {(name, level or "info") for name, level in logged()} | OF_THE_CONSOLE


def test_events_have_names() -> None:
    """Words with underscores: what varies is in the fields."""
    assert not [name for name, _ in logged() if not re.fullmatch("[a-z]+(_[a-z]+)*", name)]


@pytest.fixture(autouse=True)
def usual_logs() -> Iterator[None]:
    """The form that other tests find."""
    yield
    configure_logs()


def test_lines_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, notes too; without the passwords of URLs, and values of any type as text."""
    configure_logs("json", "info")
    structlog.get_logger().warning("retrying", on="target", error="mysql://u:s3cret@h/ away\nnow", at={1: Path("/x")})
    structlog.get_logger().debug("not_shown")
    console.note("stopped; mysql://u:s3cret@h/")
    console.failure("it is over")
    first, note, failed = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert list(first)[:3] == ["timestamp", "level", "event"]
    assert (first["event"], first["error"]) == ("retrying", "mysql://u:***@h/ away\\nnow")
    assert first["at"] == {"1": "/x"}
    assert (note["event"], note["text"], note["level"]) == ("note", "stopped; mysql://u:***@h/", "info")
    assert (failed["event"], failed["level"]) == ("failed", "error")


def test_the_settings_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """By flags; a failure of the command is an event."""
    del capsys
    ended = command.bridge("status", "--target", "mysql://root@127.0.0.1:1/", "--log-format", "json")
    [line] = ended.err.splitlines()
    assert (ended.code, json.loads(line)["event"]) == (3, "failed")
    ended = command.bridge("status", "--target", "mysql://root@127.0.0.1:1/")
    assert ended.err.startswith("bridge: the target")


class Terminal:
    """A stream that says that it is one."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_mean_something(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool) -> None:
    """Warnings and errors have one, on a terminal that wants it."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    configure_logs()
    structlog.get_logger().info("status", rows=1)
    structlog.get_logger().warning("retrying", on="target")
    usual, warning = terminal.text.splitlines()
    assert ("\x1b[3" in usual, "\x1b[33m" in warning) == (False, coloured)
    plain = re.sub("\x1b\\[[0-9]*m", "", warning)
    assert re.fullmatch(r"\S+Z \[warning  \] retrying on=target", plain)


@pytest.mark.parametrize(("bar", "event"), [(ProgressBar, "replay_progress"), (VerifyBar, "verify_progress")])
def test_long_work_without_a_terminal_says_that_it_lives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bar: type[ProgressBar | VerifyBar], event: str
) -> None:
    """A line every 10 seconds, of replay and of verify, from the start on; here more often."""
    assert progress_bars.SECONDS == 10
    monkeypatch.setattr(progress_bars, "SECONDS", 0.01)
    configure_logs("json")
    lines: list[dict[str, Any]] = []

    def has_two_lines() -> bool:
        lines.extend(json.loads(line) for line in capsys.readouterr().err.splitlines())
        return len(lines) >= 2

    with bar():
        wait_for(has_two_lines, "two lines have not come")
    assert {(line["event"], line["doing"]) for line in lines} == {(event, "starting")}


def test_progress_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A line again and again, with what is known."""
    monkeypatch.setattr(progress_bars, "SECONDS", 0.01)
    configure_logs("json")
    seen = threading.Event()
    lines: list[dict[str, Any]] = []
    with progress_bars.VerifyBar() as bar:
        bar.plan(1000)
        bar.done(TableName("app", "t"), 100)
        while not any(line.get("rows") == 100 for line in lines):
            seen.wait(0.01)
            lines += [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {line["event"] for line in lines} == {"verify_progress"}
    assert (lines[-1]["about"], lines[-1]["table"]) == (1000, "app.t")
