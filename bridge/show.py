"""What the commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson
import structlog
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from bridge.stream.status import Status, tso_time

if TYPE_CHECKING:
    from bridge.ops.check import Finding
    from bridge.ops.status import PipelineStatus
    from bridge.stream.job import Outcome

log = structlog.get_logger()


def note(text: str) -> None:
    """One line on stderr."""
    print(f"bridge: {text}", file=sys.stderr, flush=True)


def moment(tso: int) -> str:
    """A TSO with its wall-clock time."""
    return f"{tso} ({tso_time(tso)})"


def stopped(applied_ts: int) -> None:
    """The last word of `bridge run`."""
    note(f"stopped; everything below {moment(applied_ts)} is in the target" if applied_ts else "stopped; nothing yet")


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
        "quarantined": status.quarantined,
        "waiting_for": status.waiting_for,
    }


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


class ProgressBar:
    """The bar of a catch-up: messages, rows/s, lag, time left.  Plain lines where stderr is no terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[said]}"),
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


def replay_summary(outcome: Outcome, until: int | None, *, as_json: bool) -> None:
    """What a catch-up did."""
    if as_json:
        print_json({**asdict(outcome), "applied_time": tso_time(outcome.applied_ts)})
        return
    rate = outcome.rows / outcome.seconds if outcome.seconds else 0
    print(
        f"applied {outcome.rows:,} row changes and {outcome.schema_changes} schema changes"
        f" in {outcome.transactions:,} transactions, {outcome.seconds:.1f} s, {rate:,.0f} rows/s"
    )
    print(f"everything below {moment(outcome.applied_ts)} is in the target")
    if outcome.rest:
        print(f"{outcome.rest:,} row changes lie at or above the last boundary, or above --until, and wait for it")
    if outcome.late:
        print(f"{outcome.late:,} changes came late and were dropped; run bridge verify")
    if outcome.quarantined:
        print(f"{outcome.quarantined:,} messages or rows were put aside; `bridge quarantine list` shows them")
    if not outcome.until_reached and until is not None:
        note(f"--until {moment(until)} was not reached: the source has no boundary at or above it yet")


def pipeline_status(found: PipelineStatus, *, as_json: bool) -> None:
    """Progress, owner and schema changes of a pipeline."""
    if as_json:
        print_json(found.document())
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in found.lines():
        table.add_row(name, value)
    Console(soft_wrap=True, highlight=False).print(table)


def findings(found: list[Finding], *, as_json: bool) -> None:
    """What `bridge check` found, one line each."""
    if as_json:
        print_json([asdict(finding) for finding in found])
        return
    for finding in found:
        print(f"{'ok  ' if finding.ok else 'MEND'}  {finding.what}" + (f"  -> {finding.mend}" if finding.mend else ""))
