"""The commands.  Thin: settings are read here, the work is done elsewhere; results go to stdout, logs to stderr."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from bridge.cli import ddl, output, quarantine
from bridge.cli.options import (
    BadFlag,
    ConfigFlag,
    ConsistencyFlag,
    FilterFlag,
    FromFlag,
    InputFlag,
    JsonFlag,
    NameFlag,
    ProtocolFlag,
    ServersFlag,
    SetFlag,
    SourceFlag,
    TakeOverFlag,
    TargetFlag,
    TopicFlag,
    ZoneFlag,
    confirm,
    settings_of,
)
from bridge.commands import manual
from bridge.commands.connections import protocol_of, source_of, target_of, upstream_of
from bridge.config import Settings, parse_moment
from bridge.errors import BridgeError, UnknownPipelineError, UsageError
from bridge.exits import exit_code
from bridge.foreign_text import is_text
from bridge.logs import configure_logs
from bridge.mysql.state.progress import ProgressTable
from bridge.verify.options import Against, VerifyOptions, Watcher

app = typer.Typer(
    help="Replicates change messages from Kafka to a MySQL-compatible target: consistent, exactly once.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(ddl.app, name="ddl")
app.add_typer(quarantine.app, name="quarantine")


def _outcome(settings: Settings, work: Callable[[Any], Any]) -> Any:
    """Assembles a pipeline and lets it work.  A signal that comes before there is one ends the command at once, with
    the exit code that it would have later: nothing has begun."""
    stopped = threading.Event()
    _on_stop(lambda *_: stopped.set())  # a module that is half imported cannot be imported again
    from bridge.commands.replicate import assemble
    from bridge.pipeline.watching.outcome import Outcome

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    try:
        _on_stop(interrupt)
        if not stopped.is_set():
            pipeline = assemble(settings, output.note)
            _on_stop(lambda *_: pipeline.stop())
    except (BridgeError, KeyboardInterrupt):  # librdkafka may swallow the one, and then ends with the other
        if not stopped.is_set():
            raise
    return Outcome(applied_ts=0, interrupted=True) if stopped.is_set() else work(pipeline)


def _on_stop(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


@app.command()
def run(
    config: ConfigFlag = None,
    name: NameFlag = None,
    protocol: ProtocolFlag = None,
    bootstrap_servers: ServersFlag = None,
    topic: TopicFlag = None,
    target: TargetFlag = None,
    consistency: ConsistencyFlag = None,
    filters: FilterFlag = None,
    timezone: ZoneFlag = None,
    begin: FromFlag = None,
    on_bad_message: BadFlag = None,
    upstream: SourceFlag = None,
    take_over: TakeOverFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Replicates until stopped (SIGTERM or Ctrl-C ends it cleanly)."""
    settings = settings_of(
        config, assignments, name=name, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic,
        target=target, consistency=consistency, filter=filters, timezone=timezone, **{"from": begin},
        on_bad_message=on_bad_message, source=upstream,
    )  # fmt: skip
    if settings.source.input:
        raise UsageError("bridge run follows Kafka; capture files have an end", fix="use bridge replay --input")
    output.stopped(_outcome(settings, lambda pipeline: pipeline.follow(output.log_status, take_over=take_over)))


@app.command()
def replay(
    config: ConfigFlag = None,
    name: NameFlag = None,
    protocol: ProtocolFlag = None,
    bootstrap_servers: ServersFlag = None,
    topic: TopicFlag = None,
    input_path: InputFlag = None,
    target: TargetFlag = None,
    consistency: ConsistencyFlag = None,
    filters: FilterFlag = None,
    timezone: ZoneFlag = None,
    begin: FromFlag = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Stop with the target as the upstream was below this TSO or time.")
    ] = None,
    on_bad_message: BadFlag = None,
    upstream: SourceFlag = None,
    take_over: TakeOverFlag = False,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Catches up once: everything complete at the end of the input as seen at the start.  Interrupted, it ends with 4
    and the same command goes on."""
    settings = settings_of(
        config, assignments, name=name, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic,
        input=input_path, target=target, consistency=consistency, filter=filters, timezone=timezone,
        **{"from": begin}, on_bad_message=on_bad_message, source=upstream,
    )  # fmt: skip
    limit = parse_moment(until) if until else None

    def catch_up(pipeline: Any) -> Any:
        with output.ProgressBar() as bar:
            return pipeline.catch_up(limit, bar.update, take_over=take_over)

    outcome = _outcome(settings, catch_up)
    output.replay_summary(outcome, limit, as_json=as_json)
    if outcome.interrupted or not outcome.until_reached or outcome.quarantined:
        raise typer.Exit(4)


@app.command()
def verify(
    config: ConfigFlag = None,
    name: NameFlag = None,
    target: TargetFlag = None,
    against: Annotated[Against, typer.Option("--against", help="What the target is compared with.")] = Against.LOG,
    source: SourceFlag = None,
    protocol: ProtocolFlag = None,
    bootstrap_servers: ServersFlag = None,
    topic: TopicFlag = None,
    input_path: InputFlag = None,
    filters: FilterFlag = None,
    timezone: ZoneFlag = None,
    fix_sql: Annotated[
        Path | None, typer.Option("--fix-sql", help="Write what would fix the target to this file; it is not run.")
    ] = None,
    max_load: Annotated[
        list[str] | None, typer.Option("--max-load", help="Wait while a status variable is higher: Threads_running=25.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Do not read again what an interrupted verify had found equal: ranges of keys or of an index, or"
            " whole tables without either.",
        ),
    ] = False,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Compares the target with the messages, or with the upstream itself: 0 equal, 1 different."""
    settings = settings_of(
        config, assignments, name=name, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic,
        input=input_path, target=target, filter=filters, timezone=timezone, source=source,
        max_load=max_load,
    )  # fmt: skip
    options = VerifyOptions.of(settings, fix_file=fix_sql, resume=resume)
    with output.VerifyBar() as bar:
        report = VERIFICATIONS[against](settings, options, bar).run()
    output.verification(report, as_json=as_json)
    if not report.is_equal:
        raise typer.Exit(1)


