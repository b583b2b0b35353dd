"""The commands.  They read settings and show results; the work is done elsewhere.

Results go to stdout, logs to stderr.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from bridge import console
from bridge.cli import output
from bridge.cli.early_stop import CLEAN_STOPS, end_before_work
from bridge.cli.groups import config_app, ctl_app, ddl_app, quarantine_app
from bridge.cli.help_layout import UNKNOWN, Heading, command, page_app, page_of
from bridge.cli.options import (
    DECODING,
    INPUT,
    RUN,
    TARGET,
    AcceptChangeFlag,
    JsonFlag,
    TakeOverFlag,
    YesFlag,
    confirm,
    takes_settings,
)
from bridge.cli.pipeline_run import run_pipeline
from bridge.console import is_text
from bridge.errors import UnknownPipelineError, UsageError
from bridge.exits import exit_code

if TYPE_CHECKING:
    from bridge.config import Settings

REPLICATE: Final = "Replicate"
WATCH: Final = "Check and watch"
DECIDE: Final = "Decide"
LEARN: Final = "Learn"
STOPPED_EARLY: Final = (
    "stopped before the end, messages were quarantined, a schema change is held, or --until was not reached"
)
_GARBAGE_OBJECTS: Final = 50_000
"""The garbage collector looks after so many new objects, by default 700.  What a start imports is no garbage: to look
there took a tenth of the start's processor time (measured)."""
OWNED: Final = {4: "a schema change is held", 5: "another bridge owns the pipeline"}

app = page_app(
    "Replicates change messages from Kafka to a MySQL-compatible target: consistent, exactly once.",
    example="bridge config example ticdc-to-mysql > bridge.toml\nbridge check --config bridge.toml\nbridge run --config"
    " bridge.toml",
    exits={1: "different (verify, demo), or the pipeline is unknown", 4: STOPPED_EARLY, 5: OWNED[5]},
)
app.add_typer(config_app, name="config", rich_help_panel=LEARN)
app.add_typer(ctl_app, name="ctl", rich_help_panel=DECIDE)
app.add_typer(ddl_app, name="ddl", rich_help_panel=DECIDE)
app.add_typer(quarantine_app, name="quarantine", rich_help_panel=DECIDE)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        console.line(f"bridge {version('bridge')}")
        raise typer.Exit


