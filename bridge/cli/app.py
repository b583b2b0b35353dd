"""The commands.  They read settings and show results; the work is done elsewhere.

Results go to stdout, logs to stderr.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from bridge import console
from bridge.cli import ddl, output, progress_bars, quarantine
from bridge.cli.options import (
    DECODING,
    INPUT,
    KAFKA,
    PIPELINE,
    TARGET,
    JsonFlag,
    TakeOverFlag,
    YesFlag,
    confirm,
    takes_settings,
)
from bridge.cli.stop_signals import StopSignals
from bridge.commands import manual
from bridge.commands.connections import protocol_of, source_of, target_of, upstream_of
from bridge.config import Settings, parse_moment
from bridge.errors import BridgeError, UnknownPipelineError, UsageError
from bridge.exits import exit_code
from bridge.foreign_text import is_text
from bridge.logs import configure_logs
from bridge.mysql.state.progress import ProgressTable
from bridge.verify.options import Against, ProgressListener, VerifyOptions

app = typer.Typer(
    help="Replicates change messages from Kafka to a MySQL-compatible target: consistent, exactly once.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(ddl.app, name="ddl")
app.add_typer(quarantine.app, name="quarantine")


def _run_pipeline(settings: Settings, work: Callable[[Any], Any], *, code: int) -> Any:
    """Assembles a pipeline and calls `work` with it; returns the outcome.  A signal ends it, with `code` if need be by
    force.

    A stop signal that arrives before the pipeline exists ends the command at once, since nothing has begun, with the
    exit code that a later signal would give.
    """
    stopped = threading.Event()
    # No exception from a signal may interrupt these imports: a module that is half imported cannot be imported again.
    _handle_signals(lambda *_: stopped.set())
    from bridge.commands.replicate import assemble
    from bridge.pipeline.watching.outcome import Outcome

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    try:
        _handle_signals(interrupt)
        if not stopped.is_set():
            pipeline = assemble(settings, console.note)
            _handle_signals(lambda *_: pipeline.stop())
    except (BridgeError, KeyboardInterrupt):  # librdkafka may turn a KeyboardInterrupt into its own error
        if not stopped.is_set():
            raise
    if stopped.is_set():
        return Outcome(applied_ts=0, interrupted=True)
    with StopSignals(pipeline.stop, pipeline.break_off, pipeline.clean_up, code=code):
        return work(pipeline)


def _handle_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


@app.command()
@takes_settings(*PIPELINE, *KAFKA, "target", "consistency", *DECODING, "from_", "on_bad_message", "source")
def run(
    settings: Settings,
    take_over: TakeOverFlag = False,
) -> None:
    """Replicates until stopped (SIGTERM or Ctrl-C ends it cleanly)."""
    if settings.source.input:
        raise UsageError("bridge run reads Kafka, not capture files", fix="use bridge replay --input")
    outcome = _run_pipeline(settings, lambda pipeline: pipeline.follow(output.log_status, take_over=take_over), code=0)
    output.stopped(outcome)


@app.command()
@takes_settings(*PIPELINE, *INPUT, "target", "consistency", *DECODING, "from_", "until", "on_bad_message", "source")
def replay(
    settings: Settings,
    until: Annotated[
        str | None,
        typer.Option("--until", help="Stop when the target is as the upstream was just before this TSO or time."),
    ] = None,
    take_over: TakeOverFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Catches up once: applies what is complete at the end of the input, which is looked up at the start.  When it is
    interrupted it ends with 4, and the same command continues."""
    limit = parse_moment(until) if until else None

    def catch_up(pipeline: Any) -> Any:
        with progress_bars.ProgressBar() as bar:
            return pipeline.catch_up(limit, bar.update, take_over=take_over)

    outcome = _run_pipeline(settings, catch_up, code=4)
    output.replay_summary(outcome, limit, as_json=as_json)
    if outcome.interrupted or not outcome.until_reached or outcome.quarantined:
        raise typer.Exit(4)


