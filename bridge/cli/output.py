"""Prints the results of commands: tables, lists, the status line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from bridge import console
from bridge.console import readable, redacted, visible
from bridge.errors import counted
from bridge.phases import WORDS, shares
from bridge.tso import tso_time

if TYPE_CHECKING:
    from rich.text import Text

    from bridge.commands.check import Finding
    from bridge.commands.ddl import Translation
    from bridge.commands.quarantine import EntryOutcome
    from bridge.commands.status import PipelineStatus
    from bridge.config import Settings
    from bridge.ddl.rewrite import RewriteStep
    from bridge.mysql.state.ddl_journal import JournalEntry
    from bridge.mysql.state.quarantine import StoredEntry
    from bridge.pipeline.heartbeat import Outcome
    from bridge.pipeline.status import Status
    from bridge.verify.report import Report

_VERIFY_WIDTH = 132


def moment(tso: int) -> str:
    """Returns a TSO with its wall-clock time."""
    return f"{tso} ({tso_time(tso)})"


def stopped(outcome: Outcome, *, as_json: bool) -> None:
    """Prints the last line of `bridge run`."""
    console.result(_document(outcome), (), as_json=as_json)
    console.note(f"stopped; {in_the_target(outcome)}")
    for words in _not_replicated(outcome):
        console.note(words)


def _not_replicated(outcome: Outcome) -> Iterator[str]:
    for table, count in outcome.left_out.items():
        yield f"{count:,} row changes of {table} were left out: nothing is written to that database"
    for rule in outcome.unmatched:
        yield f"the filter rule {rule!r} matched no table that this run has applied or left out"


def in_the_target(outcome: Outcome) -> str:
    """Describes what is in the target: everything below a commit ts or, for topics without boundaries, how far the
    partitions were applied."""
    if outcome.applied_ts is None:
        return "`bridge status` tells what is in the target"
    if not outcome.applied_ts:
        return "nothing is in the target yet"
    if outcome.by_partition:
        return f"each partition is in the target as far as it was applied, up to {moment(outcome.applied_ts)}"
    return f"everything below {moment(outcome.applied_ts)} is in the target"


def log_status(status: Status) -> None:
    """Writes the status line to the log."""
    import structlog

    structlog.get_logger().info("status", **status_fields(status))


def status_fields(status: Status) -> dict[str, Any]:
    """Returns the fields of the status line, in their order."""
    return {
        "applied": moment(status.applied_ts),
        "source_lag_s": seconds(status.source_lag),
        "apply_lag_s": seconds(status.apply_lag),
        "rows_per_s": round(status.rows_per_second),
        "rows": status.rows,
        "backlog": status.backlog_rows,
        "late": status.late,
        "left_out": status.left_out,
        "quarantined": status.quarantined,
        "time_goes_to": shares(status.phases) or "?",
        "waiting_for": status.waiting_for,
    }


def _text_cell(text: str) -> Text:
    """Makes a cell of a table.  Given a plain string, rich would read it as markup."""
    from rich.text import Text

    return Text(visible(text))


def seconds(value: float | None) -> str:
    """Formats seconds with one decimal; "?" when they are not known."""
    return "?" if value is None else f"{value:.1f}"


def verification(report: Report, *, as_json: bool) -> None:
    """Prints what a verification found."""
    if not as_json:
        _print_grid(report)
    console.result(report.document(), _report_lines(report), as_json=as_json)


def _report_lines(report: Report) -> Iterator[str]:
    """Gives the lines below the grid: how the definitions of a table differ, its rows that differ, and notes."""
    from bridge.verify.report import row_lines

    for table in report.by_name:
        yield from (f"{table.name}: {words}" for words in table.schema)
        for row in table.first_rows:
            yield from row_lines(table.name, row)
        yield from (f"note: {table.name}: {words}" for words in table.notes)
    yield from (f"note: {words}" for words in report.notes)
    if report.moment:
        yield f"at applied_ts {moment(report.moment)}; the bridge was held for {report.held_seconds * 1000:.0f} ms"
    yield f"{'equal' if report.is_equal else 'DIFFERENT'} after {report.seconds:.1f} s"


def _print_grid(report: Report) -> None:
    """Prints a line for each table."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=f"Target against the {report.against}", title_justify="left")
    for heading in ("table", "rows", "chunks", "different", "missing", "extra", "not covered", "seconds", "result"):
        grid.add_column(heading, justify="left" if heading in {"table", "result"} else "right", no_wrap=True)
    for table in report.by_name:
        numbers = (table.rows, table.chunks, table.different, table.missing, table.extra, table.not_covered)
        cells = (*(f"{number:,}" for number in numbers), f"{table.seconds:.1f}", table.result)
        grid.add_row(_text_cell(str(table.name)), *cells)
    terminal = Console(highlight=False)
    terminal.width = max(terminal.width, _VERIFY_WIDTH)  # a table's name must not be cut off
    terminal.print(grid)


