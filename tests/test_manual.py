"""The manual: its pages, what `bridge help` makes of them, and what in them is made from the program."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bridge.cli import output
from bridge.cli.logs import configure_logs
from bridge.cli.page_layout import Page
from bridge.commands import manual
from bridge.config import Settings
from bridge.ddl.classes import ChangeClass
from bridge.errors import UsageError
from bridge.mysql.state.schema import VERSION
from bridge.pipeline.status import Status
from bridge.settings.load import load_settings
from tests.support import settings_page
from tests.support.command import bridge
from tests.support.shop import BEGAN, write_capture
from tests.support.shown_output import MANUAL, README, ROOT, assert_shown, blocks, pages

MADE_BY = {
    "demo": "tests/demo/test_demo.py",
    **dict.fromkeys(("inspect", "ddl-translate", "status-line"), "tests/test_manual.py"),
    **dict.fromkeys(
        (
            *("check", "status", "ddl-list", "shards-ddl-list", "quarantine-list", "quarantine-show"),
            *("quarantine-retry", "bad-message"),
        ),
        "tests/test_manual_on_servers.py",
    ),
    "verify": "tests/verify/test_shown.py",
    "replay": "tests/system/test_shown.py",
    **{name: "tests/system/test_first_day.py" for name in blocks() if name.startswith("first-")},
}
"""The tests that make the blocks of real output."""


def topic_files() -> set[str]:
    return {path.stem for path in MANUAL.glob("*.md")} - {"README"}


def test_every_page_is_a_topic() -> None:
    """`bridge help` knows the pages that are there, and the README links them all."""
    assert topic_files() == set(manual.TOPICS)
    assert set(re.findall(r"^\| \[[a-z-]+\]\(bridge/manual/([a-z-]+)\.md\)", README.read_text(), re.MULTILINE)) == set(
        manual.TOPICS
    )


def test_topics_are_listed() -> None:
    """Without a topic, each page is named with what it tells."""
    listed = bridge("help")
    assert listed.code == 0
    for topic, what in manual.TOPICS.items():
        assert f"{topic} " in listed.out
        assert what in listed.out


@pytest.mark.parametrize("topic", manual.TOPICS)
def test_a_page_is_printed(topic: str) -> None:
    """Where it is no terminal a page comes as Markdown, without comments, relative links and pictures."""
    printed = bridge("help", topic)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("# ")
    assert "<!--" not in printed.out
    assert not re.search(r"\]\((?!https?:)", printed.out)


@pytest.mark.parametrize(
    ("wrong", "near"), [("verfy", "verify"), ("Guarantees", "guarantees"), ("schema", "schema-changes"), ("xyz", "")]
)
def test_an_unknown_topic(wrong: str, near: str) -> None:
    """It ends with 2, and names the pages, the closest first."""
    said = bridge("help", wrong)
    assert said.code == 2
    assert all(topic in said.err for topic in manual.TOPICS)
    assert (f"did you mean {near}?" in said.err) == bool(near)


def test_a_terminal_is_shown_a_layout() -> None:
    """On a terminal headings are set off and tables drawn, instead of Markdown's marks."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "bridge", "help", "quarantine"]
    with subprocess.Popen(command, stdout=theirs, stdin=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        shown = b"".join(_read(ours)).decode()
        assert process.wait(60) == 0
    assert "| --- |" not in shown
    assert "\x1b[" in shown
    assert "not-read-back" in shown


@pytest.mark.parametrize("topic", manual.TOPICS)
def test_a_narrow_terminal_cuts_nothing(topic: str) -> None:
    """What does not fit into a cell is folded: every name of a setting can be read."""
    console = Console(width=60, file=io.StringIO())
    console.print(Page(manual.page(topic)))
    assert isinstance(console.file, io.StringIO)
    assert "…" not in console.file.getvalue()


def _read(end: int) -> Iterator[bytes]:
    """All that a terminal is sent, until the other end is closed."""
    with os.fdopen(end, "rb", buffering=0) as terminal:
        while True:
            try:
                some = terminal.read(1 << 16)
            except OSError:  # Linux says so when the other end is closed
                return
            if not some:
                return
            yield some


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("see [verify](verify.md).\n", "see verify (`bridge help verify`).\n"),
        ("[limits](guarantees.md#the-honest-limits)", "limits (`bridge help guarantees`)"),
        ("[the map](../README.md)", "the map (`README.md` in the repository)"),
        ("![the page](../../docs/page.svg)", "(the page: `docs/page.svg` in the repository)"),
        ("[docs](https://docs.pingcap.com/tidb)", "[docs](https://docs.pingcap.com/tidb)"),
        ("<!-- output: verify -->\nplain", "plain"),
    ],
)  # fmt: skip
def test_links_in_a_terminal(written: str, read: str) -> None:
    """A link says what can be followed there."""
    assert manual.for_terminal(written) == read


