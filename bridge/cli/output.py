"""What the commands print: results to stdout, everything else to stderr.

Nothing else prints: what is shown may come from messages, servers and files, and goes through `foreign_text.visible`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson
import structlog
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bridge.foreign_text import redacted, visible
from bridge.pipeline.watching.status import Status
from bridge.tso import tso_time
from bridge.verify.report import row_lines

if TYPE_CHECKING:
    from bridge.commands.check import Finding
    from bridge.commands.ddl import Translation
    from bridge.commands.quarantine import Outcome as QuarantineOutcome
    from bridge.commands.status import PipelineStatus
    from bridge.ddl.rewrite import Step
    from bridge.model import TableName
    from bridge.mysql.state.ddl_journal import Entry
    from bridge.mysql.state.quarantine import StoredEntry
    from bridge.pipeline.watching.outcome import Outcome
    from bridge.verify.report import Report

_VERIFY_WIDTH = 132

log = structlog.get_logger()

_PLAIN_WIDTH = 200
"""Columns of a table that goes to no terminal."""


def note(text: str) -> None:
    """One line on stderr."""
    print(f"bridge: {visible(redacted(text))}", file=sys.stderr, flush=True)


def detail(text: str) -> None:
    """A line that belongs to the note before it; indented, so that no text passes for a line of the log."""
    print(f"  | {visible(text)}", file=sys.stderr)


def flush() -> None:
    """Sends what was printed on its way; the OSError when stdout does not take it."""
    print(end="", flush=True)


def line(text: str) -> None:
    """One line on stdout."""
    print(visible(text))


def moment(tso: int) -> str:
    """A TSO with its wall-clock time."""
    return f"{tso} ({tso_time(tso)})"


def stopped(outcome: Outcome) -> None:
    """The last word of `bridge run`."""
    note(f"stopped; {in_the_target(outcome)}" if outcome.applied_ts else "stopped; nothing yet")
    for words in _not_replicated(outcome):
        note(words)


def _not_replicated(outcome: Outcome) -> Iterator[str]:
    for table, count in outcome.left_out.items():
        yield f"{count:,} row changes of {table} were left out: nothing is written to that database"
    for rule in outcome.unmatched:
        yield f"the filter rule {rule!r} matched no table that this run has applied or left out"


def in_the_target(outcome: Outcome) -> str:
    """What is there: a moment, or where the partitions have only their order, how far they go."""
    if outcome.by_partition:
        return f"each partition is in the target as far as it was applied, up to {moment(outcome.applied_ts)}"
    return f"everything below {moment(outcome.applied_ts)} is in the target"


def print_json(document: object) -> None:
    """One JSON document on stdout."""
    print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def log_status(status: Status) -> None:
    """The status line."""
    log.info("status", **status_fields(status))


def status_fields(status: Status) -> dict[str, Any]:
    """What the status line says, in its order."""
    return {
        "applied": moment(status.applied_ts),
        "source_lag_s": _seconds(status.source_lag),
        "apply_lag_s": _seconds(status.apply_lag),
        "rows_per_s": round(status.rows_per_second),
        "rows": status.rows,
        "backlog": status.backlog_rows,
        "late": status.late,
        "left_out": status.left_out,
        "quarantined": status.quarantined,
        "waiting_for": status.waiting_for,
    }


def _cell(text: str) -> Text:
    """Of a table; a plain string would be read as markup."""
    return Text(visible(text))


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


class ProgressBar:
    """The bar of a catch-up: messages, rows/s, lag, time left.  Plain lines where stderr is no terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("replay"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("replay", total=None, said="starting")
        self._average = 0.0
        self._began: tuple[float, int] | None = None

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, status: Status) -> None:
        """Shows how a running catch-up stands."""
        task = self._progress.tasks[0]
        done = min(status.messages, status.messages_total)
        left = f"ETA {eta:.0f} s" if (eta := self._eta(task.elapsed or 0.0, done, status)) is not None else ""
        said = (
            f"{done:,}/{status.messages_total:,} messages  {status.rows_per_second:,.0f} rows/s"
            f"  applied {tso_time(status.applied_ts)}  apply lag {_seconds(status.apply_lag)} s  {left}"
        )
        self._progress.update(self._task, total=status.messages_total or None, completed=done, said=said)

    def _eta(self, now: float, done: int, status: Status) -> float | None:
        if done == 0:
            return None
        if self._began is None:
            self._began = now, done
        began, before = self._began
        if done == before or now == began:
            return None
        return (status.messages_total - done) * (now - began) / (done - before)


