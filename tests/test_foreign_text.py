"""What comes from messages, servers and files is shown as text: no markup, no command to the terminal, no forged
line."""

from __future__ import annotations

import ast
import io
import json
import sys
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge import console
from bridge.cli import output, progress_bars
from bridge.cli.logs import configure_logs
from bridge.commands.check import fail
from bridge.commands.ddl import Translation
from bridge.commands.inspect import Record, table_lines
from bridge.commands.quarantine import EntryOutcome
from bridge.commands.status import PipelineStatus
from bridge.console import redacted, visible
from bridge.ddl.rewrite import RewriteStep
from bridge.errors import StoppedError
from bridge.events import DdlStatement, Kind, Position, RowChange, Undecodable
from bridge.model import PartitionStart, SchemaChange, TableName
from bridge.mysql.state.ddl_journal import JournalEntry, JournalState
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import QuarantineState, StoredEntry
from bridge.verify.compare.row_diff import DifferenceKind
from bridge.verify.report import Report, ShownCell, ShownRow, TableResult
from tests.support.captures import write_lines
from tests.support.command import bridge
from tests.support.pipelines import admin

FORGED = "\n2026-01-01T00:00:00Z [info     ] all is well"
HOSTILE = (
    *("[/b]", "[red]x[/red]", "\x1b[2J", FORGED, "\r", "\u202e", "\x9b1A", "\0", "\x7f", "\u2028", "[link=x]", "\\"),
)
SURROGATE = "\udcff"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
texts = st.lists(st.sampled_from((*HOSTILE, SURROGATE, "a", " ", "=")), min_size=1, max_size=5).map("".join)
several = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def harmless(out: str) -> bool:
    """Whether the terminal only sees characters that stand for themselves, and ends of lines."""
    return all(c == "\n" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in out)


def entry(text: str) -> JournalEntry:
    step = RewriteStep(text, text, text)
    return JournalEntry(
        7, "0" * 40, text, text, text, JournalState.HELD, text, text, f"x{text}", (step,), text, text, NOW, None
    )


def stored(text: str) -> StoredEntry:
    change = RowChange(Kind.INSERT, 7, 0, text, text, "a", "a", None, "1")
    return StoredEntry(
        1, Position(text, 0, 1), 0, QuarantineState.HELD, text, text, 7, text, 0, change, text, NOW, None, b"\x1b",
        b"\xff", {text: text},
    )  # fmt: skip


def status(text: str) -> PipelineStatus:
    pending = (SchemaChange(7, text, text, text, text),)
    progress = Progress(text, 1, 7, 0, {(text, 0): PartitionStart(1, 2, 3)}, pending)
    owner = {"pid": 1, "host": text, "age": 1}
    return PipelineStatus(
        progress,
        owner,
        True,
        {"waiting_for": text, "by_transaction": {text: text}},
        {text: 1},
        {text: 1},
        (entry(text),),
    )


def report(text: str) -> Report:
    row = ShownRow(DifferenceKind.DIFFERENT, {text: text}, [ShownCell(text, text, text)], 1, 7, text)
    table = TableResult(TableName(text, text), different=1, schema=(text,), notes=(text,), first_rows=[row])
    return Report("log", 7, 0.0, [table], [text])


def records(text: str) -> list[Record]:
    where = Position(text, 0, 1)
    column = text.replace("\0", "")  # which no name of a column and no literal holds
    row = RowChange(Kind.UPDATE, 7, 0, text, text, f"a\0{column}", "a", f"1\0{column}", "1\0x")
    change = DdlStatement(7, 0, text, "", text)
    bad = Undecodable("malformed", text, None, b64encode(b"\x1b[2J\n").decode())
    sender = (text, text)
    return [
        Record(where, *sender, row, {"gtid": text, "note": text}),
        Record(where, *sender, change, {}),
        Record(where, *sender, bad, {}),
    ]


def lines(shown: Iterable[str]) -> None:
    console.result({}, shown, as_json=False)


def logged(text: str) -> None:
    log = structlog.get_logger()
    log.warning(text, statement=text, error=StoppedError(text, where=text), tables=[text])
    log.info("status", waiting_for=text)


SHOWN: dict[str, tuple[Callable[[str], Any], int]] = {
    "status": (lambda text: output.pipeline_status(status(text), as_json=False), 13),
    "ddl list": (lambda text: output.schema_changes([entry(text)], as_json=False), 5),
    "ddl translate": (
        lambda text: output.translations([Translation(text, text, "hold", text, (text,), "x")], as_json=False), 2
    ),
    "check": (lambda text: output.findings([fail("target", text, text)], as_json=False), 1),
    "quarantine show": (lambda text: lines(output.entry_lines(stored(text), [])), 8),
    "quarantine retry": (lambda text: lines(output.outcome_lines([EntryOutcome(1, text, True, text)])), 2),
    "an error": (lambda text: console.note(str(StoppedError(text, where=text, fix=text))), 1),
    "the log": (logged, 2),
    "inspect": (lambda text: lines(table_lines(records(text))), 6),
}  # fmt: skip
"""What shows text from elsewhere, and how many lines that are."""


