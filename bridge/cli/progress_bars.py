"""Progress of long work: bars on a terminal, lines of the log elsewhere."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Self

import structlog
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bridge.cli.output import seconds
from bridge.console import visible
from bridge.model import TableName
from bridge.pipeline.status import Status
from bridge.tso import tso_time

SECONDS: Final = 10.0
"""How often a line is written."""

log = structlog.get_logger()


class ProgressLines:
    """Logs the latest fields every SECONDS, from a thread of its own, for as long as the block lasts.

    event: the name of the line.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self._fields: dict[str, Any] = {"doing": "starting"}
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> ProgressLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def show(self, **fields: Any) -> None:
        """Takes fields for the next line; others stay as they are."""
        self._fields = {**self._fields, **fields}

    def _work(self) -> None:
        while not self._has_ended.wait(SECONDS):
            log.info(self._event, **self._fields)


class _InBlock:
    """What is shown in a block: a bar on a terminal, lines elsewhere."""

    def __init__(self, work: str, lines: ProgressLines, *columns: ProgressColumn, **fields: Any) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            *(TextColumn(work), BarColumn(), TaskProgressColumn(), *columns),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(work, total=None, **fields)
        self._lines = lines
        self._shown_lines: AbstractContextManager[object] = nullcontext() if console.is_terminal else lines

    def __enter__(self) -> Self:
        self._progress.start()
        self._shown_lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown_lines.__exit__(None, None, None)
        self._progress.stop()


class ProgressBar(_InBlock):
    """The bar of `bridge replay`, or its lines: messages, rows/s, lag, time left."""

    def __init__(self) -> None:
        super().__init__("replay", ProgressLines("replay_progress"), TimeRemainingColumn(), text="starting")

    def update(self, status: Status) -> None:
        """Shows the status of a running catch-up."""
        done, applied = min(status.messages, status.messages_total), tso_time(status.applied_ts)
        text = (
            f"{done:,}/{status.messages_total:,} messages  {status.rows_per_second:,.0f} rows/s"
            f"  applied {applied}  apply lag {seconds(status.apply_lag)} s"
        )
        self._progress.update(self._task, total=status.messages_total or None, completed=done, text=text)
        self._lines.show(
            doing=status.waiting_for or "applying",
            messages=done,
            of=status.messages_total,
            rows_per_s=round(status.rows_per_second),
            applied=applied,
            eta_s=self._progress.tasks[0].time_remaining,
        )


class VerifyBar(_InBlock):
    """The bar of `bridge verify`, or its lines: rows compared, rows/s, time left, what it is doing or waiting for."""

    def __init__(self) -> None:
        columns = TextColumn("{task.completed:,.0f} rows  {task.fields[rate]}"), TimeRemainingColumn()
        super().__init__("verify", ProgressLines("verify_progress"), *columns, text="connecting", rate="")

    def stage(self, words: str) -> None:
        self._progress.update(self._task, text=visible(words))
        self._lines.show(doing=words)

    def plan(self, rows: int) -> None:
        self._progress.update(self._task, total=rows or None)
        self._lines.show(about=rows)

    def done(self, table: TableName, rows: int) -> None:
        task = self._progress.tasks[0]
        rate = (task.completed + rows) / task.elapsed if task.elapsed else 0
        self._progress.update(self._task, advance=rows, text=visible(str(table)), rate=f"{rate:,.0f} rows/s")
        self._lines.show(table=str(table), rows=round(task.completed), rows_per_s=round(rate))