@app.callback()
def _bridge(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Replicates change messages from Kafka to a MySQL-compatible target: consistent, exactly once."""


@command(
    app,
    "run",
    group=REPLICATE,
    example="bridge run --config bridge.toml",
    exits={0: "stopped by SIGTERM or Ctrl-C", **OWNED},
)
@takes_settings(*RUN, needs=("target", "source"))
def run(
    settings: Settings,
    take_over: TakeOverFlag = False,
    accept_change: AcceptChangeFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Replicates until stopped (SIGTERM or Ctrl-C ends it cleanly)."""
    if settings.source.input:
        raise UsageError("bridge run reads Kafka, not capture files", fix="use bridge replay --input")

    def follow(pipeline: Any) -> Any:
        return pipeline.follow(output.log_status, take_over=take_over, accepts_change=accept_change)

    outcome = run_pipeline(settings, follow, once=False, code=CLEAN_STOPS["run"])
    output.stopped(outcome, as_json=as_json)


@command(
    app,
    "replay",
    group=REPLICATE,
    example="bridge replay --input captures/ --target mysql://bridge@db:3306/",
    exits={4: STOPPED_EARLY, 5: OWNED[5]},
)
@takes_settings("name", "from_", "from_dump", "until", *INPUT, *RUN[7:], needs=("target", "source"))
def replay(
    settings: Settings,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="MOMENT",
            help="Stop when the target is as the upstream was just before this TSO or time.",
            rich_help_panel=Heading.PIPELINE,
        ),
    ] = None,
    take_over: TakeOverFlag = False,
    accept_change: AcceptChangeFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Catches up once: applies what is complete at the end of the input, which is looked up at the start.  When it is
    interrupted it ends with 4, and the same command continues."""
    from bridge.cli import progress_bars
    from bridge.tso import parse_moment

    limit = None if until is None else parse_moment(until)

    def catch_up(pipeline: Any) -> Any:
        with progress_bars.ProgressBar() as bar:
            return pipeline.catch_up(limit, bar.update, take_over=take_over, accepts_change=accept_change)

    outcome = run_pipeline(settings, catch_up, once=True, code=CLEAN_STOPS["replay"])
    output.replay_summary(outcome, limit, as_json=as_json)
    if outcome.interrupted or not outcome.until_reached or outcome.quarantined:
        raise typer.Exit(4)


@command(
    app,
    "verify",
    group=WATCH,
    example="bridge verify --against upstream --upstream mysql://reader@tidb:4000/ --target mysql://bridge@db:3306/",
    exits={0: "equal", 1: "different"},
)
@takes_settings("against", *TARGET, "max_load", "upstream", *INPUT, *DECODING, "fix_sql")
def verify(
    settings: Settings,
    against: Annotated[
        Literal["log", "upstream", "source"],
        typer.Option(
            "--against",
            metavar="log|upstream",
            help="What the target is compared with: the messages, or the upstream database.",
        ),
    ] = "log",
    fix_sql: Annotated[
        Path | None,
        typer.Option(
            "--fix-sql",
            metavar="FILE",
            dir_okay=False,
            help="Write the SQL that would fix the target to this file; it is not run.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compares the target with the messages, or with the upstream itself; ends with 0 when equal, 1 when different."""
    from bridge.cli import progress_bars
    from bridge.commands.connections import progress_of, protocol_of, source_of, target_of, upstream_of
    from bridge.verify.options import VerifyOptions

    options = VerifyOptions.of(settings, fix_file=fix_sql)
    with progress_bars.VerifyBar() as bar:
        target, table = target_of(settings), progress_of(settings)
        if against == "log":
            from bridge.verify.log.verification import LogVerification

            source = source_of(settings)
            protocol = protocol_of(settings, source, console.note)
            report = LogVerification(settings, target, source, protocol, table, options, bar).run()
        else:
            from bridge.verify.source.verification import SourceVerification

            report = SourceVerification(target, upstream_of(settings), table, options, bar).run()
    output.verification(report, as_json=as_json)
    if not report.is_equal:
        raise typer.Exit(1)


@command(app, "status", group=WATCH, example="bridge status --target mysql://bridge@db:3306/", exits=UNKNOWN)
@takes_settings(*TARGET)
def status(settings: Settings, as_json: JsonFlag = False) -> None:
    """Shows progress, lag, owner and schema changes of a pipeline, read from the target alone."""
    from bridge.commands.connections import progress_of, target_of
    from bridge.commands.status import read_status

    state = read_status(target_of(settings), progress_of(settings))
    if state is None:
        raise UnknownPipelineError(settings.name)
    output.pipeline_status(state, as_json=as_json)


@command(app, "reset", group=DECIDE, example="bridge reset --name orders --config bridge.toml", exits=UNKNOWN)
@takes_settings(*TARGET)
def reset(
    settings: Settings,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Remove only this topic; the pipeline continues without it."),
    ] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Deletes a pipeline's progress and its quarantine; the replicated tables stay as they are."""
    from bridge.commands.connections import progress_of, target_of
    from bridge.commands.status import forget_pipeline, forget_topic

    where, table = target_of(settings), progress_of(settings)
    what = f"the pipeline {settings.name!r}"
    if topic is not None:
        what = f"the topic {topic!r} of {what}"
    confirm(f"Forget all progress of {what} on {where}?", yes=yes)
    if not (forget_pipeline(where, table) if topic is None else forget_topic(where, table, topic)):
        raise UnknownPipelineError(settings.name)
    document = {"name": settings.name, "topic": topic, "forgotten": True}
    console.result(document, [f"forgot {what}"], as_json=as_json)