@pytest.mark.parametrize("page", [*pages(), *sorted((ROOT / "bridge").rglob("README.md")), ROOT / "tests/README.md"])
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link and picture of a page is there, headings included."""
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, heading = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, target


def test_every_block_of_output_is_made_by_a_test() -> None:
    """A block that shows a command has a name, and a test that makes it: nothing is written by hand."""
    assert set(blocks()) == set(MADE_BY)
    for name, test in MADE_BY.items():
        assert f'"{name}"' in (ROOT / test).read_text(encoding="utf-8"), name
    for page in pages():
        shown = len(re.findall(r"^```\n\$ ", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert shown == sum(block.page == page and bool(block.command) for block in blocks().values()), page.name


# --- made from the program


def test_the_settings_page_is_made_from_the_model() -> None:
    """Every setting has a docstring, and the page shows them all as they are."""
    made = settings_page.page()
    assert settings_page.PAGE.read_text(encoding="utf-8") == made, f"make the page anew: {settings_page.COMMAND}"


def test_the_example_of_a_settings_file_is_whole() -> None:
    """conf/bridge.toml names every setting, secrets apart, and no other; what is not commented out is the default,
    apart from the places to connect to."""
    text = (ROOT / "conf" / "bridge.toml").read_text(encoding="utf-8")
    given = tomllib.loads(text)
    for section, fields in settings_page.sections().items():
        part = text if not section else text.partition(f"\n[{section}]")[2]
        named = set(re.findall(r"^(?:# )?([a-z_]+) = ", part.partition("\n[")[0], re.MULTILINE))
        tables = {key for key in fields if f"\n[{f'{section}.{key}'.lstrip('.')}]" in text}
        assert named | tables == fields.keys(), section or "without a section"
        for key, default in fields.items():
            value = (given.get(section, {}) if section else given).get(key, default)
            assert value == default or f"{section}.{key}" in {
                *("source.bootstrap_servers", "source.topics", "target.url")
            }, f"{section}.{key}"


def test_the_example_of_a_settings_file_says_the_same_figures() -> None:
    """A comment of conf/bridge.toml says "three times" or "a quarter" only where the setting's docstring does."""
    figure = re.compile(r"\b(twice|half|thirds?|quarters?|fifths?|eighth|tenth|(?:two|three|four|five|ten) times)\b")
    page = settings_page.PAGE.read_text(encoding="utf-8").replace("## Without a section", "## []")
    said = {
        (part.partition("]")[0], key): set(figure.findall(row))
        for part in page.split("\n## [")[1:]
        for key, row in re.findall(r"^\| `([a-z_]+)` (.*)$", part, re.MULTILINE)
    }
    text = "[]\n" + (ROOT / "conf" / "bridge.toml").read_text(encoding="utf-8")
    compared = 0
    for part in re.split(r"^\[", text, flags=re.MULTILINE)[1:]:
        for key, comment in re.findall(r"^(?:# )?([a-z_]+) = (.*(?:\n {4,}#.*)*)", part, re.MULTILINE):
            figures = set(figure.findall(comment))
            assert figures <= said.get((part.partition("]")[0], key), set()), (key, figures)
            compared += len(figures)
    assert compared


def test_the_classes_of_schema_changes_are_those_of_the_program() -> None:
    """The page on schema changes lists what `[ddl]` can speak of."""
    text = (MANUAL / "schema-changes.md").read_text(encoding="utf-8")
    listed = text.partition("<!-- classes -->")[2].partition("<!-- /classes -->")[0]
    assert set(re.findall(r"`([a-z -]+)`", listed)) == {change.value for change in ChangeClass} - {"nothing"}


def test_the_variables_of_the_settings_page_are_read() -> None:
    """A variable that the page names sets something, or its value is refused; others are unknown."""
    for name in re.findall(r"`(BRIDGE_\w+)`", settings_page.PAGE.read_text(encoding="utf-8")):
        assert _sets_something(name), name
    assert not _sets_something("BRIDGE_NO_SUCH_SETTING")


def _sets_something(variable: str) -> bool:
    try:
        return load_settings(None, {variable: "x"}, {}, ()) != Settings()
    except UsageError as error:
        return "unknown setting" not in str(error)