def _document(outcome: Outcome) -> dict[str, Any]:
    applied = outcome.applied_ts
    return {**asdict(outcome), "applied_time": None if applied is None else tso_time(applied)}


def replay_summary(outcome: Outcome, until: int | None, *, as_json: bool) -> None:
    """Prints what a catch-up did."""
    if outcome.interrupted:
        there = in_the_target(outcome)
        console.note(f"interrupted before the end of the input; {there}; the same command goes on from there")
    console.result(_document(outcome), _replay_lines(outcome), as_json=as_json)
    if as_json or outcome.applied_ts is None:
        return
    if not outcome.until_reached and until is not None and not outcome.interrupted:
        lacking = "change" if outcome.by_partition else "boundary"
        console.note(f"--until {moment(until)} was not reached: the source has no {lacking} at or above it yet")


def _replay_lines(outcome: Outcome) -> Iterator[str]:
    if outcome.applied_ts is None:
        return
    rate = outcome.rows / outcome.seconds if outcome.seconds else 0
    yield (
        f"applied {counted(outcome.rows, 'row change')} and {counted(outcome.schema_changes, 'schema change')}"
        f" in {counted(outcome.transactions, 'transaction')}, {outcome.seconds:.1f} s, {rate:,.0f} rows/s"
    )
    spent = [f"{name} {outcome.phases.get(phase, 0.0):.1f} s" for phase, name in WORDS.items()]
    start = f"start {outcome.seconds - sum(outcome.phases.values()):.1f} s"
    yield f"where the time went: {', '.join((start, *spent))}"
    yield in_the_target(outcome)
    if outcome.rest:
        edge = "--until" if outcome.by_partition else "the last boundary, or above --until, and wait for it"
        yield f"{outcome.rest:,} row changes lie at or {'behind' if outcome.by_partition else 'above'} {edge}"
    yield from _not_replicated(outcome)
    if outcome.late:
        yield f"{outcome.late:,} changes came late and were dropped; run bridge verify"
    if outcome.quarantined:
        yield f"{outcome.quarantined:,} messages or rows were quarantined; `bridge quarantine list` shows them"


def pipeline_status(status: PipelineStatus, *, as_json: bool) -> None:
    """Prints progress, owner and schema changes of a pipeline."""
    console.result(status.document(), aligned(status.lines()), as_json=as_json)


def aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Gives rows of cells as lines, each column as wide as its longest cell."""
    shown = [tuple(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def schema_changes(entries: list[JournalEntry], *, as_json: bool) -> None:
    """Prints the state of schema changes, one line each, and what was changed in their text."""
    lines = (line for entry in entries for line in _change_lines(entry))
    console.result([entry.document() for entry in entries], lines, as_json=as_json)


def _change_lines(entry: JournalEntry) -> Iterator[str]:
    yield f"{entry.id}  {tso_time(entry.commit_ts)}  {entry.state:<8}  {entry.schema}: {entry.statement}"
    if entry.run_text not in {"", entry.statement}:
        yield f"    run as: {entry.run_text}"
    yield from _steps(entry.rewrites)
    if entry.replacement:
        yield f"    replaced by: {entry.replacement}"
    if entry.outcome not in {"", "ran"}:
        yield f"    {entry.outcome}"


def translations(results: list[Translation], *, as_json: bool) -> None:
    """Prints how statements would run on the target."""
    lines = (line for translation in results for line in _translation_lines(translation))
    console.result([translation.document() for translation in results], lines, as_json=as_json)


def _translation_lines(translation: Translation) -> Iterator[str]:
    yield f"{translation.verdict:<6}  {', '.join(translation.classes) or '-'}  {translation.statement}"
    if translation.reason:
        yield f"    {translation.reason}"
    if translation.text != translation.statement and not translation.reason:
        yield f"    run as: {translation.text or 'nothing'}"
    yield from _steps(translation.steps)


def _steps(steps: tuple[RewriteStep, ...]) -> Iterator[str]:
    return (f"    {before or 'nothing'}  ->  {after or 'nothing'}  ({why})" for before, after, why in steps)


def findings(checks: list[Finding], *, as_json: bool) -> None:
    """Prints what `bridge check` found, one line each."""
    texts = (finding.what + (f"  -> {finding.fix}" if finding.fix else "") for finding in checks)
    lines = (f"{finding.level.upper():<4}  {redacted(text)}" for finding, text in zip(checks, texts, strict=True))
    console.result([asdict(finding) | {"ok": finding.ok} for finding in checks], lines, as_json=as_json)


def quarantine_lines(entries: list[StoredEntry]) -> Iterator[str]:
    """Tells what was quarantined, one line each."""
    if not entries:
        return iter(["nothing is quarantined"])
    rows = [("id", "state", "position", "code", "table", "quarantined", "reason")]
    for entry in entries:
        name = f"{entry.change.schema}.{entry.change.table}" if entry.change else ""
        when = entry.put_at.isoformat(" ", "seconds")
        rows.append((str(entry.id), entry.state, entry.where, entry.code, name, when, entry.reason))
    return aligned(rows)


def _commit_ts(entry: StoredEntry) -> str:
    if not entry.commit_ts:
        return "unknown"
    return moment(entry.commit_ts) if entry.change else f"not below {moment(entry.commit_ts)}"


def entry_lines(entry: StoredEntry, events: list[dict[str, Any]]) -> Iterator[str]:
    """Tells of one entry of the quarantine, and the events that it decodes to now."""
    lines = [
        ("id", str(entry.id)),
        ("state", f"{entry.state} {entry.outcome}".strip()),
        ("position", entry.where),
        ("protocol", entry.protocol),
        ("commit ts", _commit_ts(entry)),
        ("quarantined", entry.put_at.isoformat(" ", "milliseconds")),
        ("code", entry.code),
        ("reason", entry.reason),
    ]
    if entry.change is None:
        lines += [("key", readable(entry.key)), ("value", readable(entry.value))]
    if entry.cut_bytes:
        lines.append(("cut", f"{entry.cut_bytes:,} bytes were not kept: they did not fit into max_allowed_packet"))
    lines += [("decoded", orjson.dumps(event).decode()) for event in events]
    return (f"{name:<11} {value}" for name, value in lines)


def outcome_lines(outcomes: list[EntryOutcome]) -> Iterator[str]:
    """Tells what a retry or a drop did with each entry, one line each, and the totals."""
    for outcome in outcomes:
        yield f"{'done' if outcome.done else 'left'}  {outcome.id}  {outcome.where}  {outcome.why}"
    done = sum(outcome.done for outcome in outcomes)
    yield f"{done:,} done, {len(outcomes) - done:,} left as they are"


def settings_in_force(settings: Settings, *, as_json: bool) -> None:
    """Prints the settings, each with its origin."""
    from bridge.settings.load import effective_settings

    effective = list(effective_settings(settings))
    values = ("-" if setting.value is None else orjson.dumps(setting.value).decode() for setting in effective)
    lines = aligned((s.key, f"{value:<32}  {s.origin}") for s, value in zip(effective, values, strict=True))
    console.result([setting._asdict() for setting in effective], lines, as_json=as_json)


def listed(texts: Mapping[str, str], behind: str, *, as_json: bool = False) -> None:
    """Prints what has a name, one line each, and behind it how one of them is printed."""
    console.result(texts, (*aligned(texts.items()), "", behind), as_json=as_json)


def file_text(text: str) -> None:
    """Prints a file of the package as it is."""
    print(text, end="")


def manual_page(text: str) -> None:
    """Prints a page of the manual: laid out for a terminal, or as Markdown when stdout is none."""
    from rich.console import Console

    terminal = Console()
    if terminal.is_terminal:
        from bridge.cli.page_layout import Page

        terminal.print(Page(text))
    else:
        print(text, end="")