@command(
    app,
    "check",
    group=WATCH,
    example="bridge check --config bridge.toml",
    exits={2: "something must be fixed, or wrong usage or settings"},
)
@takes_settings(*RUN, "input", needs=())
def check(
    settings: Settings,
    take_over: TakeOverFlag = False,  # noqa: ARG001  # every flag of run; a check takes nothing over
    accept_change: AcceptChangeFlag = False,
    create: Annotated[
        bool, typer.Option("--create", help="Make the bridge's own database and tables; without it nothing is written.")
    ] = False,
    show: Annotated[
        bool,
        typer.Option("--show", help="Only print the settings in force, and where each was given; connect to nothing."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Looks for what would stop a pipeline: the source, the target, the upstream; one line each with the
    fix."""
    if show:
        output.settings_in_force(settings, as_json=as_json)
        return
    from bridge.commands.check.doctor import Doctor

    findings = list(Doctor(settings, accepts_change=accept_change).findings(create=create))
    output.findings(findings, as_json=as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(2)


@command(app, "setup", group=LEARN, example="bridge setup")
def setup(as_json: JsonFlag = False) -> None:
    """Makes an archive of Spark's classes, and compiles decoding, once for each user: bridges then start sooner."""
    from bridge.protocols.fast import loading  # noqa: F401  # which compiles them
    from bridge.spark.class_archive import make_archive

    archive = str(make_archive())
    console.result({"archive": archive}, [f"classes  {archive}"], as_json=as_json)


@command(app, "inspect", group=WATCH, example="bridge inspect --bootstrap-servers kafka:9092 --topic orders --limit 20")
@takes_settings(*INPUT, *DECODING, needs=("source",))
def inspect(
    settings: Settings,
    partition: Annotated[int | None, typer.Option("--partition", metavar="N", help="Show only this partition.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", metavar="N", min=0, help="Begin at this offset.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="How many messages are shown at most; 0 for all.")
    ] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Shows messages as they are decoded, and the reason where one cannot be decoded."""
    from bridge.commands.connections import source_of
    from bridge.commands.inspect import inspect as inspected
    from bridge.commands.inspect import table_lines

    records = inspected(source_of(settings), settings, partition=partition, offset=offset, limit=limit)
    document = [record.document() for record in records] if as_json else []
    console.result(document, table_lines(records), as_json=as_json)


@command(app, "demo", group=LEARN, example="bridge demo", exits={1: "target and upstream were different"})
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Continue to replicate until Ctrl-C.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Starts a Kafka and a MariaDB, replicates a bank, kills the bridge once, and compares target and upstream."""
    from bridge.cli.logs import configure_logs
    from bridge.demo import run_demo

    configure_logs()

    raise typer.Exit(run_demo(keep=keep, as_json=as_json))


@command(app, "help", group=LEARN, example="bridge help operating")
def help_(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="A page.  Without it, the pages are listed.")
    ] = None,
) -> None:
    """Prints a page of the manual: guarantees, operating, when-it-stops, settings and more."""
    from bridge.commands import manual

    if topic is None:
        behind = "`bridge help TOPIC` prints a page; `bridge COMMAND --help` lists the flags of a command."
        output.listed(manual.TOPICS, behind)
    else:
        output.manual_page(manual.page(topic))


def main(arguments: list[str] | None = None) -> None:
    """Runs the `bridge` command.  The manual (operating) lists its exit codes; an expected failure is one line."""
    gc.set_threshold(_GARBAGE_OBJECTS)
    words = sys.argv[1:] if arguments is None else arguments
    end_before_work(words)
    sys.exit(exit_code(lambda: _run_command(words)))


def _run_command(arguments: list[str]) -> None:
    if not all(map(is_text, arguments)):
        raise UsageError("an argument is not UTF-8", fix="write it in UTF-8")
    if "_BRIDGE_COMPLETE" in os.environ:
        app(prog_name="bridge")
    root = typer.main.get_command(app)
    if (page := page_of(root, arguments)) is not None:
        output.file_text(f"{page}\n")
        return
    with root.make_context("bridge", list(arguments)) as context:
        context.command.invoke(context)