def written_commands() -> list[tuple[str, str]]:
    """Each line of a fence that begins with `bridge `, with those that a backslash joins to it, and its page."""
    found = []
    for page in pages():
        for fence in re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            lines = fence.replace("\\\n", " ").splitlines()
            plain = [line.removeprefix("$ ") for line in lines]
            found += [(page.stem, line) for line in plain if re.match(r"bridge \w+( \S|$)", line)]
    return found


@cache
def offered_flags(*command: str) -> set[str]:
    """The flags of a command, as its help has them."""
    said = bridge(*command, "--help")
    assert said.code == 0, command
    return set(re.findall(r"--[a-z][a-z-]*", said.out))


def test_commands_in_the_manual_exist() -> None:
    """Whoever copies a line from a page gets no "no such option"."""
    written = written_commands()
    assert len(written) > 20
    for page, line in written:
        words = shlex.split(line.partition(" | ")[0], comments=True)[1:]
        command = words[: 2 if words[0] in {"ddl", "quarantine", "config", "ctl"} else 1]
        flags = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert flags <= offered_flags(*command), f"{page}: {line}"


def test_each_dependency_has_its_reason() -> None:
    """The page on internals lists what `pip install` brings, and nothing else, each with what it is for."""
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    text = (MANUAL / "internals.md").read_text(encoding="utf-8")
    listed = text.partition("<!-- dependencies -->")[2].partition("<!-- /dependencies -->")[0]
    reasons = dict(re.findall(r"^\| ([a-z][a-z0-9-]*) \| (.+) \|$", listed, re.MULTILINE))
    assert set(reasons) - {"package"} == {re.split(r"[\[=<>~]", one)[0] for one in given}


def test_settings_in_the_manual_exist() -> None:
    """A page names no setting that there is not, and tuning speaks of every knob of the stream."""
    sections = settings_page.sections()
    for page in pages():
        for section, key in re.findall(r"`([a-z]+)\.([a-z_]+)(?:=[^`]*)?`", page.read_text(encoding="utf-8")):
            assert key in sections.get(section, {key}), f"{page.name}: {section}.{key}"
    tuning = (MANUAL / "performance.md").read_text(encoding="utf-8").partition("## Tuning")[2]
    assert [key for key in sections["stream"] if f"stream.{key}" not in tuning] == [], "not under Tuning"


def test_the_form_of_the_own_tables_is_told() -> None:
    """The page on changes names the one that this version takes."""
    assert f"which the table `version` names: {VERSION}." in (MANUAL / "changes.md").read_text(encoding="utf-8")


# --- blocks of real output that need no server


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a capture file, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return write_capture(tmp_path / "captures")


@pytest.mark.usefixtures("captures")
def test_inspect_is_shown_as_it_is() -> None:
    """What `bridge inspect` prints of the little shop."""
    assert_shown("inspect", bridge(*shlex.split(blocks()["inspect"].command)[1:]).out, exactly=True)


def test_translate_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `bridge ddl translate` prints of the statement that the block pipes into it."""
    echo, _, translate = blocks()["ddl-translate"].command.partition(" | ")
    monkeypatch.setattr("sys.stdin", io.StringIO(shlex.split(echo)[1]))
    assert_shown("ddl-translate", bridge(*shlex.split(translate)[1:]).out, exactly=True)


def test_the_status_line_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Every field of the line is explained in the table below it."""
    numbers: dict[str, Any] = {
        **{"applied_ts": BEGAN, "resolved_ts": BEGAN, "source_lag": 0.7, "apply_lag": 0.2, "rows": 64213},
        **{"rows_per_second": 2140.0, "messages": 64300, "messages_total": 64300, "backlog_rows": 310, "late": 0},
        **{"repeated": 0, "left_out": 0, "quarantined": 0, "safe_mode": 0},
        **{"retries": 0, "target_away": 0, "source_away": 0},
    }
    phases = {"waiting": 3.1, "decoding": 0.4, "folding": 0.6, "rendering": 0.5, "server": 4.2, "commit": 1.2}
    status = Status(**numbers, phases=phases, waiting_for="partition changes/3 has had no boundary for 41 s")
    configure_logs()
    output.log_status(status)
    assert_shown("status-line", re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().err))
    text = (MANUAL / "operating.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| ([a-z_, ]+) \|", text.partition("## The status line")[2], re.MULTILINE)
    assert set(output.status_fields(status)) <= {name for names in explained for name in names.split(", ")}
