"""The commands.  Thin: settings are read here, the work is done elsewhere; results go to stdout, logs to stderr."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge import show
from bridge.config import Settings, load_settings, parse_moment
from bridge.errors import BridgeError, UsageError
from bridge.filters import TableFilter
from bridge.logs import configure_logs
from bridge.protocols import DecodeOptions, make_decoder, recognise
from bridge.target.progress import ProgressTable
from bridge.target.session import Target

app = typer.Typer(
    help="Replicates change messages from Kafka to a MySQL-compatible target: consistent, exactly once.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

ConfigFlag = Annotated[Path | None, typer.Option("--config", help="Settings file (TOML, see conf/bridge.toml).")]
NameFlag = Annotated[str | None, typer.Option("--name", help="The pipeline.  [default: bridge]")]
ProtocolFlag = Annotated[
    str | None, typer.Option("--protocol", help="auto, canal-json or open-protocol.  [default: auto]")
]
ServersFlag = Annotated[str | None, typer.Option("--bootstrap-servers", help="Kafka, as host:port[,host:port].")]
TopicFlag = Annotated[list[str] | None, typer.Option("--topic", help="Kafka topic; may be repeated.")]
InputFlag = Annotated[str | None, typer.Option("--input", help="Capture file or folder, instead of Kafka.")]
TargetFlag = Annotated[
    str | None,
    typer.Option("--target", help="mysql://user@host:port/; the password comes from BRIDGE_TARGET_PASSWORD."),
]
FilterFlag = Annotated[
    list[str] | None, typer.Option("--filter", help="Table rule: db.table, with * ? [a-z], or !db.table; repeatable.")
]
ZoneFlag = Annotated[
    str | None, typer.Option("--timezone", help="Zone of TIMESTAMP values in the messages: a name or an offset.")
]
FromFlag = Annotated[str | None, typer.Option("--from", help="Where a new pipeline begins: earliest, a TSO or a time.")]
SetFlag = Annotated[list[str] | None, typer.Option("--set", help="Any other setting, as section.key=value.")]
ConsistencyFlag = Annotated[str | None, typer.Option("--consistency", help="atomic.  [default: atomic]")]
BadFlag = Annotated[str | None, typer.Option("--on-bad-message", help="stop or quarantine.  [default: stop]")]
TakeOverFlag = Annotated[bool, typer.Option("--take-over", help="Take the pipeline from a bridge that owns it.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def _settings(config: Path | None, assignments: list[str] | None, **flags: Any) -> Settings:
    return load_settings(config, os.environ, flags, assignments or [])


def _target(settings: Settings) -> Target:
    section = settings.target
    if not section.url:
        raise UsageError("there is no target", mend="give --target mysql://user@host:port/")
    return Target(section.url, password=section.password, password_file=section.password_file)


def _source(settings: Settings) -> Any:
    from bridge.stream.source import CaptureSource, KafkaSource

    source = settings.source
    if source.input:
        return CaptureSource(source.input)
    if not source.bootstrap_servers or not source.topics:
        raise UsageError(
            "there is no source", mend="give --bootstrap-servers and --topic, or --input for capture files"
        )
    return KafkaSource(source.bootstrap_servers, source.topics, source.kafka)


def _protocol(settings: Settings, source: Any) -> str:
    if settings.protocol != "auto":
        make_decoder(settings.protocol, DecodeOptions(settings.timezone))
        return settings.protocol
    protocol, reason = recognise(source.sample(100))
    show.note(f"protocol {protocol}: {reason}")
    make_decoder(protocol, DecodeOptions(settings.timezone))
    return protocol


def _job(settings: Settings) -> Any:
    from bridge.stream.job import Job

    TableFilter(settings.filter)
    parse_moment(settings.begin)
    target, source = _target(settings), _source(settings)
    job = Job(settings, target, source, _protocol(settings, source))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())
    return job


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
    take_over: TakeOverFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Replicates until stopped (SIGTERM or Ctrl-C ends it cleanly)."""
    settings = _settings(
        config, assignments, name=name, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic,
        target=target, consistency=consistency, filter=filters, timezone=timezone, **{"from": begin},
        on_bad_message=on_bad_message,
    )  # fmt: skip
    if settings.source.input:
        raise UsageError("bridge run follows Kafka; capture files have an end", mend="use bridge replay --input")
    outcome = _job(settings).follow(show.log_status, take_over=take_over)
    show.stopped(outcome.applied_ts)


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
    take_over: TakeOverFlag = False,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Catches up once: everything complete at the end of the input as seen at the start."""
    settings = _settings(
        config, assignments, name=name, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic,
        input=input_path, target=target, consistency=consistency, filter=filters, timezone=timezone,
        **{"from": begin}, on_bad_message=on_bad_message,
    )  # fmt: skip
    limit = parse_moment(until) if until else None
    job = _job(settings)
    with show.ProgressBar() as bar:
        outcome = job.catch_up(limit, bar.update, take_over=take_over)
    show.replay_summary(outcome, limit, as_json=as_json)
    if not outcome.until_reached or outcome.quarantined:
        raise typer.Exit(4)


@app.command()
def status(
    config: ConfigFlag = None,
    name: NameFlag = None,
    target: TargetFlag = None,
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Progress, lag, owner and schema changes of a pipeline, read from the target alone."""
    from bridge.ops.status import read_status

    settings = _settings(config, assignments, name=name, target=target)
    found = read_status(_target(settings), ProgressTable(settings.name, settings.target.schema_name))
    if found is None:
        raise UnknownPipelineError(settings.name)
    show.pipeline_status(found, as_json=as_json)


@app.command()
def reset(
    config: ConfigFlag = None,
    name: NameFlag = None,
    target: TargetFlag = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    assignments: SetFlag = None,
) -> None:
    """Forgets a pipeline's progress; the replicated tables stay as they are."""
    from bridge.ops.status import forget_pipeline

    settings = _settings(config, assignments, name=name, target=target)
    where = _target(settings)
    if not yes:
        typer.confirm(f"Forget all progress of the pipeline {settings.name!r} on {where}?", abort=True, err=True)
    if not forget_pipeline(where, ProgressTable(settings.name, settings.target.schema_name)):
        raise UnknownPipelineError(settings.name)
    print(f"forgot the pipeline {settings.name!r}")


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
    as_json: JsonFlag = False,
    assignments: SetFlag = None,
) -> None:
    """Settings, connections, privileges, server settings and a sample of the source; one line each with the mend."""
    from bridge.ops.check import check_all

    settings = _settings(
        config, assignments, name=name, protocol=protocol, bootstrap_servers=bootstrap_servers, topic=topic,
        input=input_path, target=target, filter=filters, timezone=timezone,
    )  # fmt: skip
    findings = check_all(settings, lambda: _target(settings), lambda: _source(settings))
    show.findings(findings, as_json=as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(2)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Stay and replicate on, until Ctrl-C.")] = False,
) -> None:
    """Starts a Kafka and a MariaDB, replicates a bank through them, is killed once, and compares the end."""
    from bridge.demo import run_demo

    raise typer.Exit(run_demo(keep=keep))


class UnknownPipelineError(BridgeError):
    """The pipeline is unknown on the target."""

    exit_code = 1

    def __init__(self, name: str) -> None:
        super().__init__(f"the target knows no pipeline {name!r}", mend="check --name and --target")


def main(arguments: list[str] | None = None) -> None:
    """The `bridge` command: exit codes and one-line errors as contract.md has them."""
    configure_logs()
    try:
        app(arguments)
    except BridgeError as error:
        show.note(str(error))
        sys.exit(error.exit_code)
