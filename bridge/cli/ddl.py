"""`bridge ddl`: the commands that show schema changes and decide about those that wait."""

from __future__ import annotations

from typing import Annotated

import typer

from bridge import console
from bridge.cli import output
from bridge.cli.options import DECODING, PIPELINE, TARGET, JsonFlag, stdin_text, takes_settings
from bridge.commands import ddl
from bridge.commands.connections import source_of, target_of
from bridge.config import Settings
from bridge.errors import UnknownPipelineError, UsageError
from bridge.filters.table_filter import TableFilter
from bridge.mysql.state.ddl_journal import OPEN, JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.protocols import DecodeOptions, recognise

app = typer.Typer(
    help="Shows schema changes, decides about those that wait, and shows how a statement would run on the target.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


ChangeArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The commit ts of the schema change, or its id as `bridge ddl list` shows it."),
]


@app.command("list")
@takes_settings(*TARGET)
def list_(
    settings: Settings,
    only_open: Annotated[
        bool, typer.Option("--open", help="Only schema changes that are held or were refused.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Lists the schema changes that ran, were left out, are held or were refused, in the order of the upstream."""
    found = ddl.entries(target_of(settings), ProgressTable(settings.name, settings.target.schema_name))
    if found is None:
        raise UnknownPipelineError(settings.name)
    output.schema_changes([entry for entry in found if entry.state in OPEN or not only_open], as_json=as_json)


@app.command()
@takes_settings("change", *TARGET)
def approve(
    settings: Settings,
    change: ChangeArgument,
) -> None:
    """Lets a held schema change run.  One that the target refused is tried again at the next start."""
    _release(settings, change, JournalState.APPROVED)


@app.command()
@takes_settings("change", *TARGET)
def skip(
    settings: Settings,
    change: ChangeArgument,
) -> None:
    """Skips a held or refused schema change; replication continues with what follows it."""
    _release(settings, change, JournalState.SKIPPED)


@app.command()
@takes_settings("change", "statement", *TARGET)
def replace(
    settings: Settings,
    change: ChangeArgument,
    statement: Annotated[str, typer.Argument(help="The statement to run, in the target's SQL; - reads it from stdin.")],
) -> None:
    """Runs another statement instead of a held or refused schema change."""
    text = stdin_text().strip() if statement == "-" else statement
    _release(settings, change, JournalState.REPLACED, text)


def _release(settings: Settings, change: str, state: JournalState, replacement: str = "") -> None:
    table = ProgressTable(settings.name, settings.target.schema_name)
    entry = ddl.release(target_of(settings), table, change, state, replacement)
    console.line(f"{entry.id} is {state}: {entry.statement}")


@app.command()
@takes_settings(*PIPELINE, "protocol", "input", "target", "flavour", "schema", *DECODING)
def translate(
    settings: Settings,
    flavour: Annotated[
        str | None,
        typer.Option(
            "--flavour", help="A server to translate for, instead of --target: mariadb-10.11, mysql-8.0, tidb-8.5..."
        ),
    ] = None,
    schema: Annotated[str, typer.Option("--schema", help="The current database of the statements on stdin.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Shows how statements, from stdin or from capture files (--input), would run on the target.  Runs nothing."""
    if settings.source.input:
        messages = [(message.key, message.value) for message in source_of(settings).messages(None, None)]
        protocol = recognise(messages)[0] if settings.protocol == "auto" else settings.protocol
        options = DecodeOptions(settings.timezone, TableFilter(settings.filter))
        changes = list(ddl.schema_changes(messages, protocol, options))
    else:
        changes = [(schema, statement) for statement in ddl.split(stdin_text())]
    if not changes:
        raise UsageError("there is no schema change to translate", fix="give statements on stdin, or --input")
    server = target_of(settings) if flavour is None else None
    with ddl.site_for(settings, server, flavour) as (rules, site):
        output.translations([ddl.translate(text, where, rules, site) for where, text in changes], as_json=as_json)