@app.command()
@takes_settings(*TARGET, "against", "source", *INPUT, *DECODING, "fix_sql", "max_load")
def verify(
    settings: Settings,
    against: Annotated[Against, typer.Option("--against", help="What the target is compared with.")] = Against.LOG,
    fix_sql: Annotated[
        Path | None,
        typer.Option("--fix-sql", help="Write the SQL that would fix the target to this file; it is not run."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Do not read again what an interrupted verify has found equal: ranges of keys or of an index, or"
            " whole tables that have neither.",
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compares the target with the messages, or with the upstream itself; ends with 0 when equal, 1 when different."""
    options = VerifyOptions.of(settings, fix_file=fix_sql, resume=resume)
    with progress_bars.VerifyBar() as bar:
        report = VERIFICATIONS[against](settings, options, bar).run()
    output.verification(report, as_json=as_json)
    if not report.is_equal:
        raise typer.Exit(1)


def _against_source(settings: Settings, options: VerifyOptions, listener: ProgressListener) -> Any:
    from bridge.verify.source.verification import SourceVerification

    table = ProgressTable(settings.name, settings.target.schema_name)
    return SourceVerification(target_of(settings), upstream_of(settings), table, options, listener)


def _against_log(settings: Settings, options: VerifyOptions, listener: ProgressListener) -> Any:
    from bridge.verify.log.verification import LogVerification

    target, source = target_of(settings), source_of(settings)
    table = ProgressTable(settings.name, settings.target.schema_name)
    protocol = protocol_of(settings, source, console.note)
    return LogVerification(settings, target, source, protocol, table, options, listener)


VERIFICATIONS: Final = {Against.LOG: _against_log, Against.SOURCE: _against_source}


@app.command()
@takes_settings(*TARGET)
def status(
    settings: Settings,
    as_json: JsonFlag = False,
) -> None:
    """Shows progress, lag, owner and schema changes of a pipeline, read from the target alone."""
    from bridge.commands.status import read_status

    found = read_status(target_of(settings), ProgressTable(settings.name, settings.target.schema_name))
    if found is None:
        raise UnknownPipelineError(settings.name)
    output.pipeline_status(found, as_json=as_json)


@app.command()
@takes_settings(*TARGET)
def reset(
    settings: Settings,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Remove only this topic; the pipeline continues without it.")
    ] = None,
    yes: YesFlag = False,
) -> None:
    """Deletes a pipeline's progress and its quarantine; the replicated tables stay as they are."""
    from bridge.commands.status import forget_pipeline, forget_topic

    where, table = target_of(settings), ProgressTable(settings.name, settings.target.schema_name)
    what = f"the topic {topic!r} of the pipeline {settings.name!r}" if topic else f"the pipeline {settings.name!r}"
    confirm(f"Forget all progress of {what} on {where}?", yes=yes)
    if not (forget_topic(where, table, topic) if topic else forget_pipeline(where, table)):
        raise UnknownPipelineError(settings.name)
    console.line(f"forgot {what}")


@app.command()
@takes_settings(*PIPELINE, *INPUT, "target", *DECODING, "source")
def check(
    settings: Settings,
    as_json: JsonFlag = False,
) -> None:
    """Checks settings, connections, privileges, servers and a sample of the source; one line each with the fix."""
    from bridge.commands.check import check_all

    findings = check_all(
        settings, lambda: target_of(settings), lambda: source_of(settings), lambda: upstream_of(settings)
    )
    output.findings(findings, as_json=as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(2)


@app.command()
@takes_settings("config", *INPUT, *DECODING)
def inspect(
    settings: Settings,
    partition: Annotated[int | None, typer.Option("--partition", help="Show only this partition.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Begin at this offset.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="How many messages are shown at most; 0 for all.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Shows messages as they are decoded, and the reason where one cannot be decoded."""
    from bridge.commands.inspect import inspect as inspected
    from bridge.commands.inspect_table import table_lines

    records = inspected(source_of(settings), settings, partition=partition, offset=offset, limit=limit)
    if as_json:
        console.print_json([record.document() for record in records])
        return
    for line in table_lines(records):
        console.line(line)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Continue to replicate until Ctrl-C.")] = False,
) -> None:
    """Starts a Kafka and a MariaDB, replicates a bank, kills the bridge once, and compares target and upstream."""
    from bridge.demo import run_demo

    raise typer.Exit(run_demo(keep=keep))


@app.command("help")
def help_(
    topic: Annotated[str | None, typer.Argument(help="A page.  Without it, the pages are listed.")] = None,
) -> None:
    """Prints a page of the manual: guarantees, operating, when-it-stops, settings and more."""
    if topic is None:
        output.topics(manual.TOPICS)
    else:
        output.manual_page(manual.page(topic))


def main(arguments: list[str] | None = None) -> None:
    """Runs the `bridge` command.  The manual (operating) lists its exit codes; an expected failure is one line."""
    configure_logs()
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(exit_code(lambda: _run_command(given)))


def _run_command(arguments: list[str]) -> None:
    if not all(map(is_text, arguments)):
        raise UsageError("an argument is not UTF-8", fix="write it in UTF-8")
    with typer.main.get_command(app).make_context("bridge", list(arguments)) as context:
        context.command.invoke(context)