class VerifyBar:
    """The bar of a verification: rows compared, rows/s, time left, and what it does or waits for."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("verify"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.completed:,.0f} rows  {task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("verify", total=None, said="connecting", rate="")

    def __enter__(self) -> VerifyBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, words: str) -> None:
        """What it does now, or waits for."""
        self._progress.update(self._task, said=visible(words))

    def plan(self, rows: int) -> None:
        """About how many rows there are."""
        self._progress.update(self._task, total=rows or None)

    def done(self, table: TableName, rows: int) -> None:
        """So many more rows of a table have been compared."""
        task = self._progress.tasks[0]
        rate = (task.completed + rows) / task.elapsed if task.elapsed else 0
        self._progress.update(self._task, advance=rows, said=visible(str(table)), rate=f"{rate:,.0f} rows/s")


def verification(report: Report, *, as_json: bool) -> None:
    """What a verification found."""
    if as_json:
        print_json(report.document())
        return
    grid = Table(title=f"Target against the {report.against}", title_justify="left")
    for heading in ("table", "rows", "chunks", "different", "missing", "extra", "not covered", "seconds", "result"):
        grid.add_column(heading, justify="left" if heading in {"table", "result"} else "right", no_wrap=True)
    tables = sorted(report.tables, key=lambda table: table.name)
    for table in tables:
        numbers = (table.rows, table.chunks, table.different, table.missing, table.extra, table.not_covered)
        grid.add_row(
            _cell(str(table.name)),
            *(f"{number:,}" for number in numbers),
            f"{table.seconds:.1f}",
            "equal" if table.is_equal else "DIFFERENT",
        )
    console = Console(highlight=False)
    console.width = max(console.width, _VERIFY_WIDTH)  # a cut name of a table names none
    console.print(grid)
    for table in tables:
        for words in table.schema:
            line(f"{table.name}: {words}")
        for row in table.shown:
            for words in row_lines(table.name, row):
                line(words)
        for words in table.notes:
            line(f"note: {table.name}: {words}")
    for words in report.notes:
        line(f"note: {words}")
    if report.moment:
        line(f"at applied_ts {moment(report.moment)}; the bridge was held for {report.held_seconds * 1000:.0f} ms")
    line(f"{'equal' if report.is_equal else 'DIFFERENT'} after {report.seconds:.1f} s")


def replay_summary(outcome: Outcome, until: int | None, *, as_json: bool) -> None:
    """What a catch-up did."""
    if outcome.interrupted:
        there = in_the_target(outcome) if outcome.applied_ts else "this command has applied nothing"
        note(f"interrupted before the end of the input; {there}; the same command goes on from there")
    if as_json:
        print_json({**asdict(outcome), "applied_time": tso_time(outcome.applied_ts)})
        return
    rate = outcome.rows / outcome.seconds if outcome.seconds else 0
    line(
        f"applied {outcome.rows:,} row changes and {outcome.schema_changes} schema changes"
        f" in {outcome.transactions:,} transactions, {outcome.seconds:.1f} s, {rate:,.0f} rows/s"
    )
    line(in_the_target(outcome))
    if outcome.rest:
        edge = "--until" if outcome.by_partition else "the last boundary, or above --until, and wait for it"
        line(f"{outcome.rest:,} row changes lie at or {'behind' if outcome.by_partition else 'above'} {edge}")
    for words in _not_replicated(outcome):
        line(words)
    if outcome.late:
        line(f"{outcome.late:,} changes came late and were dropped; run bridge verify")
    if outcome.quarantined:
        line(f"{outcome.quarantined:,} messages or rows were quarantined; `bridge quarantine list` shows them")
    if not outcome.until_reached and until is not None and not outcome.interrupted:
        lacking = "change" if outcome.by_partition else "boundary"
        note(f"--until {moment(until)} was not reached: the source has no {lacking} at or above it yet")


def pipeline_status(found: PipelineStatus, *, as_json: bool) -> None:
    """Progress, owner and schema changes of a pipeline."""
    if as_json:
        print_json(found.document())
        return
    lines = [(visible(name), value) for name, value in found.lines()]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        line(f"{name:<{width}}  {value}")


def schema_changes(entries: list[Entry], *, as_json: bool) -> None:
    """What became of schema changes, one line each, and what was changed of their words."""
    if as_json:
        print_json([entry.document() for entry in entries])
        return
    for entry in entries:
        line(f"{entry.id}  {tso_time(entry.commit_ts)}  {entry.state:<8}  {entry.schema}: {entry.statement}")
        if entry.run_text not in {"", entry.statement}:
            line(f"    run as: {entry.run_text}")
        _print_steps(entry.rewrites)
        if entry.replacement:
            line(f"    replaced by: {entry.replacement}")
        if entry.outcome not in {"", "ran"}:
            line(f"    {entry.outcome}")


def translations(found: list[Translation], *, as_json: bool) -> None:
    """How statements would run."""
    if as_json:
        print_json([translation.document() for translation in found])
        return
    for translation in found:
        line(f"{translation.verdict:<6}  {', '.join(translation.classes) or '-'}  {translation.statement}")
        if translation.reason:
            line(f"    {translation.reason}")
        if translation.text != translation.statement and not translation.reason:
            line(f"    run as: {translation.text or 'nothing'}")
        _print_steps(translation.steps)


def _print_steps(steps: tuple[Step, ...]) -> None:
    for before, after, why in steps:
        line(f"    {before or 'nothing'}  ->  {after or 'nothing'}  ({why})")


def findings(found: list[Finding], *, as_json: bool) -> None:
    """What `bridge check` found, one line each."""
    if as_json:
        print_json([asdict(finding) for finding in found])
        return
    for finding in found:
        said = finding.what + (f"  -> {finding.fix}" if finding.fix else "")
        line(f"{'ok ' if finding.ok else 'FIX'}  {redacted(said)}")


def quarantine_table(entries: list[StoredEntry]) -> None:
    """What was quarantined, one line each."""
    if not entries:
        line("nothing is quarantined")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "state", "position", "code", "table", "quarantined", "reason"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        name = f"{entry.change.schema}.{entry.change.table}" if entry.change else ""
        when = entry.put_at.isoformat(" ", "seconds")
        cells = (str(entry.id), entry.state, entry.where, entry.code, name, when, entry.reason)
        table.add_row(*map(_cell, cells))
    console = Console(highlight=False)
    console.print(table, width=None if console.is_terminal else _PLAIN_WIDTH, crop=False)


def quarantine_entry(entry: StoredEntry, events: list[dict[str, Any]]) -> None:
    """All of one entry, and what it decodes to now."""
    lines = [
        ("id", str(entry.id)),
        ("state", f"{entry.state} {entry.outcome}".strip()),
        ("position", entry.where),
        ("protocol", entry.protocol),
        ("commit ts", f"{'' if entry.change else 'not below '}{moment(entry.commit_ts)}"),
        ("quarantined", entry.put_at.isoformat(" ", "milliseconds")),
        ("code", entry.code),
        ("reason", entry.reason),
    ]
    if entry.change is None:
        lines += [("key", readable(entry.key)), ("value", readable(entry.value))]
    if entry.cut_bytes:
        lines.append(("cut", f"{entry.cut_bytes:,} bytes had no room in max_allowed_packet"))
    lines += [("decoded", orjson.dumps(event).decode()) for event in events]
    for name, value in lines:
        line(f"{name:<10} {value}")


def readable(content: bytes | None, most: int = 2000) -> str:
    """Bytes as text, what is no printable ASCII escaped; "null" for none."""
    if content is None:
        return "null"
    text = ascii(content[:most].decode("latin-1"))[1:-1]
    return f"{text} ({len(content):,} bytes)" if len(content) <= most else f"{text}... ({len(content):,} bytes)"


def quarantine_outcomes(outcomes: list[QuarantineOutcome]) -> None:
    """What a retry or a drop did, one line each, and how many."""
    for outcome in outcomes:
        line(f"{'done' if outcome.done else 'left'}  {outcome.id}  {outcome.where}  {outcome.why}")
    done = sum(outcome.done for outcome in outcomes)
    line(f"{done:,} done, {len(outcomes) - done:,} left as they are")


def topics(known: Mapping[str, str]) -> None:
    """The pages of the manual, one line each."""
    for name, what in known.items():
        line(f"{name:<16}{what}")
    line("")
    line("`bridge help TOPIC` prints a page; `bridge COMMAND --help` lists the flags of a command.")


def manual_page(text: str) -> None:
    """A page of the manual: laid out on a terminal, as the Markdown it is where it goes elsewhere."""
    console = Console()
    if console.is_terminal:
        from bridge.cli.page_layout import Page

        console.print(Page(text))
    else:
        print(text, end="")