def _against_source(settings: Settings, options: VerifyOptions, watcher: Watcher) -> Any:
    from bridge.verify.source.verification import SourceVerification

    table = ProgressTable(settings.name, settings.target.schema_name)
    return SourceVerification(target_of(settings), upstream_of(settings), table, options, watcher)


def _against_log(settings: Settings, options: VerifyOptions, watcher: Watcher) -> Any:
    from bridge.verify.log.verification import LogVerification

    target, source = target_of(settings), source_of(settings)
    table = ProgressTable(settings.name, settings.target.schema_name)
    protocol = protocol_of(settings, source, output.note)
    return LogVerification(settings, target, source, protocol, table, options, watcher)


VERIFICATIONS: Final = {Against.LOG: _against_log, Against.SOURCE: _against_source}


@app.command()
def status(
    config: ConfigFlag = None,
    name: NameFlag = None,
    target: TargetFlag = None,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Progress, lag, owner and schema changes of a pipeline, read from the target alone."""
    from bridge.commands.status import read_status

    settings = settings_of(config, assignments, name=name, target=target)
    found = read_status(target_of(settings), ProgressTable(settings.name, settings.target.schema_name))
    if found is None:
        raise UnknownPipelineError(settings.name)
    output.pipeline_status(found, as_json=as_json)


@app.command()
def reset(
    config: ConfigFlag = None,
    name: NameFlag = None,
    target: TargetFlag = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Take only this topic out; the pipeline goes on without it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    assignments: SetFlag = None,
) -> None:
    """Forgets a pipeline's progress and its quarantine; the replicated tables stay as they are."""
    from bridge.commands.status import forget_pipeline, forget_topic

    settings = settings_of(config, assignments, name=name, target=target)
    where, table = target_of(settings), ProgressTable(settings.name, settings.target.schema_name)
    what = f"the topic {topic!r} of the pipeline {settings.name!r}" if topic else f"the pipeline {settings.name!r}"
    confirm(f"Forget all progress of {what} on {where}?", yes=yes)
    if not (forget_topic(where, table, topic) if topic else forget_pipeline(where, table)):
        raise UnknownPipelineError(settings.name)
    output.line(f"forgot {what}")


@app.command()
def check(
    config: ConfigFlag = None,
    name: NameFlag = None,
    protocol: ProtocolFlag = None,
    bootstrap_servers: ServersFlag = None,
    topic: TopicFlag = None,
    input_path: InputFlag = None,
    target: TargetFlag = None,
    filters: FilterFlag = None,
    timezone: ZoneFlag = None,
    upstream: SourceFlag = None,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Settings, connections, privileges, server settings and a sample of the source; one line each with the fix."""
    from bridge.commands.check import check_all

    settings = settings_of(
        config, assignments, name=name, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic,
        input=input_path, target=target, filter=filters, timezone=timezone, source=upstream,
    )  # fmt: skip
    findings = check_all(
        settings, lambda: target_of(settings), lambda: source_of(settings), lambda: upstream_of(settings)
    )
    output.findings(findings, as_json=as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(2)


@app.command()
def inspect(
    config: ConfigFlag = None,
    protocol: ProtocolFlag = None,
    bootstrap_servers: ServersFlag = None,
    topic: TopicFlag = None,
    input_path: InputFlag = None,
    filters: FilterFlag = None,
    timezone: ZoneFlag = None,
    partition: Annotated[int | None, typer.Option("--partition", help="One partition only.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="From this offset on.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Most messages that are shown; 0 for all.")] = 100,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Shows messages as they are decoded, and why those that fail do."""
    from bridge.commands.inspect import inspect as inspected
    from bridge.commands.inspect_table import table_lines

    settings = settings_of(
        config, assignments, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic, input=input_path,
        filter=filters, timezone=timezone,
    )  # fmt: skip
    records = inspected(source_of(settings), settings, partition=partition, offset=offset, limit=limit)
    if as_json:
        output.print_json([record.document() for record in records])
        return
    for line in table_lines(records):
        output.line(line)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Stay and replicate on, until Ctrl-C.")] = False,
) -> None:
    """Starts a Kafka and a MariaDB, replicates a bank through them, is killed once, and compares the end."""
    from bridge.demo import run_demo

    raise typer.Exit(run_demo(keep=keep))


@app.command("help")
def help_(
    topic: Annotated[str | None, typer.Argument(help="A page; without one, the pages are listed.")] = None,
) -> None:
    """Prints a page of the manual: guarantees, operating, when-it-stops, settings and more."""
    if topic is None:
        output.topics(manual.TOPICS)
    else:
        output.manual_page(manual.page(topic))


def main(arguments: list[str] | None = None) -> None:
    """The `bridge` command: exit codes and one-line errors as contract.md has them."""
    configure_logs()
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(exit_code(lambda: _run_command(given)))


def _run_command(arguments: list[str]) -> None:
    if not all(map(is_text, arguments)):
        raise UsageError("an argument is not UTF-8", fix="write it in UTF-8")
    with typer.main.get_command(app).make_context("bridge", list(arguments)) as context:
        context.command.invoke(context)