@pytest.fixture(params=SHOWN)
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, int]]:
    """Shows a text in one of the places; gives what was printed, and how many lines it may have."""
    place, lines = SHOWN[request.param]

    def printed(text: str) -> tuple[str, int]:
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", out)
        configure_logs()
        place(text)
        return out.getvalue(), lines

    return printed


@several
@given(texts)
def test_every_place_shows_text_as_text(shown: Callable[[str], tuple[str, int]], text: str) -> None:
    """One line stays one line, nothing steers the terminal, and markup is not markup."""
    out, lines = shown(text)
    assert harmless(out)
    assert len(out.splitlines()) == lines
    out.encode()


@several
@given(texts)
def test_tables_show_text_as_text(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """The same in tables, whose cells may need several lines."""
    lines(output.quarantine_lines([stored(text)]))
    output.verification(report(text), as_json=False)
    out = capsys.readouterr().out
    assert harmless(out)
    assert text.isprintable() is False or text.replace(" ", "") in out.replace("\n", "").replace(" ", "")


def test_a_list_is_not_folded_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each entry, however long its reason is, so that programs can read it."""
    lines(output.quarantine_lines([stored("x" * 300), stored("y" * 200)]))
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3
    assert [line[-1] for line in out] == ["n", "x", "y"]
    assert "x" * 300 in out[1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", HOSTILE)
def test_bars_show_text_as_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A table's name is no markup in a progress bar either, nor what a verification waits for."""
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with progress_bars.VerifyBar() as bar:
        for said in (lambda: bar.stage(f"<{text}>"), lambda: bar.done(TableName("a", f"<{text}>"), 1)):
            said()
            bar._progress.refresh()
            assert f"<{visible(text)}>" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
    assert FORGED not in out.getvalue()


@several
@given(texts.filter(lambda text: SURROGATE not in text))
def test_json_is_exact(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """With --json the texts are what they are: the document says it in JSON's own way."""
    found = [
        (lambda: output.pipeline_status(status(text), as_json=True), status(text).document()),
        (lambda: output.schema_changes([entry(text)], as_json=True), [entry(text).document()]),
        (lambda: output.verification(report(text), as_json=True), report(text).document()),
        (lambda: console.print_json([one.document() for one in records(text)]), [r.document() for r in records(text)]),
    ]
    for say, document in found:
        say()
        said = json.loads(capsys.readouterr().out)
        assert _without_lag(said) == _without_lag(json.loads(json.dumps(document)))


def _without_lag(document: Any) -> Any:
    return {**document, "lag_seconds": 0} if isinstance(document, dict) else document


@given(st.text())
def test_visible_text(text: str) -> None:
    """Printable text is left alone; everything else becomes printable, and stays so."""
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
    assert visible(text) == text or not text.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at mysql://u:s3@cret@h:1/", "at mysql://u:***@h:1/"),
        ("mysql://u:s3'cret@h/ and more", "mysql://u:***@h/ and more"),
        ("mysql://u@h/?ssl_key=/k&password=s3cret; go on", "mysql://u@h/?***; go on"),
        ("mysql://u@h/", "mysql://u@h/"),
        ("no URL: a@b?c", "no URL: a@b?c"),
    ],
)
def test_urls_lose_their_secrets(text: str, expected: str) -> None:
    """In errors and the log, whoever wrote the URL there."""
    assert redacted(text) == expected


PRINTS = {"bridge/console.py", "bridge/cli/output.py", "bridge/spark/class_archive.py"}
"""The only modules that print; the last one prints a path, when it is run by itself."""


def test_nothing_else_prints() -> None:
    """There is one way out for text, so that none is forgotten."""
    root, printing = Path(__file__).parent.parent, set()
    for path in (root / "bridge").rglob("*.py"):
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        if calls & {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"}:
            printing.add(str(path.relative_to(root)))
    assert printing == PRINTS


def test_commands_on_a_target_that_holds_such_text(target: str, tmp_path: Path) -> None:
    """status, ddl list, quarantine list and inspect end with 0, with everything in its line."""
    text = "".join(HOSTILE)
    with admin(target) as session:
        line = {"partition": 0, "offset": 0, "key": None, "value": "e30=", "topic": text}
        capture = str(write_lines(tmp_path / "c.jsonl", [line]))
        ProgressTable("bridge").create(session)
        session.execute(
            "INSERT INTO _bridge.progress (name, epoch, applied_ts, applying_ts, start_ts, positions, pending, topics)"
            " VALUES ('bridge', 1, 5, 5, 0, '{}', '[]', '{}')"
        )
        session.execute(
            "INSERT INTO _bridge.schema_changes (name, commit_ts, statement_hash, schema_name, statement, position,"
            " place, state, fingerprint, classes, run_text, rewrites, left_out, replacement, outcome, started_at)"
            " VALUES ('bridge', 5, SHA1('x'), 'a', %s, 'cdc/0/1', '', 'held', '', '', '', '[]', '[]', '', %s, NOW())",
            [text, text],
        )
    for command in (("status",), ("ddl", "list"), ("quarantine", "list")):
        ended = bridge(*command, "--target", target)
        assert (ended.code, ended.err) == (0, "")
        assert harmless(ended.out)
        assert command[0] == "quarantine" or visible(text) in ended.out
    ended = bridge("inspect", "--input", capture)
    assert ended.code == 0
    assert harmless(ended.out)
    assert visible(text) in ended.out
